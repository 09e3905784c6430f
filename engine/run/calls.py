"""What a call runs: found once for arguments of some dtypes and shapes, and kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ...codegen.kernel import Program
from ...ir.program import Param
from ...ir.sizes import value_of
from ..compiler import Compilation
from .inputs import check_arguments, sizes_of_call

MOST_KEPT = 64  # kinds of arguments whose launches are kept, as many as a compile keeps of bindings


@dataclass(frozen=True)
class BoundCall:
    """What serves arguments of one kind. choose: the compile for such sizes; made when something is launched."""

    sizes: Mapping[str, int]
    choose: Callable[[Mapping[str, int]], Compilation]

    @cached_property
    def made(self) -> Compilation:
        return self.choose(self.sizes)

    @cached_property
    def program(self) -> Program:
        """Its launches: a static program's own, or those of a binding."""
        return self.made.at(self.sizes) if self.made.sizes else self.made.program

    @cached_property
    def arrays(self) -> tuple[tuple[str, tuple[int, ...], list[int]], ...]:
        """What the launches are given: names, shapes, and these without dimensions of size 1."""
        buffers = (*self.program.inputs, *self.program.constants)
        return tuple((b.name, tuple(b.shape), [n for n in b.shape if n != 1]) for b in buffers)

    @cached_property
    def results(self) -> tuple[tuple[Param, tuple[int, ...]], ...]:
        """The outputs in order, with torch's shapes."""
        pairs = zip(self.made.plan.outputs, self.made.plan.results, strict=True)
        return tuple((param, tuple(value_of(n, self.sizes) for n in kind.shape)) for param, kind in pairs)


class Calls:
    """The calls of a compiled function by kind: checked and bound when a kind comes first, looked up then.

    So a call of a program with sizes costs what one without costs.
    """

    def __init__(self, whole: Compilation, choose: Callable[[Mapping[str, int]], Compilation]):
        self._whole, self._choose = whole, choose
        self._kept: dict[Hashable, BoundCall] = {}

    def of(self, inputs: Mapping[str, Any]) -> BoundCall:
        """What serves these arguments, {input: tensor}. Raises DplcError for those that do not fit."""
        kind = self._kind(inputs)
        found = self._kept.get(kind)
        if found is None:
            sizes = sizes_of_call(self._whole.inputs_with_sizes, inputs)
            check_arguments(self._whole.captured, inputs, sizes)
            found = self.at(sizes)
            if kind is not None:
                if len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[kind] = found
        return found

    def at(self, sizes: Mapping[str, int]) -> BoundCall:
        return BoundCall(sizes, self._choose)

    def _kind(self, inputs: Mapping[str, Any]) -> Hashable | None:
        """Classes, layouts, dtypes and shapes; None where more is to be looked at, at every call."""
        if self._whole.captured.strides:
            return None
        kind = []
        for given in inputs.values():
            if not isinstance(given, torch.Tensor) or given.requires_grad or given.is_meta:
                return None
            kind.append(((type(given), given.layout, given.dtype), given.shape))
        return tuple(kind)
