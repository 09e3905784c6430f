"""Fragments: the operands of an Mma in words of registers, and the instruction.

An operand that is loaded from a slab comes by ldmatrix where rows of 16 bytes of the slab are rows of the atom's matrices
(or columns, of elements of 2 bytes): lane 8*m + r addresses row r of matrix m, so its address is the load's own with
other numbers for lanes and registers. Any other operand is packed into words, from the registers that it has.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir.atoms import ATOMS, Atom
from ...ir.expr import Var, add, floordiv, linear, modulo, multiply
from ...ir.facts.layout import cell_of, row_of
from ...ir.facts.structure import result_registers
from ...ir.facts.types import value_dtypes
from ...ir.kernel import Element, Fragment, LoadMatrix, Multiply, Pack
from ...ir.loop import Load
from ...ir.node import Expr, nodes
from ...ir.program import Block, Stmt
from ...ir.substitute import substitute
from ...ir.tile import Mma, Stage
from .lowering import Held, Lowering, Place, Words, fresh
from .ranges import ranging, tidied
from .registers import axes_of, in_registers, nest
from .slabs import element_bytes, slab_address
from .values import mentions

ROW_BYTES, ROWS, MOST = 16, 8, 4  # of a matrix; matrices of one instruction
ROWS_OF_SLAB, COLUMNS_OF_SLAB = "rows", "columns"


class Operand(NamedTuple):
    """An operand of an Mma. own: the Tile's axes by the names of the atom; order: those of its words, slowest first."""

    atom: Atom
    own: dict[str, str]
    order: tuple[str, ...]

    @property
    def inner(self) -> tuple[str, ...]:
        """The registers of one fragment."""
        return tuple(self.own[name] for name in (*self.order, self.atom.depth[-1][0]))


def operands_of(stmt: Mma) -> tuple[Operand, Operand]:
    """Both operands of an Mma."""
    atom = ATOMS[stmt.atom]
    own = {name: axis.name for (name, _), axis in zip(atom.axes, stmt.axes, strict=True)}
    return Operand(atom, own, atom.a_order), Operand(atom, own, atom.b_order)


def operand_of(name: str, at: Place) -> Operand | None:
    """As what the statements behind a load multiply its value; None where something else reads it, too."""
    later = at.block[at.position + 1 :]
    products = [stmt for stmt in nodes(later, Mma) if Var(name) in (stmt.a, stmt.b)]
    if not products or sum(mentions(stmt)[name] for stmt in later) != len(products):
        return None
    wanted = [
        operand
        for stmt in products
        for e, operand in zip((stmt.a, stmt.b), operands_of(stmt), strict=True)
        if e == Var(name)
    ]
    return wanted[0] if all(operand == wanted[0] for operand in wanted) else None


def lower_matrices(low: Lowering, stmt: Load, stage: Stage, operand: Operand, at: Place) -> Block | None:
    """The load of a fragment by ldmatrix; None where rows of the slab are no rows of its matrices."""
    form = matrix_form(low, stage, stmt, operand)
    if form is None:
        return None
    outer = tuple(axis for axis in axes_of(low, stmt.idx, at.bound) if axis not in operand.inner)
    each = operand.atom.words(operand.order)
    turns = {axis: low.replicated[axis] for axis in outer}
    words = Words(fresh(low, stmt.dst), axes_of(low, stmt.idx, at.bound), low.params[stage.src].dtype, outer, each)
    count, images = each, images_of(operand, form)
    if 2 * each <= MOST and outer and turns[outer[-1]] % 2 == 0:  # two neighbouring fragments at once
        pair, half = outer[-1], fresh(low, f"{outer[-1]}_pair")
        rest = floordiv(floordiv(Var(operand.own["g"]), 2), each)
        images[pair] = add(multiply(Var(half), 2), modulo(rest, 2))
        count, outer = 2 * each, (*outer[:-1], half)
        turns[half] = turns[pair] // 2
    own = {axis: turns[axis] for axis in outer if axis not in low.replicated}
    low.replicated.update(own)
    with ranging(low, {axis: (0, turns[axis] - 1) for axis in own}):
        idx = tuple(tidied(low, e) for e in substitute(stmt.idx, images))
        address = slab_address(low, stage, idx, f"{stmt.dst}_rd")
        into = Element(words.name, (multiply(place_in(turns, outer), count),))
        load = nest(low, outer, (LoadMatrix(into, address, count, int(form == COLUMNS_OF_SLAB)),))
    for axis in own:
        del low.replicated[axis]
    low.env[stmt.dst] = words
    return (declared(low, words), *load)


