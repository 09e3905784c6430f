"""Facts about accesses along axes: which are contiguous, vectors, or loaded again, and what fits in registers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import chain
from math import gcd, lcm, prod
from typing import Any, NamedTuple

from ...ir.atoms import ATOMS
from ...ir.expr import (
    Axis,
    Binary,
    NameSet,
    Var,
    add,
    binary,
    compare,
    extents_of,
    free_names,
    is_int,
    linear,
    multiply,
    subtract,
)
from ...ir.facts.layout import (
    DTYPE_BYTES,
    SECTOR,
    VECTOR_BYTES,
    WORD,
    address,
    is_vector,
    params,
    ranges_of,
    stages,
    tidy,
)
from ...ir.facts.structure import (
    dependencies,
    result_axes,
    summary,
    summed_axes,
)
from ...ir.facts.warp_accesses import STAGED_DTYPES
from ...ir.loop import For, Let, Load, Store
from ...ir.names import unused
from ...ir.node import CLASSES, Expr, Node, distinct, each_once, memoised, names_in, nodes, values
from ...ir.program import Block, Kernel, Param, Stmt
from ...ir.ranges import decide, simplify
from ...ir.sizes import at_hint
from ...ir.substitute import substitute
from ...ir.tile import SharedTile, Stage
from ..language.evaluate import AxisList, Expression, ExpressionList, NameList, NumberList, ValueList, statement_fact
from ..language.rule import policy
from ..rewrite.statements.site import Site
from .structure import axis_names, conjuncts

TILE = "module loop tile"


def accesses(body: Block) -> tuple[Load | Store, ...]:
    found = summary(body)
    return (*found.loads, *found.stores)


def address_of(site: Site, stmt: Any) -> Any:
    """Return the flat address of an access."""
    return address(site.kernel, stmt.buf, stmt.idx)


class Step(NamedTuple):
    """Access that advances to the next element of its buffer when a name advances.

    item: bytes of an element that is read and written as vectors, 0 for another; repeated: whether it is a load that
    a loop repeats.
    """

    stmt: Load | Store
    address: Any
    item: int
    repeated: bool


Steps = dict[str, list[Step]]  # by the name


def _steps(site: Site, body: Block) -> Steps:
    """Return the steps of a block, remembered per kernel because every rule queries them for every axis of a Tile."""
    known = _steps_of_blocks(site.kernel)
    if body not in known:
        inputs, shared_tiles = params(site.kernel), stages(site.kernel)
        repeated = set(chain.from_iterable(summary(loop.body).loads for loop in summary(body).loops))
        found = known[body] = defaultdict(list)
        for stmt in accesses(body):
            place = shared_tiles.get(stmt.buf) or inputs.get(stmt.buf)
            if place is not None:
                flat = address_of(site, stmt)
                for name in _stepping(flat):
                    found[name].append(Step(stmt, flat, _vector_item(place, inputs), stmt in repeated))
    return known[body]


@memoised
def _steps_of_blocks(kernel: Kernel) -> dict[Block, Steps]:
    return {}


def _stepping(flat: Any, most: int = 1) -> Iterator[str]:
    """Yield the names with which an address goes on or back by at most some elements, if only within a row."""
    for atom, factor in linear(flat)[0].items():
        if not is_int(factor) or not 1 <= abs(factor) <= most:
            continue
        if atom.__class__ is Var:
            yield atom.name
        elif atom.__class__ is Binary and atom.op == "%":
            yield from _stepping(atom.a, most // abs(factor))


def _vector_item(place: Stage | Param, inputs: dict[str, Param]) -> int:
    if isinstance(place, SharedTile):
        return DTYPE_BYTES[place.dtype]
    param = place if isinstance(place, Param) else inputs.get(place.src)
    return DTYPE_BYTES[param.dtype] if param is not None and param.dtype in STAGED_DTYPES else 0


@statement_fact
def vectors(site: Site, body: Block, axis: Var, width: int) -> tuple[Node, ...]:
    """Return the accesses that are `width` aligned neighbours along an axis, and so one instruction."""
    fitting = [step for step in _steps(site, body).get(axis.name, ()) if width * step.item in VECTOR_BYTES]
    return tuple(step.stmt for step in fitting if is_vector(step.address, axis.name, width))


@statement_fact
def widest(site: Site, body: Block, along: NameList) -> int:
    """Return the elements of the widest vector that each access along one of some names can be.

    The result is 4 without any such access.
    """
    found = _steps(site, body)
    steps = [(step.address, step.item, name.name) for name in along for step in found.get(name.name, ()) if step.item]
    most = VECTOR_BYTES[-1] // max((item for _, item, _ in steps), default=WORD)
    if most <= VECTOR_BYTES[-1] // WORD:
        return most
    halved = (is_vector(flat, name, most // 2) and not is_vector(flat, name, most) for flat, _, name in steps)
    return most // 2 if any(halved) else most


@statement_fact
def runs_along(site: Site, body: Block, axis: Var) -> bool:
    """Return whether a store or a repeated load goes to the next element as the axis goes on, two at a time."""
    return any(
        (step.repeated or isinstance(step.stmt, Store)) and is_vector(step.address, axis.name, 2)
        for step in _steps(site, body).get(axis.name, ())
    )


@statement_fact
def loads_along(site: Site, body: Block, axis: Var) -> bool:
    """Return whether a load that a loop repeats goes to the next element as the axis goes on, two at a time."""
    steps = _steps(site, body).get(axis.name, ())
    return any(step.repeated and is_vector(step.address, axis.name, 2) for step in steps)


@statement_fact
def running(site: Site, body: Block, axis: Var) -> tuple[Node, ...]:
    """Return the accesses that go to the next element as an axis goes on."""
    return tuple(step.stmt for step in _steps(site, body).get(axis.name, ()))


@statement_fact
def apart(site: Site, body: Block, axis: Var, width: int) -> tuple[Node, ...]:
    """Return the accesses that advance with an axis but are not vectors along it.

    For `width` elements of a thread, as many instructions access the same sectors.
    """
    vector, known = vectors(site, body, axis, width), {*params(site.kernel), *stages(site.kernel)}
    return tuple(
        stmt
        for stmt in accesses(body)
        if stmt.buf in known and stmt not in vector and _moves(address_of(site, stmt), axis)
    )


def _moves(flat: Any, axis: Var) -> bool:
    """Return whether an address goes on with an axis in steps: what is divided by a number stays for so many."""
    terms, _ = linear(flat)
    around = (atom.a for atom in terms if atom.__class__ is Binary and atom.op == "%")
    return terms.get(axis, 0) != 0 or any(_moves(inner, axis) for inner in around)


@statement_fact
def strided_inputs(site: Site, body: Block, along: NameList, lane: Var) -> tuple[Var, ...]:
    """Return the inputs that are contiguous along one of some axes but strided between lanes.

    A stride of the vector that a lane reads does not count.
    """
    vectors = _register_extents(site.tile_axes)
    inputs = {param.name for param in site.kernel.ins}

    def jumps(load: Load) -> bool:
        terms, _ = linear(address_of(site, load))
        run = [axis for axis in along if terms.get(axis) == 1]
        return bool(run) and terms.get(lane, 0) not in (0, 1, *(vectors.get(axis.name) for axis in run))

    return tuple(dict.fromkeys(Var(s.buf) for s in summary(body).loads if s.buf in inputs and jumps(s)))


# ---- two axes that are one index

Coefficients = dict[str, dict[Any, int]]  # of each name, in every sum that contains it


@statement_fact
def strided(body: Block, i: Var, r: Var, factor: int) -> bool:
    """Return whether every index mentions i and r as `c*(i*factor + r)` only, and some index does."""
    mentioned = False
    for stmt in body:
        found = _coefficients(stmt)
        if i.name in found or r.name in found:
            if not _one_index(found, i, r, factor):
                return False
            mentioned = True
    return mentioned


@statement_fact
def total_stride(body: Block, i: Var) -> int:
    """Return the sum of the coefficients of a name over all indices of a run, without their signs."""
    return sum(abs(n) for stmt in body for n in _coefficients(stmt).get(i.name, {}).values())


@statement_fact
def neighbours(idx: ExpressionList, i: Var, r: Var, factor: int) -> bool:
    """Return whether an index mentions i and r as `c*(i*factor + r)` only, if at all."""
    found: Coefficients = {}
    _gather_coefficients(tuple(idx), found, set())
    return _one_index(found, i, r, factor)


def _one_index(found: Coefficients, i: Var, r: Var, factor: int) -> bool:
    first, second = found.get(i.name, {}), found.get(r.name, {})
    return first.keys() == second.keys() and all(n == factor * second[e] for e, n in first.items())


@memoised
def _coefficients(stmt: Stmt) -> Coefficients:
    """Return the coefficients in a statement, gathered once although rules query every pair of axes."""
    found: Coefficients = {}
    _gather_coefficients(tuple([getattr(stmt, field) for field in type(stmt).inner if field != "box"]), found, set())
    return found


def _gather_coefficients(value: Any, found: Coefficients, seen: set[Any]) -> None:
    if value.__class__ is tuple:
        for part in value:
            if part.__class__ is tuple or part.__class__ in CLASSES:
                _gather_coefficients(part, found, seen)
    elif isinstance(value, Stmt):
        for name, sums in _coefficients(value).items():
            found.setdefault(name, {}).update(sums)
    elif isinstance(value, Axis):
        _gather_coefficients((value.extent,), found, seen)
    elif value not in seen:
        seen.add(value)
        for atom, n in linear(value)[0].items():
            if atom.__class__ is Var:
                found.setdefault(atom.name, {})[value] = n
            elif isinstance(atom, Node):
                fields = [f.name for f in type(atom).fields if f.sort in ("Expr", "Over")]
                _gather_coefficients(tuple([getattr(atom, field) for field in fields]), found, seen)


# ---- Facts about axes, launches and what a thread has to hold.


@statement_fact
def names(axes: AxisList) -> tuple[Var, ...]:
    """Return the names of some axes."""
    return tuple(Var(axis.name) for axis in axes)


@statement_fact
def extents(axes: AxisList) -> tuple[int, ...]:
    """Return the extents of some axes."""
    return extents_of(axes)


@statement_fact
def axes_in_scope(site: Site) -> tuple[Axis, ...]:
    """Return the axes of the site's Tile."""
    return site.tile_axes


