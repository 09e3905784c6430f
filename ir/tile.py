"""Tile IR: the schedule. Everything decided here is an axis with a role, a field of Stage, or an order of statements.

Semantics: docs/reference/tile_ir.md; executable in ir/interp/tile.py.
"""

from __future__ import annotations

from typing import ClassVar

from .expr import Axis, Over
from .node import AtomName, Buffer, Dtype, Expr, Fn, Int, MonoidName, Name, Via
from .program import Block, Stmt

AXIS_ROLES = ("BLOCK", "THREAD", "REG", "VEC")
VIAS = ("SYNC", "ASYNC", "TMA", "FETCH")


class Tile(Stmt):
    """One launch. BLOCK axes are the grid, THREAD axes the block in row-major order, REG and VEC axes replication.

    resident: blocks an SM must be able to hold; snake: walk register tiles back and forth; cluster: so many neighbours
    along the last BLOCK axis run together, and a box of TMA that is the same for all comes once, a part by each. All
    three are sticky: a template that does not mention them keeps them.
    """

    positional: ClassVar[tuple[str, ...]] = ("axes",)
    sticky: ClassVar[tuple[str, ...]] = ("resident", "snake", "cluster")
    axes: tuple[Axis, ...]
    body: Block
    resident: Int = 1
    snake: Int = 0
    cluster: Int = 1


class Collective(Stmt):
    """The base of what every thread of a block takes part in: it stands in no divergent control flow."""


class Stage(Collective):
    """Copy the box `src[origin + sum of axis*stride@dim]` cooperatively into slot `slot` of the shared slab `dst`.

    Cells outside of src become zero. Axis names of the slab are labels local to the Stage. An axis without a dimension
    is gathered: the origin says, by its label, where each of its places is (`k_at // 9`). via: SYNC, ASYNC
    (cp.async), TMA, or FETCH: the threads load the box into registers, and a later Put stores it. pad: unused words
    per innermost row; swizzle: bytes, as TMA; xor: bit n of a row's 16-byte chunk is flipped by the named bit of the
    row; lanes: threads that copy a row (0: as many as fit); when: a predicate for the whole copy.
    """

    positional: ClassVar[tuple[str, ...]] = ("src",)
    labels: ClassVar[tuple[str, ...]] = ("slab",)
    dst: Name
    src: Buffer
    origin: tuple[Expr, ...]
    slab: tuple[Axis, ...]
    depth: Int = 1
    slot: Expr = 0
    via: Via = "SYNC"
    pad: Int = 0
    swizzle: Int = 0
    xor: tuple[Int, ...] = ()
    lanes: Int = 0
    when: Expr = True

    @property
    def gathered(self) -> tuple[str, ...]:
        """The labels that the origin may mention, slowest first; none for a box."""
        return tuple(axis.name for axis in self.slab if axis.dim is None)


class Slab(Stmt):
    """`p = Slab(i:64, j:64)`: shared memory for values that the threads compute and store, `p[i, j] = v`.

    Others may read a cell after the next Sync. A value is rounded to the dtype. pad and xor as in a Stage; there is
    one slot, and nothing is copied. reuse: 1 puts it where the copied slabs of the kernel are. They hold nothing any
    more as soon as it is stored to, which a Sync must stand before, and it holds nothing as soon as they are copied to.
    """

    positional: ClassVar[tuple[str, ...]] = ("slab",)
    labels: ClassVar[tuple[str, ...]] = ("slab",)
    depth: ClassVar[int] = 1
    swizzle: ClassVar[int] = 0
    via: ClassVar[str] = "STORE"
    src: ClassVar[str] = ""  # nothing is copied
    dst: Name
    slab: tuple[Axis, ...]
    pad: Int = 0
    xor: tuple[Int, ...] = ()
    dtype: Dtype = "f32"
    reuse: Int = 0


class Put(Collective):
    """`s = Put()`: the threads store into a slab what they fetched for it in this block, `s = Stage(.., via=FETCH)`.

    Slot and predicate are those of the fetch; the values are what global memory held then. A Stage(via=SYNC) is a
    fetch and its Put in one: what stands between the two hides the latency of the loads.
    """

    positional: ClassVar[tuple[str, ...]] = ()
    dst: Name


class Sync(Collective):
    """A barrier of the block."""

    positional: ClassVar[tuple[str, ...]] = ()


class Wait(Collective):
    """All but the `keep` most recent copies of this thread have landed."""

    positional: ClassVar[tuple[str, ...]] = ()
    keep: Int = 0


class AlongAxes(Collective):
    """The base of what folds one accumulator over all threads (and register values) along the axes `over`."""

    positional: ClassVar[tuple[str, ...]] = ("acc", "fn")
    acc: Name
    fn: Fn
    over: tuple[Over, ...]

    @property
    def accs(self) -> tuple[str, ...]:
        """The one accumulator."""
        return (self.acc,)


