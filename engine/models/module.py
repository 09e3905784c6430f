"""A configuration as a module: every parameter on the meta device, so that a model of any size takes no memory.

What a configuration alone determines (the frequencies of rotary embeddings: buffers that no weight file holds) has its
values at once, and folds when the model is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.schemas import DTYPES
from .sources import ModelSource, quiet
from .weights import Pieces

# Fields that are no part of the model: transformers takes scaled_dot_product_attention wherever an architecture has it.
_SAID_ELSEWHERE = frozenset(("model_type", "auto_map", "_attn_implementation", "attn_implementation"))


def build(source: ModelSource, dtype: str = "f32", layers: int | None = None) -> Any:
    """The model of a configuration, in evaluation mode, on the meta device: of the class that it names, else the causal
    language model of its architecture, else the model without a head.

    dtype: of its parameters, one of COMPUTING_FLOATS. layers: how many of its blocks to keep, None for all. Raises
    DplcError for an architecture that is unknown, and for a configuration that it does not accept.
    """
    config = _configuration(source, layers)
    made = _class(source, config)
    try:
        with torch.device("meta"), quiet():
            model = made._from_config(config, dtype=getattr(torch, DTYPES[dtype]))
    except Exception as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DplcError(f"the configuration of {source.name} does not make a model", notes=(text,)) from None
    model.eval().requires_grad_(False)
    _derive_buffers(model)
    return model


def names_of(model: Any) -> dict[int, tuple[str, ...]]:
    """{id of a parameter or persistent buffer: its names in weight files}. Tied ones have several, and so have those
    that transformers renames when it loads a file."""
    found: dict[int, tuple[str, ...]] = {}
    older = _older_names(model)
    for name, tensor in model.state_dict(keep_vars=True).items():
        found[id(tensor)] = (*found.get(id(tensor), ()), name, *older(name))
    return found


def pieces_of(model: Any) -> Callable[[str, tuple[int, ...]], Pieces]:
    """What files may have in the stead of a weight, by its name and shape: a matrix for each expert, by transformers'
    own table of conversions. Empty where that knows of none, or of another way to make it."""
    older = _older_names(model)
    steps = [(step, _ways(step)) for step in _conversions(model, "WeightConverter") if len(step.target_patterns) == 1]

    def pieces(name: str, shape: tuple[int, ...]) -> Pieces:
        for step, ways in steps:
            end, sources = step.target_patterns[0], step.source_patterns
            if name.endswith(end) and ways == STACKED[: 1 + (len(sources) > 1)]:
                before = name.removesuffix(end)
                rows = [[before + source.replace("*", str(n)) for n in range(shape[0])] for source in sources]
                return tuple(tuple((piece, *older(piece)) for piece in row) for row in rows)
        return ()

    return pieces


STACKED = [("MergeModulelist", 0), ("Concatenate", 1)]  # the one way that `weights.load` knows, or the first step alone


def _ways(step: Any) -> list[tuple[str, int | None]]:
    """What a conversion does, in order, by transformers' names, and along which dimension."""
    return [(type(way).__name__, getattr(way, "dim", None)) for way in step.operations]


def _conversions(model: Any, kind: str) -> list[Any]:
    """The steps of transformers' table for a model that are of a kind: WeightRenaming, WeightConverter."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping

        steps = get_model_conversion_mapping(model, add_legacy=False)
    except (ImportError, AttributeError, TypeError, ValueError):  # another version of transformers
        return []
    return [step for step in steps if type(step).__name__ == kind]


def _older_names(model: Any) -> Callable[[str], Iterator[str]]:
    """What files may call a weight instead, by transformers' own table of renamings: by one of them, or by several."""
    back = [step.reverse_transform() for step in _conversions(model, "WeightRenaming")][::-1]

    def older(name: str) -> Iterator[str]:
        yield from (before for step in back if (before := step.rename_source_key(name)[0]) != name)
        before = name
        for step in back:
            before = step.rename_source_key(before)[0]
        if before != name:
            yield before

    return older


