"""Facts about axes, launches and what a thread has to hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from ...ir.atoms import ATOMS
from ...ir.expr import Axis, Binary, Var, free_names, linear
from ...ir.facts.footprint import STAGED_DTYPES
from ...ir.facts.layout import (
    DTYPE_BYTES,
    VECTOR_BYTES,
    WORD,
    address,
    copy_shape,
    is_vector,
    item_bytes,
    params,
    stages,
)
from ...ir.facts.structure import (
    Variations,
    dependencies,
    replicated_names,
    result_axes,
    summary,
    summed_axes,
    uses,
)
from ...ir.loop import Load, Store
from ...ir.node import Node, names_in
from ...ir.program import Block, Stmt
from ...ir.ranges import simplify
from ...ir.sizes import at_hint, hinted
from ...ir.tile import Slab
from ..language.facts import fact
from ..language.policy import policy

TILE = "module loop tile"
THOUSANDTHS = 1000  # a unit: shares as whole numbers


@fact("names([axis]) -> [name]", TILE)
def names(site: Any, axes: Any) -> tuple[Var, ...]:
    """The names of some axes."""
    return tuple(Var(axis.name) for axis in axes)


@fact("extents([axis]) -> [int]", TILE)
def extents(site: Any, axes: Any) -> tuple[int, ...]:
    """The extents of some axes."""
    return tuple(axis.extent for axis in axes)


@fact("axes_in_scope() -> [axis]", TILE)
def axes_in_scope(site: Any) -> tuple[Axis, ...]:
    """The axes of the site's Tile."""
    return site.tile.axes if site.tile else ()


@fact("threads([axis]) -> int", TILE)
def threads(site: Any, axes: Any) -> int:
    """Threads of a block."""
    return math.prod(axis.extent for axis in axes if axis.role == "THREAD")


@fact("blocks([axis]) -> int", TILE)
def blocks(site: Any, axes: Any) -> int:
    """Blocks of the launch."""
    return math.prod(axis.extent for axis in axes if axis.role == "BLOCK")


