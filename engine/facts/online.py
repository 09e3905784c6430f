"""What one pass over scores that are computed on the way costs, against storing them: before there is a schedule.

Both figures are what engine/model predicts for the kernels that come out, told ahead of them: the coefficients are of
its census of the schedules that the rules make (tests/engine/egraph/test_online_profit.py compares the two over a
grid of shapes and devices). A block works alone on its rows, so one pass is a matter of how many blocks there are,
and of what is busiest in each: the schedulers, the pipe of the products, or shared memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...ir.expr import Axis, Binary, free_names, linear, subtract
from ...ir.ranges import interval
from ...ir.tensor import Const, Elementwise, Index, Reduce, Term, axes, operands
from ..model.accesses import LANES
from ..model.latency import BARRIER_CYCLES, L2_SHARE, SHARED_CYCLES
from ..rw.facts import fact

CHUNK = 64  # scores of a row at a time, as the rule `online_tile` takes them
ROWS = 8  # rows of a thread
ROW_LANES = (8, 16, 32)  # lanes that share a score of a single row, as the rule `online_row` takes them
ROW_ISSUED = 30.0  # instructions of a lane for a score beside its products: shuffles, exponentials, scales
PIECE = 16  # products of a sum between two barriers of a tiled matmul

# Of one pass, for each of its products. Of three, for each product, and for each score besides: its way through memory,
# its scale and mask, its exponential.
ISSUED, PIPED, MOVED = 1.18, 1.045, 1.31
STORED_ISSUED, STORED, STORED_MASKED = 1.09, 2.0, 3.0
WEIGHED_ISSUED, WEIGHED, WEIGHED_PIPED, WEIGHED_IN_PIPE = 1.10, 10.0, 1.055, 3.0


class Shape(NamedTuple):
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
    return math.prod(axis.extent for axis in found)


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


def _shape(x: Term, v: Term, n: Axis) -> Shape:
    own = [axis for axis in axes(x) if axis is not n]
    rows = [axis for axis in own if axis not in axes(v)]
    results = [axis for axis in axes(v) if axis not in axes(x)]
    seen = _seen(x, n)
    return Shape(
        _extent(axis for axis in own if axis not in rows), _extent(rows), n.extent, _products(x), _extent(results),
        n.extent if seen is None else seen, seen is not None,
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
    return min(max(middle, 0.0), float(n.extent))


def _fixed(target: Any) -> float:
    return target.launch_seconds + 1.5 * target.memory_latency_seconds  # type: ignore[no-any-return]


@fact("in_one_pass(term, term, axis) -> num", levels="tensor")
def in_one_pass(site: Any, x: Term, v: Term, n: Axis) -> float:
    """Seconds of kernels that compute scores x and weigh v with them, along n, without storing the scores."""
    target, shape = site.target, _shape(x, v, n)
    return min(_in_tiles(shape, target), _in_rows(shape, target))


def _in_rows(shape: Shape, target: Any) -> float:
    """A row a block, or several blocks and a second kernel, as `online_row` and `split_fold` do where rows have values
    of their own: keys and values are read once, and the lanes of a warp share the products of a score."""
    vectors = [n for n in ROW_LANES if shape.products % (4 * n) == 0 and shape.results % (4 * n) == 0]
    if shape.rows > 1 or not vectors:
        return math.inf
    scores, each = shape.batch * shape.columns, shape.products + shape.results
    moved = 4 * scores * each / target.dram_bytes_per_second
    issued = scores * (ISSUED * each + ROW_ISSUED * max(vectors)) / LANES
    busy = issued / (target.schedulers * min(target.multiprocessors, 4 * shape.batch) * target.clock)
    return (1 + (2 * shape.batch <= target.multiprocessors)) * _fixed(target) + max(moved, busy)  # type: ignore[no-any-return]


def _in_tiles(shape: Shape, target: Any) -> float:
    """A tile of rows a block."""
    columns = max(4, 512 // shape.results)
    block = max(16, min(ROWS * 1024 // shape.results, 1 << (shape.rows - 1).bit_length()))
    lanes = CHUNK // columns
    warps = max(1, block // ROWS * lanes // LANES)
    each = block * CHUNK / LANES  # of a warp, for one step of all products of a chunk
    words = shape.products * (1 / ROWS + 1 / columns) + shape.results * (1 / ROWS + lanes / shape.results)
    products = each * (shape.products + shape.results)
    shared = MOVED * each * words * 128 / target.shared_bytes_per_clock
    issued = ISSUED * products / min(target.schedulers, warps)
    busy = max(issued, shared)
    # a block that shares its multiprocessor with no other waits for its own copies and barriers
    waiting = 4 * SHARED_CYCLES + 2 * BARRIER_CYCLES + L2_SHARE * target.memory_latency_seconds * target.clock
    piped = PIPED * products * LANES / target.fp32_per_clock
    turns = -(-shape.batch * -(-shape.rows // block) // target.multiprocessors)
    cycles = (turns - 1) * max(busy, piped) + max(busy + waiting, piped)
    behind = (block + CHUNK) / 2 if shape.hides else CHUNK / 2  # the last row of a block decides, by whole chunks
    chunks = min(-(-shape.columns // CHUNK), (shape.seen + behind) / CHUNK)
    return _fixed(target) + chunks * cycles / target.clock  # type: ignore[no-any-return]


@fact("in_three_passes(term, term, axis) -> num", levels="tensor")
def in_three_passes(site: Any, x: Term, v: Term, n: Axis) -> float:
    """Seconds of three kernels: one stores x, one finds its maxima and sums along n, one weighs v."""
    target, shape = site.target, _shape(x, v, n)
    scores = shape.batch * shape.rows * shape.columns
    a_clock = scores / (target.multiprocessors * target.clock)
    slots, pipe = LANES * target.schedulers, target.fp32_per_clock
    own = STORED + STORED_MASKED * shape.hides
    stored = max((STORED_ISSUED * shape.products + own) / slots, (shape.products + 1) / pipe)
    weighed = max(
        (WEIGHED_ISSUED * shape.results + WEIGHED) / slots, (WEIGHED_PIPED * shape.results + WEIGHED_IN_PIPE) / pipe
    )
    # however few rows there are, a piece of a sum waits for its copies
    trip = 1.5 * L2_SHARE * target.memory_latency_seconds
    operands = 4 * shape.batch * shape.columns / target.dram_bytes_per_second  # an element of each column, once
    seconds = max(stored * a_clock, shape.products / PIECE * trip, operands * shape.products)
    seconds += 4 * scores / target.dram_bytes_per_second
    seconds += max(weighed * a_clock, shape.columns / PIECE * trip, operands * shape.results)
    return 3 * _fixed(target) + seconds  # type: ignore[no-any-return]
