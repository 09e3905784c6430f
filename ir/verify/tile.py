"""Invariants of Tile IR beyond Loop IR: launch limits, one layout a shared tile, barriers in uniform control flow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..atoms import ATOMS
from ..expr import Var, extents_of, free_names, is_int, only_sizes
from ..facts.index import divisor
from ..facts.layout import all_shared_tile_bytes, stages, thread_count, tile_of, views_of
from ..facts.structure import dependencies, replicated_names, summary, value_dtypes
from ..functions import FUNCTIONS
from ..loop import For, If, Load, Store
from ..monoids import monoid
from ..node import nodes
from ..program import Block, Kernel, Stmt
from ..ranges import interval
from ..sizes import lowest
from ..tile import (
    AXIS_ROLES,
    AlongAxes,
    Collective,
    Mma,
    RegisterTile,
    Scan,
    ScanTuple,
    SharedTile,
    Stage,
    Tile,
    TuplesAlongAxes,
    WaitMma,
)
from .loop import TILE_STATEMENTS, Check, Problems, Scope

# ---- Mma: its axes are those of its atom, and the atom multiplies the dtypes of its operands
#
# The layout of a fragment is not checked here. A wrong layout is another program with another result.


REPLICATED = ("REG", "VEC")


def asynchronous_problems(stmt: Mma, kernel: Kernel) -> Iterator[str]:
    """Yield the problems of an asynchronous atom's operands: shared tiles that TMA filled or, for a, registers."""
    views, shared_tiles = {load.dst: load for load in views_of(kernel)}, stages(kernel)
    loaded = {load.dst for load in summary(kernel.body).loads if load.buf in shared_tiles}
    for e in (stmt.a, stmt.b):
        load = views.get(e.name) if isinstance(e, Var) else None
        shared_tile = shared_tiles.get(load.buf) if load else None
        if e is stmt.a and isinstance(e, Var) and e.name not in loaded:
            if not _completed(stmt, kernel.body):
                yield f"`{e.name}` stays in its registers until a WaitMma in the same block, and there is none"
            continue
        if load is None or getattr(shared_tile, "via", "") != "TMA" or load.when is not True:
            yield f"`{stmt.atom}` multiplies what TMA has copied to a shared tile, and nothing else reads that value"
            return


def _completed(stmt: Mma, block: Block) -> bool:
    """Return whether a WaitMma of all products follows an Mma in its block, after which its registers may be reused."""
    for position, part in enumerate(block):
        if part is stmt:
            return any(isinstance(later, WaitMma) and later.keep == 0 for later in block[position:])
        if hasattr(part, "body") and stmt in summary((part,)).mmas:
            return _completed(stmt, part.body)
    return True


def fragment_problems(stmt: Mma, tile: Tile, kernel: Kernel) -> Iterator[str]:
    """Yield the problems of an Mma, a sentence each."""
    atom, known = ATOMS[stmt.atom], {Var(axis.name): axis for axis in tile.axes}
    axes, over = ([known.get(axis) for axis in named] for named in (stmt.axes, stmt.over))
    if [axis and axis.extent for axis in axes] != [extent for _, extent in atom.axes]:
        yield f"`{atom.name}` has the axes {', '.join(f'{name}:{extent}' for name, extent in atom.axes)}"
        return
    lanes = [axis for axis in tile.axes if axis.role == "THREAD"][-len(atom.lanes) :]
    if axes[: len(lanes)] != lanes:
        yield "the lanes are not the innermost threads"
    if any(axis is None or axis.role not in REPLICATED for axis in (*axes[len(atom.lanes) :], *over)):
        yield "what is no lane is no register"
    if len({axis.name for axis in (*stmt.axes, *stmt.over)}) < len(stmt.axes) + len(stmt.over):
        yield "an axis stands twice"
    dtypes: dict[str, Any] = value_dtypes(kernel)
    left, right = (dtypes.get(e.name) if isinstance(e, Var) else None for e in (stmt.a, stmt.b))
    if left is None or right is None or not atom.multiplies(left, right):
        yield f"`{atom.name}` multiplies two values of {' or '.join(atom.dtypes)}"
    for other in summary(tile.body).sums:
        if other.acc == stmt.acc and other.fn != "add":
            yield f"`{stmt.acc}` is not a sum"
    if atom.asynchronous:
        yield from asynchronous_problems(stmt, kernel)


