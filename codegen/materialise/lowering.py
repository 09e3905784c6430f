"""The record of one lowering: what is replicated, where values are, the levels of the nest, the names that are taken.

Functions that ask about it stand in files of their own: `ranges` (what is known of an index), `registers` (values and
the axes they vary with), `slabs`, `accumulators`, `boxes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...ir.expr import Axis, Var
from ...ir.facts.layout import params, stages, views_of
from ...ir.kernel import Barrier, InitBarrier
from ...ir.loop import For, Load
from ...ir.names import unused
from ...ir.node import Expr, nodes
from ...ir.program import Block, Kernel, Param, Stmt
from ...ir.ranges import Interval, interval
from ...ir.sizes import has_sizes, sizes_in
from ...ir.tile import Stage, Tile
from ..target import Target
from .prepare import RESERVED, TID

# positions of nested statements, outermost first: a block's identity (equal blocks are one tuple)
Path = tuple[int, ...]
Key = tuple[Path, int]  # a statement: the path of its block, its position
LowerBlock = Callable[..., Block]  # of `blocks`, which knows all statements
Heard = list[tuple[Path, Block]]  # for those who ask: the path of each statement and what became of it, inner first


class Place(NamedTuple):
    """Where a statement stands: its block and position, the path of the block, axes that loops around it have fixed."""

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
    """A value without registers: its expression stands where it is read. accumulators: those it reads, at any depth."""

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
    """path: the innermost block with all mentions. adds, combines: the blocks that add to it or combine it.

    reads: names in what it adds up and in the guards above. depends: those they vary with in the end, followed through
    values. combined: axes that a Combine folds; merged: those that a CombineTuple folds, and beside: the accumulators
    of the same tuple, which may read each other's partial values before. Of an Mma: summed, the axes along which it
    adds up; laid_out, the registers of its results in the order of the instruction.
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
        """Of the block, or of all blocks that copy boxes for each other; beside a Team, of the threads of the axes."""
        return Barrier(threads=self.thread_count) if self.rings else Barrier(self.tile.cluster)

    @property
    def thread(self) -> Var:
        """The index in the block: the THREAD axis itself where there is only one."""
        return Var(self.threads[0].name if len(self.threads) == 1 else TID)


def start_lowering(kernel: Kernel, tile: Tile, target: Target) -> Lowering:
    """A record of a kernel of which nothing is lowered yet; its accumulators are not known."""
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
    """A name that nothing in the kernel has."""
    name = unused(hint, low.taken, tried=low.tried)
    low.taken.add(name)
    return name


def allocate(low: Lowering, size: int, alignment: int = 128) -> int:
    """The offset of new shared memory. Aligned so that an xor of chunk numbers stays within its row."""
    offset = -(-low.shared_bytes // alignment) * alignment
    low.shared_bytes = offset + size
    return offset
