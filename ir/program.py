"""Units: kernels and graphs. A module is a tuple of kernels in launch order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from .node import Dtype, Expr, FieldNames, Name, Node

LEVELS = ("torch", "tensor", "loop", "tile", "kernel")  # of IR, as dumps name them


class TensorType(Node):
    """The type of a tensor: a dtype and one extent per dimension (torch's, size-1 dimensions included)."""

    dtype: Dtype
    shape: tuple[Expr, ...] = ()


class Param(Node):
    """A buffer that a unit reads or writes: `x: f32[32, 2048]`. A scalar has the shape `[1]` from Loop IR on."""

    name: Name
    dtype: Dtype
    shape: tuple[Expr, ...]


class BufferPart(Node):
    """A buffer that is one of the equal parts of another one, `whole`.

    In iteration `n` of a loop it is the part of number `(start + n*step) % parts`. The first iteration has the buffer
    `first` instead, if there is one. A step reads and writes the row of a stacked value of its number. What is carried
    lies in a buffer of two parts: a step reads one and writes the other.
    """

    param: Param
    whole: Name
    start: Expr
    step: int
    parts: Expr
    first: Name = ""


class Stmt(Node):
    """A statement."""


class Instruction(Stmt):
    """A statement that prints as `dst = Op(positional.., field=value)`.

    positional: by default all fields that have no default, in order, except `dst` and blocks.
    """

    positional: ClassVar[FieldNames] = ()


Block = tuple[Stmt, ...]


PRECISIONS = ("f32", "tf32")


class Kernel(Node):
    """One launch: Loop IR, Tile IR (the body is one Tile) or Kernel IR, as its statements determine.

    precision: to which tensor cores may round the operands of f32 products (`-> y: f32[8] in tf32`), one of PRECISIONS.
    A rule that builds kernels keeps the precision.
    """

    sticky = ("precision",)
    name: Name
    ins: tuple[Param, ...]
    outs: tuple[Param, ...]
    body: Block
    precision: Dtype = PRECISIONS[0]

    @property
    def params(self) -> tuple[Param, ...]:
        """Buffers of the launch, in the order of its arguments."""
        return *self.ins, *self.outs


Module = tuple[Kernel, ...]


def supplied(program: Sequence[Kernel]) -> tuple[Param, ...]:
    """Return the buffers that the caller of some kernels supplies.

    A kernel reads them, and no earlier kernel writes them.
    """
    found: dict[str, Param] = {}
    written: set[str] = set()
    for kernel in program:
        found |= {p.name: p for p in kernel.ins if p.name not in written and p.name not in found}
        written |= {p.name for p in kernel.outs}
    return tuple(found.values())


def delivered(program: Sequence[Kernel]) -> tuple[Param, ...]:
    """Return the buffers that some kernels write and none of them reads, or all written buffers if each is read."""
    read = {p.name for kernel in program for p in kernel.ins}
    made = tuple(p for kernel in program for p in kernel.outs)
    return tuple(p for p in made if p.name not in read) or made


def disagreements(program: Sequence[Kernel]) -> Iterator[str]:
    """Yield the buffers that two kernels declare differently: with another dtype, or another number of elements."""
    first: dict[str, tuple[Any, Param]] = {}
    for kernel in program:
        for param in kernel.params:
            memory = param.dtype, math.prod(param.shape)
            known, seen = first.setdefault(param.name, (memory, param))
            if known != memory:
                was, now = (f"{p.dtype}[{', '.join(map(str, p.shape))}]" for p in (seen, param))
                yield f"`{param.name}` is {now} to kernel `{kernel.name}`, and {was} to one above"