@fact("registers([axis], run) -> int", TILE)
def registers(site: Any, axes: Any, body: Block) -> int:
    """An estimate of the registers of a thread: every accumulator and loaded fragment once per register value, and
    what it fetched and did not yet put."""
    found = summary(body)
    vectors = {loop.var: loop.stop for loop in found.loops if loop.role == "VEC"}
    extent = {axis.name: axis.extent for axis in axes if axis.role in ("REG", "VEC")}
    folded: dict[str, frozenset[str]] = {}
    for stmt in found.combines:
        for acc in stmt.accs:
            folded[acc] = folded.get(acc, frozenset()) | free_names(stmt.over)
    count: int = policy(site.target).address_registers
    for total in {stmt.acc: stmt for stmt in found.sums}.values():
        varying = dependencies(total.val, body) - folded.get(total.acc, frozenset())
        count += math.prod(n for name, n in extent.items() if name in varying)
    for product in {stmt.acc: stmt for stmt in found.mmas}.values():
        varying = dependencies((product.a, product.b), body) - summed_axes(product) | result_axes(product)
        count += math.prod(n for name, n in extent.items() if name in varying)
    words = {e: ATOMS[stmt.atom].per_word for stmt in found.mmas for e in (stmt.a, stmt.b)}
    for load in {(s.buf, s.idx): s for s in found.loads}.values():
        flat = address(site.kernel, load.buf, load.idx)
        wide = {name: n for name, n in vectors.items() if is_vector(flat, name, n)}
        values = math.prod(n for name, n in (extent | wide).items() if name in free_names(load.idx))
        count += -(-values // words.get(Var(load.dst), 1))
    fetched = [copy_shape(site.kernel, stage) for stage in found.stages if stage.via == "FETCH"]
    return count + sum(shape.width * -(-shape.rows * shape.chunks // shape.threads) for shape in fetched)


@fact("copies(run) -> int", TILE)
def copies(site: Any, body: Block) -> int:
    """How often a thread does what a run accumulates: once for every value of the register axes that it varies with."""
    extent = {axis.name: axis.extent for axis in site.tile.axes if axis.role in ("REG", "VEC")} if site.tile else {}
    varying = [dependencies(stmt.val, body) for stmt in summary(body).sums]
    return max((math.prod(n for name, n in extent.items() if name in names) for names in varying), default=1)


@fact("sums_held(run) -> int", TILE)
def sums_held(site: Any, body: Block) -> int:
    """The most elements that a thread adds up at once: values of the register axes that a term varies with."""
    extent = {axis.name: axis.extent for axis in site.tile.axes if axis.role in ("REG", "VEC")} if site.tile else {}
    varying = Variations(body)
    held = [varying.of(stmt.val) for stmt in summary(body).sums]
    return max((math.prod(n for name, n in extent.items() if name in names) for names in held), default=1)


@fact("replicated(expr) -> bool", TILE)
def replicated(site: Any, e: Any) -> bool:
    """Whether an expression mentions a register axis."""
    found = replicated_names(site.tile) if site.tile else frozenset()
    return not found.isdisjoint(free_names(e))


@fact("trips(run) -> int", TILE)
def trips(site: Any, body: Block) -> int:
    """How often the innermost statement of a run is executed, if its loops stand in one another."""
    unknown: int = policy(site.target).unknown_turns
    return math.prod(n if (n := at_hint(loop.stop)).__class__ is int else unknown for loop in summary(body).loops)


# ---- how accesses run along an axis


def accesses(body: Block) -> tuple[Load | Store, ...]:
    found = summary(body)
    return (*found.loads, *found.stores)


@fact("vectors(run, name, int) -> [stmt]", TILE)
def vectors(site: Any, body: Block, axis: Var, width: int) -> tuple[Node, ...]:
    """The accesses that are `width` aligned neighbours along an axis, and so one instruction."""
    fitting = [stmt for stmt in accesses(body) if width * _vector_item(site, stmt) in VECTOR_BYTES]
    return tuple(stmt for stmt in fitting if is_vector(_flat(site, stmt), axis.name, width))


@fact("widest(run, [name]) -> int", TILE)
def widest(site: Any, body: Block, along: Any) -> int:
    """Elements of the widest vector that every access which runs along one of some names can be; 4 without any."""
    known = {stmt: item for stmt in accesses(body) if (item := _vector_item(site, stmt))}
    flat = {stmt: _flat(site, stmt) for stmt in known}
    walked = [(stmt, name) for stmt in known for name in along if linear(flat[stmt])[0].get(name) == 1]
    most = VECTOR_BYTES[-1] // max((known[stmt] for stmt, _ in walked), default=WORD)
    halved = (is_vector(flat[s], n.name, most // 2) and not is_vector(flat[s], n.name, most) for s, n in walked)
    return most // 2 if most > VECTOR_BYTES[-1] // WORD and any(halved) else most


def _flat(site: Any, stmt: Any) -> Any:
    return address(site.kernel, stmt.buf, stmt.idx)


def _vector_item(site: Any, stmt: Any) -> int:
    """Bytes of an element of a buffer or slab that is read and written as vectors, 0 for another."""
    stage = stages(site.kernel).get(stmt.buf)
    if isinstance(stage, Slab):
        return item_bytes(site.kernel, stage)
    param = params(site.kernel).get(stage.src if stage else stmt.buf)
    return DTYPE_BYTES[param.dtype] if param is not None and param.dtype in STAGED_DTYPES else 0


@fact("runs_along(run, name) -> bool", TILE)
def runs_along(site: Any, body: Block, axis: Var) -> bool:
    """Whether a store, or a load that a loop repeats, goes to the next element as the axis goes on, two at a time."""
    stores = summary(body).stores
    return loads_along(site, body, axis) or any(is_vector(_flat(site, stmt), axis.name, 2) for stmt in stores)


@fact("loads_along(run, name) -> bool", TILE)
def loads_along(site: Any, body: Block, axis: Var) -> bool:
    """Whether a load that a loop repeats goes to the next element as the axis goes on, two at a time."""
    repeated = chain.from_iterable(summary(loop.body).loads for loop in summary(body).loops)
    return any(is_vector(_flat(site, stmt), axis.name, 2) for stmt in repeated)


@fact("running(run, name) -> [stmt]", TILE)
def running(site: Any, body: Block, axis: Var) -> tuple[Node, ...]:
    """The accesses that go to the next element as an axis goes on."""
    return tuple(stmt for stmt in accesses(body) if linear(_flat(site, stmt))[0].get(axis) == 1)


@fact("apart(run, name, int) -> [stmt]", TILE)
def apart(site: Any, body: Block, axis: Var, width: int) -> tuple[Node, ...]:
    """The accesses that go on with an axis and are no vectors along it: for `width` elements of a thread, as many
    instructions ask for the same sectors."""
    vector, known = vectors(site, body, axis, width), {*params(site.kernel), *stages(site.kernel)}
    others = [stmt for stmt in accesses(body) if stmt.buf in known and stmt not in vector]
    return tuple(stmt for stmt in others if _moves(_flat(site, stmt), axis))


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
        terms, _ = linear(_flat(site, load))
        run = [axis for axis in along if terms.get(axis) == 1]
        return bool(run) and terms.get(lane, 0) not in (0, 1, *(strips.get(axis.name) for axis in run))

    return tuple(dict.fromkeys(Var(s.buf) for s in summary(body).loads if s.buf in inputs and jumps(s)))


@fact("shares(run, name) -> bool", TILE)
def shares(site: Any, body: Block, axis: Var) -> bool:
    """Whether a run loads from one buffer with an axis and from another one without it."""
    along = [axis.name in dependencies(stmt.idx, body) for stmt in summary(body).loads]
    return any(along) and not all(along)


@fact("rows_alike(run, name, int) -> int", TILE)
def rows_alike(site: Any, body: Block, axis: Var, extent: int) -> int:
    """How many neighbouring rows load the same elements in every loop: n where each load knows `row // n` alone.

    Of a run without loops, all its loads.
    """
    found, known = extent, False
    for looped in [loop.body for loop in summary(body).loops] or [body]:
        for load in summary(looped).loads:
            if axis.name in dependencies((load.idx, load.when), body):
                known = True
                found = math.gcd(found, *(_divided_by(value, axis) for value in (*load.idx, load.when)))
                named = free_names((load.idx, load.when)) - {axis.name}
                if axis.name in dependencies(tuple(map(Var, named)), body):
                    return 1
    return found if known else 1


@fact("simplified([expr], name, int) -> [expr]", TILE)
def simplified(site: Any, idx: Any, name: Var, extent: int) -> tuple[Any, ...]:
    """Places, in as few operations as it takes where a name is at least 0 and below an extent."""
    return tuple(simplify(place, {name.name: (0, extent - 1)}) for place in idx)


def _divided_by(value: Any, axis: Var) -> int:
    """The number that an expression divides an axis by, wherever it has it; 0 where it has not."""
    if value == axis:
        return 1
    if isinstance(value, Binary) and value.op == "//" and value.a == axis and isinstance(value.b, int):
        return value.b
    below = (_divided_by(x, axis) for x in _below(value))
    return math.gcd(*below)


def _below(value: Any) -> tuple[Any, ...]:
    if value.__class__ is tuple:
        return value
    return tuple(getattr(value, field.name) for field in type(value).fields) if isinstance(value, Node) else ()


@fact("row_coalesced(run, [name]) -> bool", TILE)
def row_coalesced(site: Any, body: Block, team: Any) -> bool:
    """Whether neighbouring threads that share out the loops of a team mostly read neighbouring elements, by size."""
    good = bad = 0
    for stmt in accesses(body):
        terms, _ = linear(_flat(site, stmt))
        size = at_hint(math.prod(params(site.kernel)[stmt.buf].shape)) if stmt.buf in params(site.kernel) else 0
        for loop in team:
            if any(loop.name in free_names(atom) for atom in terms):
                near = goes_on(terms, loop)
                good, bad = good + size * near, bad + size * (not near)
    return good >= bad


def goes_on(terms: Any, loop: Var) -> bool:
    """Whether an address goes to the next element with a loop, but where a remainder starts anew."""
    remainders = [atom for atom, factor in terms.items() if factor == 1 and atom.__class__ is Binary and atom.op == "%"]
    return terms.get(loop) == 1 or any(goes_on(linear(atom.a)[0], loop) for atom in remainders)


@fact("one_run(run, name, name, int) -> bool", TILE)
def one_run(site: Any, body: Block, i: Var, j: Var, extent: int) -> bool:
    """Whether i and j stand in addresses only, and there as `c*(i*extent + j)`."""
    return as_one(site, body, accesses(body), i, j, extent)


def as_one(site: Any, body: Block, looked_at: Iterable[Any], i: Var, j: Var, extent: int) -> bool:
    """The same of the addresses of some accesses."""
    known = {i.name, j.name}
    for stmt in looked_at:
        terms, _ = linear(_flat(site, stmt))
        if terms.get(i, 0) != extent * terms.get(j, 0):
            return False
        if any(known & free_names(atom) for atom in terms if atom is not i and atom is not j):
            return False
    return known.isdisjoint(free_names(tuple(values_of(body))))


def values_of(body: Block) -> Iterator[Any]:
    """What a run computes and tests, but for the places of its accesses."""
    for stmt in body:
        skipped = ("idx",) if isinstance(stmt, Load | Store) else ()
        yield from (getattr(stmt, f.name) for f in type(stmt).fields if f.sort == "Expr" and f.name not in skipped)
        yield from values_of(getattr(stmt, "body", ()))


@fact("strided(run, name, name, int) -> bool", TILE)
def strided(site: Any, body: Block, i: Var, r: Var, factor: int) -> bool:
    """Whether every index mentions i and r as `c*(i*factor + r)` only."""
    return {i.name, r.name} <= uses(body) and all(_strided(stmt, i, r, factor) for stmt in body)


@fact("neighbours([expr], name, name, int) -> bool", TILE)
def neighbours(site: Any, idx: Any, i: Var, r: Var, factor: int) -> bool:
    """Whether an index mentions i and r as `c*(i*factor + r)` only, if at all."""
    return _strided(tuple(idx), i, r, factor)


def _strided(value: Any, i: Var, r: Var, factor: int) -> bool:
    if value.__class__ is tuple:
        parts = value
    elif not isinstance(value, Node) or names_in(value).isdisjoint((i.name, r.name)):
        return True
    elif isinstance(value, Stmt | Axis):
        parts = tuple([getattr(value, f.name) for f in type(value).fields if f.name != "slab"])
    else:
        terms, _ = linear(value)
        if terms.get(i, 0) != factor * terms.get(r, 0):
            return False
        parts = tuple([_parts(atom) for atom in terms if atom is not i and atom is not r])
    for part in parts:  # no generator: it is asked of every pair of axes
        if (part.__class__ is tuple or isinstance(part, Node)) and not _strided(part, i, r, factor):
            return False
    return True


def _parts(atom: Any) -> tuple[Any, ...]:
    """The operands of an expression that is not a sum."""
    if atom.__class__ is Var or not isinstance(atom, Node):
        return ()
    return tuple(getattr(atom, f.name) for f in type(atom).fields if f.sort in ("Expr", "Over"))


# ---- how tiles fill the device


class BlockShape(NamedTuple):
    """The outputs of a block: in all, `area`."""

    rows: int
    columns: int
    area: int


@fact("squarest(int, int, int) -> record", TILE)
def squarest(site: Any, area: int, rows: int, columns: int) -> BlockShape:
    """The tile of at most an area that is least long: `.rows`, `.columns`, `.area`. Neither side exceeds what there is,
    nor `tile_side` where the area is no larger than its square."""
    rows, columns = hinted(rows), hinted(columns)
    side = max(policy(site.target).tile_side, area // policy(site.target).tile_side)
    height = 1 << (area.bit_length() - 1) // 2
    height *= 2 if area // height > 2 * height else 1  # 64 x 48, not 32 x 96
    height = min(side, 1 << (max(rows, 1) - 1).bit_length(), height)
    width = min(side, area // height, 1 << (max(columns, 1) - 1).bit_length())
    return BlockShape(height, width, height * width)


@fact("useful(int, int, int, int) -> int", TILE)
def useful(site: Any, area: int, rows: int, columns: int, batch: int) -> int:
    """How busy the device is with outputs, in thousandths, if each multiprocessor takes a tile of an area at a time."""
    rows, columns, batch = hinted(rows), hinted(columns), hinted(batch)
    shape = squarest(site, area, rows, columns)
    tiles = batch * -(-rows // shape.rows) * -(-columns // shape.columns)
    turns = -(-tiles // site.target.multiprocessors) * site.target.multiprocessors
    return THOUSANDTHS * batch * rows * columns // (turns * shape.rows * shape.columns)  # type: ignore[no-any-return]
