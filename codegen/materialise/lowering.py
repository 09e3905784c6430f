"""The record of one lowering: what is replicated, where values are, the levels of the nest, the names that are taken.

The functions that read it are in `expressions` (indices, registers, addresses), `values` and `shared_memory`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...ir.diagnostic import DplcError, InternalError
from ...ir.expr import Axis, Var, floordiv, is_int, modulo, multiply, only_sizes
from ...ir.facts.layout import params, stages, views_of
from ...ir.kernel import BLOCK_INDEX, SHARED, THREAD, WARPGROUP, Barrier, Define, InitBarrier
from ...ir.loop import For, Load
from ...ir.names import unused
from ...ir.node import Expr, names_in, nodes, replace
from ...ir.program import Block, Kernel, Param, Stmt
from ...ir.ranges import Interval, interval
from ...ir.sizes import has_sizes, lowest, sizes_in
from ...ir.substitute import substitute
from ...ir.text.print_statements import print_expr
from ...ir.tile import Slab, Stage, Tile
from ..kernel import MAX_GRID, MAX_THREADS_PER_BLOCK
from ..target import Target

# ---- preparation: one Tile a kernel, no axis of extent 1, no name with two meanings


TID = "tid"  # the index in the block, where several THREAD axes share it
# `lanes` counts in the shuffles of the printed kernel
RESERVED = (TID, THREAD, SHARED, *BLOCK_INDEX, "lanes")


def prepare(kernel: Kernel) -> tuple[Kernel, Tile]:
    """Return the kernel with exactly one Tile, whose axes have at least two values and names of their own."""
    tiles = [stmt for stmt in kernel.body if isinstance(stmt, Tile)]
    if tiles and len(kernel.body) != 1:
        raise InternalError(f"kernel `{kernel.name}`: statements beside the Tile")
    tile = tiles[0] if tiles else Tile((), kernel.body)  # a nest that no rule tiled: one thread does it all
    kernel = rename_buffers(replace(kernel, body=(drop_unit_axes(tile),)))
    (tile,) = kernel.body  # type: ignore[assignment]
    tile = rename_reserved(kernel, rename_collisions(kernel, tile))
    return replace(kernel, body=(tile,)), tile


def rename_buffers(kernel: Kernel) -> Kernel:
    """Rename buffers that have the name of something that a launch binds."""
    params = (*kernel.ins, *kernel.outs)
    taken = {*RESERVED, *(param.name for param in params)}
    names: dict[str, str] = {}
    for param in params:
        if param.name in RESERVED:
            names[param.name] = unused(param.name, taken)
            taken.add(names[param.name])
    if not names:
        return kernel
    ins, outs = (tuple(replace(p, name=names.get(p.name, p.name)) for p in ps) for ps in (kernel.ins, kernel.outs))
    return replace(kernel, ins=ins, outs=outs, body=_with_buffers(kernel.body, names))


def _with_buffers(block: Block, names: dict[str, str]) -> Block:
    out = []
    for stmt in block:
        changes = {f: names.get(getattr(stmt, f), getattr(stmt, f)) for f in ("buf", "src") if hasattr(stmt, f)}
        if hasattr(stmt, "body"):
            changes["body"] = _with_buffers(stmt.body, names)
        out.append(replace(stmt, **changes) if changes else stmt)
    return tuple(out)


def drop_unit_axes(tile: Tile) -> Tile:
    """Replace every axis of extent 1 by the number 0."""
    for axis in tile.axes:
        waits = axis.role == "BLOCK" and only_sizes(axis.extent)  # for the launch
        if not (is_int(axis.extent) or waits) or lowest(axis.extent) < 1:
            raise InternalError(f"axis `{axis.name}` has the extent {axis.extent!r}")
    unit: dict[str, Expr] = {axis.name: 0 for axis in tile.axes if axis.extent == 1}
    if not unit:
        return tile
    kept = tuple(axis for axis in tile.axes if axis.name not in unit)
    return replace(tile, axes=kept, body=substitute(tile.body, unit))


def slab_names(tile: Tile) -> set[str]:
    """Return the names of the shared slabs of a tile."""
    return {stage.dst for stage in nodes(tile, Stage)} | {slab.dst for slab in nodes(tile, Slab)}


def rename_collisions(kernel: Kernel, tile: Tile) -> Tile:
    """Rename axes and loop variables that have the name of a buffer or a slab.

    They share one space of names in a kernel; in Tile IR they do not.
    """
    owned = {param.name for param in (*kernel.ins, *kernel.outs)} | slab_names(tile)
    owned |= set(RESERVED)
    binders = [axis.name for axis in tile.axes] + [loop.var for loop in nodes(tile.body, For)]
    clashing = [name for name in dict.fromkeys(binders) if name in owned]
    if not clashing:
        return tile
    taken = owned | set(binders)
    images: dict[str, Expr] = {}
    for name in clashing:
        fresh = unused(name, taken)
        taken.add(fresh)
        images[name] = Var(fresh)
    axes = tuple(replace(a, name=images[a.name].name) if a.name in images else a for a in tile.axes)
    return replace(tile, axes=axes, body=substitute_variables(tile.body, images))


def rename_reserved(kernel: Kernel, tile: Tile) -> Tile:
    """Rename values that have the name of something that a launch binds: the lowering means its own by that."""
    taken = {*names_in(tile), *RESERVED, *(param.name for param in (*kernel.ins, *kernel.outs))}
    images: dict[str, Expr] = {}
    for name in RESERVED:
        if name in names_in(tile):
            images[name] = Var(unused(name, taken))
            taken.add(images[name].name)
    return replace(tile, body=substitute(tile.body, images)) if images else tile


def substitute_variables(body: tuple[object, ...], images: dict[str, Expr]) -> object:
    """Substitute loop variables and their uses but leave buffers alone, although they are Names too."""
    return tuple(_rename(stmt, images) for stmt in body)


def _rename(stmt: object, images: dict[str, Expr]) -> object:
    buffers = {field: getattr(stmt, field) for field in ("dst", "src", "buf", "acc", "ring") if hasattr(stmt, field)}
    inner = getattr(stmt, "body", None)
    changed = substitute(replace(stmt, body=()) if inner is not None else stmt, images)  # type: ignore[type-var]
    if inner is not None:
        changed = replace(changed, body=substitute_variables(inner, images))
    return replace(changed, **buffers) if buffers else changed


# positions of nested statements, outermost first: a block's identity (equal blocks are one tuple)
Path = tuple[int, ...]
Key = tuple[Path, int]  # a statement: the path of its block, its position
LowerBlock = Callable[..., Block]  # of `blocks`, which knows all statements
Heard = list[tuple[Path, Block]]  # for those who ask: the path of each statement and what became of it, inner first


class Place(NamedTuple):
    """The position of a statement: block, index, path of the block, axes that surrounding loops have fixed."""

    block: Block
    position: int
    path: Path
    bound: frozenset[str]


@dataclass(frozen=True)
class Held:
    """A value in registers: a scalar, or an array with one dimension per replicated axis it varies with."""

    name: str
    axes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class Inlined:
    """Value without registers: its consumers contain its expression. accumulators: those it reads, at any depth."""

    val: Expr
    axes: tuple[str, ...]
    dtype: str
    accumulators: frozenset[str]
    calls: int


@dataclass(frozen=True)
class Words:
    """An operand of tensor cores: its fragments for each value of the outer axes, one after the other, `each` words."""

    name: str
    axes: tuple[str, ...]  # all that it varies with
    dtype: str
    outer: tuple[str, ...]
    each: int


@dataclass(frozen=True)
class LateOperand:
    """A load that a late atom makes itself, when it multiplies. axes: all that it varies with."""

    load: Load
    axes: tuple[str, ...]
    dtype: str


Value = Held | Inlined | Words | LateOperand


@dataclass
class Level:
    """The kernel's top (var None) or a loop at run time: where address registers and ring counters of that level live.

    before: ahead of the loop; head and tail: first and last in its body. outside: the values that there are ahead.
    """

    var: str | None = None
    start: Expr = 0
    step: Expr = 1
    before: list[Stmt] = field(default_factory=list)
    head: list[Stmt] = field(default_factory=list)
    tail: list[Stmt] = field(default_factory=list)
    bases: dict[Any, str] = field(default_factory=dict)
    outside: dict[str, Value] = field(default_factory=dict)


@dataclass
class Accumulator:
    """Accumulator with its uses.

    path: the innermost block with all mentions. adds, combines: the blocks that add to it or combine it.
    reads: names in what it adds up and in the guards above. depends: those they vary with in the end, followed
    through values. combined: axes that a Combine folds; merged: those that a CombineTuple folds. The field after
    merged holds the accumulators of the same tuple, which may read each other's partial values before. Of an Mma:
    summed, the axes along which it adds up; laid_out, the registers of its results in the order of the instruction.
    """

    name: str
    fn: str
    dtype: str
    path: Path
    adds: list[Path] = field(default_factory=list)
    combines: list[Path] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    depends: set[str] = field(default_factory=set)
    combined: set[str] = field(default_factory=set)
    merged: set[str] = field(default_factory=set)
    summed: set[str] = field(default_factory=set)
    laid_out: dict[str, None] = field(default_factory=dict)
    beside: set[str] = field(default_factory=set)

    @property
    def direct(self) -> bool:
        """Added to once and right where it lives: the first value needs nothing to be added to (saves an FADD each)."""
        return self.adds == [self.path]


@dataclass
class Boxes:
    """The copies by TMA of a kernel. runs: the first copy of each group and how many follow; waits: groups per Wait.

    empty_waited: a Wait may be for a group that copies nothing.
    base: the register with the address of the mbarriers; issued, waited: the counters of groups. Where copies of
    another kind are mixed in, a Wait waits for all.
    """

    group: int
    barriers: int
    mixed: bool  # there are copies of another kind beside them
    runs: dict[Key, int]
    waits: dict[Key, int | None]
    empty_waited: bool = True
    base: str = ""
    issued: str = ""
    waited: str = ""


class Cell(NamedTuple):
    """A cell of any slot of a slab, in bytes: what the kernel's top knows, the rest, what is flipped in their sum."""

    fixed: Expr
    rest: Expr
    flipped: Expr


