"""Facts about axes, launches and what a thread has to hold."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...ir.atoms import ATOMS
from ...ir.expr import Axis, Binary, Var, free_names, linear
from ...ir.facts.layout import (
    address,
    copy_shape,
    is_vector,
    params,
)
from ...ir.facts.structure import (
    Variations,
    dependencies,
    replicated_names,
    result_axes,
    summary,
    summed_axes,
)
from ...ir.loop import Load, Store
from ...ir.node import Node
from ...ir.program import Block
from ...ir.ranges import simplify
from ...ir.sizes import at_hint, hinted
from ..language.facts import fact
from ..language.policy import policy
from .along import TILE, accesses, address_of

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
        terms, _ = linear(address_of(site, stmt))
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
        terms, _ = linear(address_of(site, stmt))
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
    side, odd = policy(site.target).tile_side, policy(site.target).odd_square
    return _squarest(area, hinted(rows), hinted(columns), side, odd)


def _power(least: int) -> int:
    """The least power of two that is at least a number."""
    return 1 << (max(least, 1) - 1).bit_length()


@functools.lru_cache
def _squarest(area: int, rows: int, columns: int, least_side: int, odd: int) -> BlockShape:
    unit = odd if area % odd**2 == 0 else 1
    side = max(least_side, area // least_side) if unit == 1 else unit * _power(least_side // unit)
    height = unit << ((area // unit**2).bit_length() - 1) // 2
    height *= 2 if area // height > 2 * height else 1  # 64 x 48, not 32 x 96
    height = min(side, unit * _power(-(-rows // unit)), height)
    width = min(side, area // height, unit * _power(-(-columns // unit)))
    return BlockShape(height, width, height * width)


@fact("useful(int, int, int, int, int) -> int", TILE)
def useful(site: Any, area: int, rows: int, columns: int, batch: int, beside: int) -> int:
    """How busy the device is with outputs, in thousandths, if each multiprocessor takes so many tiles of an area at a
    time, side by side."""
    rows, columns, batch = hinted(rows), hinted(columns), hinted(batch)
    shape = squarest(site, area, rows, columns)
    tiles = batch * -(-rows // shape.rows) * -(-columns // shape.columns)
    at_once = beside * site.target.multiprocessors
    turns = -(-tiles // at_once) * at_once
    return THOUSANDTHS * batch * rows * columns // (turns * shape.rows * shape.columns)  # type: ignore[no-any-return]
