"""The record of one lowering: what is replicated, where values are, the levels of the nest, the names that are taken.

The functions that read it are in `expressions` (indices, registers, addresses), `values` and `shared_memory`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...ir.diagnostic import DplcError, InternalError
from ...ir.expr import Var, extents_of, floordiv, is_int, modulo, multiply, only_sizes
from ...ir.facts.layout import DTYPE_BYTES, bound_ranges, params, stages, thread_count, views_of
from ...ir.kernel import BLOCK_INDEX, SHARED, THREAD, WARPGROUP, Barrier, Define
from ...ir.loop import For, Load
from ...ir.names import unused
from ...ir.node import Expr, immutable, names_in, nodes, replace
from ...ir.program import Block, Kernel, Stmt
from ...ir.ranges import Narrower, below, interval
from ...ir.sizes import Interval, lowest, sizes_in
from ...ir.substitute import substitute
from ...ir.text.print_statements import print_expr
from ...ir.tile import SharedTile, Tile
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
    # a nest that no rule tiled: one thread does it all
    tile = rename_binders(kernel, drop_unit_axes(tiles[0] if tiles else Tile((), kernel.body)))
    used = names_in(tile).union(params(kernel))
    images = renamed((name for name in RESERVED if name in used), {*used, *RESERVED})
    ins, outs, tile = substitute((kernel.ins, kernel.outs, tile), images)
    return replace(kernel, ins=ins, outs=outs, body=(tile,)), tile


def renamed(names: Iterable[str], taken: set[str]) -> dict[str, Expr]:
    """Return new variables for some names, which are then taken too."""
    images: dict[str, Expr] = {}
    for name in names:
        images[name] = Var(unused(name, taken))
        taken.add(images[name].name)
    return images


def drop_unit_axes(tile: Tile) -> Tile:
    """Replace every axis of extent 1 by the number 0."""
    for axis in tile.axes:
        waits = axis.role == "BLOCK" and only_sizes(axis.extent)  # for the launch
        if not (is_int(axis.extent) or waits) or lowest(axis.extent) < 1:
            raise InternalError(f"axis `{axis.name}` has the extent {axis.extent!r}")
    kept = tuple(axis for axis in tile.axes if axis.extent != 1)
    return replace(
        tile, axes=kept, body=substitute(tile.body, {axis.name: 0 for axis in tile.axes if axis not in kept})
    )


def rename_binders(kernel: Kernel, tile: Tile) -> Tile:
    """Rename axes and loop variables that have the name of a buffer, a shared-memory tile or a reserved name.

    They share one space of names in a kernel; in Tile IR they do not.
    """
    owned = {*params(kernel), *stages(kernel), *RESERVED}
    binders = [axis.name for axis in tile.axes] + [loop.var for loop in nodes(tile.body, For)]
    images = renamed((name for name in dict.fromkeys(binders) if name in owned), owned.union(binders))
    axes = tuple(replace(a, name=images[a.name].name) if a.name in images else a for a in tile.axes)
    return replace(tile, axes=axes, body=substitute_variables(tile.body, images)) if images else tile


def substitute_variables(block: Block, images: dict[str, Expr]) -> Block:
    """Substitute loop variables and their uses but leave buffers and values alone, although they are names too."""
    out = []
    for stmt in block:
        kept = {field: getattr(stmt, field) for field in type(stmt).named if field != "var"}
        if hasattr(stmt, "body"):
            kept["body"] = substitute_variables(stmt.body, images)
        out.append(replace(substitute(stmt, images), **kept))
    return tuple(out)


# positions of nested statements, outermost first: a block's identity (equal blocks are one tuple)
Path = tuple[int, ...]
Key = tuple[Path, int]  # a statement: the path of its block, its position
LowerBlock = Callable[..., Block]  # of `blocks`, which knows all statements
Emitted = list[tuple[Path, Block]]  # on request: the path of each statement and what became of it, inner first


class Place(NamedTuple):
    """The position of a statement: block, index, path of the block, axes that surrounding loops have fixed."""

    block: Block
    position: int
    path: Path
    bound: frozenset[str]


@immutable
class Held:
    """A value in registers: a scalar, or an array with one dimension per replicated axis it varies with.

    backwards: the last of the axes if a load fills its registers in reverse order, with its extent.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    backwards: tuple[str, int] | None = None


@immutable
class Inlined:
    """Value without registers: its consumers contain its expression. accumulators: those it reads, at any depth."""

    val: Expr
    axes: tuple[str, ...]
    dtype: str
    accumulators: frozenset[str]
    calls: int


@immutable
class Words:
    """An operand of tensor cores: its fragments for each value of the outer axes, one after the other, `each` words."""

    name: str
    axes: tuple[str, ...]  # all that it varies with
    dtype: str
    outer: tuple[str, ...]
    each: int


@immutable
class AsynchronousOperand:
    """A load that an asynchronous atom makes itself, when it multiplies. axes: all that it varies with."""

    load: Load
    axes: tuple[str, ...]
    dtype: str


Value = Held | Inlined | Words | AsynchronousOperand


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
    base: the register with the address of the mbarriers; issued, waited: the counters of groups.
    """

    group: int
    barriers: int
    runs: dict[Key, int]
    waits: dict[Key, int | None]
    empty_waited: bool = True
    base: str = ""
    issued: str = ""
    waited: str = ""


class Cell(NamedTuple):
    """The byte of a cell of a shared tile: what the kernel's top knows, the rest, and what is flipped in their sum."""

    fixed: Expr
    rest: Expr
    flipped: Expr


