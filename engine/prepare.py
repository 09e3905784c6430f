"""Weights that loading computes: folded or packed once, in float64, rounded once to their dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..ir.interp import tensor as meaning
from ..ir.schemas import DTYPES
from ..ir.tensor import Input, Output, TensorGraph, postorder
from .egraph.candidate import Prepared


class Preparation:
    """The prepared weights of a program, computed when first asked for and again where a weight has changed."""

    def __init__(self, prepared: Sequence[Prepared]):
        self.prepared = tuple(prepared)
        self._kept: dict[str, tuple[Any, Any]] = {}  # name -> (which tensors it was made of, the tensor)

    def now(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """{name: tensor} of all prepared weights, given the others."""
        return {each.input.name: self._made(each, tensors) for each in self.prepared}

    def _made(self, each: Prepared, tensors: Mapping[str, Any]) -> Any:
        ins = tuple(term for term in postorder((each.value,)) if isinstance(term, Input))
        given = [tensors[x.name] for x in ins]
        version = tuple((id(t), t.data_ptr(), t._version) for t in given)
        known = self._kept.get(each.input.name)
        if known is not None and known[0] == version:
            return known[1]
        graph = TensorGraph("load", ins, (Output(each.input.name, each.input.axes, each.value),))
        data = {x.name: _array(t) for x, t in zip(ins, given, strict=True)}
        (value,) = meaning.run(graph, data, partial=True)  # a piece of a join is read within its own range alone
        made = torch.from_numpy(value.copy()).to(getattr(torch, DTYPES[each.input.dtype])).to(given[0].device)
        self._kept[each.input.name] = version, made
        return made


def _array(tensor: Any) -> Any:
    plain = tensor.detach().cpu()
    plain = plain.double() if plain.dtype.is_floating_point else plain
    return plain.reshape([n for n in plain.shape if n != 1]).numpy()
