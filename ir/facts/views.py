"""Views: loads that late atoms make themselves, when they multiply; and what a descriptor says of such a matrix.

Tensor cores find the elements of a matrix in shared memory by four numbers. In slabs of rows of 128 bytes that are
swizzled as TMA does it, a line of the matrix (a row of a, a column of b) runs along such a row of the slab, or across:

    along:  element (line, place) at  start + line // 8 * stride + line % 8 * 128 + place*item
    across: the same at  start + line // 64 * leading + line % 64 * item + place // 8 * stride + place % 8 * 128

before the swizzle takes its bits from the sum; across, elements have 2 bytes. The
emulator reads matrices by these numbers; for `across` they were compared with no manual and no hardware.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np

from ..atoms import ATOMS, WORD_BYTES, Atom, numbers
from ..expr import free_names, linear, multiple_of
from ..interp.scalar import evaluate
from ..loop import Load
from ..node import Expr, memoised
from ..program import Block, Kernel
from ..ranges import interval
from ..tile import Mma, Stage
from .fragments import operand_of
from .layout import ROW, cell_of, item_bytes, pitch, ranges_of, row_and_column, stages

REPEAT = 8 * ROW  # bytes after which a swizzle of 128 bytes comes again
STEP = 32  # bytes of a row that an atom reads


class MatrixView(NamedTuple):
    """A matrix in a slot of a slab. across: lines run across the rows of the slab; stride, leading: bytes."""

    across: bool
    stride: int
    leading: int


@memoised
def views_of(kernel: Kernel) -> frozenset[Load]:
    """The loads of slabs whose values nothing but late atoms read."""
    found: set[Load] = set()
    _find(kernel.body, stages(kernel).keys(), found)
    return frozenset(found)


def _find(block: Block, slabs: Container[str], found: set[Load]) -> None:
    for position, stmt in enumerate(block):
        if isinstance(stmt, Load) and stmt.buf in slabs:
            operand = operand_of(stmt.dst, block[position + 1 :])
            if operand is not None and operand.atom.late:
                found.add(stmt)
        elif hasattr(stmt, "body"):
            _find(stmt.body, slabs, found)


def matrix_view(kernel: Kernel, stage: Stage, load: Load, product: Mma, left: bool) -> MatrixView | None:
    """How a late atom finds the matrix that a load names; None where no descriptor says it. left: it is a."""
    atom, item = ATOMS[product.atom], item_bytes(kernel, stage)
    plain = stage.via == "TMA" and stage.swizzle == ROW and pitch(stage) * item == ROW and not stage.xor
    if not plain or item * atom.per_word != WORD_BYTES or load.when is not True:
        return None
    row, column = row_and_column(kernel, stage, cell_of(stage, load.idx))
    names = [axis.name for axis in product.axes]
    own: list[tuple[Expr, int]] = []
    beside: list[tuple[Expr, int]] = []
    for e, unit in ((row, ROW), (column, item)):
        terms, constant = linear(e)
        beside.append((constant, unit))
        for term, factor in terms.items():
            (own if free_names(term) <= set(names) else beside).append((term, factor * unit))
    if any(not free_names(term).isdisjoint(names) for term, _ in beside):
        return None
    found = _form(atom, names, own, left, item)
    return found if found is not None and _starts(kernel, beside, found.across) else None


def _form(atom: Atom, names: list[str], own: list[tuple[Expr, int]], left: bool, item: int) -> MatrixView | None:
    """The form that gives every element of the atom's matrix the place that the load gives it. item: bytes."""
    line, place = numbers(atom, atom.row if left else atom.b_column), numbers(atom, atom.place)
    grids = np.meshgrid(*(np.arange(extent) for _, extent in atom.axes), indexing="ij")
    env: dict[str, Any] = dict(zip(names, grids, strict=True))
    at = np.broadcast_to(sum((evaluate(term, env) * factor for term, factor in own), 0), line.shape)

    def where(one: int, other: int) -> int:
        """The bytes from the matrix's start to an element; 0 where the matrix does not have it."""
        chosen = at[(line == one) & (place == other)]
        return int(chosen[0]) if chosen.size else 0

    along = MatrixView(False, where(8, 0), 0)
    across = MatrixView(True, where(0, 8), where(64, 0))
    if np.array_equal(at, line // 8 * along.stride + line % 8 * ROW + place * item):
        return along
    if not atom.across:
        return None
    columns = line // 64 * across.leading + line % 64 * item
    return across if np.array_equal(at, columns + place // 8 * across.stride + place % 8 * ROW) else None


def _starts(kernel: Kernel, beside: list[tuple[Expr, int]], across: bool) -> bool:
    """Whether a matrix starts where the swizzle does, or, along a row, whole steps behind it."""
    known, most = ranges_of(kernel), 0
    for term, factor in beside:
        if isinstance(term, int):
            term, factor = 1, term * factor
        if factor * (1 if term == 1 else multiple_of(term)) % REPEAT == 0:
            continue
        low, high = interval(term, known)
        if across or factor % STEP or low < 0:
            return False
        most += factor * high
    return most <= ROW - STEP
