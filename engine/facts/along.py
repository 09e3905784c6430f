"""Facts about how accesses run along an axis: which of them go to the next element with it, and are vectors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from ...ir.expr import Axis, Binary, Var, linear
from ...ir.facts.footprint import STAGED_DTYPES
from ...ir.facts.layout import DTYPE_BYTES, VECTOR_BYTES, WORD, address, is_vector, params, stages
from ...ir.facts.structure import summary
from ...ir.loop import Load, Store
from ...ir.node import CLASSES, Node, memoised
from ...ir.program import Block, Kernel, Param, Stmt
from ...ir.tile import Slab, Stage
from ..language.facts import fact

TILE = "module loop tile"


def accesses(body: Block) -> tuple[Load | Store, ...]:
    found = summary(body)
    return (*found.loads, *found.stores)


def address_of(site: Any, stmt: Any) -> Any:
    """The flat address of an access."""
    return address(site.kernel, stmt.buf, stmt.idx)


class Step(NamedTuple):
    """An access that goes to the next element of its buffer as a name goes on. item: bytes of an element that is read
    and written as vectors, 0 for another; repeated: it is a load that a loop repeats."""

    stmt: Load | Store
    address: Any
    item: int
    repeated: bool


Steps = dict[str, list[Step]]  # by the name


def _steps(site: Any, body: Block) -> Steps:
    """Every rule asks it of every axis of a Tile, so a kernel remembers it of each of its blocks."""
    known = _steps_of_blocks(site.kernel)
    if body not in known:
        known[body] = _found_steps(site.kernel, body)
    return known[body]


@memoised
def _steps_of_blocks(kernel: Kernel) -> dict[Block, Steps]:
    return {}


def _found_steps(kernel: Kernel, body: Block) -> Steps:
    inputs, slabs = params(kernel), stages(kernel)
    repeated = set(chain.from_iterable(summary(loop.body).loads for loop in summary(body).loops))
    found: Steps = {}
    for stmt in accesses(body):
        place = slabs.get(stmt.buf) or inputs.get(stmt.buf)
        if place is not None:
            flat = address(kernel, stmt.buf, stmt.idx)
            step = Step(stmt, flat, _vector_item(place, inputs), stmt in repeated)
            for name in _stepping(flat):
                found.setdefault(name, []).append(step)
    return found


def _stepping(flat: Any) -> Iterator[str]:
    """What an address goes to the next element with, if only up to the end of a row."""
    for atom, factor in linear(flat)[0].items():
        if factor == 1 and atom.__class__ is Var:
            yield atom.name
        elif factor == 1 and atom.__class__ is Binary and atom.op == "%":
            yield from _stepping(atom.a)


def _vector_item(place: Stage | Param, inputs: dict[str, Param]) -> int:
    if isinstance(place, Slab):
        return DTYPE_BYTES[place.dtype]
    param = place if isinstance(place, Param) else inputs.get(place.src)
    return DTYPE_BYTES[param.dtype] if param is not None and param.dtype in STAGED_DTYPES else 0


@fact("vectors(run, name, int) -> [stmt]", TILE)
def vectors(site: Any, body: Block, axis: Var, width: int) -> tuple[Node, ...]:
    """The accesses that are `width` aligned neighbours along an axis, and so one instruction."""
    fitting = [step for step in _steps(site, body).get(axis.name, ()) if width * step.item in VECTOR_BYTES]
    return tuple(step.stmt for step in fitting if is_vector(step.address, axis.name, width))


@fact("widest(run, [name]) -> int", TILE)
def widest(site: Any, body: Block, along: Any) -> int:
    """Elements of the widest vector that every access which runs along one of some names can be; 4 without any."""
    found = _steps(site, body)
    walked = [(step.address, step.item, name.name) for name in along for step in found.get(name.name, ()) if step.item]
    most = VECTOR_BYTES[-1] // max((item for _, item, _ in walked), default=WORD)
    if most <= VECTOR_BYTES[-1] // WORD:
        return most
    halved = (is_vector(flat, name, most // 2) and not is_vector(flat, name, most) for flat, _, name in walked)
    return most // 2 if any(halved) else most


@fact("runs_along(run, name) -> bool", TILE)
def runs_along(site: Any, body: Block, axis: Var) -> bool:
    """Whether a store, or a load that a loop repeats, goes to the next element as the axis goes on, two at a time."""
    return any(
        (step.repeated or isinstance(step.stmt, Store)) and is_vector(step.address, axis.name, 2)
        for step in _steps(site, body).get(axis.name, ())
    )


@fact("loads_along(run, name) -> bool", TILE)
def loads_along(site: Any, body: Block, axis: Var) -> bool:
    """Whether a load that a loop repeats goes to the next element as the axis goes on, two at a time."""
    steps = _steps(site, body).get(axis.name, ())
    return any(step.repeated and is_vector(step.address, axis.name, 2) for step in steps)


@fact("running(run, name) -> [stmt]", TILE)
def running(site: Any, body: Block, axis: Var) -> tuple[Node, ...]:
    """The accesses that go to the next element as an axis goes on."""
    return tuple(step.stmt for step in _steps(site, body).get(axis.name, ()))


@fact("apart(run, name, int) -> [stmt]", TILE)
def apart(site: Any, body: Block, axis: Var, width: int) -> tuple[Node, ...]:
    """The accesses that go on with an axis and are no vectors along it: for `width` elements of a thread, as many
    instructions ask for the same sectors."""
    vector, known = vectors(site, body, axis, width), {*params(site.kernel), *stages(site.kernel)}
    others = [stmt for stmt in accesses(body) if stmt.buf in known and stmt not in vector]
    return tuple(stmt for stmt in others if _moves(address_of(site, stmt), axis))


def _moves(flat: Any, axis: Var) -> bool:
    """Whether an address goes on with an axis in steps: what is divided by a number stays for so many."""
    terms, _ = linear(flat)
    around = (atom.a for atom in terms if atom.__class__ is Binary and atom.op == "%")
    return terms.get(axis, 0) != 0 or any(_moves(inner, axis) for inner in around)


@fact("across(run, [name], name) -> [name]", TILE)
def across(site: Any, body: Block, along: Any, lane: Var) -> tuple[Var, ...]:
    """The inputs that run along one of some axes while their lanes jump: not by the strip that a lane has of it."""
    strips = {axis.name: axis.extent for axis in site.tile.axes if axis.role in ("REG", "VEC")}
    inputs = {param.name for param in site.kernel.ins}

    def jumps(load: Load) -> bool:
        terms, _ = linear(address_of(site, load))
        run = [axis for axis in along if terms.get(axis) == 1]
        return bool(run) and terms.get(lane, 0) not in (0, 1, *(strips.get(axis.name) for axis in run))

    return tuple(dict.fromkeys(Var(s.buf) for s in summary(body).loads if s.buf in inputs and jumps(s)))


# ---- two axes that are one index

Coefficients = dict[str, dict[Any, int]]  # of each name, in every sum that it stands in


@fact("strided(run, name, name, int) -> bool", TILE)
def strided(site: Any, body: Block, i: Var, r: Var, factor: int) -> bool:
    """Whether every index mentions i and r as `c*(i*factor + r)` only, and some index does."""
    mentioned = False
    for stmt in body:
        found = _coefficients(stmt)
        if i.name in found or r.name in found:
            if not _one_index(found, i, r, factor):
                return False
            mentioned = True
    return mentioned


@fact("neighbours([expr], name, name, int) -> bool", TILE)
def neighbours(site: Any, idx: Any, i: Var, r: Var, factor: int) -> bool:
    """Whether an index mentions i and r as `c*(i*factor + r)` only, if at all."""
    found: Coefficients = {}
    _gather_coefficients(tuple(idx), found)
    return _one_index(found, i, r, factor)


def _one_index(found: Coefficients, i: Var, r: Var, factor: int) -> bool:
    first, second = found.get(i.name, {}), found.get(r.name, {})
    return first.keys() == second.keys() and all(n == factor * second[e] for e, n in first.items())


@memoised
def _coefficients(stmt: Stmt) -> Coefficients:
    """Of every pair of axes rules ask whether they are one index, of a body that stays: it is walked once."""
    found: Coefficients = {}
    _gather_coefficients(tuple([getattr(stmt, field) for field in type(stmt).inner if field != "slab"]), found)
    return found


def _gather_coefficients(value: Any, found: Coefficients) -> None:
    if value.__class__ is tuple:
        for part in value:
            if part.__class__ is tuple or part.__class__ in CLASSES:
                _gather_coefficients(part, found)
    elif isinstance(value, Stmt):
        for name, sums in _coefficients(value).items():
            found.setdefault(name, {}).update(sums)
    elif isinstance(value, Axis):
        _gather_coefficients((value.extent,), found)
    else:
        for atom, n in linear(value)[0].items():
            if atom.__class__ is Var:
                found.setdefault(atom.name, {})[value] = n
            elif isinstance(atom, Node):
                fields = [f.name for f in type(atom).fields if f.sort in ("Expr", "Over")]
                _gather_coefficients(tuple([getattr(atom, field) for field in fields]), found)
