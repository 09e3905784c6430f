"""What one pass over scores that are computed on the way costs, against storing them: before there is a schedule.

Both figures are what engine/cost predicts for the kernels that come out, told ahead of them: the coefficients
(`passes_` in rules/policy.rw) are of its instruction counts of the schedules that the rules make
(tests/explore/test_online_profit.py compares the two over a grid of shapes and devices). A block works alone on its
rows, so one pass is a matter of how many blocks there are, and of what is busiest in each: the schedulers, the pipe of
the products, or shared memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...ir.atoms import ATOMS, Atom
from ...ir.dtypes import HALVES
from ...ir.expr import Axis, Binary, free_names, linear, subtract
from ...ir.facts.layout import BANKS, WORD
from ...ir.ranges import interval
from ...ir.sizes import at_hint
from ...ir.tensor import Const, Elementwise, Index, Reduce, Term, axes, dtype, operands
from ..cost.accesses import LANES
from ..cost.fusing import fixed_seconds, traffic_rate
from ..cost.latency import BARRIER_CYCLES, L2_SHARE, SHARED_CYCLES
from ..language.facts import fact
from ..language.policy import policy

PASSES = 3  # a unit: the kernels of three passes


class OnlineShape(NamedTuple):
    """A sum over n of functions of x times v: what is independent, rows and columns of the scores, products of a score,
    results of a row. seen: the scores of a row in the middle that count; hides: whether there are others."""

    batch: int
    rows: int
    columns: int
    products: int
    results: int
    seen: float
    hides: bool


def _extent(found: Any) -> int:
    return math.prod(at_hint(axis.extent) for axis in found)


def _products(x: Term) -> int:
    """Products that make one element of x of what is stored: what they multiply is computed before, however it is."""
    count, pending, seen = 0, [x], set()
    while pending:
        term = pending.pop()
        if term in seen:
            continue
        seen.add(term)
        if isinstance(term, Reduce):
            count += _extent(term.over)
        else:
            pending.extend(operands(term))
    return count


def _shape(x: Term, v: Term, n: Axis) -> OnlineShape:
    own = [axis for axis in axes(x) if axis is not n]
    rows = [axis for axis in own if axis not in axes(v)]
    results = [axis for axis in axes(v) if axis not in axes(x)]
    seen = _seen(x, n)
    batch, columns = _extent(axis for axis in own if axis not in rows), _extent((n,))
    return OnlineShape(
        batch, _extent(rows), columns, _products(x), _extent(results),
        columns if seen is None else seen, seen is not None,
    )  # fmt: skip


def _seen(x: Term, n: Axis) -> float | None:
    """The places along n that count in the middle of all rows, if `x = where(n <= e, y, -inf)` says; else none."""
    if not isinstance(x, Elementwise) or x.fn != "where" or not isinstance(x.args[0], Index):
        return None
    condition, hidden = x.args[0].expr, x.args[2]
    if not isinstance(hidden, Const) or hidden.value != -math.inf:
        return None
    if condition.__class__ is not Binary or condition.op not in ("<", "<="):
        return None
    if linear(condition.a)[0].get(n) != 1 or n.name in free_names(condition.b):
        return None
    terms, constant = linear(subtract(condition.b, subtract(condition.a, n)))
    middle = constant + sum(factor * sum(interval(atom, {})) / 2 for atom, factor in terms.items())
    return min(max(middle, 0.0), float(at_hint(n.extent)))


@fact("in_one_pass(term, term, axis) -> num", levels="tensor")
def in_one_pass(site: Any, x: Term, v: Term, n: Axis) -> float:
    """Seconds of kernels that compute scores x and weigh v with them, along n, without storing the scores."""
    return _in_one_pass(site.target, x, v, n)


@fact("has_one_pass(term, term, axis) -> bool", levels="tensor")
def has_one_pass(site: Any, x: Term, v: Term, n: Axis) -> bool:
    """Whether there is a schedule that weighs v with scores x in one pass: it depends on the size of the heads."""
    return _in_one_pass(site.target, x, v, n) < math.inf


def _in_one_pass(target: Any, x: Term, v: Term, n: Axis) -> float:
    if any(axis.extent.__class__ is not int for axis in axes(v) if axis not in axes(x)):
        return math.inf  # no schedule has results along a size
    shape = _shape(x, v, n)
    ways = [_in_rows(shape, target)]
    if _width(shape, target) in policy(target).head_sizes:
        ways.append(_in_tiles(shape, target))
    atom = next((atom for atom in ATOMS.values() if not atom.late and _held(v) in set(HALVES) & set(atom.dtypes)), None)
    if atom is not None and target.sm >= atom.sm:
        ways.append(_in_fragments(shape, atom, target))
    return min(ways)


def _held(v: Term) -> str:
    """The dtype of a value in memory: what is computed with it is f32."""
    while isinstance(v, Elementwise) and v.fn == "f32":
        (v,) = v.args
    return dtype(v)


def _in_fragments(shape: OnlineShape, atom: Atom, target: Any) -> float:
    """A tile of rows a block, whose products tensor cores do (`online_fragments`): a warp has the rows of an atom."""
    p, chunk = policy(target), policy(target).online_chunk_columns
    if shape.rows == 1:
        return math.inf
    products, results = atom.k * -(-shape.products // atom.k), atom.n * -(-shape.results // atom.n)  # padded by zeros
    fitting = [n for n in p.fragment_rows if shape.batch * -(-shape.rows // n) >= target.multiprocessors]
    block = min(
        max(fitting, default=min(p.fragment_rows)), max(min(p.fragment_rows), 1 << (shape.rows - 1).bit_length())
    )
    blocks = shape.batch * -(-shape.rows // block)
    warps, operations = max(1, block // atom.m), 2 * block * chunk * (products + results)
    atoms = operations / (2 * atom.m * atom.n * atom.k)
    issued = p.passes_atom_issued * atoms + p.passes_atom_score * block * chunk / LANES
    busy = max(issued / min(target.schedulers, warps), p.passes_atom_read * atoms)
    piped = operations * target.multiprocessors * target.clock / target.tensor_flops_per_second
    waiting = BARRIER_CYCLES + 2 * SHARED_CYCLES
    each = max(busy, piped)
    turns = -(-blocks // target.multiprocessors)
    chunks = min(-(-shape.columns // chunk), (shape.seen + ((block if shape.hides else 0) + chunk) / 2) / chunk)
    return fixed_seconds(target) + chunks * (turns * each + waiting) / target.clock  # type: ignore[no-any-return]


def _in_rows(shape: OnlineShape, target: Any) -> float:
    """A row a block, or several blocks and a second kernel, as `online_row` and `split_fold` do where rows have values
    of their own: keys and values are read once, and the lanes of a warp share the products of a score."""
    p = policy(target)
    whole = math.gcd(shape.products, shape.results)
    vectors = [n for n in p.online_row_lanes if whole % (p.vector_float * n) == 0]
    if shape.rows > 1 or not vectors:
        return math.inf
    scores, each = shape.batch * shape.columns, shape.products + shape.results
    moved = WORD * scores * each / traffic_rate(target)
    issued = scores * (p.passes_issued * each + p.passes_row_issued * max(vectors)) / LANES
    busy = issued / (target.schedulers * min(target.multiprocessors, p.passes_row_blocks * shape.batch) * target.clock)
    return (1 + (2 * shape.batch <= target.multiprocessors)) * fixed_seconds(target) + max(moved, busy)  # type: ignore[no-any-return]


def _in_tiles(shape: OnlineShape, target: Any) -> float:
    """A tile of rows a block."""
    p = policy(target)
    fits = WORD * p.online_chunk_columns * shape.results <= target.smem // p.staged_share
    chunk = p.online_chunk_columns if fits and shape.columns > p.online_few_columns else p.online_few_columns
    block, rows, columns = _rows(shape, chunk, target)
    lanes = chunk // columns
    shape = shape._replace(
        results=_padded(shape.results, lanes, rows, p.online_strips)
    )  # what the last strips lack is computed, too
    warps = max(1, block // rows * lanes // LANES)
    each = block * chunk / LANES  # of a warp, for one step of all products of a chunk
    pair = p.lanes_served  # lanes along the columns read one row
    words = shape.products * (1 / rows + 1 / columns / pair) + shape.results * (1 / rows + lanes / shape.results / pair)
    products = each * (shape.products + shape.results)
    shared = p.passes_moved * each * words * BANKS * WORD / target.shared_bytes_per_clock
    turns = -(-shape.batch * -(-shape.rows // block) // target.multiprocessors)
    issued = p.passes_issued * products
    alone = max(issued / min(target.schedulers, warps), shared)
    busy = max(issued / min(target.schedulers, warps * min(turns, max(p.blocks_together))), shared)
    # a block that shares its multiprocessor with no other waits for its own copies and barriers
    waiting = (
        p.passes_waits * SHARED_CYCLES + 2 * BARRIER_CYCLES + L2_SHARE * target.memory_latency_seconds * target.clock
    )
    piped = p.passes_piped * products * LANES / target.fp32_per_clock
    cycles = max(alone + waiting, (turns - 1) * max(busy, piped) + max(busy + waiting, piped))
    behind = (block + chunk) / 2 if shape.hides else chunk / 2  # the last row of a block decides, by whole chunks
    chunks = min(-(-shape.columns // chunk), (shape.seen + behind) / chunk)
    return fixed_seconds(target) + chunks * cycles / target.clock  # type: ignore[no-any-return]


def _width(shape: OnlineShape, target: Any) -> int:
    """Results of a row in whole chunks, as `online_width` has them."""
    chunk = policy(target).online_chunk_columns
    return chunk * -(-shape.results // chunk)  # type: ignore[no-any-return]


def _padded(results: int, lanes: int, rows: int, widths: tuple[int, ...]) -> int:
    """The results that lanes compute in whole strips, as `online_tile` chooses their width."""
    strips = {n: -(-results // (lanes * n)) for n in widths}
    width = min(strips, key=lambda n: strips[n] * (rows * n + 1))
    return lanes * width * strips[width]


def _rows(shape: OnlineShape, chunk: int, target: Any) -> tuple[int, int, int]:
    """Rows of a block, and rows and columns of each of its threads, as `online_rows_alike`, `online_rows_at` and
    `online_columns_at` have them."""
    p = policy(target)
    columns = max(p.online_least_columns, p.online_columns_of_results // _width(shape, target))
    most = p.online_head_rows * p.online_head * p.online_chunk_columns // (_width(shape, target) * chunk)
    most = max(min(p.online_rows), min(most, max(p.online_rows), 1 << (shape.rows - 1).bit_length()))
    alone = [n for n in p.online_rows if n < most and shape.batch * -(-shape.rows // n) <= target.multiprocessors]
    block = min(alone, default=most)
    if shape.batch * -(-shape.rows // block) > target.multiprocessors:
        if not shape.hides and _halves(shape, block, chunk, target):
            return block // 2, p.online_rows_of_thread, p.online_least_columns
        return block, p.online_rows_of_thread, columns
    least = p.online_least_columns
    few, many = (_rows_each(block, chunk // n, target) for n in (columns, least))
    if _shares(shape, block, many, chunk, target):
        return block // 2, many, least
    return (block, many, least) if many > few else (block, few, columns)


def _rows_each(block: int, lanes: int, target: Any) -> int:
    """Rows of a thread of a block that has its multiprocessor alone, as `online_rows_each` has them."""
    p = policy(target)
    wanted = min(p.online_rows_of_thread, block * lanes // p.online_alone_threads)
    return max(wanted, min(p.online_alone_rows, block * lanes // p.online_least_threads), 1)  # type: ignore[no-any-return]


def _shares(shape: OnlineShape, block: int, each: int, chunk: int, target: Any) -> bool:
    """Whether two blocks of half the rows cover each other's waits, as `online_shares` has it. each: of a thread."""
    p = policy(target)
    covered = p.online_waits_covered * p.split_wait * target.fp32_per_clock
    waits = each < p.online_rows_of_thread and 2 * block * chunk * shape.results <= covered
    held, copied = _held_by(block // 2, shape, chunk, target), 2 * WORD * chunk * shape.results
    room = (target.smem - target.smem // p.padding_share) // 2
    return waits and block > min(p.online_rows) and held <= room and 2 * (held + copied) > target.smem  # type: ignore[no-any-return]


def _held_by(block: int, shape: OnlineShape, chunk: int, target: Any) -> int:
    """Shared memory of a block of so many rows, as `online_bytes` has it."""
    kept = block * shape.results * WORD
    held = WORD * (block * chunk + 2 * chunk * shape.results)
    return held + kept * (kept <= target.smem // policy(target).kept_share)  # type: ignore[no-any-return]


def _halves(shape: OnlineShape, block: int, chunk: int, target: Any) -> bool:
    """Whether blocks of half as many rows leave fewer to the busiest multiprocessor, as `online_halves` has it."""
    p = policy(target)
    whole, half = (n * -(-shape.batch * -(-shape.rows // n) // target.multiprocessors) for n in (block, block // 2))
    held = _held_by(block // 2, shape, chunk, target)
    warps = p.online_alone_threads * p.online_rows_of_thread * p.online_least_columns <= block // 2 * chunk
    fewer = p.online_worth_of_half * half < (p.online_worth_of_half - 1) * whole
    return fewer and chunk == p.online_chunk_columns and held <= target.smem and warps  # type: ignore[no-any-return]


@fact("in_three_passes(term, term, axis) -> num", levels="tensor")
def in_three_passes(site: Any, x: Term, v: Term, n: Axis) -> float:
    """Seconds of three kernels: one stores x, one finds its maxima and sums along n, one weighs v."""
    target, shape = site.target, _shape(x, v, n)
    p = policy(target)
    scores = shape.batch * shape.rows * shape.columns
    a_clock = scores / (target.multiprocessors * target.clock)
    slots, pipe = LANES * target.schedulers, target.fp32_per_clock
    own = p.passes_stored + p.passes_stored_masked * shape.hides
    stored = max((p.passes_stored_issued * shape.products + own) / slots, (shape.products + 1) / pipe)
    weighed = max(
        (p.passes_weighed_issued * shape.results + p.passes_weighed) / slots,
        (p.passes_weighed_piped * shape.results + p.passes_weighed_in_pipe) / pipe,
    )
    # however few rows there are, a piece of a sum waits for its copies, of the pieces that one of its blocks has
    trip = p.memory_trips * L2_SHARE * target.memory_latency_seconds
    tiles = shape.batch * -(-shape.rows // p.passes_tile) * -(-shape.results // p.passes_tile)
    ways = max(1, min(target.multiprocessors // tiles, max(p.split_ways)))
    operands = WORD * shape.batch * shape.columns / traffic_rate(target)  # an element of each column, once
    seconds = max(stored * a_clock, shape.products / p.passes_piece * trip, operands * shape.products)
    seconds += WORD * scores / traffic_rate(target)
    seconds += max(weighed * a_clock, shape.columns / p.passes_piece / ways * trip, operands * shape.results)
    return (PASSES + (ways > 1)) * fixed_seconds(target) + seconds  # type: ignore[no-any-return]
