"""Models of many architectures with tiny sizes and made-up weights, as a user makes them: defaults kept.

The list is architectures.json beside this file; a page shows what dplc makes of each (examples/benches/coverage.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

LIST = Path(__file__).with_name("architectures.json")
ARCHITECTURES: dict[str, dict[str, Any]] = json.loads(LIST.read_text(encoding="utf-8"))
WORDS = 50


def model(name: str) -> Any:
    """In evaluation mode: a causal language model, an encoder alone, or the model without a head."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    entry = ARCHITECTURES[name]
    config = AutoConfig.for_model(entry["type"], **entry["config"])
    torch.manual_seed(0)
    made = (AutoModelForCausalLM if entry["head"] == "causal" else AutoModel).from_config(config).eval()
    return made.encoder if entry["head"] == "encoder" else made


def arguments(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of a call."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, WORDS, (2, 7), generator=draw)
    match ARCHITECTURES[name]["called"]:
        case "tokens":
            return (ids,), {}
        case "two texts":
            return (), {"input_ids": ids, "decoder_input_ids": ids[:, :4]}
        case "image":
            return (torch.randn(2, 3, 32, 32, generator=draw),), {}
        case "spectrum":
            return (torch.randn(2, 8, 32, generator=draw),), {}
        case "wave":
            return (torch.randn(2, 800, generator=draw),), {}
    raise ValueError(name)


def tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a result, caches included, in order."""
    leaves = torch.utils._pytree.tree_leaves(dict(result) if hasattr(result, "keys") else result)
    found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for cache in leaves:
        for layer in getattr(cache, "layers", ()):
            found += [x for x in (getattr(layer, "keys", None), getattr(layer, "values", None)) if x is not None]
    return found
