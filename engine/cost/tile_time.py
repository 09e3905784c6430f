"""The time of a tile in closed form: the formula of `predict` with counts that follow from the tile.

`times` evaluates it for many candidates of a product at once, before there is a schedule, and `one_pass_times` for
attention. A tile costs waves of blocks times the busiest resource of a wave (DRAM, L2, shared memory, issue slots,
tensor cores, a block by itself), and its launches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import gcd, inf
from typing import NamedTuple

import numpy as np
from numpy import clip, maximum, minimum, where

from ...codegen.target import Target
from ...ir.atoms import AtomRecord
from ...ir.facts.layout import DTYPE_BYTES
from ..language.rule import policy
from .limits import MEMORY_TRIPS, fixed_seconds, traffic_seconds
from .memory_model import BARRIER_CYCLES, CLUSTER_CYCLES, L2_SHARE, LANES, LINE, SHARED_CYCLES, WORD
from .predict import BLOCK_RESERVE, UNHIDDEN, Array, register_budget

READ = 0.75  # wavefronts of shared memory per value that a warp reads: vectors of 16 bytes, of which lanes share some
READ_PAIRS = 0.95  # the same of vectors of 8 bytes, of which half a wavefront is empty
OVERHEAD = 2  # instructions of a step of a thread that are neither products nor reads: copies and addresses
COPY = 4  # instructions of a copy that is narrower than a vector, or that leads through a register
VECTOR = 4  # values that one instruction reads from shared memory
FRAGMENT_REGISTERS = 16  # registers of a thread for the operands of an atom
MOST_GROUPS = 2  # groups of four warps of a block
FMA, WARP, GROUP = "fma", "mma", "wgmma"  # what multiplies


class OperandCost(NamedTuple):
    """An operand of a product. loads, work: buffers and instructions from which an element is computed.

    along: whether memory goes on along the sum. width: elements of one copy; 1 for a gathered operand (convolutions).
    """

    loads: int
    work: float
    along: bool
    width: int


class Product(NamedTuple):
    """A product as its schedule sees it: rows x depth times depth x columns, `batch` of them, in `sums` sums.

    item: bytes of an element. unit: what multiplies, and part_unit: if blocks share the reduction, so that nothing else
    is in the kernel. chunk: steps of a chunk, 0 before there are chunks. read, others: bytes of the buffers that the
    reduction reads, and of all others. held: registers of a thread in all, and for each of its rows, columns and
    outputs, on the fp32 pipe. guarded: whether a guard of a ragged end is in the loop. work: instructions for each pair
    of elements in addition to their product.
    """

    rows: int
    columns: int
    depth: int
    batch: int
    sums: int
    item: int
    unit: str
    part_unit: str
    chunk: int
    read: int
    others: int
    left: OperandCost
    right: OperandCost
    held: tuple[int, int, int, int] = (0, VECTOR, VECTOR, 1)
    guarded: bool = False
    work: float = 0.0


class Decisions(NamedTuple):
    """Decisions of a schedule, in their order, each an array with an entry for each candidate.

    chunk: steps of the reduction that are in shared memory at once. ways: blocks that share the reduction. rows,
    columns: of the tile of a block. down, across: rows and columns of a thread; 1 on tensor cores.
    """

    chunk: Array
    ways: Array
    rows: Array
    columns: Array
    down: Array
    across: Array


MOST_THREADS, FEWEST = 256, 4  # threads of a block, outputs of a thread
SMALLEST = 16  # side of a tile that is offered for any extents
FULL = 4  # blocks for each multiprocessor beyond which a reduction is not shared by more
OF_BLOCKS = 4  # decisions that are made before those about threads


def least_seconds(product: Product, target: Target, decided: tuple[int, ...]) -> float:
    """Return the seconds of a product with the first of its decisions made, if the others are the best.

    The result is infinite if no tile fits.
    """
    tile = decided[:OF_BLOCKS]
    if product.chunk in _chunks(product, target):  # the table of all chunks has the times of this one
        product = product._replace(chunk=0)
    if len(decided) > OF_BLOCKS:  # tensor cores have no tiles of threads
        product = product._replace(unit=FMA, part_unit=FMA)
    for fixed in (tile,) if len(decided) > OF_BLOCKS else ((), tile):  # what no list has is priced by itself
        if least := _least(*_priced(product, target, fixed), decided):
            return least
    return inf


def _least(candidates: tuple[Array, ...], seconds: Array, decided: tuple[int, ...]) -> float:
    """Return the seconds of the best candidate that is as decided; 0 if there is none."""
    chosen = seconds[np.logical_and.reduce([a == b for a, b in zip(candidates, decided, strict=False)])]
    return float(f"{chosen.min():.4g}") if chosen.size else 0.0  # of times that the form cannot tell apart, the first


def _chunks(product: Product, target: Target) -> tuple[int, ...]:
    vector = target.vector_bytes // product.item
    return tuple(n * vector for n in policy(target).chunk_vectors)


@functools.lru_cache(maxsize=1024)
def _priced(product: Product, target: Target, fixed: tuple[int, ...]) -> tuple[Decisions, Array]:
    """Return all candidates with the first decisions as given, and their seconds."""
    numbers = policy(target)
    chunks = (product.chunk,) if product.chunk else _chunks(product, target)
    steps = ceildiv(product.depth, min(chunks))
    splits = (
        n
        for n in numbers.split_ways
        if n * min(numbers.group_slots) <= steps and ceildiv(steps, ceildiv(steps, n)) == n
    )
    offered: Array = (chunks, (1, *splits), numbers.tile_sides, numbers.tile_sides)
    lists = (*((value,) for value in fixed), *offered[len(fixed) :])
    grids, seconds = [], []
    for unit in dict.fromkeys((product.unit, product.part_unit)):
        own = tuple(n for n in lists[1] if unit == (product.unit if n == 1 else product.part_unit))
        threads = numbers.thread_sides if unit == FMA else (1,)
        grid = _grid((lists[0], own, *lists[2:], threads, threads), numbers.most_accumulators // product.sums)
        for n, extent in ((2, product.rows), (3, product.columns)):
            grid = grid[:, (grid[n] < 2 * max(extent, SMALLEST)) | (grid[n] == min(lists[n]))]
        blocks = product.batch * ceildiv(product.rows, grid[2]) * ceildiv(product.columns, grid[3])
        grid = grid[:, (grid[1] == min(own, default=1)) | (grid[1] * blocks <= FULL * target.multiprocessors)]
        grids.append(grid)
        seconds.append(times(product, unit, Decisions(*grid), target))
        if unit == GROUP:  # each warp multiplies a tile that groups of four cannot
            by_warps = times(product, WARP, Decisions(*grid), target)
            seconds[-1] = where(seconds[-1] < inf, seconds[-1], by_warps)
    return Decisions(*np.concatenate(grids, axis=1)), np.concatenate(seconds)


def _combinations(*lists: Sequence[int]) -> Array:
    """Return all combinations of entries of lists, a row for each list."""
    return np.array(np.meshgrid(*lists, indexing="ij"), dtype=int).reshape(len(lists), -1)


@functools.lru_cache(maxsize=64)
def _grid(lists: tuple[tuple[int, ...], ...], most: int) -> Array:
    """Return all combinations of lists for the decisions, a row for each, whose threads are whole warps."""
    grid = _combinations(*lists)
    rows, columns, down, across = grid[2:]
    threads = rows // down * (columns // across)
    power = (threads & (threads - 1) == 0) & (threads >= LANES) & (threads <= MOST_THREADS)
    power &= (rows % down == 0) & (columns % across == 0) & (down * across >= FEWEST) & (down * across <= most)
    return grid[:, (down * across == 1) | power]


def ceildiv(a: Array, b: Array) -> Array:
    """Divide and round up."""
    return -(-a // b)


class _Block(NamedTuple):
    """A block of each candidate: what it holds. slices: teams of threads that share a chunk. stages: of its ring."""

    threads: Array
    slices: Array
    stages: Array
    shared: Array
    registers: Array
    fits: Array


def _block(p: Product, unit: str, d: Decisions, target: Target) -> _Block:
    """Return the threads, registers and shared memory that the rules give a block, and whether it has room for them."""
    numbers, area = policy(target), d.rows * d.columns * p.sums
    chunks = ceildiv(p.depth, d.chunk)
    each = ceildiv(chunks, d.ways)
    stage = where(d.chunk < p.depth, _copied(p, d) * d.chunk, 1)  # nothing is copied without chunks
    slices = np.ones_like(area)
    fits = (d.ways == 1) | (d.ways * min(numbers.group_slots) <= chunks) & (each * (d.ways - 1) < chunks)
    most = max(target.smem // numbers.staged_share, target.shared_tile_bytes)
    fits &= (stage == 1) | (maximum(d.rows, d.columns) * d.chunk * p.item <= most)
    if unit == FMA:
        threads = d.rows * d.columns // (d.down * d.across)
        blocks = p.batch * d.ways * ceildiv(p.rows, d.rows) * ceildiv(p.columns, d.columns)
        idle = numbers.slice_warps * LANES * target.multiprocessors // (threads * blocks)
        few = (threads <= 2 * LANES) & (_whole(p, d) | (p.left.work + p.right.work == 0))
        for n in numbers.slice_ways:
            room = 2 * n * WORD * area <= target.smem - stage
            wanted = n <= maximum(min(numbers.slice_ways), idle)
            divides = (d.chunk % n == 0) & (d.chunk >= 2 * n * WORD) & (n * threads <= numbers.block_threads)
            slices = where(few & room & wanted & divides, n, slices)
        once, of_row, of_column, of_output = p.held
        registers = once + of_row * d.down + of_column * d.across + of_output * d.down * d.across
        threads = threads * slices
    elif unit == WARP:
        down, across = _warps(p, d, target)
        threads = LANES * down * across
        registers = area // threads + FRAGMENT_REGISTERS
        atom = atom_of(unit, p.item, target)
        fits &= (d.rows % (atom.m * down) == 0) & (d.columns % (atom.n * across) == 0)
        fits &= d.columns & (d.columns - 1) == 0  # others leave a smaller share of the instructions to the products
    else:
        atom = atom_of(unit, p.item, target)
        threads = target.warpgroup * clip(d.rows // atom.m, 1, MOST_GROUPS)
        registers = area // threads + FRAGMENT_REGISTERS
        fits &= (d.rows % atom.m == 0) & (d.rows <= MOST_GROUPS * atom.m)
        fits &= d.columns * p.item % target.swizzle_bytes == 0
        fits &= d.chunk * p.item % target.swizzle_bytes == 0
    fits &= area <= numbers.most_accumulators * threads // slices
    registers = registers + numbers.address_registers
    sums = where(slices > 1, slices * WORD * area, 0)
    ring, room = numbers.ring_slots, (target.smem + stage - sums) // 2
    if unit == GROUP:
        ring, room = numbers.group_slots, target.smem
    stages = minimum(minimum(max(ring), room // stage), each)
    shared = stages * stage + sums
    fits &= (stages >= (min(ring) if unit == GROUP else 1)) & (shared <= target.smem)
    fits &= (threads >= LANES) & (threads <= target.most_threads)
    slack = numbers.register_slack // where(slices > 1, 2, 1)  # the addresses of teams take a part of it
    fits &= registers <= register_budget(threads, target) + slack
    return _Block(threads, slices, stages, shared, registers, fits)


def _copied(p: Product, d: Decisions) -> Array:
    """Return the bytes of both operands that a block copies in a step."""
    return (d.rows * p.left.loads + p.sums * d.columns * p.right.loads) * p.item


def _whole(p: Product, d: Decisions) -> Array:
    """Return whether the chunks are whole, so that no guard of a ragged end is in the loop."""
    return (p.depth % d.chunk == 0) & (not p.guarded)


def atom_of(unit: str, item: int, target: Target) -> AtomRecord:
    """Return the first atom of a unit for operands of so many bytes."""
    grouped = unit == GROUP
    return next(a for a in target.atoms if a.asynchronous == grouped and DTYPE_BYTES[a.dtypes[0].name] == item)


def _warps(p: Product, d: Decisions, target: Target) -> tuple[Array, Array]:
    """Return the warps along the sides of a tile, as `fragment_tile` places them."""
    side, atom = policy(target).fragment_side, atom_of(WARP, p.item, target)
    down = maximum(minimum(2, d.rows // atom.m), d.rows // side)
    return down, maximum(minimum(2, d.columns // atom.n), p.sums * d.columns // side)


class _Work(NamedTuple):
    """Work of a block of each candidate: instructions of warps, issued and on the fp32 pipe, wavefronts, operations."""

    issued: Array
    pipe: Array
    lines: Array
    tensor: Array


def _work(p: Product, unit: str, d: Decisions, block: _Block, target: Target) -> _Work:
    """Count the work of a block for one step of the reduction."""
    area, copied = d.rows * d.columns * p.sums, _copied(p, d)
    warps = block.threads / LANES
    pipe = tensor = 0 * area
    if unit == FMA:
        team = warps / block.slices
        reads = _reads(p.left, d.down) + p.sums * _reads(p.right, d.across)
        reads = reads + (0 if p.item == WORD else d.down + p.sums * d.across)  # to widen them
        products = area / LANES
        issued = products + team * (reads + OVERHEAD + p.work * d.down * d.across)
        pipe = products * LANES / target.fp32_per_clock
        lines = team * (_lines(p.left, d.down) + p.sums * _lines(p.right, d.across)) + copied / LINE
        if p.left.work + p.right.work:  # each thread computes what it reads, or all threads share that
            own = team * (p.left.work * d.down + p.right.work * d.across)
            together = (d.rows * _shared(p.left) + d.columns * _shared(p.right)) / LANES
            issued = issued + where(_whole(p, d), minimum(own, together), own)
    elif unit == WARP:
        down, across = _warps(p, d, target)
        lines = ((d.rows * across + p.sums * d.columns * down) * p.item + copied) / LINE
        issued = lines / VECTOR + warps / atom_of(unit, p.item, target).k  # one more for each atom
        tensor = 2 * area / target.warp_product_share
    else:
        lines = (
            block.threads / target.warpgroup * (d.columns * p.sums + atom_of(unit, p.item, target).m) * p.item / LINE
        )
        issued, tensor = 0 * area, 2 * area
    vector = target.vector_bytes // p.item
    narrow = d.rows * (1 / p.left.width - 1 / vector) + p.sums * d.columns * (1 / p.right.width - 1 / vector)
    return _Work(issued + COPY * narrow / LANES, pipe, lines, tensor)


def _reads(operand: OperandCost, values: Array) -> Array:
    """Return the instructions of a step that read values of a thread from shared memory."""
    return values / (VECTOR if operand.along else np.gcd(values, VECTOR))


def _lines(operand: OperandCost, values: Array) -> Array:
    """Return the wavefronts of a step that read values of a thread from shared memory."""
    return values * (READ if operand.along else where(np.gcd(values, VECTOR) == 2, READ_PAIRS, READ))


def _shared(operand: OperandCost) -> float:
    """Return the instructions to compute an element in shared memory (`share_operand`)."""
    return operand.work + COPY + operand.loads if operand.work else 0


class Blocks(NamedTuple):
    """Blocks of each candidate, their resources, and the work of one of them.

    count: of blocks. threads, registers (of a thread), shared (bytes): of a block. dram: seconds of the device's
    memory. fill: bytes from L2. lines: wavefronts. issued: instructions of warps. pipe: cycles of the fp32 pipe.
    tensor: operations. alone: seconds by itself. bubbles: seconds without products if no other block is there. single:
    factor of the instructions of a scheduler with a single warp.
    """

    count: Array
    threads: Array
    registers: Array
    shared: Array
    dram: Array
    fill: Array
    lines: Array
    issued: Array
    pipe: Array
    tensor: Array
    alone: Array
    bubbles: Array
    single: Array = 1.0


def wave_seconds(b: Blocks, target: Target) -> Array:
    """Return the seconds of a kernel: waves of blocks, each as long as its busiest resource, and the launch."""
    warps = b.threads / LANES
    resident = minimum(target.threads // b.threads, target.registers // (b.registers * b.threads))
    resident = minimum(resident, (target.smem + BLOCK_RESERVE) // (b.shared + BLOCK_RESERVE))
    resident = clip(resident, 1, target.blocks)
    wide = resident * target.multiprocessors
    full, rest = b.count // wide, b.count % wide
    total = 0.0 * b.count
    for number, waves in ((wide, full), (rest, minimum(rest, 1))):
        each = ceildiv(number, target.multiprocessors)
        issue = b.issued / (clip(each * warps, 1, target.schedulers) * target.issue_share)
        issue = issue * where(each * warps <= target.schedulers, b.single, 1.0)
        fill, tensor = (each * target.multiprocessors * count for count in (b.fill, b.tensor))
        bounds = np.stack(np.broadcast_arrays(
            b.dram * number, fill / target.l2_bytes_per_second, each * b.lines / target.clock,
            each * maximum(issue, b.pipe) / target.clock, b.alone,
            tensor / target.tensor_flops_per_second + where(each == 1, b.bubbles, 0),
        ))  # fmt: skip
        busiest = bounds.max(axis=0)
        total += waves * (busiest + UNHIDDEN * (bounds.sum(axis=0) - busiest))
    ends = where(resident == 1, full + minimum(rest, 1), 1)
    return total + target.launch_seconds + MEMORY_TRIPS * target.memory_latency_seconds * maximum(ends, 1)


def _alone(busy: Array, trip: Array, stages: Array) -> Array:
    """Return the seconds of a block by itself, whose trips from L2 a ring hides."""
    return where(stages > 2, maximum(busy, trip / (stages - 1)), busy + trip)


@np.errstate(all="ignore")  # candidates that do not fit
def times(product: Product, unit: str, d: Decisions, target: Target) -> Array:
    """Return the seconds of a product by each candidate; infinite for one that does not fit a block.

    unit: what multiplies.
    """
    p, several = product, d.ways > 1
    block = _block(p, unit, d, target)
    chunks = ceildiv(ceildiv(p.depth, d.chunk), d.ways)
    issued, pipe, lines, tensor = (count * chunks * d.chunk for count in _work(p, unit, d, block, target))
    rows, columns = ceildiv(p.rows, d.rows), ceildiv(p.columns, d.columns)
    blocks, warps = p.batch * d.ways * rows * columns, block.threads / LANES
    fill = _copied(p, d) * chunks * d.chunk + d.rows * d.columns * p.sums * where(several, WORD, p.item)
    if unit == GROUP:  # two blocks of a cluster share the copies of an operand
        shared = maximum(where(rows % 2 == 0, d.columns, 0), where(columns % 2 == 0, d.rows, 0))
        fill = fill - shared * p.item * chunks * d.chunk / 2
    parts = where(several, WORD * p.batch * p.rows * p.columns * p.sums * d.ways, 0)
    byte = traffic_seconds(1.0, target)
    dram = (p.read + where(several, parts, p.others)) * byte
    # a block by itself: what it issues and moves, a barrier for each chunk, and its trip from L2, which a ring hides
    trip = L2_SHARE * target.memory_latency_seconds * chunks
    barrier = CLUSTER_CYCLES if unit == GROUP else BARRIER_CYCLES + SHARED_CYCLES
    cycles = maximum(issued / minimum(target.schedulers, warps), lines) + chunks * barrier
    alone = _alone(cycles / target.clock, trip, block.stages)
    bubbles = chunks * barrier / target.clock if unit == WARP else 0  # of warps that multiply, if no other block does
    work = Blocks(
        blocks, block.threads, block.registers, block.shared, dram / blocks, fill, lines, issued, pipe, tensor, alone,
        bubbles,
    )  # fmt: skip
    total = wave_seconds(work, target)
    second = fixed_seconds(target) + (parts + p.others) * byte
    return where(block.fits, total + where(several, second, 0), inf)


# ---- Attention: two products with a softmax in between.
#
# A block of one pass has some rows of one head and goes over the columns in chunks. Each chunk has two products: of the
# scores, and of the weighted values. Three passes are two products of their own, and a kernel for the highest scores.

WEIGHT = 4.0  # instructions of a weight: the exponential of a difference
SCORE = 16  # instructions of a score apart from its products: scale, maximum, exponential, sum, and exchanges of lanes
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
    return _least(*_priced_attention(a, target), decided) or inf


def three_passes(a: Attention, target: Target) -> float:
    """Return the seconds of a product that stores the scores, of their maxima, and of a product that weighs values."""
    scores = WORD * a.heads * a.rows * a.columns
    results = WORD * a.heads * a.rows * a.results
    keys, weights = OperandCost(1, 0.0, True, VECTOR), OperandCost(1, WEIGHT, True, VECTOR)
    values = keys._replace(along=False)
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
def _priced_attention(a: Attention, target: Target) -> tuple[AttentionTile, Array]:
    """Return all candidates, and their seconds."""
    numbers = policy(target)
    side: int = numbers.register_side
    rows = [LANES // 2 << n for n in range((2 * numbers.tile_side // LANES).bit_length())]
    of_threads = numbers.online_chunks, [n for n in range(1, side + 1) if side % n == 0], (VECTOR, side)
    lists = (rows, *(((max(numbers.online_chunks),), (1,), (1,)) if a.atoms else of_threads))
    tiles = AttentionTile(*_combinations(*lists))
    return tiles, one_pass_times(a, tiles, target)


class _Chunk(NamedTuple):
    """What a block of each candidate holds, and its work for one chunk without copies; see `Blocks`.

    weights: bytes of shared memory for scores. reads: how often a warp waits for values from shared memory.
    """

    threads: Array
    registers: Array
    weights: Array
    issued: Array
    pipe: Array
    lines: Array
    tensor: Array
    reads: Array


def _chunk_of_threads(a: Attention, t: AttentionTile, target: Target) -> _Chunk:
    """Return the work where each thread has some rows and columns of the scores, and of the results."""
    numbers = policy(target)
    lanes = t.columns // t.across
    threads = t.rows // t.down * lanes
    results = ceildiv(a.results, lanes)
    vectors = ceildiv(results, VECTOR)
    scores, sums, warps = t.down * t.across, t.down * results, threads / LANES
    registers = numbers.address_registers + scores + sums + VECTOR * (2 * t.down + t.across)
    products = scores * a.products + sums * t.columns
    loads = a.products * (t.down + t.across) / VECTOR + t.columns * (t.down / VECTOR + vectors)
    softmax = SCORE * scores + sums  # and the earlier sums are scaled
    conflicts = maximum(SHARED, LANES / (lanes * VECTOR))  # the rows of a warp are in the same banks
    lines = a.products * (SHARED * t.down + OWN * t.across) + t.columns * (conflicts * t.down + OWN * results)
    weights = WORD * t.rows * t.columns
    reads = (scores * a.products + sums * t.columns) / numbers.vector_copies  # once for each unrolled piece
    return _Chunk(
        threads, registers, weights, warps * (products + loads + softmax),
        warps * products * LANES / target.fp32_per_clock, warps * lines + weights / LINE, 0, reads,
    )  # fmt: skip


def _chunk_of_atoms(a: Attention, t: AttentionTile, target: Target) -> _Chunk:
    """Return the work where each warp has the rows of an atom, and keeps scores and results as fragments."""
    atom, grouped = atom_of(WARP, a.item, target), _grouped(a, t, target)
    warps, elements = t.rows // atom.m, t.columns * (a.products + a.results)
    registers = atom.m * (t.columns + a.results + a.products // 2) // LANES
    lines = where(grouped, warps * LANES / target.warpgroup, warps) * elements * a.item / LINE
    atoms = where(grouped, 0, lines / VECTOR + warps * elements / (atom.n * atom.k))
    tensor = 2 * t.rows * elements / where(grouped, 1, target.warp_product_share)
    return _Chunk(
        warps * LANES, registers + FRAGMENT_REGISTERS + policy(target).address_registers, 0 * warps,
        atoms + SCORE_OF_ATOMS * t.rows * t.columns / LANES, 0, lines, tensor, 2,
    )  # fmt: skip


def _grouped(a: Attention, t: AttentionTile, target: Target) -> Array:
    """Return whether four warps multiply from shared memory (WGMMA)."""
    if not (a.atoms and policy(target).asynchronous_mma and any(atom.asynchronous for atom in target.atoms)):
        return t.rows < 0
    whole = gcd(a.products, a.results) * a.item % target.swizzle_bytes == 0
    return (t.rows % atom_of(GROUP, a.item, target).m == 0) & whole


@np.errstate(all="ignore")  # candidates that do not fit
def one_pass_times(a: Attention, t: AttentionTile, target: Target) -> Array:
    """Return the seconds of one kernel by each candidate; infinite for one that does not fit a block."""
    numbers, item = policy(target), a.item
    tiles = ceildiv(a.rows, t.rows)
    seen = clip(a.seen + ceildiv(tiles, 2) * t.rows - (a.rows + 1) / 2, t.columns, a.columns)  # of the middle block
    chunks = np.ceil(seen / t.columns)
    chunk = (_chunk_of_atoms if a.atoms else _chunk_of_threads)(a, t, target)
    threads, blocks = chunk.threads, a.heads * tiles
    queries, stage = t.rows * a.products * item, t.columns * (a.products + a.results) * item
    kept = queries <= target.smem // numbers.kept_share
    most = max(target.smem // numbers.staged_share, target.shared_tile_bytes)
    left = target.smem - chunk.weights - stage - (0 if a.atoms else queries)
    stages = clip(1 + left // (2 * stage), 1, minimum(max(numbers.ring_slots), 1 if a.hides else chunks))
    fits = (t.columns * max(a.products, a.results) * item <= most) & (left >= 0)
    fits &= chunk.registers <= register_budget(threads, target) + numbers.register_slack
    fits &= (threads >= LANES) & (threads <= target.most_threads)
    copied = stage + where(kept, 0, queries)
    issued = chunk.issued + COPY * copied / target.vector_bytes / LANES
    lines = chunk.lines + copied / LINE
    # a block by itself: what it issues and moves, its waits, and its trip from L2, which a ring hides
    trip = L2_SHARE * target.memory_latency_seconds * chunks
    waits = where(stages > 1, 3, 4) * BARRIER_CYCLES + chunk.reads * SHARED_CYCLES
    # two blocks of a cluster share the copies, and the lanes of a single warp copy nothing
    shared = _grouped(a, t, target) & (tiles % 2 == 0) & (a.heads > 1 and not a.hides)
    twice = HALVES if a.atoms else 1
    waits = waits + where(shared, CLUSTER_CYCLES, 0)
    single = 1.0 if a.atoms else SINGLE
    issue = issued / minimum(target.schedulers, threads / LANES)
    busy = maximum(issue * where(threads <= target.schedulers * LANES, single, 1.0), lines)
    alone = _alone((busy + waits) * chunks / target.clock, trip, stages)
    once = (queries + t.rows * a.results * item) * twice
    fill = chunks * copied * where(threads > LANES, 1, twice) / where(shared, 2, 1) + once
    room = target.smem - left + (stages - 1) * stage
    dram = traffic_seconds(_bytes(a), target) / blocks
    block = Blocks(
        blocks, threads, chunk.registers, room, dram, fill, chunks * lines, chunks * issued, chunks * chunk.pipe,
        chunks * chunk.tensor, alone, 0, single,
    )  # fmt: skip
    return where(fits, wave_seconds(block, target), inf)
