"""A model as a captured program, and the weights it asks for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ..capture.capture import Capture, capture
from ..capture.sizes import Dim
from .inputs import TOKENS, called, extents
from .module import names_of, pieces_of
from .weights import WeightRequest


@dataclass(frozen=True)
class CapturedModel:
    """captured: the program; its parameters may be on the meta device. weights: {input of the graph: what it takes}."""

    captured: Capture
    weights: Mapping[str, WeightRequest]


def capture_results(model: Any, length: int | Dim, batch: int | Dim = 1) -> CapturedModel:
    """What a model gives for `batch` sequences of `length` tokens, for images, or for spectra: of a causal language
    model its logits, input_ids: i64[batch, length] -> f[batch, length, words].

    length, batch: numbers, or ranges of what is known at a call. Raises DplcError for what cannot be compiled.
    """
    if not isinstance(length, Dim) and length < 1:
        raise DplcError(f"a sequence of {length} tokens is nothing to compile for")
    parameter, given, dynamic = next(model.parameters()), dict[str, Any](), dict[str, Any]()
    for name, shape in extents(model, length, batch).items():
        hints = [n.size().hint if isinstance(n, Dim) else n for n in shape]
        dtype = torch.long if name == TOKENS else parameter.dtype
        given[name] = torch.empty(hints, dtype=dtype, device=parameter.device)
        if open_ := {place: n for place, n in enumerate(shape) if isinstance(n, Dim)}:
            dynamic[name] = open_
    part = called(model)
    return capture_call(model, {**given, **plain(part)}, part, dynamic or None)


def plain(part: Any) -> dict[str, bool]:
    """The arguments with which a model returns tensors and no cache."""
    cached = "use_cache" in inspect.signature(part.forward).parameters
    return {"return_dict": False, **({"use_cache": False} if cached else {})}


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
        if not {"cpu", "meta"} <= set(re.findall(r"\w+", error.what)):
            raise
        what = "this model computes with a buffer that its configuration gives beside weights that are not loaded yet"
        hint = "load the model and compile that: dplc.compile(model, (input_ids,))"
        raise DplcError(what, error.span, (error.what,), hint) from None
    files, pieces = names_of(model), pieces_of(model)
    kinds = dict(captured.kinds)
    weights = {}
    for param in captured.graph.ins:
        tensor = captured.tensors[param.name]
        if kinds[param.name] == "input":
            continue
        if id(tensor) in files:
            names, shape = files[id(tensor)], tuple(map(int, param.shape))
            weights[param.name] = WeightRequest(names, param.dtype, shape, pieces(names[0], shape))
        else:
            kinds[param.name] = "constant"
    return CapturedModel(replace(captured, kinds=kinds, folds=False), weights)
