"""Kernel IR: the program of one thread, with every address split into base register, xor and immediate.

A kernel of this level is one `Launch`. Replication stays symbolic (`Replicate`), so that the text stays short; a width
is a property of an access, never of a type. Arrays are registers, because only replicated axes index them.

Names that the launch binds: `thread` (index in the block), `block_x block_y block_z`, `smem` (start of shared memory).
Global addresses count elements of their buffer, shared ones bytes. `//` and `%` have operands that are not negative.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from .node import AtomName, Buffer, Dtype, Expr, Fn, Int, Name, Node
from .program import Block, Instruction, Stmt

THREAD, SHARED = "thread", "smem"
WARP, WARPGROUP = 32, 128  # threads
BLOCK_INDEX = ("block_x", "block_y", "block_z")


class Element(Node):
    """`name[index..]`: a register, or a run of them where an index is left out at the end."""

    name: Name
    index: tuple[Expr, ...]


class Address(Node):
    """`(base ^ xor) + offset`: base is a name; xor and offset are constants once everything is unrolled."""

    positional = ("base",)
    base: Name
    offset: Expr = 0
    xor: Expr = 0


class Matrix(Node):
    """A matrix in shared memory that an asynchronous atom reads (ir/facts/layout.py), in swizzled rows of 128 bytes.

    stride, leading: bytes from where it starts to where it goes on; across: its lines run across those rows.
    """

    positional = ("at",)
    at: Address
    stride: Int
    leading: Int = 0
    across: Int = 0


class Convergent(Instruction):
    """Base of statements that every thread of the block must reach, because threads need one another in them."""


class Intrinsic(Instruction):
    """A statement that is one call of a function in the prelude. Printer and verifier need no entry for it.

    call: its CUDA text, with the operands in braces. mbarrier: the operand that is the address of an mbarrier in shared
    memory.
    """

    call: ClassVar[str]
    mbarrier: ClassVar[str] = ""


class Launch(Instruction):
    """Blocks in x, y, z; threads of a block; bytes of shared memory.

    cluster: so many neighbours in x run together, and write into the shared memory of each other.
    """

    positional = ()
    grid: tuple[Expr, ...]
    block: Int
    body: Block
    shared: Int = 0
    cluster: Int = 1


class Define(Instruction):
    """`dst = val`, a register of its own. mutable: it is changed later. uniform: all lanes of a warp have the same."""

    dst: Name
    dtype: Dtype
    val: Expr
    mutable: Int = 0
    uniform: Int = 0


class Base(Instruction):
    """`dst = root + offset`, an address register. root: a buffer, `smem`, or another base of either."""

    positional = ("root", "offset")
    dst: Name
    root: Name
    offset: Expr = 0
    mutable: Int = 0


class Advance(Instruction):
    """Move a mutable base on."""

    base: Name
    by: Expr


class Registers(Instruction):
    """Registers without a value, or all with the value `fill`."""

    dst: Name
    dtype: Dtype
    shape: tuple[Int, ...] = ()
    fill: Expr | None = None


class Replicate(Instruction):
    """The block once for every value of var in 0..extent, unrolled; backwards where the axis `reverse` is odd."""

    var: Name
    extent: Int
    body: Block
    reverse: Name | None = None


class Loop(Instruction):
    """A loop at run time. unroll: 0 leaves it to the assembler, 1 forbids it. dtype: of var, which counts past stop."""

    var: Name
    start: Expr
    stop: Expr
    body: Block
    step: Expr = 1
    unroll: Int = 0
    dtype: Dtype = "i32"


class Branch(Instruction):
    """The block where cond holds. alone: for one thread, `thread == 0`, for which any of the first warp will do."""

    cond: Expr
    body: Block
    alone: Int = 0


class LoadFrom(Instruction):
    """`width` neighbours into as many registers; where `when` fails nothing is read and they become `other`.

    f16 and bf16 widen on their way to registers of f32.
    """

    into: Expr
    dtype: Dtype
    address: Address
    width: Int = 1
    when: Expr = True
    other: Expr = 0.0


class CheckPlace(Instruction):
    """Stop the kernel if `when` holds and the index, which comes from data, is not in 0..extent."""

    place: Expr
    extent: Expr
    when: Expr = True


class StoreTo(Instruction):
    """Store all values to consecutive elements, in one instruction. f32 is rounded if the dtype is f16 or bf16."""

    positional = ("dtype", "address")
    dtype: Dtype
    address: Address
    values: tuple[Expr, ...]


class CopyAsync(Instruction):
    """Copy `bytes` bytes by cp.async.

    If `when` fails, nothing happens. If `inside` fails, the copy writes zeros and reads nothing.
    """

    positional = ("to", "source")
    to: Address
    source: Address
    bytes: Int
    when: Expr = True
    inside: Expr = True


class Commit(Intrinsic, Convergent):
    """The copies since the last commit are one group."""

    call = "cp_async_commit()"


class WaitGroup(Intrinsic, Convergent):
    """All but the `keep` latest groups of this thread have landed."""

    call = "cp_async_wait<{keep}>()"
    keep: Int


class TensorMap(Instruction):
    """A parameter of the kernel: how TMA finds boxes of `box` elements in the buffer `src`, and swizzles their rows."""

    positional = ("src",)
    dst: Name
    src: Buffer
    box: tuple[Int, ...]
    swizzle: Int = 0


class InitBarrier(Intrinsic):
    """An mbarrier in shared memory whose phases end with one arrival and the bytes that it announced."""

    call = "mbarrier_init({at}, 1)"
    mbarrier = "at"
    at: Address


class FenceBarriers(Intrinsic):
    """Make the mbarriers that this thread initialised visible to the TMA engine."""

    call = "mbarrier_fence()"


class Expect(Intrinsic):
    """Arrive at an mbarrier; its phase ends when `bytes` have been copied."""

    call = "mbarrier_expect({barrier}, {bytes})"
    mbarrier = "barrier"
    barrier: Address
    bytes: Int


class CopyBox(Instruction):
    """Copy by TMA the box of a tensor map that begins at the element `at`. Elements outside of the tensor are zero.

    The box lands at the same offset in `cluster` blocks of a cluster, and counts at an mbarrier of each.
    """

    positional = ("to", "map", "barrier")
    to: Address
    map: Name
    barrier: Address
    at: tuple[Expr, ...]
    cluster: Int = 1


class WaitPhase(Intrinsic):
    """Until the latest phase of this parity has ended: its copies have landed."""

    call = "mbarrier_wait({barrier}, {parity})"
    mbarrier = "barrier"
    barrier: Address
    parity: Expr


class Barrier(Convergent):
    """All threads of the block are here, or of so many blocks of a cluster."""

    cluster: Int = 1


class Assign(Instruction):
    """Assign `val` to a mutable scalar or an Element."""

    place: Expr
    val: Expr


class Butterfly(Convergent):
    """Reduce a register by fn over the lanes whose numbers differ in the bits `low`, 2*`low`, .. `high`."""

    place: Expr
    fn: Fn
    low: Int
    high: Int


class Shuffle(Convergent):
    """Set a register to its value in the lane whose number differs in the bit `lanes`."""

    place: Expr
    lanes: Int


class Fragment(Instruction):
    """Operands of tensor cores: words of 32 bits with as many elements of a dtype as fit, the first lowest."""

    dst: Name
    dtype: Dtype
    words: Int


class LoadMatrix(Convergent):
    """Load `count` matrices of 8 rows of 16 bytes by ldmatrix, into `count` words of every lane of a warp, from `into`.

    Lane 8*m + r has the address of row r of matrix m. Word m of lane 4*g + t is the word t of row g; trans, of elements
    of 2 bytes: the elements of column g in the rows 2*t and 2*t + 1.
    """

    into: Expr
    address: Address
    count: Int = 4
    trans: Int = 0


class PackWord(Instruction):
    """A word of a fragment becomes these values, each rounded to the fragment's dtype."""

    into: Expr
    values: tuple[Expr, ...]


