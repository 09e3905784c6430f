"""Torch IR: the program as PyTorch captured it.

One statement per captured ATen op; names, order and defaults of fields are the schema's.
"""

from __future__ import annotations

from .node import Name, Node, Value
from .program import Param, Stmt, TensorType


class TorchOp(Stmt):
    """Captured op, `dst: f32[32, 64] = RmsNorm(x, normalized_shape=(64), weight=w, eps=1e-05)`.

    op: the ATen name in camel case. args: ((field, value), ...) in the schema's order, fields at their default left
    out. A value is a number, bool, text, None, `Var` (another value, or a dtype such as `f32`) or a tuple of these; the
    body of a loop (`Scan`) is a graph, whose names are those of no other value of the program.
    types: types of the results; several for ops that return several tensors (read with `Getitem`).
    """

    dst: Name
    op: Name
    args: Value
    types: tuple[TensorType, ...]


class TorchGraph(Node):
    """A captured function. outs: the values returned, in order, each with the type that torch gave it."""

    name: Name
    ins: tuple[Param, ...]
    outs: tuple[Param, ...]
    body: tuple[TorchOp, ...]