class Lowering:
    """One kernel on its way down. Replicated axes are kept in the order in which their loops nest.

    dtypes: of buffers and shared tiles. shared_tiles: the register with the address of each, and its first byte.
    repeats: how many loops of any kind are around the current statement. commits: the last copies of groups. maps:
    tensor maps, by their description. tidied: what was simplified under the current ranges; simplified: that and the
    cells, by ranges. in_products: fragments that asynchronous products read and no WaitMma covers yet. register_tiles:
    their registers.
    """

    def __init__(self, kernel: Kernel, tile: Tile, target: Target, emitted: Emitted | None = None):
        self.kernel, self.tile, self.target, self.emitted = kernel, tile, target, emitted
        self.params, self.stages = params(kernel), stages(kernel)
        self.dtypes = {name: param.dtype for name, param in self.params.items()}
        for name, stage in self.stages.items():
            self.dtypes[name] = stage.dtype if isinstance(stage, SharedTile) else self.dtypes[stage.src]
        self.threads = tuple(axis for axis in tile.axes if axis.role == "THREAD")
        self.thread_count = thread_count(tile)
        self.replicated = {axis.name: axis.extent for axis in tile.axes if axis.role in ("REG", "VEC")}
        self.vectors = {axis.name: axis.extent for axis in tile.axes if axis.role == "VEC"}
        self.fixed = {axis.name for axis in tile.axes if axis.role in ("THREAD", "BLOCK")} | {TID}
        self.ranges = dict(bound_ranges(tile, {})) | {TID: (0, self.thread_count - 1)}
        self.taken = {*RESERVED, *self.params, *sizes_in(kernel), *(axis.name for axis in tile.axes)}
        self.taken.update(loop.var for loop in nodes(tile.body, For))
        self.tried: dict[str, int] = {}  # of `unused`
        self.levels = [Level()]
        self.repeats = 0
        self.env: dict[str, Value] = {}
        self.shared_bytes = 0
        self.shared_tiles: dict[str, tuple[str, int]] = {}
        self.commits: frozenset[Key] = frozenset()
        self.group = 1
        self.boxes: Boxes | None = None
        self.maps: dict[tuple[str, tuple[int, ...], int], str] = {}
        self.tidied: dict[Expr, Expr] = {}
        self.cells: dict[tuple[str, Expr, Expr], Cell] = {}
        self.simplified: dict[frozenset[tuple[str, Interval]], tuple[dict[Expr, Expr], dict[Any, Cell]]] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.in_products: list[str] = []
        self.register_tiles: dict[str, str] = {}
        self.registers: dict[str, str] = {}

    def register_type(self, name: str) -> str:
        """Return the dtype of registers by their name in Kernel IR, or of an index."""
        return self.registers.get(name, "i32")

    def item(self, buf: str) -> int:
        """Return the bytes of an element of a buffer or a shared tile."""
        return DTYPE_BYTES[self.dtypes[buf]]

    @property
    def top(self) -> Level:
        return self.levels[0]

    @property
    def barrier(self) -> Barrier:
        """The barrier of the block, or of a cluster whose blocks share TMA copies."""
        return Barrier(self.tile.cluster)

    @property
    def thread(self) -> Var:
        """The index in the block: the THREAD axis itself where there is only one."""
        return Var(self.threads[0].name if len(self.threads) == 1 else TID)


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
        grid[0] = functools.reduce(multiply, extents_of(axes))
        out = decompose(BLOCK_INDEX[0], [(axis.name, axis.extent) for axis in axes])
    if interval(grid[0], {})[1] > MAX_GRID[0]:
        wanted = f"kernel `{low.kernel.name}` needs {print_expr(grid[0])} blocks"
        what = f"{wanted}; a launch has at most {MAX_GRID[0]}"
        ranges = below(grid[0], MAX_GRID[0])
        if ranges is None:
            raise DplcError(what)
        narrow = ", ".join(f"`{size.name}` to {size.low}..{size.high}" for size in ranges)
        raise Narrower(ranges, what, None, f"narrow {narrow}")
    return (grid[0], grid[1], grid[2]), out


def thread_axes(low: Lowering) -> list[Stmt]:
    """Return the definitions of the THREAD axes from the thread's index, row-major."""
    axes = [(axis.name, axis.extent) for axis in low.threads]
    if len(axes) < 2:
        return decompose(THREAD, axes)
    whole = WARPGROUP if views_of(low.kernel) else 0  # where a descriptor is must be seen to be the same for a warp
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
        same = bool(whole) and is_int(stride) and stride % whole == 0
        out.append(Define(name, "i32", modulo(e, extent) if number < len(axes) - 1 else e, uniform=int(same)))
        stride = multiply(stride, extent)
    return out[::-1]


def check_axes(tile: Tile, target: Target) -> None:
    """Raise DplcError for a cluster that the target refuses, or an axis that no thread has room for."""
    for axis in tile.axes:
        most = interval(axis.extent, {})[1] if axis.role in ("REG", "VEC") else 0
        if most > MAX_REPLICATED:
            raise DplcError(
                f"a thread has {most} elements along {axis.name}={axis.role}; {MAX_REPLICATED} are possible"
            )
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
    known: Any = stmt.start, stmt.stop, stmt.step
    return len(range(*known)) if all(map(is_int, known)) else None
