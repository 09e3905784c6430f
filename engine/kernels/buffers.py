"""Where stored values live, and what a kernel stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir.expr import Axis
from ...ir.program import Param
from ...ir.tensor import Input, dtype


@dataclass(frozen=True)
class BufferLayout:
    """Where a stored value lives. dims: its dimensions; element (loops..) stands at `address`, one expression each."""

    name: str
    dtype: str
    dims: tuple[Axis, ...]
    loops: tuple[Axis, ...]
    address: tuple[Any, ...]

    @property
    def param(self) -> Param:
        return Param(self.name, self.dtype, tuple(axis.extent for axis in self.dims) or (1,))


@dataclass(frozen=True)
class Write:
    """A value that a kernel stores, where a guard over its loops holds."""

    value: Any
    buffer: BufferLayout
    guard: Any = True


def result_buffer(name: str, term: Any, dims: tuple[Axis, ...]) -> BufferLayout:
    """The plain layout: one dimension an axis, in this order."""
    return BufferLayout(name, dtype(term), dims, dims, dims)


def input_buffer(term: Input) -> BufferLayout:
    return BufferLayout(term.name, term.dtype, term.axes, term.axes, term.axes)
