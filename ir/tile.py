"""Tile IR: the schedule. Everything decided here is an axis with a role, a field of Stage, or an order of statements.

Semantics: docs/reference/tile_ir.md; executable in ir/interp/tile.py.
"""

from __future__ import annotations

from .expr import Axis, Over
from .node import AtomName, Buffer, Dtype, Expr, Fn, Int, MonoidName, Name, Via
from .program import Block, Instruction, Stmt

AXIS_ROLES = ("BLOCK", "THREAD", "REG", "VEC")
VIAS = ("SYNC", "ASYNC", "TMA")


class Tile(Instruction):
    """One launch. BLOCK axes are the grid, THREAD axes the block in row-major order, REG and VEC axes replication.

    snake: serpentine order of register tiles; cluster: so many neighbours along the last BLOCK axis run together, and a
    box of TMA that is the same for all comes once, a part by each. Both are sticky: a template that does not mention
    them keeps them.
    """

    sticky = ("snake", "cluster")
    axes: tuple[Axis, ...]
    body: Block
    snake: Int = 0
    cluster: Int = 1


class Collective(Instruction):
    """Base of statements that need every thread of a block. They are not allowed in divergent control flow."""


class Stage(Collective):
    """Copy the box `src[origin + sum of axis*stride@dim]` cooperatively into slot `slot` of the shared tile `dst`.

    Cells outside of src become zero. Axis names of the shared tile are labels local to the Stage. An axis without a
    dimension is gathered: the origin gives, by its label, the index of each of its elements (`k_at // 9`). via: SYNC,
    ASYNC (cp.async) or TMA. pad: unused words per innermost row; swizzle: bytes, as TMA; xor: bit n of a row's 16-byte
    chunk is flipped by the named bit of the row; lanes: threads that copy a row (0: as many as fit); when: a predicate
    for the whole copy.
    """

    positional = ("src",)
    labels = ("box",)
    dst: Name
    src: Buffer
    origin: tuple[Expr, ...]
    box: tuple[Axis, ...]
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
        return tuple(axis.name for axis in self.box if axis.dim is None)


class SharedTile(Instruction):
    """`p = SharedTile(i:64, j:64)`: shared memory for values that the threads compute and store, `p[i, j] = v`.

    Other threads may read a cell after the next Sync. A value is rounded to the dtype. pad and xor as in a Stage; there
    is one slot, and nothing is copied.
    """

    labels = ("box",)
    depth = 1
    swizzle = 0
    via = "STORE"
    src = ""  # nothing is copied
    dst: Name
    box: tuple[Axis, ...]
    pad: Int = 0
    xor: tuple[Int, ...] = ()
    dtype: Dtype = "f32"


class RegisterTile(Instruction):
    """`w = RegisterTile(u:10)`: registers of each thread, which it fills (`w[u] = v`) and reads (`a = load w[j + q]`).

    An index must be known when the kernel is compiled: it mentions REG axes and unrolled loops only. There is no
    condition: a thread reads what it wrote.
    """

    labels = ("box",)
    dst: Name
    box: tuple[Axis, ...]
    dtype: Dtype = "f32"


class Sync(Collective):
    """A barrier of the block."""


class Wait(Collective):
    """All but the `keep` most recent copies of this thread have landed."""

    keep: Int = 0


class AlongAxes(Collective):
    """Base of reductions of one accumulator over all threads (and register values) along the axes `over`."""

    positional = ("acc", "fn")
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
    """Combine `acc` of all threads (and register values) along the axes `over` with that of all preceding ones.

    The order is fixed. `over` is read as digits, the first of them the slowest: an index precedes another if its number
    is smaller. `acc` varies with these axes afterwards.
    """


class TuplesAlongAxes(Collective):
    """Base of reductions along axes over the parts of a tuple monoid (ir/monoids.py), all in one exchange.

    The accumulators start as the tuple of no elements, however they are accumulated: by Merges, or each by itself, as
    `m <- maximum(m, x)` and then `s <- add(s, e)`, with e relative to the m that the thread has so far.
    """

    positional = ()
    accs: tuple[Name, ...]
    fn: MonoidName
    over: tuple[Over, ...]


class CombineTuple(TuplesAlongAxes):
    """A Combine of tuples: partial tuples become one."""


class ScanTuple(TuplesAlongAxes):
    """A Scan of tuples: each is combined with all before it, in order."""


class Mma(Collective):
    """`Mma(acc, a, b, atom=m16n8k16, axes=(g, t, h, v, u, w))`: every warp adds the product of two fragments to acc.

    An atom (ir/atoms.py) defines which element of its matrices lane and register hold. axes: the lanes of a warp, which
    are the innermost THREAD axes; registers along rows, along columns; registers along the reduction. over: further
    replicated axes of the reduction. Along all others the statement runs once for each value, as any other statement.
    """

    positional = ("acc", "a", "b")
    acc: Name
    a: Expr
    b: Expr
    atom: AtomName
    axes: tuple[Over, ...]
    over: tuple[Over, ...] = ()


class WaitMma(Collective):
    """`WaitMma(keep=n)`: all but the n most recent products of asynchronous atoms (ir/atoms.py) are done.

    Until a WaitMma covers its Mma, an accumulator holds nothing, and the shared tiles that its operands were loaded
    from are read: some time between the two, all cells at any of it.
    """

    keep: Int = 0


STATEMENTS: tuple[type[Stmt], ...] = (
    Tile, Stage, SharedTile, RegisterTile, Sync, Wait, Combine, Scan, CombineTuple, ScanTuple, Mma, WaitMma,
)  # fmt: skip