class Combine(AlongAxes):
    """All threads (and register values) along the axes `over` get the combined value of `acc`, in a fixed order."""


class Scan(AlongAxes):
    """All threads (and register values) along the axes `over` get `acc` folded with that of all before them, in order.

    `over` is read as digits, the first of them the slowest: a place is before another if its number is smaller. What
    `acc` holds varies with these axes then.
    """


class TuplesAlongAxes(Collective):
    """The same of the parts of a tuple monoid (ir/monoids.py), all of them in one exchange.

    The accumulators start as the tuple of no elements, however they are accumulated: by Merges, or each by itself, as
    `m <- maximum(m, x)` and then `s <- add(s, e)`, with e relative to the m that the thread has so far.
    """

    positional: ClassVar[tuple[str, ...]] = ()
    accs: tuple[Name, ...]
    fn: MonoidName
    over: tuple[Over, ...]


class CombineTuple(TuplesAlongAxes):
    """A Combine of tuples: partial tuples become one."""


class ScanTuple(TuplesAlongAxes):
    """A Scan of tuples: each is combined with all before it, in order."""


class Mma(Collective):
    """`Mma(acc, a, b, atom=m16n8k16, axes=(g, t, h, v, u, w))`: every warp adds the product of two fragments to acc.

    An atom (ir/atoms.py) says which element of its matrices lane and register hold. axes: the lanes of a warp, which
    are the innermost THREAD axes; registers along rows, along columns; registers along what is summed. over: replicated
    axes that are summed along too. Along all others the statement is made once for each value, as any other is.
    """

    positional: ClassVar[tuple[str, ...]] = ("acc", "a", "b")
    acc: Name
    a: Expr
    b: Expr
    atom: AtomName
    axes: tuple[Over, ...]
    over: tuple[Over, ...] = ()


class Settle(Collective):
    """`Settle(keep=n)`: all but the n most recent products of late atoms (ir/atoms.py) are done.

    Until a Settle covers its Mma, an accumulator holds nothing, and the slabs that its operands were loaded from are
    read: some time between the two, all cells at any of it.
    """

    positional: ClassVar[tuple[str, ...]] = ()
    keep: Int = 0


class Ring(Stmt):
    """`r = Ring(depth=4)`: slots that a Team fills and the threads of the axes empty, turn after turn.

    Turn k has slot k % depth. The copies behind an Acquire, by TMA, fill that slot of every slab of the ring.
    """

    positional: ClassVar[tuple[str, ...]] = ()
    dst: Name
    depth: Int


class Team(Stmt):
    """`Team(threads=128): ..`: threads beside those of the axes, which run the block beside all that follows it.

    Their work is to copy: no thread of the axes is among them, and they come to no Sync. registers: what is left to
    each of them, a multiple of 8, so that the others have more; 0 leaves all alike.
    """

    positional: ClassVar[tuple[str, ...]] = ()
    threads: Int
    body: Block
    registers: Int = 0


class RingStep(Collective):
    """The base of what orders the two sides of a ring. turn: the same for all threads."""

    positional: ClassVar[tuple[str, ...]] = ("ring", "turn")
    ring: Name
    turn: Expr


class Acquire(RingStep):
    """`Acquire(r, k)`, in a Team: the slot of turn k is free; all threads of the axes have released turn k - depth."""


class Await(RingStep):
    """`Await(r, k)`: what fills the slot of turn k has landed, for this thread; it may read it until its Release."""


class Release(RingStep):
    """`Release(r, k)`: this thread is done with turn k, its products settled. when: a predicate for the whole of it."""

    when: Expr = True


class Relay(Collective):
    """The base of what orders groups of threads in time: one does something, the others something else meanwhile.

    Threads with the same values of the THREAD axes `over` are a group, and whole warps. In each turn 0, 1, 2, .. every
    group is once between an Enter and its Leave: the first when the last has left the turn before, every other when
    the one before it has left this turn. That orders groups in time, and nothing in memory. Between the two no group
    comes to a barrier of all: the others wait for it. turn: the same for all threads; when: a predicate for the whole.
    """

    positional: ClassVar[tuple[str, ...]] = ("turn",)
    turn: Expr
    over: tuple[Over, ...]
    when: Expr = True


class Enter(Relay):
    """`Enter(k, over=(i))`: the turn k of this group begins, as soon as those before it have left."""


class Leave(Relay):
    """`Leave(k, over=(i))`: the turn k of this group is over, whatever products it has begun."""


STATEMENTS: tuple[type[Stmt], ...] = (
    Tile, Stage, Slab, Put, Sync, Wait, Combine, Scan, CombineTuple, ScanTuple, Mma, Settle, Ring, Team, Acquire, Await,
    Release, Enter, Leave,
)  # fmt: skip