@dataclass
class Lowering:
    """One kernel on its way down. Replicated axes are kept in the order in which their loops nest.

    repeats: how many loops of any kind are around the current statement. fetched: by slab, the stores that its next
    Put is. tidied: what was simplified under the current ranges; simplified: that and the cells, by ranges.
    in_products: fragments that late products read which no Settle covers yet.
    """

    kernel: Kernel
    tile: Tile
    target: Target
    params: dict[str, Param]
    written: frozenset[str]
    stages: dict[str, Stage]
    threads: tuple[Axis, ...]
    thread_count: int
    replicated: dict[str, int]
    vectors: dict[str, int]
    fixed: set[str]
    ranges: dict[str, Interval]
    taken: set[str]
    tried: dict[str, int] = field(default_factory=dict)  # of `unused`
    levels: list[Level] = field(default_factory=lambda: [Level()])
    repeats: int = 0
    env: dict[str, Value] = field(default_factory=dict)
    shared_bytes: int = 0
    slab_bases: dict[str, str] = field(default_factory=dict)
    slab_starts: dict[str, int] = field(default_factory=dict)
    commits: frozenset[Key] = frozenset()
    group: int = 1
    fetched: dict[str, Block] = field(default_factory=dict)
    boxes: Boxes | None = None
    maps: dict[tuple[str, tuple[int, ...], int], str] = field(default_factory=dict)  # of tensors, by what they say
    mbarriers: list[InitBarrier] = field(default_factory=list)
    rings: dict[str, str] = field(default_factory=dict)  # the register with the address of the mbarriers of each
    depths: dict[str, int] = field(default_factory=dict)
    relays: dict[tuple[Expr, ...], str] = field(default_factory=dict)  # the same, by the axes that tell groups apart
    tidied: dict[Expr, Expr] = field(default_factory=dict)
    cells: dict[tuple[str, Expr, Expr], Cell] = field(default_factory=dict)
    simplified: dict[frozenset[tuple[str, Interval]], tuple[dict[Expr, Expr], dict[Any, Cell]]] = field(
        default_factory=dict
    )
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    heard: Heard | None = None
    views: frozenset[Load] = frozenset()
    in_products: list[str] = field(default_factory=list)

    @property
    def top(self) -> Level:
        return self.levels[0]

    @property
    def barrier(self) -> Barrier:
        """The barrier of the block, of a cluster whose blocks share TMA copies, or of the consumer warps."""
        return Barrier(threads=self.thread_count) if self.rings else Barrier(self.tile.cluster)

    @property
    def thread(self) -> Var:
        """The index in the block: the THREAD axis itself where there is only one."""
        return Var(self.threads[0].name if len(self.threads) == 1 else TID)


