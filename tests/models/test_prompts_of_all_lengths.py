"""A Hugging Face Llama under torch.compile: one compile for prompts of every length."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from dynamo_checks import ALL_COMPILED

from dplc.engine.run.calls import accepted
from dplc.engine.torch_backend import changes

transformers = pytest.importorskip("transformers")
LENGTHS = (5, 9, 17, 33, 2, 64, 100, 31, 128, 7)


def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.filterwarnings("error::dplc.engine.torch_backend.LengthWarning")
@ALL_COMPILED
@pytest.mark.parametrize("marked", [False, True], ids=["dynamic=True", "mark_dynamic"])
@pytest.mark.sampled(1)
def test_one_compile_serves_every_prompt(marked: bool, compiles: list[Any]) -> None:
    model = llama()
    wide = copy.deepcopy(model).double()
    served = torch.compile(model, backend="dplc", dynamic=None if marked else True)
    with torch.no_grad():
        for length in LENGTHS:
            tokens = torch.randint(0, 96, (1, length))
            if marked:
                torch._dynamo.mark_dynamic(tokens, 1)
            got, want, own = (each(tokens, use_cache=False).logits for each in (served, wide, model))
            assert accepted([got], [want], [own]), length
    (one,) = compiles
    assert len(one["made"].compilation.sizes) == 1


def test_an_and_of_masks_changes_nothing_in_place() -> None:
    """`operator.and_` ends like `_foreach_add_`, and is not a change."""

    def parts(function: Any, *args: Any) -> Any:
        found: list[Any] = []

        def backend(graph: Any, _: Any) -> Any:
            found.append(graph)
            return graph.forward

        torch._dynamo.reset()
        torch.compile(function, backend=backend)(*args)
        return found[0]

    mask = torch.tensor([True, False])
    assert not changes(parts(lambda a, b: a & b | b, mask, mask))
    assert changes(parts(lambda a, b: torch._foreach_add_([a], [b]), torch.ones(2), torch.ones(2)))
