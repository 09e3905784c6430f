"""The dtypes of values in a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..atoms import ATOMS
from ..expr import Binary, Call, Not, Var
from ..functions import opmath, promote, result_dtype
from ..loop import Accumulate, For, Let, Load, Merge
from ..node import memoised, nodes
from ..program import Block, Kernel, Param
from ..tile import Mma, Slab, Stage, Tile

INDEX = "i64"


@memoised
def value_dtypes(kernel: Kernel) -> dict[str, str]:
    """The dtype of every value, accumulator, axis and loop variable."""
    return block_dtypes((*kernel.ins, *kernel.outs), kernel.body)


def block_dtypes(params: Iterable[Param], block: Block) -> dict[str, str]:
    """The same of a block that reads some buffers; a name that it does not define counts as an index."""
    buffers = {param.name: param.dtype for param in params}
    for stage in nodes(block, Stage):
        buffers[stage.dst] = buffers[stage.src]
    buffers.update((slab.dst, slab.dtype) for slab in nodes(block, Slab))
    known: dict[str, str] = {}
    for stmt in nodes(block, Tile, For, Load, Let, Accumulate, Merge, Mma):
        if isinstance(stmt, Tile):
            known.update((axis.name, INDEX) for axis in stmt.axes)
        elif isinstance(stmt, For):
            known[stmt.var] = INDEX
        elif isinstance(stmt, Load):
            known[stmt.dst] = buffers[stmt.buf]
        elif isinstance(stmt, Let):
            known[stmt.dst] = expr_dtype(stmt.val, known)
        elif isinstance(stmt, Accumulate):
            known[stmt.acc] = opmath(expr_dtype(stmt.val, known))
        elif isinstance(stmt, Mma):
            known[stmt.acc] = ATOMS[stmt.atom].sums
        elif isinstance(stmt, Merge):
            known.update((acc, merged_dtype(stmt, known)) for acc in stmt.accs)
    return known


def merged_dtype(stmt: Merge, known: dict[str, str]) -> str:
    """The dtype of the parts of a tuple: f32, unless an operand is f64."""
    return opmath(promote("f32", *(expr_dtype(val, known) for val in stmt.vals)))


def expr_dtype(e: Any, known: dict[str, str]) -> str:
    """The dtype of an expression. Index arithmetic is i64; a literal number bends to the operands beside it."""
    kind = e.__class__
    if kind is Var:
        return known.get(e.name, INDEX)
    if kind is float:
        return "f32"
    if kind is bool or kind is Not:
        return "b8"
    if kind is Call:
        typed = [expr_dtype(a, known) for a in e.args if not isinstance(a, int | float)]
        literal = [expr_dtype(a, known) for a in e.args if isinstance(a, int | float)]
        if typed and all(a in ("b8", INDEX) for a in literal) and all(a not in ("b8",) for a in typed):
            literal = [promote(*typed)] * len(literal)
        mixed = iter(typed), iter(literal)
        return result_dtype(e.fn, *(next(mixed[isinstance(a, int | float)]) for a in e.args))
    if kind is Binary and e.op not in ("+", "-", "*", "//", "%", "^"):
        return "b8"
    return INDEX
