"""The time of attention by its tile in closed form, in one pass and in three: two products with a softmax in between.

A block of one pass has some rows of one head and goes over the columns in chunks. Each chunk has two products: of the
scores, and of the weighted values. Three passes are two products of their own, and a kernel for the highest scores.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from ...codegen.target import Target
from ..language.rule import policy
from .limits import fixed_seconds, traffic_seconds
from .memory_model import BARRIER_CYCLES, CLUSTER_CYCLES, L2_SHARE, LANES, LINE, SHARED_CYCLES, WORD
from .predict import Array, register_budget
from .product_time import (
    COPY,
    FMA,
    FRAGMENT_REGISTERS,
    GROUP,
    VECTOR,
    WARP,
    Blocks,
    OperandCost,
    Product,
    atom_of,
    ceildiv,
    least_seconds,
    wave_seconds,
)  # fmt: skip

WEIGHT = 4.0  # instructions of a weight: the exponential of a difference
SCORE = 16  # instructions of a score that are no products: scale, maximum, exponential, sum, and exchanges of lanes
SCORE_OF_ATOMS = 11  # the same on tensor cores, where a row is scaled once and fewer lanes share it
SINGLE = 1.25  # time of a scheduler with one warp over that with two: nothing hides its waits (H200, measured)
HALVES = 2  # accesses to a sector of queries or results of the lanes of an atom, which have half of it each
SHARED, OWN = 0.5, 1.0  # wavefronts per value of a read that the lanes of a row share, and of one by each lane


class Attention(NamedTuple):
    """Extents of a sum over columns of functions of scores, times values.

    heads: independent instances; rows, columns: extents of the scores; products: products of a score; results:
    results of a row. seen: the number of scores that count in a row in the middle; hides: whether there are others.
    item: bytes of an element in memory. atoms: whether tensor cores multiply. compiled: whether the results have no
    symbolic dimension.
    """

    heads: int
    rows: int
    columns: int
    products: int
    results: int
    seen: float
    hides: bool
    item: int
    atoms: bool
    compiled: bool


class AttentionTile(NamedTuple):
    """Decisions of one pass, in their order, each an array with an entry for each candidate.

    rows: of a block; columns: of a chunk; down, across: rows and columns of scores of a thread, 1 on tensor cores.
    """

    rows: Array
    columns: Array
    down: Array
    across: Array


def one_pass(a: Attention, target: Target, decided: tuple[int, ...] = ()) -> float:
    """Return the seconds of one kernel with the first of its decisions made, if the others are the best.

    A single row is shared by blocks and read as fast as memory allows. The result is infinite if no tile fits.
    """
    if a.rows == 1:
        return fixed_seconds(target) + traffic_seconds(_bytes(a), target)
    tiles, seconds = _priced(a, target)
    chosen = seconds[np.logical_and.reduce([seconds >= 0, *(t == n for t, n in zip(tiles, decided, strict=False))])]
    return float(f"{chosen.min():.4g}") if chosen.size else math.inf


def three_passes(a: Attention, target: Target) -> float:
    """Return the seconds of a product that stores the scores, of their maxima, and of a product that weighs values."""
    scores = WORD * a.heads * a.rows * a.columns
    results = WORD * a.heads * a.rows * a.results
    along, across = math.gcd(a.columns, VECTOR), math.gcd(a.results, VECTOR)
    keys = OperandCost(1, 0.0, True, math.gcd(a.products, VECTOR))
    weights, values = OperandCost(1, WEIGHT, True, along), OperandCost(1, 0.0, False, across)
    shared = (a.heads, 1, a.item, FMA, FMA, 0)
    products = (
        Product(a.rows, a.columns, a.products, *shared, _bytes(a) // 2, scores, keys, keys),
        Product(a.rows, a.results, a.columns, *shared, scores + _bytes(a) // 2, results, weights, values),
    )
    largest = fixed_seconds(target) + traffic_seconds(scores, target)
    return largest + sum(least_seconds(product, target, ()) for product in products)


def _bytes(a: Attention) -> int:
    """Return the bytes of queries and results, keys and values."""
    return a.heads * (a.rows + a.columns) * (a.products + a.results) * a.item


@functools.lru_cache(maxsize=256)
def _priced(a: Attention, target: Target) -> tuple[AttentionTile, Array]:
    """Return all candidates, and their seconds."""
    numbers = policy(target)
    side: int = numbers.register_side
    rows = [LANES // 2 << n for n in range((2 * numbers.tile_side // LANES).bit_length())]
    of_threads = numbers.online_chunks, [n for n in range(1, side + 1) if side % n == 0], (VECTOR, side)
    lists = (rows, *(((max(numbers.online_chunks),), (1,), (1,)) if a.atoms else of_threads))
    tiles = AttentionTile(*np.array(np.meshgrid(*lists, indexing="ij")).reshape(len(lists), -1))
    return tiles, one_pass_times(a, tiles, target)


class _Chunk(NamedTuple):
    """What a block of each candidate holds, and its work for one chunk without copies; see `Blocks`.

    weights: bytes of shared memory for scores. queries: of the wavefronts, those that read queries. before, after: how
    often a warp waits for values from shared memory, in the products of the scores and in those of the results.
    """

    threads: Array
    registers: Array
    weights: Array
    issued: Array
    pipe: Array
    lines: Array
    queries: Array
    tensor: Array
    before: Array
    after: Array


def _chunk_of_threads(a: Attention, t: AttentionTile, target: Target) -> _Chunk:
    """Return the work where each thread has some rows and columns of the scores, and of the results."""
    numbers = policy(target)
    lanes = t.columns // t.across
    threads = t.rows // t.down * lanes
    widths = np.array([VECTOR, 2, 1])[:, None]
    vectors = ceildiv(a.results, lanes * widths)
    best = (vectors * (t.down * widths + 1)).argmin(axis=0)[None]
    vectors, results = (np.take_along_axis(each, best, 0)[0] for each in (vectors, vectors * widths))
    scores, sums, warps = t.down * t.across, t.down * results, threads / LANES
    registers = numbers.address_registers + scores + sums + VECTOR * (2 * t.down + t.across)
    products = scores * a.products + sums * t.columns
    loads = a.products * (t.down + t.across) / VECTOR + t.columns * (t.down / VECTOR + vectors)
    softmax = SCORE * scores + sums  # and the earlier sums are scaled
    conflicts = np.maximum(SHARED, LANES / (lanes * VECTOR))  # the rows of a warp are in the same banks
    lines = a.products * OWN * t.across + t.columns * (conflicts * t.down + OWN * results)
    weights = WORD * t.rows * t.columns
    return _Chunk(
        threads, registers, weights, warps * (products + loads + softmax),
        warps * products * LANES / target.fp32_per_clock, warps * lines + weights / LINE,
        warps * a.products * SHARED * t.down, 0,
        _pieces(a.products, scores, numbers), _pieces(t.columns, sums, numbers),
    )  # fmt: skip


def _pieces(steps: Array, copies: Array, numbers: Array) -> Array:
    """Return the unrolled pieces of so many steps, each of which has some copies (`vector_reduce`)."""
    return ceildiv(steps, np.minimum(numbers.vector_steps, np.maximum(1, numbers.vector_copies // copies)))


def _chunk_of_atoms(a: Attention, t: AttentionTile, target: Target) -> _Chunk:
    """Return the work where each warp has the rows of an atom, and keeps scores and results as fragments."""
    atom, grouped = atom_of(WARP, a.item, target), _grouped(a, t, target)
    warps, elements = t.rows // atom.m, t.columns * (a.products + a.results)
    registers = atom.m * (t.columns + a.results + a.products // 2) // LANES
    lines = np.where(grouped, warps * LANES / target.warpgroup, warps) * elements * a.item / LINE
    atoms = np.where(grouped, 0, lines / VECTOR + warps * elements / (atom.n * atom.k))
    tensor = 2 * t.rows * elements / np.where(grouped, 1, target.warp_product_share)
    return _Chunk(
        warps * LANES, registers + FRAGMENT_REGISTERS + policy(target).address_registers, 0 * warps,
        atoms + SCORE_OF_ATOMS * t.rows * t.columns / LANES, 0, lines, 0, tensor, 1, 1,
    )  # fmt: skip


def _grouped(a: Attention, t: AttentionTile, target: Target) -> Array:
    """Return whether four warps multiply from shared memory (WGMMA)."""
    if not (a.atoms and policy(target).asynchronous_mma and any(atom.asynchronous for atom in target.atoms)):
        return t.rows < 0
    whole = math.gcd(a.products, a.results) * a.item % target.swizzle_bytes == 0
    return (t.rows % atom_of(GROUP, a.item, target).m == 0) & whole


@np.errstate(all="ignore")  # candidates that do not fit
def one_pass_times(a: Attention, t: AttentionTile, target: Target) -> Array:
    """Return the seconds of one kernel by each candidate; infinite for one that does not fit a block."""
    numbers, item = policy(target), a.item
    tiles = ceildiv(a.rows, t.rows)
    seen = np.clip(a.seen + ceildiv(tiles, 2) * t.rows - (a.rows + 1) / 2, t.columns, a.columns)  # of the middle block
    chunks = np.ceil((seen if a.hides else a.columns) / t.columns)
    chunk = (_chunk_of_atoms if a.atoms else _chunk_of_threads)(a, t, target)
    threads, blocks = chunk.threads, a.heads * tiles
    queries, stage = t.rows * a.products * item, t.columns * (a.products + a.results) * item
    # queries stay if two blocks have room for them, or one if it is alone; a number of chunks that varies has no ring
    single, held = blocks <= target.multiprocessors, 2 * (chunk.weights + stage)
    room = target.smem - target.smem // numbers.padding_share
    kept = queries <= target.smem // numbers.kept_share
    kept &= single | (held + 2 * queries <= room) | (held > room) | a.atoms
    most = max(target.smem // numbers.staged_share, target.shared_tile_bytes)
    direct = ~kept & (queries > most)  # queries that are read from L2
    left = target.smem - chunk.weights - stage - np.where(direct | a.atoms, 0, queries)
    stages = np.clip(1 + left // (2 * stage), 1, np.minimum(max(numbers.ring_slots), 1 if a.hides else chunks))
    fits = (t.columns * max(a.products, a.results) * item <= most) & (left >= 0)
    fits &= chunk.registers <= register_budget(threads, target) + numbers.register_slack
    fits &= (threads >= LANES) & (threads <= target.most_threads)
    copied = stage + np.where(kept, 0, queries)
    issued = chunk.issued + COPY * copied / target.vector_bytes / LANES
    lines = chunk.lines + copied / LINE + np.where(direct, 0, chunk.queries)
    # a block by itself: what it issues and moves, its waits, and its trip from L2, which a ring hides
    trip = L2_SHARE * target.memory_latency_seconds * chunks
    waits = np.where(stages > 1, 3, 4) * BARRIER_CYCLES + (chunk.before + chunk.after) * SHARED_CYCLES
    shared = _grouped(a, t, target) & (tiles % 2 == 0) & (not a.hides)  # two blocks of a cluster share the copies
    waits = waits + np.where(shared, CLUSTER_CYCLES, 0)
    single = np.where(a.atoms, 1.0, SINGLE)
    issue = issued / np.minimum(target.schedulers, threads / LANES)
    busy = np.maximum(issue * np.where(threads <= target.schedulers * LANES, single, 1.0), lines)
    alone = (busy + waits) * chunks / target.clock
    alone = np.where(
        stages > 2,
        np.maximum(alone, trip / np.maximum(stages - 1, 1)),
        alone + trip * np.where(direct, 1 + chunk.before, 1),
    )
    once = (queries + t.rows * a.results * item) * np.where(a.atoms, HALVES, 1)
    fill = chunks * copied / np.where(shared, 2, 1) + once
    room = target.smem - left + (stages - 1) * stage
    dram = traffic_seconds(_bytes(a), target) / blocks
    block = Blocks(
        blocks, threads, chunk.registers, room, dram, fill, chunks * lines, chunks * issued, chunks * chunk.pipe,
        chunks * chunk.tensor, alone, 0, single,
    )  # fmt: skip
    return np.where(fits, wave_seconds(block, target), math.inf)
