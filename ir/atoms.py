"""Tables of MMA atoms: the shape of each instruction, and the matrix elements that each lane and register holds.

Four warps execute an asynchronous atom (`wgmma`) on operands in shared memory. Lane and register of such an operand
select the element of the shared-memory tile that the product reads. The left operand may also be in registers.

An atom adds a product of m x k by k x n. Its axes are those of lanes, of registers along rows and columns of the
result, and of registers along the reduction (`depth`). Four expressions over these axes define an atom: the row and
the column of a register of the result, which give the row of a, the column of b, and the index along the reduction,
which both operands share.

The table is `atoms.toml`. The meaning of `Mma`, the verifiers, the lowering, the model and the rules read this table.
None of them refers to an instruction by its name. Layouts are those of the PTX ISA, sections "Matrix
multiply-accumulate operation using mma" and "Asynchronous warpgroup level matrix operations".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .dtypes import toml_table
from .expr import Var

Axes = tuple[tuple[str, int], ...]  # names and extents
WORD_BYTES = 4  # a register of an operand
WITHIN = "w"  # the axis along the elements of a word, where it has several


class Spelling(NamedTuple):
    """Instructions that the assembler emits for one atom on machines that lack the atom, as read in its listings.

    products: `m16n8k16` instructions. additions: additions of their results on the fp32 pipe. conversions: per word of
    an operand, once for all products that read the word. sm, newest: the oldest and the newest such machine.
    """

    products: int
    additions: int
    conversions: int
    sm: int
    newest: int


class Atom(NamedTuple):
    """Shape, dtypes and register layout of one MMA instruction.

    m, n, k: elements. dtypes: of the operands. sums: dtype of the result. sm, newest: the oldest and the newest machine
    that has the atom.
    row, column: of a register of the result; row also serves a.
    b_column: column of b. The next expression is the index along the reduction, shared by a and b.
    a_order, b_order: axes of the words of an operand, slowest first, in the order of the instruction.
    mixed: whether the operands may have two different dtypes of `dtypes`.
    asynchronous: whether several warps multiply matrices in shared memory and a WaitMma completes the product. The left
    operand may then be in registers, in a_order.
    spelled: machines on which the assembler emits other instructions for the atom.
    """

    name: str
    m: int
    n: int
    k: int
    dtypes: tuple[str, ...]
    sums: str
    sm: int
    lanes: Axes
    registers: Axes
    depth: Axes
    row: str
    column: str
    b_column: str
    place: str
    a_order: tuple[str, ...]
    b_order: tuple[str, ...]
    mixed: bool = False
    asynchronous: bool = False
    newest: int | None = None
    spelled: tuple[Spelling, ...] = ()

    @property
    def axes(self) -> Axes:
        """All axes, in the order of `Mma.axes`."""
        return (*self.lanes, *self.registers, *self.depth)

    @property
    def result(self) -> int:
        """Number of axes of the result, which precede the reduction axes."""
        return len(self.lanes) + len(self.registers)

    @property
    def per_word(self) -> int:
        """The elements of a word of an operand."""
        return dict(self.depth).get(WITHIN, 1)

    @property
    def rows(self) -> tuple[str, ...]:
        """The axes that say which row of the left operand and of the result."""
        return tuple(term.partition("*")[0] for term in self.row.split(" + "))

    @property
    def across(self) -> bool:
        """Whether the matrix of an asynchronous atom may run across rows of its shared tile: elements have 2 bytes."""
        return self.per_word == 2

    def multiplies(self, left: str, right: str) -> bool:
        """Return whether there is an instruction for operands of these dtypes."""
        return {left, right} <= set(self.dtypes) and (left == right or self.mixed)

    def on(self, sm: int) -> bool:
        """Return whether a machine has the atom."""
        return self.sm <= sm <= (self.newest or sm)

    def spelling(self, sm: int) -> Spelling | None:
        """Return the instructions that replace the atom on a machine, or None if the machine has the atom."""
        return next((other for other in self.spelled if other.sm <= sm <= other.newest), None)

    def words(self, order: tuple[str, ...]) -> int:
        """Return the number of words of an operand."""
        sizes = dict(self.axes)
        return math.prod(sizes[name] for name in order)


def _field(value: Any) -> Any:
    """Return a field of an atom for a value of `atoms.toml`: pairs for a table of axes, a tuple for a list."""
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, list):
        return tuple(Spelling(**part) if isinstance(part, dict) else part for part in value)
    return value


def _atoms(name: str, columns: list[int], registers: dict[str, int], **entry: Any) -> Iterator[Atom]:
    """Yield the atoms of an entry of `atoms.toml`, one for each number of columns."""
    fields = {field: _field(value) for field, value in entry.items()}
    for n in columns:
        sixteens = {"q": n // 16} if fields.get("asynchronous") else {}
        yield Atom(name.format(n), n=n, registers=_field(sixteens | registers), **fields)


ATOMS: dict[str, Atom] = {
    atom.name: atom for name, entry in toml_table(__package__, "atoms").items() for atom in _atoms(name, **entry)
}


class AtomRecord(NamedTuple):
    """MMA atom as rules see it, with the extents of its axes by name: 1 for an axis that the atom does not have."""

    name: Var
    dtypes: tuple[Var, ...]
    sums: Var
    asynchronous: bool
    across: bool
    m: int
    n: int
    k: int
    g: int
    t: int
    h: int
    v: int
    u: int
    w: int = 1
    p: int = 1
    q: int = 1
    s: int = 1


@functools.cache
def atoms_of(sm: int) -> tuple[AtomRecord, ...]:
    """Return the atoms that a machine has."""
    return tuple(
        AtomRecord(
            Var(atom.name), tuple(map(Var, atom.dtypes)), Var(atom.sums), atom.asynchronous, atom.across,
            atom.m, atom.n, atom.k, **dict(atom.axes),
        )
        for atom in ATOMS.values()
        if atom.on(sm)
    )  # fmt: skip


@functools.cache
def numbers(atom: Atom, layout: str) -> Any:
    """Return a layout as numbers, one dimension for each axis of the atom."""
    grids = np.meshgrid(*(np.arange(extent) for _, extent in atom.axes), indexing="ij")
    known = {name: grid for (name, _), grid in zip(atom.axes, grids, strict=True)}
    terms = (term.partition("*") for term in layout.split(" + "))
    return sum(known[name] * int(factor or 1) for name, _, factor in terms)


def multiplied(atom: Atom, a: Any, b: Any) -> Any:
    """Return the sums that an atom adds for two fragments.

    The last dimensions of the fragments are the axes of the atom, of extent 1 where a fragment does not vary. This
    function defines the meaning of every atom: scatter both operands to matrices, multiply, gather the result. Zeros
    and NaNs are multiplied like other elements, so infinities behave as in a sum of products. Operands have the dtype
    of the sums, in which integers wrap around.
    """
    count = len(atom.axes)
    sizes = [extent for _, extent in atom.axes]
    row, column, b_column, place = (numbers(atom, e) for e in (atom.row, atom.column, atom.b_column, atom.place))
    left = np.zeros((*a.shape[:-count], atom.m, atom.k), a.dtype)
    right = np.zeros((*b.shape[:-count], atom.k, atom.n), b.dtype)
    left[..., row, place] = np.broadcast_to(a, (*a.shape[:-count], *sizes))
    right[..., place, b_column] = np.broadcast_to(b, (*b.shape[:-count], *sizes))
    kept = tuple([slice(None)] * atom.result + [slice(0, 1)] * len(atom.depth))
    return (left @ right)[..., row[kept], column[kept]]