@statement_fact
def threads(axes: AxisList) -> int:
    """Count the threads of a block."""
    return prod(axis.extent for axis in axes if axis.role == "THREAD")


@statement_fact
def blocks(axes: AxisList) -> int:
    """Count the blocks of the launch."""
    return prod(axis.extent for axis in axes if axis.role == "BLOCK")


@statement_fact
def registers(site: Site, axes: AxisList, body: Block) -> int:
    """Estimate the registers of a thread.

    Every accumulator and loaded fragment counts once per register value. Fetched values that are not yet put count
    too.
    """
    extent = _register_extents(axes)
    count: int = policy(site.target).address_registers
    vectors = {loop.var: loop.stop for loop in summary(body).loops if loop.role == "VEC"}
    for varying, copied, per_word in values_held(site, body, vectors):
        count += -(-_product(extent, varying) * copied // per_word)
    return count


def values_held(site: Site, body: Block, vectors: dict[str, int]) -> Iterator[tuple[NameSet, int, int]]:
    """Yield the names with which each value of a thread varies, its elements for each, and how many a register holds.

    vectors: the extents of loops along which a load is one vector where its elements are neighbours.
    """
    found = summary(body)
    loops = {loop.var for loop in found.loops}
    folded: dict[str, set[str]] = defaultdict(set)
    for stmt in found.combines:
        for acc in stmt.accs:
            folded[acc] |= free_names(stmt.over)
    for total in {stmt.acc: stmt for stmt in found.sums}.values():
        yield dependencies(total.val, body) - folded[total.acc] - loops, 1, 1
    for product in {stmt.acc: stmt for stmt in found.mmas}.values():
        yield dependencies((product.a, product.b), body) - summed_axes(product) | result_axes(product), 1, 1
    words = {e: ATOMS[stmt.atom].per_word for stmt in found.mmas for e in (stmt.a, stmt.b)}
    for load in {(s.buf, s.idx): s for s in found.loads}.values():
        names = free_names(load.idx)
        inside = {name: n for name, n in vectors.items() if name in names}
        wide = (n for name, n in inside.items() if is_vector(address_of(site, load), name, n))
        yield names, prod(wide), words.get(Var(load.dst), 1)


@statement_fact
def copies(site: Site, body: Block) -> int:
    """Count how often a thread repeats the accumulation of a run.

    It repeats once for every value of the register axes that the accumulated value varies with.
    """
    extent = _register_extents(axes_in_scope(site))
    terms = [dependencies(stmt.val, body) for stmt in summary(body).sums]
    return max((_product(extent, names) for names in terms), default=1)


def _register_extents(axes: Iterable[Axis]) -> dict[str, Any]:
    return {axis.name: axis.extent for axis in axes if axis.role in ("REG", "VEC")}


def _product(extents: dict[str, Any], names: Container[str]) -> Any:
    """Return the product of the extents of some names."""
    return prod(extent for name, extent in extents.items() if name in names)


@statement_fact
def trips(site: Site, body: Block) -> int:
    """Count the executions of the innermost statement of a run, assuming that its loops are nested."""
    unknown: int = policy(site.target).unknown_iterations
    return prod(n if (n := at_hint(loop.stop)).__class__ is int else unknown for loop in summary(body).loops)


@statement_fact
def shares(body: Block, axis: Var) -> bool:
    """Return whether a run loads from one buffer with an axis and from another one without it."""
    along = [axis.name in dependencies(stmt.idx, body) for stmt in summary(body).loads]
    return any(along) and not all(along)


@statement_fact
def rows_alike(body: Block, axis: Var, extent: int) -> int:
    """Count the neighbouring rows that load the same elements in every loop: n if each load depends on `row // n` only.

    In a run without loops, all its loads count.
    """
    found, known = extent, False
    for looped in [loop.body for loop in summary(body).loops] or [body]:
        for load in summary(looped).loads:
            if axis.name in dependencies((load.idx, load.when), body):
                known = True
                found = gcd(found, *(_divided_by(value, axis) for value in (*load.idx, load.when)))
                named = free_names((load.idx, load.when)) - {axis.name}
                if axis.name in dependencies(tuple(map(Var, named)), body):
                    return 1
    return found if known else 1


@statement_fact
def simplified(idx: ExpressionList, name: Var, extent: int) -> ExpressionList:
    """Simplify indices, given that a name is at least 0 and below an extent."""
    return tuple(simplify(place, {name.name: (0, extent - 1)}) for place in idx)


@statement_fact
def stays_inside(
    site: Site, buf: Var, places: ExpressionList, condition: Expression, loops: NameList, extents: NumberList
) -> bool:
    """Return whether places are in a buffer where a condition holds, given the extents of loops that are new."""
    ranges = ranges_of(site.kernel) | {v.name: (0, n - 1) for v, n in zip(loops, extents, strict=True)}
    known = conjuncts(condition)
    ends = zip(places, params(site.kernel)[buf.name].shape, strict=True)
    tests = (compare(op, place, end) for place, size in ends for op, end in ((">=", 0), ("<", size)))
    return all(test in known or decide(test, ranges) is True for test in tests)


@each_once
def _divided_by(value: Any, axis: Var) -> int:
    """Return the number that an expression divides an axis by, wherever it has it; 0 where it has not."""
    if value == axis:
        return 1
    if isinstance(value, Binary) and value.op == "//" and value.a == axis and isinstance(value.b, int):
        return value.b
    below = values(value) if isinstance(value, Node) else value if value.__class__ is tuple else ()
    return gcd(*(_divided_by(part, axis) for part in below))


@statement_fact
def row_coalesced(site: Site, body: Block, team: NameList) -> bool:
    """Return whether neighbouring threads of a team mostly read the same sectors, weighted by size."""
    good = bad = 0
    for stmt in accesses(body):
        flat, buffer = address_of(site, stmt), params(site.kernel).get(stmt.buf)
        size = at_hint(prod(buffer.shape)) if buffer is not None else 0
        most = SECTOR // (2 * DTYPE_BYTES[buffer.dtype]) if buffer is not None else 1
        for loop in team:
            if loop.name in free_names(flat):
                near = loop.name in _stepping(flat, most)
                good, bad = good + size * near, bad + size * (not near)
    return good >= bad


@statement_fact
def one_run(site: Site, body: Block, i: Var, j: Var, extent: int) -> bool:
    """Return whether i and j appear in addresses only, and there only as `c*(i*extent + j)`."""
    return as_one(site, body, accesses(body), i, j, extent)


def as_one(site: Site, body: Block, looked_at: Iterable[Any], i: Var, j: Var, extent: int) -> bool:
    """Return whether i and j appear in addresses only, and in those of `looked_at` only as `c*(i*extent + j)`."""
    known = {i.name, j.name}
    for stmt in looked_at:
        terms, _ = linear(address_of(site, stmt))
        if terms.get(i, 0) != extent * terms.get(j, 0):
            return False
        if any(known & free_names(atom) for atom in terms if atom is not i and atom is not j):
            return False
    return known.isdisjoint(free_names(tuple(values_of(body))))


def values_of(body: Block) -> Iterator[Any]:
    """Yield the expressions that a run computes and tests, except the indices of its accesses."""
    for stmt in body:
        skipped = ("idx",) if isinstance(stmt, Load | Store) else ()
        yield from (getattr(stmt, f.name) for f in type(stmt).fields if f.sort == "Expr" and f.name not in skipped)
        yield from values_of(getattr(stmt, "body", ()))


# ---- Facts about operands that a product reads through a window: an index combines an axis and a loop.


@statement_fact
def windowed(site: Site, body: Block) -> bool:
    """Return whether an axis of the Tile and a loop of a reduction together form an index of a load in a run."""
    axes = axis_names(site)
    places = [e for load in summary(body).loads for e in load.idx]
    return any(axes & names and not names <= axes for names in map(free_names, places))


class Window(NamedTuple):
    """Load whose windows overlap, for outputs that a thread has in registers.

    buf, idx: what it reads. tile: a name for registers of a dtype, all with a box; axes: those of the box that the Tile
    lacks. at, inside, other: the load of the whole line along these axes; cell: the register of one load; size:
    registers.
    """

    buf: Var
    idx: tuple[Expr, ...]
    tile: Var
    dtype: Var
    axes: tuple[Axis, ...]
    box: tuple[Axis, ...]
    at: tuple[Expr, ...]
    inside: Expr
    other: Any
    cell: tuple[Expr, ...]
    size: int


@statement_fact
def windows(site: Site, body: Block, k: Var, extent: int) -> tuple[Window, ...]:
    """Return the loads of a loop over `k` whose windows along it overlap for outputs in registers of a thread."""
    inputs = {param.name: param for param in site.kernel.ins}
    own = {stmt.var if isinstance(stmt, For) else stmt.dst for stmt in nodes(body, For, Load, Let)}
    loads = (load for load in summary(body).loads if load.buf in inputs and own.isdisjoint(free_names(_reads(load))))
    found = (_window(site, load, k.name, extent, inputs[load.buf].dtype) for load in loads)
    return tuple(window for window in found if window is not None)


@statement_fact
def sliding(body: Block, axis: Var) -> tuple[Node, ...]:
    """Return the loads of a run whose windows overlap for neighbours along an axis."""
    loops = [loop for loop in summary(body).loops if loop.start == 0 and loop.step == 1 and is_int(loop.stop)]

    def slides(load: Load) -> bool:
        return any(0 < abs(window_step(load, axis.name, loop.var)) < loop.stop for loop in loops)

    return tuple(load for load in summary(body).loads if slides(load))


def _window(site: Site, load: Load, k: str, extent: int, dtype: str) -> Window | None:
    """Return the windows of a load, None if none of those along `k` overlap."""
    names, taken = free_names(_reads(load)), names_in(site.kernel)
    held = {axis.name: axis.extent for axis in site.tile_axes if axis.role == "REG" and axis.name in names}
    for axis, count in held.items():
        step = window_step(load, axis, k)
        if not 0 < abs(step) < extent:
            continue
        first = min(step * (count - 1), 0)  # by which the last output begins before the first
        label, rest = Var(unused(f"{k}_in", taken)), [Axis(name, n) for name, n in held.items() if name != axis]
        at, inside = substitute((load.idx, load.when), {axis: 0, k: add(label, first)})
        line = Axis(label.name, extent + abs(step) * (count - 1), "REG")
        cell = subtract(add(Var(k), multiply(step, Var(axis))), first)
        return Window(
            Var(load.buf), load.idx, Var(unused(f"{load.buf}_window", taken)), Var(dtype), (line,),
            (*rest, Axis(line.name, line.extent)), at, inside, load.other, (*(Var(other.name) for other in rest), cell),
            line.extent * prod(extents_of(rest)),
        )  # fmt: skip
    return None


def _reads(load: Load) -> tuple[Any, ...]:
    return (*load.idx, load.when)


def window_step(load: Load, axis: str, loop: str) -> int:
    """Return how many iterations of a loop are one step of an axis wherever a load mentions either, else 0."""
    found = _coefficients(load)
    if not {axis, loop} <= found.keys():
        return 0
    place, moved = next(iter(found[axis].items()))
    each = found[loop].get(place)
    step = moved // each if each else 0
    return step if _one_index(found, Var(axis), Var(loop), step) else 0


@statement_fact
def run_of_an_operand(site: Site, body: Block, i: Var, j: Var, extent: int) -> bool:
    """Return whether some load of a run mentions i and j as `i*extent + j` only."""
    loads = [load for load in summary(body).loads if {i.name, j.name} <= free_names(load.idx)]
    return any(as_one(site, (), (load,), i, j, extent) for load in loads)


@statement_fact
def along_the_same(body: Block, i: Var, j: Var) -> bool:
    """Return whether every load of a run that mentions one of two axes mentions both, and some does."""
    mentioned = [{i.name, j.name} & free_names(load.idx) for load in summary(body).loads]
    return any(mentioned) and all(len(names) != 1 for names in mentioned)


@statement_fact
def periods(site: Site, body: Block, k: Var) -> tuple[int, ...]:
    """Return the numbers whose multiples can be factored out of the digits of k in indices, the largest first.

    The largest can be factored out of all digits, the next out of all but the slowest. For `k // 3 // 3, k // 3 % 3,
    k % 3` they are 9 and 3. There are none if k appears undivided.
    """
    known = ranges_of(site.kernel)
    places = [tidy(e, known) for load in summary(body).loads for e in load.idx]
    each = sorted({period for e in places for period in _periods(e, k.name)})
    return tuple(sorted({lcm(*each[:count]) for count in range(1, len(each) + 1)}, reverse=True))


def _periods(e: Any, name: str) -> Iterator[int]:
    """Yield the period of each quotient and remainder of a name: after it, the value is the same but for a number."""
    for part in distinct(e, Binary):
        if part.op in ("//", "%") and is_int(part.b) and name in free_names(part.a):
            inside = [inner.b for inner in distinct(part.a, Binary) if inner.op == "//" and name in free_names(inner.a)]
            yield part.b * prod(inside)


# ---- Facts about which axes of a Tile make tiles: what a product loads again for every element of an axis.


@statement_fact
def reuse(site: Site, body: Block, axis: Var) -> int:
    """Count the elements that the loops of a run load again for every element of an axis.

    Only loads that do not vary with the axis count.
    """
    unknown = policy(site.target).unknown_iterations
    extents = {loop.var: loop.stop if loop.stop.__class__ is int else unknown for loop in summary(body).loops}
    count = 0
    for load in summary(body).loads:
        varying = dependencies(load.idx, body)
        if axis.name not in varying and not varying.isdisjoint(extents):
            count += _product(extents, varying)
    return count


@statement_fact
def indexed_as_one(site: Site, body: Block, i: Var, j: Var, extent: int) -> bool:
    """Return whether i and j appear in addresses only, and in those of loads only as `c*(i*extent + j)`."""
    return as_one(site, body, summary(body).loads, i, j, extent)


@statement_fact
def sums_kept(body: Block) -> int:
    """Count the sums that a thread keeps for each of its elements."""
    return len({stmt.acc for stmt in summary(body).sums})


# ---- dimensions of a buffer that are indexed as one


@statement_fact
def joined_dim(buf: Var, shape: ValueList, body: Block) -> int:
    """Return the first dimension of a buffer that every load of a run joins with the next one; -1 for none."""
    places = [load.idx for load in summary(body).loads if load.buf == buf.name]
    for dim in range(len(shape) - 1) if places else ():
        joined = [_joined(idx[dim], idx[dim + 1], shape[dim + 1]) for idx in places]
        if None not in joined and any(place.__class__ is not int for place in joined):
            return dim
    return -1


@statement_fact
def jumps(buf: Var, lane: Var, body: Block) -> bool:
    """Return whether a load of a buffer goes on with an axis in other dimensions than the last: lanes along it jump."""
    places = [load.idx for load in summary(body).loads if load.buf == buf.name]
    return any(lane.name in free_names(idx[:-1]) and lane.name not in free_names(idx[-1]) for idx in places)


@statement_fact
def join_dims(dims: ValueList, dim: int) -> tuple[Any, ...]:
    """Return the dimensions of a buffer with one of them and the next made one."""
    return (*dims[:dim], dims[dim] * dims[dim + 1], *dims[dim + 2 :])


@statement_fact
def join_places(idx: ExpressionList, dim: int, extent: int) -> ExpressionList:
    """Return an index of a buffer after dimension `dim` and the next one, of an extent, were joined.

    Indices that are not a quotient and a remainder divide once.
    """
    places = (*idx[:dim], _joined(idx[dim], idx[dim + 1], extent), *idx[dim + 2 :])
    return tuple(simplify(place, {}) for place in places)


def _joined(outer: Any, inner: Any, extent: int) -> Any:
    """Return `outer*extent + inner` if it is simple, else None.

    It is for two numbers, for quotient and remainder of one number, and for a remainder.
    """
    if outer.__class__ is int and inner.__class__ is int:
        return outer * extent + inner
    if inner.__class__ is not Binary or inner.op != "%" or inner.b != extent:
        return None
    whole = inner.a
    if outer is binary("//", whole, extent):
        return whole
    if outer.__class__ is Binary and outer.op == "%" and outer.a is binary("//", whole, extent):
        return binary("%", whole, outer.b * extent)
    return None
