"""A causal language model as a captured program, and the weights it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ..capture.capture import Capture, capture
from ..capture.sizes import Dim
from .module import names_of
from .weights import WeightRequest


@dataclass(frozen=True)
class CapturedModel:
    """captured: the program; its parameters may be on the meta device. weights: {input of the graph: what it takes}."""

    captured: Capture
    weights: Mapping[str, WeightRequest]


def capture_logits(model: Any, length: int | Dim, batch: int | Dim = 1) -> CapturedModel:
    """The logits of `batch` sequences of `length` tokens: input_ids: i64[batch, length] -> f[batch, length, words].

    length, batch: numbers, or ranges of what is known at a call. Raises DplcError for what cannot be compiled.
    """
    if not isinstance(length, Dim) and length < 1:
        raise DplcError(f"a sequence of {length} tokens is nothing to compile for")
    extents = (batch, length)
    shape = [n.size().hint if isinstance(n, Dim) else n for n in extents]
    open_ = {place: n for place, n in enumerate(extents) if isinstance(n, Dim)}
    ids = torch.empty(shape, dtype=torch.long, device=next(model.parameters()).device)
    arguments = {"input_ids": ids, "use_cache": False, "return_dict": False}
    return capture_call(model, arguments, dynamic={"input_ids": open_} if open_ else None)


def capture_call(
    model: Any, arguments: Mapping[str, Any], function: Any = None, dynamic: Any = None
) -> CapturedModel:  # fmt: skip
    """The call `model(**arguments)`, or `function(**arguments)` of a function that uses the model.

    Tensors among the arguments are inputs. What the model's weight files hold are parameters; its other buffers follow
    from the configuration: they are constants, and fold. Weights stay as their files have them. dynamic: dimensions
    that are known at a call, as `dplc.compile` takes them.
    """
    try:
        captured = capture(function or model, (), arguments, dynamic)
    except DplcError as error:
        if "cpu and meta" not in error.what:
            raise
        what = "this model computes with a buffer that its configuration gives beside weights that are not loaded yet"
        hint = "load the model and compile that: dplc.compile(model, (input_ids,))"
        raise DplcError(what, error.span, (error.what,), hint) from None
    files = names_of(model)
    kinds = dict(captured.kinds)
    weights = {}
    for param in captured.graph.ins:
        tensor = captured.tensors[param.name]
        if kinds[param.name] == "input":
            continue
        if id(tensor) in files:
            weights[param.name] = WeightRequest(files[id(tensor)], param.dtype, tuple(map(int, param.shape)))
        else:
            kinds[param.name] = "constant"
    return CapturedModel(replace(captured, kinds=kinds, folds=False), weights)