def _configuration(source: ModelSource, layers: int | None) -> Any:
    """transformers' own configuration object."""
    try:
        from transformers import CONFIG_MAPPING, AutoConfig
    except ImportError as error:
        raise DplcError("models need transformers", notes=(str(error),), hint="pip install 'dplc[hub]'") from None
    kind = source.model_type
    if kind not in CONFIG_MAPPING:
        hint = did_you_mean(kind, CONFIG_MAPPING.keys())
        raise DplcError(f"{source.name}: `{kind}` is no architecture that transformers knows", hint=hint)
    given = {key: value for key, value in source.config.items() if key not in _SAID_ELSEWHERE}
    if layers is not None:
        given.update(_fewer(source, layers))
    try:
        with quiet():
            config = AutoConfig.for_model(kind, **given)
    except Exception as error:
        text = " ".join(str(error).split())
        raise DplcError(f"the configuration of {source.name} is wrong", notes=(text,)) from None
    return config


def _class(source: ModelSource, config: Any) -> Any:
    """The class of a model, out of transformers' own tables: no name of a configuration is looked up elsewhere.

    Raises DplcError for an architecture that these have no model of.
    """
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.models.auto import modeling_auto

    tables = [t for name, t in vars(modeling_auto).items() if re.fullmatch("MODEL.*_MAPPING", name)]
    possible = {made.__name__: made for table in tables for made in _classes(table, type(config))}
    named = source.config.get("architectures")
    for name in named if isinstance(named, list) else ():
        if name in possible:
            return possible[name]
    usual = [] if getattr(config, "is_encoder_decoder", False) else [AutoModelForCausalLM]
    for auto in (*usual, AutoModel):
        if found := _classes(auto._model_mapping, type(config)):
            return found[0]
    raise DplcError(f"{source.name}: transformers has no model of the architecture `{source.model_type}`")


def _classes(table: Any, config: Any) -> tuple[Any, ...]:
    """What a table has for a class of configurations."""
    if config not in table:
        return ()
    found = table[config]
    return tuple(found) if isinstance(found, (list, tuple)) else (found,)


def _fewer(source: ModelSource, layers: int) -> dict[str, Any]:
    """The fields that say how many blocks there are, for fewer blocks."""
    present = source.config.get("num_hidden_layers")
    if not isinstance(present, int):
        raise DplcError(f"the configuration of {source.name} does not say how many layers there are")
    if not 1 <= layers <= present:
        raise DplcError(f"--layers {layers}: {source.name} has {present} layers")
    kinds = source.config.get("layer_types")
    return {"num_hidden_layers": layers} | ({"layer_types": kinds[:layers]} if isinstance(kinds, list) else {})


def _derive_buffers(model: Any) -> None:
    """Give buffers that no weight file holds the values that the configuration says, as `from_pretrained` does."""
    kept = model.state_dict(keep_vars=True).keys()
    for path, module in model.named_modules():
        own = dict(module.named_buffers(recurse=False))
        if not any(f"{path}.{name}" not in kept for name in own):
            continue
        for name, buffer in own.items():
            module._buffers[name] = torch.full_like(buffer, _unset(buffer.dtype), device="cpu")
        model._init_weights(module)
        made = module._buffers
        lost = [name for name in own if made[name].dtype is not torch.bool and _is_unset(made[name]).any()]
        if lost:
            raise DplcError(f"the values of the buffer `{path}.{lost[0]}` are not known from the configuration")


def _unset(dtype: torch.dtype) -> float | int | bool:
    """What stands where nothing has been written: no value that a configuration gives."""
    if dtype is torch.bool:
        return False
    return float("nan") if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).min


def _is_unset(values: Any) -> Any:
    return values.isnan() if values.is_floating_point() else values == _unset(values.dtype)