def start_lowering(kernel: Kernel, tile: Tile, target: Target) -> Lowering:
    """Return a record of a kernel of which nothing is lowered yet; its accumulators are not known."""
    threads = tuple(axis for axis in tile.axes if axis.role == "THREAD")
    thread_count = math.prod(axis.extent for axis in threads)
    known = params(kernel)
    loops = (loop.var for loop in nodes(tile.body, For))
    return Lowering(
        kernel,
        tile,
        target,
        known,
        frozenset(param.name for param in kernel.outs),
        stages(kernel),
        threads,
        thread_count,
        replicated={axis.name: axis.extent for axis in tile.axes if axis.role in ("REG", "VEC")},
        vectors={axis.name: axis.extent for axis in tile.axes if axis.role == "VEC"},
        fixed={axis.name for axis in tile.axes if axis.role in ("THREAD", "BLOCK")} | {TID},
        ranges={axis.name: (0, interval(axis.extent, {})[1] - 1) for axis in tile.axes} | {TID: (0, thread_count - 1)},
        views=views_of(kernel),
        taken={
            *RESERVED,
            *known,
            *(sizes_in(kernel) if has_sizes(kernel) else ()),
            *(axis.name for axis in tile.axes),
            *loops,
        },
    )


def fresh(low: Lowering, hint: str) -> str:
    """Return a name that nothing in the kernel has."""
    name = unused(hint, low.taken, tried=low.tried)
    low.taken.add(name)
    return name


