"""Weights that loading computes: folded or packed once, in float64, rounded once to their dtype.

What they were made of may change, also behind torch's back: writing `p.data` or a numpy view leaves no trace in the
tensor. So its contents are looked at before every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ...ir.interp import tensor as meaning
from ...ir.schemas import DTYPES
from ...ir.tensor import Input, Output, TensorGraph, postorder
from ..capture.constants import bits
from ..kernels.kernels import Prepared

WHOLE = 1 << 16  # bytes of a tensor on a device that are looked at one by one
SPREAD = 4096  # elements that are looked at of a larger one


class Preparation:
    """Prepared weights, computed when first asked for and again where a weight has changed.

    Compiles of parts of a size's range that prepare the same weight share it.
    """

    def __init__(self) -> None:
        self._kept: dict[Prepared, tuple[Any, Any]] = {}  # which tensors it was made of, and the tensor

    def now(self, prepared: Iterable[Prepared], tensors: Mapping[str, Any]) -> dict[str, Any]:
        """{name: tensor} of the prepared weights of a program, given the others."""
        return {each.input.name: self._made(each, tensors) for each in prepared}

    def forget(self) -> None:
        """Compute all of them again when they are next asked for."""
        self._kept.clear()

    def _made(self, each: Prepared, tensors: Mapping[str, Any]) -> Any:
        ins = tuple(term for term in postorder((each.value,)) if isinstance(term, Input))
        given = [tensors[x.name] for x in ins]
        version = tuple((id(t), t.data_ptr(), t._version, contents(t, t.is_cuda)) for t in given)
        known = self._kept.get(each)
        if known is not None and known[0] == version:
            return known[1]
        graph = TensorGraph("load", ins, (Output(each.input.name, each.input.axes, each.value),))
        data = {x.name: _array(t) for x, t in zip(ins, given, strict=True)}
        (value,) = meaning.run(graph, data, partial=True)  # a piece of a join is read within its own range alone
        made = torch.from_numpy(value.copy()).to(getattr(torch, DTYPES[each.input.dtype])).to(given[0].device)
        self._kept[each] = version, made
        return made


def contents(tensor: Any, on_device: bool) -> bytes:
    """A digest of a tensor: of all of it, or of elements spread over it where it is large and would have to be fetched.

    A single element of a weight on a device, written through `.data`, may be missed; a loader or an average may not.
    """
    flat = tensor.detach().reshape(-1)
    if on_device and flat.numel() * flat.element_size() > WHOLE:
        flat = flat[:: flat.numel() // SPREAD]
    return hashlib.blake2b(bits(flat), digest_size=16).digest()


def _array(tensor: Any) -> Any:
    plain = tensor.detach().cpu()
    plain = plain.double() if plain.dtype.is_floating_point else plain
    return plain.reshape([n for n in plain.shape if n != 1]).numpy()
