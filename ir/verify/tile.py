"""What must hold of Tile IR beyond Loop IR: launch limits, one layout a slab, barriers in uniform control flow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..expr import Axis, free_names, is_int, only_sizes
from ..facts.divisors import divisor
from ..facts.layout import all_slab_bytes, stages, thread_count, tile_of
from ..facts.structure import dependencies, replicated_names, summary
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
    Put,
    Scan,
    ScanTuple,
    Slab,
    Stage,
    Team,
    Tile,
    TuplesAlongAxes,
)
from .fragments import fragment_problems
from .loop import TILE_STATEMENTS, Check, Scope
from .relays import relay_problems
from .teams import team_problems

MOST_BLOCKS = 8  # of a cluster, on every device that has them
LAYOUT = ("src", "slab", "depth", "pad", "swizzle", "xor")


@dataclass(frozen=True)
class Limits:
    """threads of a block, bytes of shared memory, blocks of a launch."""

    threads: int = 1024
    smem: int = 232448
    blocks: int = 2**31 - 1


def problems(kernel: Kernel, limits: Limits = Limits()) -> tuple[str, ...]:
    """What is wrong with a kernel of this level, a sentence each; nothing for a good one."""
    tile = tile_of(kernel)
    if tile is None or len(kernel.body) != 1:
        return (f"the body of kernel `{kernel.name}` is not one Tile",)
    check = _TileCheck(kernel, tile)
    check.axes(tile)
    if check.found:
        return tuple(check.found)
    check.launch(tile, limits)
    check.cluster(tile)
    check.teams(tile)
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
        self.slabs = set(stages(kernel))
        for stage in stages(kernel).values():
            extents = tuple(axis.extent for axis in stage.slab)
            self.shapes[stage.dst] = (stage.depth, *extents) if stage.depth > 1 else extents

    def axes(self, tile: Tile) -> None:
        names = [axis.name for axis in tile.axes]
        for axis in tile.axes:
            block = axis.role == "BLOCK" and only_sizes(axis.extent)  # how many there are may wait for the launch
            if axis.role not in AXIS_ROLES or not (is_int(axis.extent) or block) or lowest(axis.extent) < 1:
                self.report(tile, f"axis `{axis.name}` has no role or no extent")
            if names.count(axis.name) > 1:
                self.report(tile, f"two axes are called `{axis.name}`")

    def launch(self, tile: Tile, limits: Limits) -> None:
        blocks = math.prod(interval(axis.extent, {})[1] for axis in tile.axes if axis.role == "BLOCK")
        for have, limit, what in (
            (thread_count(tile) + sum(t.threads for t in nodes(tile.body, Team)), limits.threads, "threads"),
            (all_slab_bytes(self.kernel), limits.smem, "bytes of shared memory"),
            (blocks, limits.blocks, "blocks"),
        ):
            if have > limit:
                self.report(tile, f"{have} {what}, the limit is {limit}")

    def cluster(self, tile: Tile) -> None:
        """Neighbours along the last BLOCK axis, which come to every barrier together."""
        along = [axis.extent for axis in tile.axes if axis.role == "BLOCK"][-1:]
        if not 1 <= tile.cluster <= MOST_BLOCKS or (tile.cluster > 1 and not divides(tile.cluster, along)):
            self.report(tile, f"the last BLOCK axis is no whole number of clusters of {tile.cluster}")

    def teams(self, tile: Tile) -> None:
        for stmt, what in (*team_problems(tile, self.varying), *relay_problems(tile, self.varying)):
            self.report(stmt, what)

    def layouts(self) -> None:
        """All copies into one slab agree on where its cells are."""
        first: dict[str, Stage] = {}
        for stage in summary(self.tile.body).stages:
            other = first.setdefault(stage.dst, stage)
            for name in LAYOUT:
                if getattr(stage, name) != getattr(other, name):
                    self.report(stage, f"`{stage.dst}` has two layouts: `{name}` differs")

    def statement(self, stmt: Any, scope: Scope) -> None:
        if isinstance(stmt, Collective):
            self.collective(stmt)
        if isinstance(stmt, Slab) and (self.divergent or any(axis.extent < 1 for axis in stmt.slab)):
            self.report(stmt, "shared memory under a guard, or of no extent")
        if isinstance(stmt, Slab) and stmt.reuse and next(nodes(self.tile.body, Team), None) is not None:
            self.report(stmt, "`reuse` beside a Team: it copies ahead, so the ring is never free")
        if isinstance(stmt, If | For) and self.diverges(stmt):
            outer, self.divergent = self.divergent, True
            super().statement(stmt, scope)
            self.divergent = outer
            return
        if isinstance(stmt, Team):
            self.block(stmt.body, scope)
        super().statement(stmt, scope)

    def block(self, block: Block, scope: Scope) -> None:
        super().block(block, scope)
        self.fetches(block)

    def fetches(self, block: Block) -> None:
        """A fetch is put once, later in its own block, and until then nothing else is fetched for its slab."""
        held: dict[str, Stage] = {}
        for stmt in block:
            if isinstance(stmt, Put):
                if held.pop(stmt.dst, None) is None:
                    self.report(stmt, f"nothing was fetched for `{stmt.dst}` in this block")
                continue
            for inner in nodes((stmt,), Stage):
                if inner.via == "FETCH" and inner.dst in held:
                    self.report(inner, f"`{inner.dst}` is fetched again before its Put")
            if isinstance(stmt, Stage) and stmt.via == "FETCH":
                held[stmt.dst] = stmt
                if not free_names((stmt.slot, stmt.when)) <= self.fixed:
                    self.report(stmt, "the slot or predicate of a fetch is no matter of axes and loops")
        for stmt in held.values():
            self.report(stmt, f"`{stmt.dst}` is fetched and not put in this block")

    def store(self, stmt: Store) -> None:
        """Threads may write to slabs too, word by word."""
        if stmt.buf not in self.slabs:
            super().store(stmt)

    def bounds(self, stmt: Stmt, position: Any, extent: int, scope: Scope) -> None:
        """Only what no guard protects: ragged edges need more than intervals, and the simulator watches them."""
        if not scope.guards:
            super().bounds(stmt, position, extent, scope)

    def diverges(self, stmt: If | For) -> bool:
        """A guard, or bounds that vary by thread or by block of a cluster: what is inside, some may not reach."""
        return isinstance(stmt, If) or not free_names((stmt.start, stmt.stop, stmt.step)).isdisjoint(self.apart)

    def collective(self, stmt: Stmt) -> None:
        if self.divergent:
            self.report(stmt, f"{type(stmt).__name__} in divergent control flow")
        if isinstance(stmt, Stage):
            self.stage(stmt)
        elif isinstance(stmt, Mma):
            for problem in fragment_problems(stmt, self.tile, self.kernel):
                self.report(stmt, problem)
        elif isinstance(stmt, AlongAxes | TuplesAlongAxes):
            if isinstance(stmt, AlongAxes):
                self.reduction(stmt)
                if stmt.acc not in self.sums:
                    self.report(stmt, f"`{stmt.acc}` is no accumulator")
            else:
                self.parts(stmt)
            for axis in sorted(free_names(stmt.over) - self.varying):
                self.report(stmt, f"`{axis}` is no axis inside of a block")
        if isinstance(stmt, Scan | ScanTuple):
            self.scan(stmt)

    def scan(self, stmt: Scan | ScanTuple) -> None:
        """Every register along the axes holds a value of its own, and an axis is named once."""
        names = [axis.name for axis in stmt.over]
        found = summary(self.tile.body)
        for acc in stmt.accs:
            added = [one.val for one in found.sums if one.acc == acc]
            added += [e for one in found.merges if acc in one.accs for e in one.vals]
            varying = dependencies(tuple(added), self.kernel.body)
            for axis in sorted(replicated_names(self.tile) & set(names) - varying):
                self.report(stmt, f"`{acc}` does not vary with `{axis}`")
        if len(set(names)) < len(names):
            self.report(stmt, "an axis is named twice")

    def parts(self, stmt: TuplesAlongAxes) -> None:
        """One accumulator for each part; who adds to a part by itself starts from what the part is of no elements."""
        known = monoid(stmt.fn)
        if len(stmt.accs) != len(known.parts):
            self.report(stmt, f"`{stmt.fn}` has {len(known.parts)} parts")
            return
        for acc, start in zip(stmt.accs, known.identity, strict=True):
            if acc not in self.sums:
                self.report(stmt, f"`{acc}` is no accumulator")
            for fn in {added.fn for added in summary(self.tile.body).sums if added.acc == acc}:
                if FUNCTIONS[fn].identity != start and fn not in ("maximum", "minimum"):
                    self.report(stmt, f"`{acc}` starts as {start}, from which `{fn}` cannot add up")

    def stage(self, stmt: Stage) -> None:
        if stmt.src not in {param.name for param in self.kernel.ins}:
            self.report(stmt, f"`{stmt.src}` is no input")
        if not free_names((stmt.origin, stmt.slot, stmt.when)).difference(stmt.gathered).isdisjoint(self.varying):
            self.report(stmt, "the origin, slot or predicate varies by thread")
        for name in sorted(self.fixed.intersection(stmt.gathered)):
            self.report(stmt, f"the label `{name}` is an axis or a loop, too: its origin could mean either")
        if not all(_is_side(axis, len(stmt.origin)) for axis in stmt.slab):
            self.report(stmt, "an axis of the slab says no dimension of its source")
        if not any(load.buf == stmt.dst for load in nodes(self.tile.body, Load)):
            self.report(stmt, f"`{stmt.dst}` is never read")


def divides(cluster: int, along: list[Any]) -> bool:
    """Whether the blocks of an axis, a number or made of sizes, are whole clusters."""
    return bool(along) and divisor(along[0], {}) % cluster == 0


def _is_side(axis: Axis, rank: int) -> bool:
    return (axis.dim is None or 0 <= axis.dim < rank) and axis.extent >= 1