def held_in(low: Lowering, name: str) -> Held:
    """Return the registers of an accumulator."""
    held = low.env[name]
    assert isinstance(held, Held)
    return held


def allocate(low: Lowering, size: int, alignment: int = 128) -> int:
    """Return the offset of new shared memory. Aligned so that an xor of chunk numbers stays within its row."""
    offset = -(-low.shared_bytes // alignment) * alignment
    low.shared_bytes = offset + size
    return offset


# ---- launches: indices of block and thread, and the limits of the device


FIRST_CLUSTERS = 90  # the architecture that brought them
MAX_REPLICATED = 2**14  # elements of 4 bytes along one axis of registers: an eighth of the local memory of a thread


def block_axes(low: Lowering) -> tuple[tuple[Expr, Expr, Expr], list[Stmt]]:
    """Return the grid and the definitions of the BLOCK axes.

    The last axis is x, then y, z; or all are in x if they do not fit.
    """
    axes = [axis for axis in low.tile.axes if axis.role == "BLOCK"]
    grid: list[Expr] = [1, 1, 1]
    out: list[Stmt] = []
    if len(axes) <= 3 and all(interval(axis.extent, {})[1] <= MAX_GRID[1] for axis in axes[:-1]):
        for number, axis in enumerate(reversed(axes)):
            grid[number] = axis.extent
            out.append(Define(axis.name, "i32", Var(BLOCK_INDEX[number])))
    else:
        grid[0] = functools.reduce(multiply, [axis.extent for axis in axes])
        out = decompose(BLOCK_INDEX[0], [(axis.name, axis.extent) for axis in axes])
    if interval(grid[0], {})[1] > MAX_GRID[0]:
        wanted = f"kernel `{low.kernel.name}` needs {print_expr(grid[0])} blocks"
        raise DplcError(f"{wanted}; a launch has at most {MAX_GRID[0]}")
    return (grid[0], grid[1], grid[2]), out


def thread_axes(low: Lowering) -> list[Stmt]:
    """Return the definitions of the THREAD axes from the thread's index, row-major."""
    axes = [(axis.name, axis.extent) for axis in low.threads]
    if len(axes) < 2:
        return decompose(THREAD, axes)
    whole = WARPGROUP if low.views else 0  # where a descriptor is must be seen to be the same for a warp
    return [Define(TID, "i32", Var(THREAD)), *decompose(TID, axes, whole)]


def decompose(index: str, axes: list[tuple[str, Expr]], whole: int = 0) -> list[Stmt]:
    """Return row-major coordinates of an index. Shifts and masks if extents are powers of two.

    whole: the number of threads with the same coordinate along an axis whose stride is a multiple of it; the
    definition records this.
    """
    out: list[Stmt] = []
    stride: Expr = 1
    for number, (name, extent) in enumerate(reversed(axes)):
        e: Expr = floordiv(Var(index), stride)
        same = bool(whole) and is_int(stride) and stride % whole == 0  # type: ignore[operator]
        out.append(Define(name, "i32", modulo(e, extent) if number < len(axes) - 1 else e, uniform=int(same)))
        stride = multiply(stride, extent)
    return out[::-1]


def check_registers(tile: Tile) -> None:
    """Raise DplcError for an axis that no thread has room for: its elements are written out one by one."""
    for axis in tile.axes:
        most = interval(axis.extent, {})[1] if axis.role in ("REG", "VEC") else 0
        if most > MAX_REPLICATED:
            raise DplcError(
                f"a thread has {most} elements along {axis.name}={axis.role}; {MAX_REPLICATED} are possible"
            )


def check_cluster(tile: Tile, target: Target) -> None:
    """Raise DplcError for a cluster that the target refuses."""
    if tile.cluster > 1 and target.sm < FIRST_CLUSTERS:
        raise DplcError(f"{target.name} has no clusters of blocks", hint="cluster=1")


def check_limits(kernel: Kernel, target: Target, threads: int, shared_bytes: int) -> None:
    """Raise DplcError for a launch that the target refuses."""
    if threads > MAX_THREADS_PER_BLOCK:
        raise DplcError(f"kernel `{kernel.name}` has {threads} threads per block; {MAX_THREADS_PER_BLOCK} are possible")
    if shared_bytes > target.smem:
        what = f"kernel `{kernel.name}` uses {shared_bytes} bytes of shared memory"
        raise DplcError(f"{what}; {target.name} has {target.smem} per block")


# ---- trip counts


def trip_count(stmt: For) -> int | None:
    """Return the number of iterations of a loop if it is known, else None."""
    if not (is_int(stmt.start) and is_int(stmt.stop) and is_int(stmt.step)):
        return None
    return max(0, int(-(-(stmt.stop - stmt.start) // stmt.step)))
