"""What one pass over scores that are computed on the way costs, against storing them: before there is a schedule.

The rates are the device's published peaks, as in engine/model, whose predictions these two follow where it has been
asked: a block works alone on its rows, so one pass is a matter of how many blocks there are and how long each takes.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.expr import Axis
from ...ir.tensor import Reduce, Term, axes, postorder
from ..rw.facts import fact

CHUNK = 64  # scores of a row at a time, as the rule `online_tile` takes them
ROWS = 8  # rows of a thread
BUSY = 0.75  # of the issue slots of an inner loop that do the products of a block
ALONE = 0.8  # the same of a kernel that does nothing else
EPILOGUE = 20  # issue slots of a stored score: its scale, mask, exponential and way through memory


def _extent(found: Any) -> int:
    return math.prod(axis.extent for axis in found)


def _products(x: Term) -> int:
    """Products that make one element of x."""
    return sum(_extent(below.over) for below in postorder((x,)) if isinstance(below, Reduce))


def _shape(x: Term, v: Term, n: Axis) -> tuple[int, int, int, int]:
    """(batch, rows, products of a score, results of a row) of a sum over n of functions of x times v."""
    own = [axis for axis in axes(x) if axis is not n]
    rows = [axis for axis in own if axis not in axes(v)]
    results = [axis for axis in axes(v) if axis not in axes(x)]
    return _extent(axis for axis in own if axis not in rows), _extent(rows), _products(x), _extent(results)


def _fixed(target: Any) -> float:
    return target.launch_seconds + 1.5 * target.memory_latency_seconds  # type: ignore[no-any-return]


@fact("in_one_pass(term, term, axis) -> num", levels="tensor")
def in_one_pass(site: Any, x: Term, v: Term, n: Axis) -> float:
    """Seconds of one kernel that computes scores x and weighs v with them, along n, a tile of rows a block."""
    target = site.target
    batch, rows, products, results = _shape(x, v, n)
    columns = max(4, 512 // results)
    block = max(16, min(ROWS * 1024 // results, 1 << (rows - 1).bit_length()))
    turns = -(-batch * -(-rows // block) // target.multiprocessors)
    chunk = ROWS * columns * (products + results) / BUSY
    seconds: float = _fixed(target) + turns * -(-n.extent // CHUNK) * chunk / target.clock
    return seconds


@fact("in_three_passes(term, term, axis) -> num", levels="tensor")
def in_three_passes(site: Any, x: Term, v: Term, n: Axis) -> float:
    """Seconds of three kernels: one stores x, one finds its maxima and sums along n, one weighs v."""
    target = site.target
    batch, rows, products, results = _shape(x, v, n)
    scores = batch * rows * n.extent
    issue = scores * (products + results) / ALONE + scores * EPILOGUE
    issued = issue / (target.multiprocessors * target.fp32_per_clock * target.clock)
    return 3 * _fixed(target) + issued + 4 * scores / target.dram_bytes_per_second  # type: ignore[no-any-return]
