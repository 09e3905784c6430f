"""The time of a product by its tile, in closed form: the formula of `predict` with counts that follow from the tile.

`times` evaluates it for many candidates at once, before there is a schedule. A tile costs waves of blocks times the
busiest resource of a wave (DRAM, L2, shared memory, issue slots, tensor cores, a block by itself), and its launches.
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
from .predict import BLOCK_RESERVE, UNHIDDEN, Array, register_budget

READ = 0.75  # wavefronts of shared memory per value that a warp reads: vectors of 16 bytes, of which lanes share some
READ_PAIRS = 0.95  # the same of vectors of 8 bytes, of which half a wavefront is empty
OVERHEAD = 2  # instructions of a step of a thread that are neither products nor reads: copies and addresses
COPY = 4  # instructions of a copy that is narrower than a vector, or that leads through a register
VECTOR = 4  # values that one instruction reads from shared memory
ATOM_STEPS = 16  # steps of the reduction that an atom of 16-bit operands multiplies
FRAGMENT_REGISTERS = 16  # registers of a thread for the operands of an atom
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
        candidates, seconds = _priced(product, target, fixed)
        chosen = seconds[np.logical_and.reduce([a == b for a, b in zip(candidates, decided, strict=False)])]
        if chosen.size:
            return float(f"{chosen.min():.4g}")  # of times that the form cannot tell apart the first is taken
    return math.inf


def _chunks(product: Product, target: Target) -> tuple[int, ...]:
    vector = target.vector_bytes // product.item
    return tuple(n * vector for n in policy(target).chunk_vectors)


@functools.lru_cache(maxsize=1024)
def _priced(product: Product, target: Target, fixed: tuple[int, ...]) -> tuple[Decisions, Array]:
    """Return all candidates with the first decisions as given, and their seconds."""
    numbers = policy(target)
    chunks = (product.chunk,) if product.chunk else _chunks(product, target)
    steps = _ceildiv(product.depth, min(chunks))
    splits = (
        n
        for n in numbers.split_ways
        if n * numbers.split_chunks_each <= steps and _ceildiv(steps, _ceildiv(steps, n)) == n
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
        blocks = product.batch * _ceildiv(product.rows, grid[2]) * _ceildiv(product.columns, grid[3])
        grid = grid[:, (grid[1] == min(own, default=1)) | (grid[1] * blocks <= FULL * target.multiprocessors)]
        grids.append(grid)
        seconds.append(times(product, unit, Decisions(*grid), target))
        if unit == GROUP:  # each warp multiplies a tile that groups of four cannot
            by_warps = times(product, WARP, Decisions(*grid), target)
            seconds[-1] = np.where(seconds[-1] < math.inf, seconds[-1], by_warps)
    return Decisions(*np.concatenate(grids, axis=1)), np.concatenate(seconds)


@functools.lru_cache(maxsize=64)
def _grid(lists: tuple[tuple[int, ...], ...], most: int) -> Array:
    """Return all combinations of lists for the decisions, a row for each, whose threads are whole warps."""
    grid = np.array(np.meshgrid(*lists, indexing="ij"), dtype=int).reshape(len(lists), -1)
    rows, columns, down, across = grid[2:]
    threads = rows // down * (columns // across)
    power = (threads & (threads - 1) == 0) & (threads >= LANES) & (threads <= MOST_THREADS)
    power &= (rows % down == 0) & (columns % across == 0) & (down * across >= FEWEST) & (down * across <= most)
    return grid[:, (down * across == 1) | power]


def _ceildiv(a: Array, b: Array) -> Array:
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
    chunks = _ceildiv(p.depth, d.chunk)
    each = _ceildiv(chunks, d.ways)
    stage = np.where(d.chunk < p.depth, _copied(p, d) * d.chunk, 1)  # nothing is copied without chunks
    slices = np.ones_like(area)
    fits = (d.ways == 1) | (d.ways * numbers.split_chunks_each <= chunks) & (each * (d.ways - 1) < chunks)
    most = max(target.smem // numbers.staged_share, target.shared_tile_bytes)
    fits &= (stage == 1) | (np.maximum(d.rows, d.columns) * d.chunk * p.item <= most)
    if unit == FMA:
        threads = d.rows * d.columns // (d.down * d.across)
        blocks = p.batch * d.ways * _ceildiv(p.rows, d.rows) * _ceildiv(p.columns, d.columns)
        idle = numbers.slice_warps * LANES * target.multiprocessors // (threads * blocks)
        few = (threads <= 2 * LANES) & (_whole(p, d) | (p.left.work + p.right.work == 0))
        for n in numbers.slice_ways:
            room = 2 * n * WORD * area <= target.smem - stage
            wanted = n <= np.maximum(min(numbers.slice_ways), idle)
            divides = (d.chunk % n == 0) & (d.chunk >= 2 * n * WORD) & (n * threads <= numbers.block_threads)
            slices = np.where(few & room & wanted & divides, n, slices)
        once, of_row, of_column, of_output = p.held
        registers = once + of_row * d.down + of_column * d.across + of_output * d.down * d.across
        threads = threads * slices
    elif unit == WARP:
        down, across = _warps(p, d, numbers)
        threads = LANES * down * across
        registers = area // threads + FRAGMENT_REGISTERS
        fits &= (d.rows % (16 * down) == 0) & (d.columns % (8 * across) == 0)
        fits &= d.columns & (d.columns - 1) == 0  # others leave a smaller share of the instructions to the products
    else:
        threads = target.warpgroup * np.clip(d.rows // 64, 1, 2)
        registers = area // threads + FRAGMENT_REGISTERS
        fits &= (d.rows % 64 == 0) & (d.rows <= 128) & (d.columns % 64 == 0)
        fits &= d.chunk * p.item % target.swizzle_bytes == 0
    fits &= area <= numbers.most_accumulators * threads // slices
    registers = registers + numbers.address_registers
    sums = np.where(slices > 1, slices * WORD * area, 0)
    ring, room = numbers.ring_slots, (target.smem + stage - sums) // 2
    if unit == GROUP:
        ring, room = numbers.group_slots, target.smem
    stages = np.minimum(np.minimum(max(ring), room // stage), each)
    shared = stages * stage + sums
    fits &= (stages >= (min(ring) if unit == GROUP else 1)) & (shared <= target.smem)
    fits &= (threads >= LANES) & (threads <= target.most_threads)
    slack = numbers.register_slack // np.where(slices > 1, 2, 1)  # the addresses of teams take a part of it
    fits &= registers <= register_budget(threads, target) + slack
    return _Block(threads, slices, stages, shared, registers, fits)


def _copied(p: Product, d: Decisions) -> Array:
    """Return the bytes of both operands that a block copies in a step."""
    return (d.rows * p.left.loads + p.sums * d.columns * p.right.loads) * p.item


def _whole(p: Product, d: Decisions) -> Array:
    """Return whether the chunks are whole, so that no guard of a ragged end is in the loop."""
    return (p.depth % d.chunk == 0) & (not p.guarded)


def _warps(p: Product, d: Decisions, numbers: Array) -> tuple[Array, Array]:
    """Return the warps along the sides of a tile, as `fragment_tile` places them."""
    down = np.maximum(np.minimum(2, d.rows // 16), d.rows // numbers.fragment_side)
    return down, np.maximum(np.minimum(2, d.columns // 8), p.sums * d.columns // numbers.fragment_side)


class _Work(NamedTuple):
    """Work of a block of each candidate: instructions of warps, issued and on the fp32 pipe, wavefronts, operations."""

    issued: Array
    pipe: Array
    lines: Array
    tensor: Array


def _work(p: Product, unit: str, d: Decisions, block: _Block, target: Target) -> _Work:
    """Count the work of a block for one step of the reduction."""
    numbers, area, copied = policy(target), d.rows * d.columns * p.sums, _copied(p, d)
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
            issued = issued + np.where(_whole(p, d), np.minimum(own, together), own)
    elif unit == WARP:
        down, across = _warps(p, d, numbers)
        lines = ((d.rows * across + p.sums * d.columns * down) * p.item + copied) / LINE
        issued = lines / VECTOR + warps / ATOM_STEPS  # one more for each atom
        tensor = 2 * area / target.warp_product_share
    else:
        lines = block.threads / target.warpgroup * (d.columns * p.sums + 64) * p.item / LINE
        issued, tensor = 0 * area, 2 * area
    vector = target.vector_bytes // p.item
    narrow = d.rows * (1 / p.left.width - 1 / vector) + p.sums * d.columns * (1 / p.right.width - 1 / vector)
    return _Work(issued + COPY * narrow / LANES, pipe, lines, tensor)


def _reads(operand: OperandCost, values: Array) -> Array:
    """Return the instructions of a step that read values of a thread from shared memory."""
    return values / (VECTOR if operand.along else np.gcd(values, VECTOR))


def _lines(operand: OperandCost, values: Array) -> Array:
    """Return the wavefronts of a step that read values of a thread from shared memory."""
    return values * (READ if operand.along else np.where(np.gcd(values, VECTOR) == 2, READ_PAIRS, READ))


def _shared(operand: OperandCost) -> float:
    """Return the instructions to compute an element in shared memory (`share_operand`)."""
    return operand.work + COPY + operand.loads if operand.work else 0


@np.errstate(all="ignore")  # candidates that do not fit
def times(product: Product, unit: str, d: Decisions, target: Target) -> Array:
    """Return the seconds of a product by each candidate; infinite for one that does not fit a block.

    unit: what multiplies.
    """
    numbers, p, several = policy(target), product, d.ways > 1
    block = _block(p, unit, d, target)
    chunks = _ceildiv(_ceildiv(p.depth, d.chunk), d.ways)
    issued, pipe, lines, tensor = (count * chunks * d.chunk for count in _work(p, unit, d, block, target))
    rows, columns = _ceildiv(p.rows, d.rows), _ceildiv(p.columns, d.columns)
    blocks, warps = p.batch * d.ways * rows * columns, block.threads / LANES
    fill = _copied(p, d) * chunks * d.chunk + d.rows * d.columns * p.sums * np.where(several, WORD, p.item)
    if unit == GROUP:  # two blocks of a cluster share the copies of an operand
        shared = np.maximum(np.where(rows % 2 == 0, d.columns, 0), np.where(columns % 2 == 0, d.rows, 0))
        fill = fill - shared * p.item * chunks * d.chunk / 2
    parts = np.where(several, WORD * p.batch * p.rows * p.columns * p.sums * d.ways, 0)
    byte = traffic_seconds(1.0, target)
    dram = (p.read + np.where(several, parts, p.others)) * byte
    # a block by itself: what it issues and moves, a barrier for each chunk, and its trip from L2, which a ring hides
    trip = L2_SHARE * target.memory_latency_seconds * chunks
    barrier = CLUSTER_CYCLES if unit == GROUP else BARRIER_CYCLES + SHARED_CYCLES
    alone = (np.maximum(issued / np.minimum(target.schedulers, warps), lines) + chunks * barrier) / target.clock
    alone = np.where(block.stages > 2, np.maximum(alone, trip / np.maximum(block.stages - 1, 1)), alone + trip)
    bubbles = chunks * barrier / target.clock if unit == WARP else 0  # of warps that multiply, if no other block does
    resident = np.minimum(target.threads // block.threads, target.registers // (block.registers * block.threads))
    resident = np.minimum(resident, (target.smem + BLOCK_RESERVE) // (block.shared + BLOCK_RESERVE))
    resident = np.clip(resident, 1, target.blocks)
    wide = resident * target.multiprocessors
    full, rest = blocks // wide, blocks % wide
    total = 0.0 * blocks
    for number, waves in ((wide, full), (rest, np.minimum(rest, 1))):
        each = _ceildiv(number, target.multiprocessors)
        issue = issued / (np.clip(each * warps, 1, target.schedulers) * target.issue_share)
        bounds = np.stack(np.broadcast_arrays(
            dram * number / blocks, each * fill * target.multiprocessors / target.l2_bytes_per_second,
            each * lines / target.clock, each * np.maximum(issue, pipe) / target.clock, alone,
            each * tensor * target.multiprocessors / target.tensor_flops_per_second + np.where(each == 1, bubbles, 0),
        ))  # fmt: skip
        busiest = bounds.max(axis=0)
        total += waves * (busiest + UNHIDDEN * (bounds.sum(axis=0) - busiest))
    ends = np.where(resident == 1, full + np.minimum(rest, 1), 1)
    total += target.launch_seconds + numbers.memory_trips * target.memory_latency_seconds * np.maximum(ends, 1)
    second = fixed_seconds(target) + (parts + p.others) * byte
    return np.where(block.fits, total + np.where(several, second, 0), math.inf)