class RoundWord(Intrinsic):
    """A word of a fragment of f32 becomes the nearest number of TF32: tensor cores would cut its last bits off."""

    call = "round_word({into})"
    into: Expr


class Multiply(Convergent):
    """Add a * b to acc, for fragments of a warp in the layouts of an atom. acc, a and b name their first registers."""

    positional = ("acc", "a", "b")
    acc: Expr
    a: Expr
    b: Expr
    atom: AtomName


class FenceProducts(Intrinsic, Convergent):
    """Order the accesses of this warp group to its registers before those of the following products."""

    call = "wgmma_fence()"


class QueueProduct(Convergent):
    """Start `acc += a * b` by four warps. The product is complete after a WaitProducts that covers it.

    Until then, no statement may use acc, a or b. b is a Matrix; a is one, or the first word of a fragment.
    """

    positional = ("acc", "a", "b")
    acc: Expr
    a: Expr
    b: Expr
    atom: AtomName
    dtype: Dtype


class CommitProducts(Intrinsic, Convergent):
    """The products since the last commit are one group."""

    call = "wgmma_commit()"


class WaitProducts(Convergent):
    """All but the `keep` latest groups of products are done.

    sums: the registers that no product is under way for any more, fragments too.
    """

    keep: Int
    sums: tuple[Expr, ...] = ()


STATEMENTS: tuple[type[Stmt], ...] = tuple(
    cls
    for cls in list(vars().values())
    if isinstance(cls, type)
    and issubclass(cls, Stmt)
    and cls.__module__ == __name__
    and cls not in (Convergent, Intrinsic)
)
VALUES: tuple[type[Node], ...] = (Address, Element, Matrix)


def method_for_each(owner: type) -> dict[type[Stmt], Callable[..., Any]]:
    """Return {statement: the method of a class for it}: `load_from` for LoadFrom; intrinsics may share `intrinsic`.

    Raises:
        TypeError: names the class and the statements without a method.
    """
    names = {cls: re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() for cls in STATEMENTS if cls is not Launch}
    shared = getattr(owner, "intrinsic", None)
    found: dict[type[Stmt], Any] = {
        cls: getattr(owner, name, issubclass(cls, Intrinsic) and shared) for cls, name in names.items()
    }
    if missing := sorted(cls.__name__ for cls, method in found.items() if not method):
        raise TypeError(f"{owner.__name__}: no method for {', '.join(missing)}")
    return found
