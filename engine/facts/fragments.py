"""What tensor cores can do of a schedule: which atoms multiply the operands of its products."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ir.atoms import ATOMS, WITHIN, Atom
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Var
from ...ir.facts.layout import params, stages
from ...ir.facts.structure import summary
from ...ir.facts.types import value_dtypes
from ...ir.functions import promote
from ...ir.loop import Accumulate, For, Let, Load
from ...ir.program import Block, Kernel
from ...ir.tile import Stage
from ..language.facts import fact
from ..language.policy import policy


class AtomRecord(NamedTuple):
    """An atom of a warp as rules ask for it: its name, what it sums as, its m x n x k, the extents of its axes by name,
    of w 1 if it has none."""

    name: Var
    sums: Var
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
    """The atoms that can do every product of a run: sums of products of two operands, at most widened, from slabs."""
    slabs = {name for name, slab in stages(site.kernel).items() if isinstance(slab, Stage)}
    return tuple(map(_record, _atoms_of(site, body, slabs)))


@fact("for_atoms(run) -> bool", "tile")
def for_atoms(site: Any, body: Block) -> bool:
    """Whether there is an atom that can do so, once the operands are in slabs."""
    return bool(_atoms_of(site, body, {*params(site.kernel), *stages(site.kernel)}))


def _atoms_of(site: Any, body: Block, sources: set[str]) -> list[Atom]:
    loops = [loop for loop in summary(body).loops if loop.role == "reduce" and not summary(loop.body).loops]
    bodies = [loop.body for loop in loops] if summary(body).loops else [body]  # a run may be one loop's own
    found = [_operand_dtypes(site.kernel, inner, sources) for inner in bodies]
    return [
        atom
        for atom in ATOMS.values()
        if found and all(sums == {atom.sums} and dtypes <= _multiplied(site, atom) for dtypes, sums in found)
        if all(_turns(loop) % atom.k == 0 for loop in loops)
    ]


@fact("atoms_for(name, name) -> [record]", "tile")
def atoms_for(site: Any, left: Var, right: Var) -> tuple[AtomRecord, ...]:
    """The atoms that multiply two values, by their dtypes."""
    known = value_dtypes(site.kernel)
    dtypes = {known[left.name], known[right.name]}
    return tuple(_record(atom) for atom in ATOMS.values() if len(dtypes) == 1 and dtypes <= _multiplied(site, atom))


@fact("on_tensor_cores(run) -> bool", "tile")
def on_tensor_cores(site: Any, body: Block) -> bool:
    """Whether tensor cores multiply in a run."""
    return bool(summary(body).mmas)


@fact("cast_to(name) -> fn", "tile")
def cast_to(site: Any, value: Var) -> Var:
    """The function that rounds to the dtype of a value."""
    return Var(value_dtypes(site.kernel)[value.name])


@fact("widened(run, name, name) -> bool", "tile")
def widened(site: Any, body: Block, value: Var, source: Var) -> bool:
    """Whether a value is the source, at most in a dtype that holds all of it: the run does nothing else."""
    known = {stmt.dst: stmt.val for stmt in body if isinstance(stmt, Let)}
    return len(known) == len(body) and _narrowed(value, known, value_dtypes(site.kernel)) == source


def _narrowed(value: Any, known: dict[str, Any], dtypes: dict[str, str]) -> Any:
    """What a value is widened from, at most: casts to dtypes that hold every element of the one before."""
    while isinstance(value, Var) and value.name in known:
        match known[value.name]:
            case Var() as e:
                value = e
            case Call(fn=to, args=(Var() as e,)) if to in DTYPES and promote(to, dtypes[e.name]) == to:
                value = e
            case _:
                break
    return value


def _turns(loop: For) -> int:
    """How often a loop is run through; 1 where that is not known."""
    known = loop.start == 0 and loop.step == 1 and isinstance(loop.stop, int)
    return loop.stop if known else 1


def _multiplied(site: Any, atom: Atom) -> set[str]:
    """The dtypes that an atom multiplies here: f32 loses bits, so it is asked for by name."""
    if site.target.sm < atom.sm or atom.late:
        return set()
    return {dtype for dtype in atom.dtypes if dtype != "f32" or policy(site.target).tf32_products}


def _record(atom: Atom) -> AtomRecord:
    return AtomRecord(Var(atom.name), Var(atom.sums), atom.m, atom.n, atom.k, **{WITHIN: 1, **dict(atom.axes)})


def _operand_dtypes(kernel: Kernel, body: Block, sources: set[str]) -> tuple[set[str], set[str]]:
    """The dtypes of what a loop's body multiplies, of some buffers and slabs, and of the sum; none where it does
    anything else."""
    loads = {stmt.dst: stmt for stmt in body if isinstance(stmt, Load) and stmt.when is True and stmt.buf in sources}
    values = {stmt.dst: stmt.val for stmt in body[:-1] if isinstance(stmt, Let)}
    total = body[-1]
    if len(loads) == 2 and len(loads) + len(values) == len(body) - 1 and isinstance(total, Accumulate):
        product, dtypes = values.get(getattr(total.val, "name", "")), value_dtypes(kernel)
        if total.fn == "add" and isinstance(product, Call) and product.fn == "multiply":
            operands = {_narrowed(operand, values, dtypes) for operand in product.args}
            if operands == {Var(name) for name in loads}:
                return {dtypes[name] for name in loads}, {dtypes[total.acc]}
    return set(), set()
