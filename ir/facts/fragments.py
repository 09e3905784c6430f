"""The operands of tensor cores: which loads they are, and which rows of a slab ldmatrix reads for them."""

from __future__ import annotations

from typing import NamedTuple

from ..atoms import ATOMS, WITHIN, WORD_BYTES, Atom
from ..expr import Var, add, floordiv, free_names, linear, modulo, multiply
from ..loop import Load
from ..node import Expr, nodes
from ..program import Block, Kernel, Stmt
from ..tile import Mma, Stage
from .layout import CHUNK, cell_of, item_bytes, row_and_column
from .structure import used_names

ROWS, COLUMNS = "rows", "columns"  # of a slab: what the words of a fragment run along


class FragmentOperand(NamedTuple):
    """An operand of an Mma. own: the Tile's axes by the names of the atom; order: those of its words, slowest first."""

    atom: Atom
    own: dict[str, str]
    order: tuple[str, ...]

    @property
    def within(self) -> tuple[str, ...]:
        """The axis along the elements of a word, if it has several."""
        return (self.own[WITHIN],) if WITHIN in self.own else ()

    @property
    def inner(self) -> tuple[str, ...]:
        """The registers of one fragment."""
        return (*(self.own[name] for name in self.order), *self.within)


def operands_of(stmt: Mma) -> tuple[FragmentOperand, FragmentOperand]:
    """Both operands of an Mma."""
    atom = ATOMS[stmt.atom]
    own = {name: axis.name for (name, _), axis in zip(atom.axes, stmt.axes, strict=True)}
    return FragmentOperand(atom, own, atom.a_order), FragmentOperand(atom, own, atom.b_order)


def operand_of(name: str, later: Block) -> FragmentOperand | None:
    """As what the statements behind a load multiply its value; None where something else reads it, too."""
    products = [stmt for stmt in nodes(later, Mma) if Var(name) in (stmt.a, stmt.b)]
    if not products or any(name in used_names(stmt) and not _only_multiplies(stmt, name) for stmt in later):
        return None
    wanted = [
        operand
        for stmt in products
        for e, operand in zip((stmt.a, stmt.b), operands_of(stmt), strict=True)
        if e == Var(name)
    ]
    return wanted[0] if all(operand == wanted[0] for operand in wanted) else None


def _only_multiplies(stmt: Stmt, name: str) -> bool:
    """Whether nothing in a statement but Mmas reads a value."""
    if isinstance(stmt, Mma):
        return True
    own = [getattr(stmt, field.name) for field in type(stmt).fields if field.name != "body"]
    inner = getattr(stmt, "body", ())
    return (
        bool(inner)
        and name not in free_names(tuple(own))
        and all(_only_multiplies(part, name) for part in inner if name in used_names(part))
    )


def matrix_form(kernel: Kernel, stage: Stage, stmt: Load, operand: FragmentOperand) -> str | None:
    """Whether words run along the rows of a slab (g is a row, t and w are neighbours) or across; None for neither."""
    atom, own, item = operand.atom, operand.own, item_bytes(kernel, stage)
    if item * atom.per_word != WORD_BYTES or stmt.when is not True or {"g", "t"} - own.keys():
        return None
    row_at, column_at = row_and_column(kernel, stage, cell_of(stage, stmt.idx))
    (row, _), (column, constant) = linear(row_at), linear(column_at)
    g, t = Var(own["g"]), Var(own["t"])
    along: dict[Expr, int] = {t: atom.per_word, **{Var(w): 1 for w in operand.within}}
    beside = [constant, stage.slab[-1].extent, stage.pad, *(n for e, n in column.items() if e not in (g, *along))]
    if any(number % (CHUNK // item) for number in beside):
        return None
    in_row, in_column = ({e: terms[e] for e in (g, *along) if e in terms} for terms in (row, column))
    if in_column == along and in_row == {g: 1}:
        return ROWS
    return COLUMNS if item == 2 and in_column == {g: 1} and in_row == along else None


def matrix_rows(operand: FragmentOperand, form: str) -> dict[str, Expr]:
    """What lanes and registers are for the address of a row: lane 8*m + r, which is 4*g + t, has row r of matrix m."""
    own, atom = operand.own, operand.atom
    g, t = own["g"], own["t"]
    row, matrix = add(multiply(modulo(Var(g), 2), 4), Var(t)), floordiv(Var(g), 2)
    images: dict[str, Expr] = {g: row, t: 0, **dict.fromkeys(operand.within, 0)}
    if form == COLUMNS:
        images = {g: 0, t: floordiv(row, atom.per_word), **dict.fromkeys(operand.within, modulo(row, atom.per_word))}
    stride, sizes = 1, dict(atom.axes)
    for name in reversed(operand.order):
        images[own[name]] = modulo(floordiv(matrix, stride), sizes[name])
        stride *= sizes[name]
    return images