def images_of(operand: Operand, form: str) -> dict[str, Expr]:
    """What lanes and registers are for the address of a row: lane 4*g + t has row (4*g + t) % 8 of a matrix."""
    own, atom = operand.own, operand.atom
    g, t, w = own["g"], own["t"], own[atom.depth[-1][0]]
    row, matrix = add(multiply(modulo(Var(g), 2), 4), Var(t)), floordiv(Var(g), 2)
    images: dict[str, Expr] = {g: row, t: 0, w: 0}
    if form == COLUMNS_OF_SLAB:
        images = {g: 0, t: floordiv(row, atom.per_word), w: modulo(row, atom.per_word)}
    stride, sizes = 1, dict(atom.axes)
    for name in reversed(operand.order):
        images[own[name]] = modulo(floordiv(matrix, stride), sizes[name])
        stride *= sizes[name]
    return images


def matrix_form(low: Lowering, stage: Stage, stmt: Load, operand: Operand) -> str | None:
    """Whether words run along the rows of a slab (g is a row, t and w are neighbours) or across them."""
    atom, own, item = operand.atom, operand.own, element_bytes(low, stage)
    if item * atom.per_word != 4 or stmt.when is not True or {"g", "t"} - own.keys():
        return None
    cell = cell_of(stage, stmt.idx)
    (column, constant), (row, _) = linear(tidied(low, cell[-1])), linear(tidied(low, row_of(stage, cell)))
    g, t, w = Var(own["g"]), Var(own["t"]), Var(own[atom.depth[-1][0]])
    chunk = ROW_BYTES // item
    beside = (constant, stage.slab[-1].extent, stage.pad, *(n for e, n in column.items() if e not in (g, t, w)))
    if any(number % chunk for number in beside):
        return None
    along = {t: atom.per_word} | ({w: 1} if atom.per_word > 1 else {})
    if {e: column[e] for e in (g, t, w) if e in column} == along and row.get(g) == 1:
        return ROWS_OF_SLAB
    across = {e: row[e] for e in (t, w) if e in row} == along
    if item == 2 and {e: column[e] for e in (g, t, w) if e in column} == {g: 1} and across and g not in row:
        return COLUMNS_OF_SLAB
    return None


def lower_mma(low: Lowering, stmt: Mma, at: Place) -> Block:
    """An instruction for each fragment of the result, and for each step of what is summed along registers."""
    out: list[Stmt] = []
    places = []
    outer = [axis for axis in low.env[stmt.acc].axes if axis not in result_registers(stmt)]
    over = [axis for axis in low.replicated if axis in {axis.name for axis in stmt.over}]
    for e, operand in zip((stmt.a, stmt.b), operands_of(stmt), strict=True):
        words = low.env[e.name]
        if not isinstance(words, Words):
            made, words = packed(low, e, operand, at)
            out += made
        places.append(Element(words.name, (multiply(place_in(low.replicated, words.outer), words.each),)))
    held = low.env[stmt.acc]
    assert isinstance(held, Held)
    acc = Element(held.name, (*map(Var, outer), *(0 for _ in result_registers(stmt))))
    return (*out, *nest(low, (*over, *outer), (Multiply(acc, *places, stmt.atom),)))


def packed(low: Lowering, e: Var, operand: Operand, at: Place) -> tuple[Block, Words]:
    """A value in registers as words."""
    axes, atom = axes_of(low, e, at.bound), operand.atom
    outer = tuple(axis for axis in axes if axis not in operand.inner)
    order, within = operand.inner[:-1], operand.inner[-1]
    words = Words(fresh(low, f"{e.name}_words"), axes, value_dtypes(low.kernel)[e.name], outer, atom.words(operand.order))
    into = Element(words.name, (place_in(low.replicated, (*outer, *order)),))
    pack = Pack(into, tuple(in_registers(low, e, {within: n}) for n in range(atom.per_word)))
    return (declared(low, words), *nest(low, (*outer, *order), (pack,))), words


def declared(low: Lowering, words: Words) -> Fragment:
    """The registers of all fragments of an operand, one after the other."""
    total = words.each
    for axis in words.outer:
        total *= low.replicated[axis]
    return Fragment(words.name, words.dtype, total)


def place_in(extents: dict[str, int], axes: tuple[str, ...]) -> Expr:
    """The number of a fragment among all values of some axes."""
    place: Expr = 0
    for axis in axes:
        place = add(multiply(place, extents[axis]), Var(axis))
    return place