MOST_BLOCKS = 8  # of a cluster, on every device that has them
LAYOUT = ("src", "box", "depth", "pad", "swizzle", "xor")


MOST_THREADS, MOST_SHARED_BYTES, MOST_LAUNCHED = 1024, 232448, 2**31 - 1  # of a block twice, and blocks of a launch


def problems(kernel: Kernel, smem: int = MOST_SHARED_BYTES) -> tuple[str, ...]:
    """Return the problems of a kernel of this level, a sentence each; none for a valid kernel.

    smem: bytes of shared memory that a block may have.
    """
    tile = tile_of(kernel)
    if tile is None or len(kernel.body) != 1:
        return (f"the body of kernel `{kernel.name}` is not one Tile",)
    check = _TileCheck(kernel, tile)
    check.report(tile, check.axes(tile))
    if check.found:
        return tuple(check.found)
    check.report(tile, check.launch(tile, smem))
    check.layouts()
    if check.grounded(tile.body):
        check.block(tile.body, Scope().bind(tile))
    return tuple(check.found)


class _TileCheck(Check):
    def __init__(self, kernel: Kernel, tile: Tile):
        super().__init__(kernel, TILE_STATEMENTS)
        self.tile = tile
        self.divergent = False
        self.varying = frozenset(axis.name for axis in tile.axes if axis.role != "BLOCK")
        in_cluster = [axis.name for axis in tile.axes if axis.role == "BLOCK"][-1:] if tile.cluster > 1 else []
        self.apart = self.varying | {*in_cluster}
        self.fixed = {axis.name for axis in tile.axes} | {loop.var for loop in summary(tile.body).loops}
        self.shared_tiles = set(stages(kernel))
        for stage in stages(kernel).values():
            extents = extents_of(stage.box)
            self.shapes[stage.dst] = (stage.depth, *extents) if stage.depth > 1 else extents
        for registers in summary(kernel.body).register_tiles:
            self.shapes[registers.dst] = extents_of(registers.box)
        self.register_tiles = {registers.dst for registers in summary(kernel.body).register_tiles}

    def axes(self, tile: Tile) -> Problems:
        names = [axis.name for axis in tile.axes]
        for axis in tile.axes:
            block = axis.role == "BLOCK" and only_sizes(axis.extent)  # how many there are may wait for the launch
            if axis.role not in AXIS_ROLES or not (is_int(axis.extent) or block) or lowest(axis.extent) < 1:
                yield f"axis `{axis.name}` has no role or no extent"
            if names.count(axis.name) > 1:
                yield f"two axes are called `{axis.name}`"
        for stmt in nodes(tile.body, Stage, SharedTile, RegisterTile):
            if not all(is_int(axis.extent) for axis in stmt.box):
                self.report(stmt, ["an axis of a tile in memory has no number as its extent"])

    def launch(self, tile: Tile, smem: int) -> Problems:
        """Check what a device has, and that clusters divide the blocks of the last BLOCK axis.

        Their blocks reach every barrier together.
        """
        along = [axis.extent for axis in tile.axes if axis.role == "BLOCK"]
        blocks = math.prod(interval(extent, {})[1] for extent in along)
        for have, limit, what in (
            (thread_count(tile), MOST_THREADS, "threads"),
            (all_shared_tile_bytes(self.kernel), smem, "bytes of shared memory"),
            (blocks, MOST_LAUNCHED, "blocks"),
        ):
            if have > limit:
                yield f"{have} {what}, the limit is {limit}"
        whole = bool(along) and divisor(along[-1], {})
        if not 1 <= tile.cluster <= MOST_BLOCKS or (tile.cluster > 1 and (not whole or whole % tile.cluster)):
            yield f"the last BLOCK axis is not a whole number of clusters of {tile.cluster}"

    def layouts(self) -> None:
        """Check that all copies into one shared tile agree on its layout."""
        first: dict[str, Stage] = {}
        for stage in summary(self.tile.body).stages:
            other = first.setdefault(stage.dst, stage)
            unlike = (name for name in LAYOUT if getattr(stage, name) != getattr(other, name))
            self.report(stage, (f"`{stage.dst}` has two layouts: `{name}` differs" for name in unlike))

    def statement(self, stmt: Any, scope: Scope) -> Problems:
        if isinstance(stmt, Collective):
            yield from self.collective(stmt)
        if isinstance(stmt, SharedTile) and (self.divergent or any(axis.extent < 1 for axis in stmt.box)):
            yield "shared memory under a guard, or of no extent"
        outer = self.divergent
        # some threads, or blocks of a cluster, may skip the body of a guard, or of a loop whose bounds vary
        bounds = (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, For) else ()
        self.divergent |= isinstance(stmt, If) or not free_names(bounds).isdisjoint(self.apart)
        yield from super().statement(stmt, scope)
        self.divergent = outer

    def writable(self, buffer: str) -> bool:
        """Return whether a buffer is an output or a tile, which threads may write word by word."""
        return buffer in self.shared_tiles or buffer in self.register_tiles or super().writable(buffer)

    def access(self, stmt: Load | Store, scope: Scope) -> Problems:
        """Check unguarded indices only: boundary tiles need more than intervals, and the simulator checks them."""
        if isinstance(stmt, Load) and stmt.when is not True and stmt.buf in self.register_tiles:
            yield "registers are read without a condition"
        yield from iter(()) if scope.guards else super().access(stmt, scope)

    def collective(self, stmt: Stmt) -> Problems:
        if self.divergent:
            yield f"{type(stmt).__name__} in divergent control flow"
        if isinstance(stmt, Stage):
            yield from self.stage(stmt)
        elif isinstance(stmt, Mma):
            yield from fragment_problems(stmt, self.tile, self.kernel)
        elif isinstance(stmt, AlongAxes | TuplesAlongAxes):
            if isinstance(stmt, AlongAxes):
                yield from self.reduction(stmt)
                yield from self.accumulator(stmt.acc)
            else:
                yield from self.parts(stmt)
            for axis in sorted(free_names(stmt.over) - self.varying):
                yield f"`{axis}` is not an axis inside of a block"
        if isinstance(stmt, Scan | ScanTuple):
            yield from self.scan(stmt)

    def scan(self, stmt: Scan | ScanTuple) -> Problems:
        """Check that every register along the axes holds a value of its own, and that an axis is named once."""
        names = [axis.name for axis in stmt.over]
        found = summary(self.tile.body)
        for acc in stmt.accs:
            added = [one.val for one in found.sums if one.acc == acc]
            added += [e for one in found.merges if acc in one.accs for e in one.vals]
            varying = dependencies(tuple(added), self.kernel.body)
            for axis in sorted(replicated_names(self.tile) & set(names) - varying):
                yield f"`{acc}` does not vary with `{axis}`"
        if len(set(names)) < len(names):
            yield "an axis is named twice"

    def parts(self, stmt: TuplesAlongAxes) -> Problems:
        """Check that each part has one accumulator.

        The accumulator must start from the part's identity if statements add to it separately.
        """
        known = monoid(stmt.fn)
        if len(stmt.accs) != len(known.parts):
            yield f"`{stmt.fn}` has {len(known.parts)} parts"
            return
        for acc, start in zip(stmt.accs, known.identity, strict=True):
            yield from self.accumulator(acc)
            for fn in {added.fn for added in summary(self.tile.body).sums if added.acc == acc}:
                if FUNCTIONS[fn].identity != start and fn not in ("maximum", "minimum"):
                    yield f"`{acc}` starts as {start}, from which `{fn}` cannot add up"

    def stage(self, stmt: Stage) -> Problems:
        if stmt.src not in {param.name for param in self.kernel.ins}:
            yield f"`{stmt.src}` is not an input"
        if not free_names((stmt.origin, stmt.slot, stmt.when)).difference(stmt.gathered).isdisjoint(self.varying):
            yield "the origin, slot or predicate varies by thread"
        for name in sorted(self.fixed.intersection(stmt.gathered)):
            yield f"the label `{name}` is an axis or a loop, too: its origin could mean either"
        if not all(a.extent >= 1 and (a.dim is None or 0 <= a.dim < len(stmt.origin)) for a in stmt.box):
            yield "an axis of the shared tile says no dimension of its source"
        if not any(load.buf == stmt.dst for load in nodes(self.tile.body, Load)):
            yield f"`{stmt.dst}` is never read"
