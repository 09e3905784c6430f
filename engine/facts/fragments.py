"""What tensor cores can do of a schedule: which atoms multiply the operands of its products."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ir.atoms import ATOMS, WITHIN, Atom
from ...ir.expr import Call, Var
from ...ir.facts.layout import params, stages
from ...ir.facts.structure import summary
from ...ir.facts.types import value_dtypes
from ...ir.loop import Accumulate, For, Let, Load
from ...ir.program import Block, Kernel
from ...ir.tile import Stage
from ..language.facts import fact
from ..language.policy import policy


class AtomRecord(NamedTuple):
    """An atom as rules ask for it: its name, its m x n x k, the extents of its axes by name; w is 1 if it has none."""

    name: Var
    m: int
    n: int
    k: int
    g: int
    t: int
    h: int
    v: int
    u: int
    w: int


@fact("atoms(run) -> [record]", "tile")
def atoms(site: Any, body: Block) -> tuple[AtomRecord, ...]:
    """The atoms that can do every product of a run: sums of plain products of two operands, both from slabs."""
    slabs = {name for name, slab in stages(site.kernel).items() if isinstance(slab, Stage)}
    return tuple(map(_record, _atoms_of(site, body, slabs)))


@fact("for_atoms(run) -> bool", "tile")
def for_atoms(site: Any, body: Block) -> bool:
    """Whether there is an atom that can do so, once the operands are in slabs."""
    return bool(_atoms_of(site, body, {*params(site.kernel), *stages(site.kernel)}))


def _atoms_of(site: Any, body: Block, sources: set[str]) -> list[Atom]:
    loops = [loop for loop in summary(body).loops if loop.role == "reduce" and not summary(loop.body).loops]
    found = [_operand_dtypes(site.kernel, loop, sources) for loop in loops]
    return [
        atom
        for atom in ATOMS.values()
        if found and all(dtypes <= _multiplied(site, atom) and len(dtypes) == 1 for dtypes in found)
        if all(_turns(loop) % atom.k == 0 for loop in loops)
    ]


@fact("atoms_for(name, name) -> [record]", "tile")
def atoms_for(site: Any, left: Var, right: Var) -> tuple[AtomRecord, ...]:
    """The atoms that multiply two values, by their dtypes."""
    known = value_dtypes(site.kernel)
    dtypes = {known[left.name], known[right.name]}
    return tuple(_record(atom) for atom in ATOMS.values() if len(dtypes) == 1 and dtypes <= _multiplied(site, atom))


@fact("cast_to(name) -> fn", "tile")
def cast_to(site: Any, value: Var) -> Var:
    """The function that rounds to the dtype of a value."""
    return Var(value_dtypes(site.kernel)[value.name])


@fact("widened(run, name, name) -> bool", "tile")
def widened(site: Any, body: Block, value: Var, source: Var) -> bool:
    """Whether a value is the source, at most as f32: the run does nothing else."""
    known = {stmt.dst: stmt.val for stmt in body if isinstance(stmt, Let)}
    if len(known) != len(body):
        return False
    name = value.name
    while name in known and known[name] in (Call("f32", (e := _operand(known[name]),)), e):
        name = e.name
    return name == source.name


def _operand(e: Any) -> Any:
    """What a function of one value is applied to."""
    return e.args[0] if isinstance(e, Call) and isinstance(e.args[0], Var) else e


def _turns(loop: For) -> int:
    """How often a loop is run through; 1 where that is not known."""
    known = loop.start == 0 and loop.step == 1 and isinstance(loop.stop, int)
    return loop.stop if known else 1


def _multiplied(site: Any, atom: Atom) -> set[str]:
    """The dtypes that an atom multiplies here: f32 loses bits, so it is asked for by name."""
    if site.target.sm < atom.sm:
        return set()
    return {dtype for dtype in atom.dtypes if dtype != "f32" or policy(site.target).tf32_products}


def _record(atom: Atom) -> AtomRecord:
    return AtomRecord(Var(atom.name), atom.m, atom.n, atom.k, **{WITHIN: 1, **dict(atom.axes)})


def _operand_dtypes(kernel: Kernel, loop: For, sources: set[str]) -> set[str]:
    """The dtypes of what a loop multiplies, of some buffers and slabs; none where it does anything else."""
    match loop.body:
        case (Load(when=True) as left, Load(when=True) as right, Let() as product, Accumulate(fn="add") as total):
            plain = product.val == Call("multiply", (Var(left.dst), Var(right.dst)))
            if plain and total.val == Var(product.dst) and {left.buf, right.buf} <= sources:
                known, slabs = params(kernel), stages(kernel)
                return {known[slabs[buf].src if buf in slabs else buf].dtype for buf in (left.buf, right.buf)}
    return set()
