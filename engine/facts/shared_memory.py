"""Facts about shared memory: what to copy there, its layout, bank conflicts, and the pieces of stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...ir.dtypes import FLOATS, INTEGERS
from ...ir.expr import (
    Binary,
    Call,
    Var,
    add,
    binary,
    both,
    free_names,
    from_linear,
    is_int,
    linear,
    modulo,
    multiply,
    only_sizes,
    subtract,
)
from ...ir.facts import warp_accesses
from ...ir.facts.layout import (
    CHUNK,
    DTYPE_BYTES,
    SECTOR,
    WORD,
    CopyShape,
    address,
    all_shared_tile_bytes,
    bound_ranges,
    cell_of,
    copy_shape,
    is_box,
    is_vector,
    item_bytes,
    params,
    place_in_source,
    ranges_of,
    shared_tile_bytes,
    stages,
    strides,
    tidy,
)
from ...ir.facts.structure import accumulators, only, summary
from ...ir.facts.warp_accesses import (
    STAGED_DTYPES,
    Footprint,
    IndexBox,
    RangedBlock,
    at_lanes,
    box_of,
    footprints as find_footprints,
    lane_values,
    lies_in as find_lies_in,
    region,
    requests,
)
from ...ir.loop import Accumulate, For, If, Let, Load, Store
from ...ir.names import unused
from ...ir.node import names_in, replace
from ...ir.program import Block, Kernel, Param
from ...ir.ranges import decide, interval
from ...ir.sizes import at_hint, decide_sizes
from ...ir.tile import AlongAxes, Stage, TuplesAlongAxes
from ..language.evaluate import (
    AxisList,
    Expression,
    ExpressionList,
    NumberList,
    StatementList,
    ValueList,
    fact,
    statement_fact,
    tile_fact,
)
from ..rewrite.statements.site import Context, Site
from .accesses import accesses
from .structure import also_outside, conjuncts, unwrapped
from .tensor import pow2

TILE = "module loop tile"


@statement_fact
def footprints(site: Site, body: Block, axes: AxisList, *more: Any) -> tuple[Footprint, ...]:
    """Return the boxes that a run reads of each input, over its loops and the axes inside of a block.

    more: the context of the run, or a loop (its variable and extent) that counts as inside.
    """
    return find_footprints(_region(site, body, axes, more))


@statement_fact
def lies_in(site: Site, idx: ExpressionList, foot: Footprint, body: Block, axes: AxisList, *more: Any) -> bool:
    """Return whether a footprint contains a load of a run with this index. more: as for footprints."""
    return find_lies_in(idx, foot, _region(site, body, axes, more))


def _region(site: Site, body: Block, axes: Any, more: tuple[Any, ...]) -> RangedBlock:
    outside = dict(site.ranges)
    for context in more:
        if isinstance(context, Context):
            own = [stmt for stmt in context.hole if isinstance(stmt, For) and stmt.body == body]
            for loop in (*context.loops, *own):
                outside.update(bound_ranges(loop, outside))
    pairs = [item for item in more if not isinstance(item, Context)]
    extra = {var.name: extent for var, extent in zip(pairs[::2], pairs[1::2], strict=True)}
    return region(site.kernel, body, axes, outside, extra)


@statement_fact
def local(idx: ExpressionList, foot: Footprint) -> ExpressionList:
    """Return an index of a buffer as an index of the copy of its footprint."""
    return foot.cells or tuple(subtract(idx[dim], base) for dim, base in zip(foot.dims, foot.base, strict=True))


@fact("bytes([stmt]) -> int", TILE)
def size_of(site: Site, copies: Any) -> int:
    """Return the shared memory of one slot of each of some Stages."""
    return sum(shared_tile_bytes(site.kernel, stage) for stage in copies)


@statement_fact
def item(site: Site, stage: Stage) -> int:
    """Return the bytes of an element of a Stage."""
    return item_bytes(site.kernel, stage)


@statement_fact
def smem_left(site: Site) -> int:
    """Return the shared memory that neither shared tiles nor the exchanges of Combines use."""
    return site.target.smem - all_shared_tile_bytes(site.kernel) - warp_accesses.exchange_bytes(site.kernel)


@fact("fitting([record], int) -> [record]", TILE)
def fitting(feet: Any, room: int) -> tuple[Footprint, ...]:
    """Return the first footprints of a list that fit into some shared memory together."""
    taken = []
    for foot in feet:
        if foot.bytes <= room:
            taken.append(foot)
            room -= foot.bytes
    return tuple(taken)


@statement_fact
def box_ok(site: Site, copies: StatementList) -> bool:
    """Return whether TMA can copy all of some Stages."""
    known = params(site.kernel)
    return all(is_box(s, known[s.src].shape, item_bytes(site.kernel, s)) for s in copies)


@statement_fact
def read_better_unboxed(site: Site, copies: StatementList, body: Block) -> bool:
    """Return whether padding or a xor layout of some shared tile takes fewer wavefronts than any TMA layout."""
    pads = pow2(1, 2 * site.target.vector_bytes // WORD)
    return any(warp_accesses.box_loss(site.kernel, stage, body, pads) > 0 for stage in copies)


@fact("copy_shape(stmt) -> record", TILE)
def shape_of_copy(site: Site, stage: Stage) -> CopyShape:
    """Return the shape of a copy by the threads of a block: `.width`, `.chunks`, `.rows` and `.threads`."""
    return copy_shape(site.kernel, stage)


@statement_fact
def bank_cycles(site: Site, body: Block) -> int:
    """Count the wavefronts of one warp for what a run reads of all shared tiles."""
    return warp_accesses.bank_cycles(site.kernel, body)


@statement_fact
def xor_maps(site: Site, stage: Stage) -> ValueList:
    """Return the xor layouts of a shared tile worth trying."""
    return warp_accesses.xor_maps(stage, item_bytes(site.kernel, stage))


@statement_fact
def best_xor(site: Site, stage: Stage, body: Block) -> tuple[int, ...]:
    """Return the xor layout with the fewest wavefronts."""
    return warp_accesses.best_xor(site.kernel, stage, body)


@statement_fact
def wavefronts(site: Site, stage: Stage, body: Block, bits: NumberList) -> int:
    """Count the wavefronts of one warp for a shared tile under a xor layout."""
    return warp_accesses.xor_cycles(stage, requests(site.kernel, stage, body), bits)


@statement_fact
def padded_wavefronts(site: Site, stage: Stage, body: Block, pad: int) -> int:
    """Count the wavefronts of one warp if the rows of a shared tile had `pad` unused elements.

    A vector may become several accesses.
    """
    return warp_accesses.padded_cycles(site.kernel, stage, body, pad)


@statement_fact
def padded_accesses(site: Site, stage: Stage, body: Block, pad: int) -> int:
    """Count the instructions of one warp for a shared tile, if its rows had `pad` unused elements."""
    return warp_accesses.padded_accesses(site.kernel, stage, body, pad)


@statement_fact
def swizzled_wavefronts(site: Site, stage: Stage, body: Block, span: int) -> int:
    """Count the wavefronts of one warp if the rows of a shared tile were cut into spans of so many bytes.

    TMA swizzles the spans.
    """
    return warp_accesses.swizzled_cycles(stage, requests(site.kernel, stage, body), span)


@statement_fact
def strided_lanes(site: Site, body: Block, stage: Stage, stride: int) -> bool:
    """Return whether all loads of a shared tile give neighbouring lanes rows that are `stride` apart."""
    lanes = [Var(axis.name) for axis in site.tile_axes if axis.role == "THREAD"]
    loads = [load for load in summary(body).loads if load.buf == stage.dst]
    rows = [linear(cell_of(stage, load.idx)[0])[0] for load in loads]
    return bool(rows) and bool(lanes) and all(terms.get(lanes[-1]) == stride for terms in rows)


@statement_fact
def makes_ring(copies: StatementList, body: Block, iteration: Var) -> bool:
    """Return whether iteration k of a loop copies to slot k % depth, and its body accesses only that slot."""
    slots = {stage.dst: stage.slot for stage in copies if stage.depth > 1}
    own = all(access.idx[0] == slots[access.buf] for access in accesses(body) if access.buf in slots)
    return own and all(stage.slot == modulo(iteration, stage.depth) for stage in copies)


# ---- guards inside of reductions


@statement_fact
def only_staged(site: Site, body: Block) -> bool:
    """Return whether a run reads shared memory only and writes nothing, so that it is harmless without its guard."""
    shared_tiles, found = stages(site.kernel), summary(body)
    return all(load.buf in shared_tiles for load in found.loads) and not found.stores and not found.barriers


@statement_fact
def in_shared_tiles(site: Site, body: Block) -> bool:
    """Return whether every load of a run stays inside of its shared tile without any guard."""
    shared_tiles, known = stages(site.kernel), ranges_of(site.kernel)
    for load in summary(body).loads:
        if load.buf not in shared_tiles:
            return False
        for axis, position in zip(shared_tiles[load.buf].box, cell_of(shared_tiles[load.buf], load.idx), strict=True):
            low, high = interval(tidy(position, known), known)
            if low < 0 or high >= axis.extent:
                return False
    return True


@statement_fact
def read_under(site: Site, body: Block, condition: Expression) -> bool:
    """Return whether what a run accumulates is used only under a guard that implies the condition.

    A value that is computed from them elsewhere is as good as they are.
    """
    names, wanted = set(summary(body).folded), set(conjuncts(condition))
    for stmt, guards, _ in _guarded(site.kernel.body):
        if isinstance(stmt, AlongAxes | TuplesAlongAxes):
            if not names.isdisjoint(stmt.accs):
                return False
        elif not wanted.issubset(guards):
            own = tuple(getattr(stmt, f.name) for f in type(stmt).fields if f.sort == "Expr")
            if not names.isdisjoint(free_names(own)):
                if not isinstance(stmt, Let):
                    return False
                names.add(stmt.dst)
    return True


def _guarded(block: Block, guards: tuple[Any, ...] = (), looped: bool = False) -> Iterator[tuple[Any, Any, bool]]:
    """Yield the statements of a block that contain no others, with the conditions around each and whether a loop is."""
    for stmt in block:
        if hasattr(stmt, "body"):
            own = conjuncts(stmt.cond) if isinstance(stmt, If) else ()
            yield from _guarded(stmt.body, (*guards, *own), looped or isinstance(stmt, For))
        else:
            yield stmt, guards, looped


# Functions that are finite for finite operands, and zero where all operands are.
_ZERO_AT_ZERO = frozenset(
    ("add", "subtract", "maximum", "minimum", "negative", "abs", "copy", "relu", *FLOATS, *INTEGERS)
)
_FINITE = _ZERO_AT_ZERO | {"multiply", "tanh", "sigmoid", "sin", "cos"}


@statement_fact
def zero_product(site: Site, body: Block, condition: Expression, *zero: Var) -> bool:
    """Return whether what a guard hides is zero added to sums: a product with a zero-filled operand, the rest finite.

    zero: values of the run that are taken for zero where the guard fails.
    """
    body = unwrapped(body, lambda stmt: isinstance(stmt, For) and stmt.role == "reduce")
    if condition.__class__ is not Binary or condition.op != "<" or not only(body, Load, Let, Accumulate):
        return False
    sums = [stmt for stmt in body if isinstance(stmt, Accumulate)]
    if not sums or len(accumulators(body)) != len({s.acc for s in sums}) or any(s.fn != "add" for s in sums):
        return False
    zeros, finite = _zeros(site, body, condition, {value.name for value in zero})
    return all(stmt.val.__class__ is Var and stmt.val.name in zeros and stmt.val.name in finite for stmt in sums)


def _zeros(site: Site, body: Block, condition: Any, known: set[str]) -> tuple[set[str], set[str]]:
    """Return the values of a block that are zero where the guard fails, and the values that are finite there.

    known: the values that are known to be zero there.
    """
    zeros = set(known)
    finite = set(known)
    for stmt in body:
        if isinstance(stmt, Load) and _beyond_source(site, stmt, condition):
            zeros.add(stmt.dst)
            finite.add(stmt.dst)
        elif isinstance(stmt, Let) and stmt.val.__class__ is Call:
            names = [arg.name if arg.__class__ is Var else "" for arg in stmt.val.args]
            if stmt.val.fn in _FINITE and all(name in finite for name in names):
                finite.add(stmt.dst)
            every = stmt.val.fn in _ZERO_AT_ZERO and all(name in zeros for name in names)
            product = stmt.val.fn == "multiply" and any(name in zeros for name in names)
            if (every or product) and stmt.dst in finite:
                zeros.add(stmt.dst)
    return zeros, finite


@statement_fact
def zero_filled(site: Site, load: Load, condition: Expression) -> bool:
    """Return whether a load stays in its shared tile, and reads zero fill where a part of a condition fails."""
    plain, stage, known = replace(load, when=True), stages(site.kernel).get(load.buf), ranges_of(site.kernel)
    parts = [part for part in conjuncts(condition) if decide(tidy(part, known), known) is not True]
    gathered = isinstance(stage, Stage) and stage.gathered
    ordered = gathered or all(part.__class__ is Binary and part.op == "<" for part in parts)
    return ordered and all(_beyond_source(site, plain, part) for part in parts) and in_shared_tiles(site, (plain,))


def _beyond_source(site: Site, load: Load, condition: Any) -> bool:
    """Return whether a load reads the zero fill of its shared tile where the condition fails."""
    stage = stages(site.kernel).get(load.buf)
    if not isinstance(stage, Stage) or stage.depth > 1 or load.when is not True:
        return False
    return leaves(site.kernel, stage.src, place_in_source(stage, load.idx), condition)


def leaves(kernel: Kernel, buf: str, position: tuple[Any, ...], condition: Any) -> bool:
    """Return whether an index is outside of its buffer whenever a condition fails."""
    if condition.__class__ is not Binary:
        return False
    known, places = ranges_of(kernel), zip(position, params(kernel)[buf].shape, strict=True)
    if condition.op == ">=":  # an index that is at most a - b is negative whenever `a >= b` fails
        most = subtract(condition.a, condition.b)
        dividends = (dividend for place in position for dividend, _ in _dividends(place, known))
        return any(interval(tidy(subtract(place, most), known), known)[1] <= 0 for place in dividends)
    return condition.op == "<" and only_sizes(condition.b) and any(
        _is_beyond(dividend, multiply(extent, times), condition, known)
        for place, extent in places for dividend, times in _dividends(place, known)
    )  # fmt: skip


def _dividends(place: Any, known: Any) -> tuple[tuple[Any, int], tuple[Any, int]]:
    """Return an index and 1, and the last (a, n) for which the index equals `a // n`: they are negative together."""
    last, times = place, 1
    while (divided := _one_quotient(tidy(last, known))) is not None:
        last, times = divided[0], times * divided[1]
    return (place, 1), (last, times)


def kept_inside(kernel: Kernel, load: Load) -> bool:
    """Return whether a load reads nothing outside of its buffer and gives zero there, as a copy of it would."""
    if load.when is True:
        return True
    known = params(kernel)
    parts = conjuncts(load.when)
    return load.buf in known and load.other == 0 and all(leaves(kernel, load.buf, load.idx, part) for part in parts)


def _is_beyond(place: Any, extent: Any, condition: Any, known: Any) -> bool:
    """Return whether an index is c*a or more, and c*b the extent or more, for a condition `a < b`."""
    terms = linear(tidy(place, known))[0]
    atom, n = next(iter(linear(condition.a)[0].items()), (None, 1))
    times = max(terms.get(atom, 0) // n, 1)
    more = tidy(subtract(place, multiply(condition.a, times)), known)
    return interval(more, known)[0] >= 0 and decide_sizes("<=", extent, multiply(condition.b, times)) is True


def _one_quotient(place: Any) -> tuple[Any, int] | None:
    """Return (a, n) of an expression that equals `a // n`, or None if it does not contain exactly one quotient.

    Terms next to the quotient are multiplied by n and added to a.
    """
    terms, constant = linear(place)
    quotients = [atom for atom, times in terms.items() if times == 1 and atom.__class__ is Binary and atom.op == "//"]
    if len(quotients) != 1 or not is_int(quotients[0].b) or quotients[0].b <= 0:
        return None
    (quotient,) = quotients
    beside = from_linear({atom: times for atom, times in terms.items() if atom is not quotient}, constant)
    return add(quotient.a, multiply(beside, quotient.b)), quotient.b


# ---- Facts about the results of a block: the boxes of rows and columns that its threads store, and in which pieces.


class ResultBox(NamedTuple):
    """Box of results at `buf[origin]`: rows of dimension `row` by columns of the last dimension.

    smem: a name for a shared tile. bytes: shared memory of such a shared tile, with rows padded by a vector against
    bank conflicts. edges: the dimensions at whose ends guards stop.
    """

    buf: Var
    smem: Var
    dtype: Var
    item: int
    rows: int
    columns: int
    origin: tuple[Any, ...]
    row: int
    shape: tuple[Any, ...]
    edges: tuple[int, ...]
    bytes: int


@tile_fact
def result_boxes(site: Site) -> tuple[ResultBox, ...]:
    """Return the boxes that the threads of a block store whole, each by one store after all loops.

    Elements of a row are neighbours in memory: `.rows`, `.columns`, of `.item` bytes. The only guards are the edges
    of the buffer.
    """
    outs = {param.name: param for param in site.kernel.outs}
    here = region(site.kernel, site.tile_body, site.tile_axes, dict(site.ranges), {})
    stored = Counter(store.buf for store in summary(site.tile_body).stores)
    found: list[ResultBox] = []
    for store, guards, looped in _guarded(site.tile_body):
        alone = isinstance(store, Store) and not looped and stored[store.buf] == 1
        if alone and store.buf in outs and outs[store.buf].dtype in STAGED_DTYPES:
            found += _box(site, store, guards, outs[store.buf], here)
    return tuple(found)


@tile_fact
def left_by_ring(site: Site) -> int:
    """Return the bytes of the copied shared tiles that nothing needs after the one loop that fills and reads them.

    The result is 0 if something else is copied or read later, or if TMA copies: TMA may copy again before anything
    orders the copy after the stores of threads.
    """
    loops = [stmt for stmt in site.tile_body if isinstance(stmt, For) and stmt.role == "serial"]
    inside = loops[0].body if len(loops) == 1 else ()
    copies = summary(inside).stages
    names = {stage.dst for stage in copies}

    def needed(block: Block) -> int:
        return len(summary(block).stages) + sum(access.buf in names for access in accesses(block))

    if also_outside(site, inside, needed) or any(stage.via != "ASYNC" for stage in copies):
        return 0
    shared_tiles = stages(site.kernel)
    return sum(shared_tiles[name].depth * shared_tile_bytes(site.kernel, shared_tiles[name]) for name in names)


@tile_fact
def placed(box: ResultBox, cell: ExpressionList) -> ExpressionList:
    """Return the index in the buffer of a row and a column of a box of results."""
    dims = (box.row, len(box.origin) - 1)
    return tuple(add(at, cell[dims.index(dim)]) if dim in dims else at for dim, at in enumerate(box.origin))


@tile_fact
def within_edges(box: ResultBox, cell: ExpressionList) -> Expression:
    """Return whether a row and a column of a box of results lie within the edges of the buffer that are guarded."""
    condition: Any = True
    place = placed(box, cell)
    for dim in box.edges:
        condition = both(condition, binary("<", place[dim], box.shape[dim]))
    return condition


@tile_fact
def thread_number(axes: AxisList) -> Expression:
    """Return the number of a thread in its block."""
    number: Any = 0
    for axis in axes:
        if axis.role == "THREAD":
            number = add(multiply(number, axis.extent), Var(axis.name))
    return number


def _box(site: Site, store: Store, guards: Any, param: Param, here: RangedBlock) -> Iterator[ResultBox]:
    """Yield the box that a store fills, if it has all rows and columns and its guards are edges of the buffer."""
    box = box_of(store.idx, here)
    dims = [dim for dim, (extent, _) in enumerate(box.sides) if extent > 1] if box is not None else []
    if box is None or len(dims) != 2 or dims[1] != len(param.shape) - 1 or not _whole(store, box, here):
        return
    edges = [_edge(store, guard, param, here) for guard in guards]
    if any(dim not in dims for dim in edges):
        return
    rows, columns = (box.sides[dim][0] for dim in dims)
    item, smem = DTYPE_BYTES[param.dtype], unused(f"{param.name}_out", names_in(site.kernel))
    yield ResultBox(
        Var(param.name), Var(smem), Var(param.dtype), item, rows, columns, box.origin, dims[0], param.shape,
        tuple(sorted({dim for dim in edges if dim is not None})), rows * (columns * item + site.target.vector_bytes),
    )  # fmt: skip


def _edge(store: Store, guard: Any, param: Param, here: RangedBlock) -> int | None:
    """Return the dimension of a buffer at whose end a guard keeps a store from going on."""
    if guard.__class__ is Binary and guard.op == "<":
        for dim, (place, extent) in enumerate(zip(store.idx, param.shape, strict=True)):
            if guard.b == extent and tidy(subtract(guard.a, place), here.ranges) == 0:
                return dim
    return None


def _whole(store: Store, box: IndexBox, here: RangedBlock) -> bool:
    """Return whether the local names number the elements along each dimension.

    No element may be left out, or stored twice.
    """
    used: list[str] = []
    for e, (extent, _) in zip(store.idx, box.sides, strict=True):
        own = [(n, at.name) for at, n in linear(e)[0].items() if at.__class__ is Var and at.name in here.local]
        used += [name for _, name in own]
        reached = 1
        for factor, name in sorted(own):
            if factor != reached:
                return False
            reached *= here.ranges[name][1] + 1
        if reached != extent:
            return False
    missing = here.local - set(used)
    return len(set(used)) == len(used) and all(here.ranges[name][1] == 0 for name in missing & here.threads)


@tile_fact
def stored_in_pieces(site: Site, box: ResultBox) -> bool:
    """Return whether the widest store instruction of a warp leaves parts of its sectors of a box to others."""
    (store,) = (store for store in summary(site.tile_body).stores if store.buf == box.buf.name)
    flat, item = address(site.kernel, store.buf, store.idx), box.item
    replicated = [axis for axis in site.tile_axes if axis.role in ("REG", "VEC") and axis.extent * item <= CHUNK]
    width = max((a.extent for a in replicated if is_vector(flat, a.name, a.extent)), default=1)
    lanes = lane_values(tuple((a.name, at_hint(a.extent)) for a in site.tile_axes if a.role == "THREAD"))
    steps = strides(tuple(at_hint(extent) for extent in box.shape))  # of a size, as it is as a rule
    moved = [_at_lanes(e, lanes) * step for e, step in zip(store.idx, steps, strict=True)]
    places = {at_hint(place) for place in np.atleast_1d(sum(moved)).tolist()}
    touched = {place * item // SECTOR for place in places}
    return len(touched) * SECTOR > len(places) * width * item and len(places) > 1


def _at_lanes(e: Any, lanes: dict[str, Any]) -> Any:
    """Return the part of an index that differs between lanes, for each lane."""
    terms = {atom: factor for atom, factor in linear(e)[0].items() if not free_names(atom).isdisjoint(lanes)}
    return at_lanes(from_linear(terms, 0), lanes)
