"""Invariants of Kernel IR: names and types, widths and alignment, barriers that every thread of a block reaches."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from math import gcd
from typing import Any, TypeVar

from ..atoms import ATOMS, WORD_BYTES
from ..dtypes import INTEGERS
from ..expr import Var, is_int, only_sizes
from ..facts.index import counters, divisor
from ..facts.layout import DTYPE_BYTES
from ..facts.structure import NAMED, names_read, own_fields
from ..functions import opmath
from ..kernel import (
    BLOCK_INDEX,
    SHARED,
    THREAD,
    Address,
    Advance,
    Assign,
    Barrier,
    Base,
    Branch,
    Butterfly,
    CheckPlace,
    Convergent,
    CopyAsync,
    CopyBox,
    Define,
    Element,
    Fragment,
    Intrinsic,
    Launch,
    LoadFrom,
    LoadMatrix,
    Loop,
    Matrix,
    Multiply,
    PackWord,
    QueueProduct,
    Registers,
    Replicate,
    RoundWord,
    Shuffle,
    StoreTo,
    TensorMap,
    WaitProducts,
    method_for_each,
)
from ..node import Expr, nodes
from ..program import Block, Kernel, Stmt
from ..sizes import lowest
from ..text.print_statements import print_head

# ---- names in scope


@dataclass
class KnownName:
    """The meaning of a name.

    kind: value, registers, fragment, base, map or index. factor: a divisor of the address that a base holds.
    """

    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    mutable: bool = False
    constant: bool = False  # known once everything is unrolled
    divergent: bool = False  # may differ between threads of a block
    writable: bool = False
    factor: int = 0


CORE_BYTES, REACH = 16, 1 << 18  # what a descriptor counts in, and how far it sees
MATRIX_ROW_BYTES, MATRIX_START = 16, 32  # start: of what a descriptor says
INSTRUCTION_BYTES, COPY_BYTES = (1, 2, 4, 8, 16), (4, 8, 16)
BOX_ALIGNMENT, BARRIER_BYTES, BOX_SIDE, BOX_RANK = 128, 8, 256, 5
MOST_THREADS = 1024
SWIZZLES = (0, 32, 64, 128)
LANES = frozenset((1, 2, 4, 8, 16))  # by which a warp exchanges


Problems = Iterator[str]  # sentences, to which the statement is added
Found = TypeVar("Found")
Checked = Generator[str, None, Found]


@dataclass
class KernelCheck:
    """The checks of Kernel IR, one method for each statement, which yields what is wrong with it.

    names: names in scope. found: problems so far, a sentence each.
    """

    kernel: Kernel
    names: dict[str, KnownName] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    divergent: bool = False  # the current block may be entered by a part of the threads
    strides: dict[str, int] = field(default_factory=dict)  # a divisor of every value of a counter

    def __post_init__(self) -> None:
        self.names |= {name: KnownName("index") for name in BLOCK_INDEX}
        self.names[THREAD] = KnownName("index", divergent=True)
        self.names[SHARED] = KnownName("base", None, writable=True)
        self.strides = counters(self.kernel.body)
        for params, writable in ((self.kernel.ins, False), (self.kernel.outs, True)):
            self.names |= {p.name: KnownName("base", p.dtype, writable=writable) for p in params}

    def report(self, stmt: Stmt, problems: Problems) -> None:
        """Add the problems of a statement; those of its block are added on the way."""
        for problem in problems:
            self.found.append(f"{problem}: `{print_head(stmt)}`")

    def bind(self, name: str, meaning: KnownName) -> Problems:
        if name in self.names:
            yield f"`{name}` is defined twice"
        self.names[name] = meaning

    def varies(self, e: Any) -> bool:
        """Return whether an expression may differ between threads of a block."""
        return not is_int(e) and any(self.names[name].divergent for name in names_of(e) if name in self.names)

    def elements(self, *values: Any) -> Problems:
        """Check that registers are read one at a time, at indices that are constant after unrolling."""
        for e in nodes(values, Element):
            if len(e.index) != len(self.names[e.name].shape):
                yield f"`{e.name}` has {len(self.names[e.name].shape)} dimensions"
            yield from self.places(e)

    def places(self, e: Element) -> Problems:
        for place, extent in zip(e.index, self.names[e.name].shape):
            if is_int(place) and not 0 <= place < extent:
                yield f"`{e.name}` has {extent} registers here"
            if not all(self.names[name].constant for name in names_of(place)):
                yield f"`{e.name}` is indexed at run time"

    def target(self, place: Expr) -> Checked[str | None]:
        """Return the dtype of a written scalar or register, or None after a report that it is not writable."""
        if not isinstance(place, Var | Element):
            yield "this is no place"
            return None
        known = self.names[place.name]
        if known.kind not in ("value", "registers") or not known.mutable:
            yield f"`{place.name}` is not mutable"
        if known.kind == "value":
            known.divergent = True
        return known.dtype

    def address(self, address: Address, dtype: str | None, size: int) -> Checked[KnownName]:
        """Check memory and alignment of an address of `size` bytes, or of elements of a dtype, and return its base."""
        base = self.names[address.base]
        if base.kind != "base":
            yield f"`{address.base}` is not an address"
        unit = 1 if base.dtype is None else DTYPE_BYTES[base.dtype]
        if base.dtype is not None and dtype is not None and base.dtype != dtype:
            yield f"`{address.base}` points to {base.dtype}"
        moved = (divisor(part, self.strides) for part in (address.offset, address.xor))
        reach = gcd(base.factor, *moved) * unit
        if size and reach % size:  # `width` has said what is wrong with a size of 0
            yield f"the address is a multiple of {reach} bytes only"
        return base

    def shared(self, address: Address, size: int, otherwise: str) -> Problems:
        """Check an address of `size` bytes in shared memory."""
        base = yield from self.address(address, None, size)
        if base.dtype is not None:
            yield otherwise

    def block(self, block: Block) -> None:
        outer = dict(self.names)
        for stmt in block:
            self.report(stmt, self.statement(stmt))
        self.names = outer

    def statement(self, stmt: Stmt) -> Problems:
        if type(stmt) not in CHECKS:
            yield f"{type(stmt).__name__} is not a statement of this level"
        elif missing := sorted(name for name in _own_names(stmt) if name not in self.names):
            yield f"undefined {', '.join(missing)}"
        else:
            if self.divergent and isinstance(stmt, Convergent):
                yield "not every thread of the block comes here"
            yield from CHECKS[type(stmt)](self, stmt)

    def launch(self, stmt: Launch) -> Problems:
        """Check the grid, whose extents are numbers at a launch, the block and the cluster of a launch."""
        if len(stmt.grid) != 3 or not all(only_sizes(e) and lowest(e) >= 1 for e in stmt.grid):
            yield "a grid has three extents of 1 or more, made of numbers and sizes"
        if not 1 <= stmt.block <= MOST_THREADS or stmt.shared < 0:
            yield f"a block has 1 to {MOST_THREADS} threads and no fewer than 0 bytes"
        self.cluster = stmt.cluster
        if stmt.cluster < 1 or divisor(stmt.grid[0], {}) % stmt.cluster:
            yield "the blocks in x are not whole clusters"
        self.names[BLOCK_INDEX[0]] = KnownName("index", divergent=stmt.cluster > 1)

    # ---- definitions

    def define(self, stmt: Define) -> Problems:
        yield from self.elements(stmt.val)
        yield from self.numbers(stmt.dtype, stmt.val)
        value = KnownName("value", stmt.dtype, mutable=bool(stmt.mutable), divergent=self.varies(stmt.val))
        yield from self.bind(stmt.dst, value)

    def base(self, stmt: Base) -> Problems:
        root = self.names[stmt.root]
        if root.kind != "base":
            yield f"`{stmt.root}` is not an address"
            return
        factor = gcd(root.factor, divisor(stmt.offset, self.strides))
        base = KnownName("base", root.dtype, mutable=bool(stmt.mutable), writable=root.writable, factor=factor)
        yield from self.bind(stmt.dst, base)

    def advance(self, stmt: Advance) -> Problems:
        if not self.names[stmt.base].mutable:
            yield f"`{stmt.base}` is not mutable"

    def registers(self, stmt: Registers) -> Problems:
        if stmt.shape and stmt.fill is not None and stmt.fill != 0:
            yield "an array of registers is filled with zeros only"
        yield from self.bind(stmt.dst, KnownName("registers", stmt.dtype, stmt.shape, mutable=True, divergent=True))

    # ---- control

    def replicate(self, stmt: Replicate) -> Problems:
        yield from self.bind(stmt.var, KnownName("index", constant=True))
        self.block(stmt.body)
        self.names.pop(stmt.var, None)

    def loop(self, stmt: Loop) -> Problems:
        yield from self.bind(stmt.var, KnownName("index", divergent=self.varies(stmt.start)))
        if is_int(stmt.step) and stmt.step < 1:
            yield "a loop counts up"
        self.inside(self.varies((stmt.start, stmt.stop)), stmt.body)
        self.names.pop(stmt.var, None)

    def branch(self, stmt: Branch) -> Problems:
        yield from self.elements(stmt.cond)
        self.inside(self.varies(stmt.cond), stmt.body)

    def inside(self, divergent: bool, body: Block) -> None:
        outer, self.divergent = self.divergent, self.divergent or divergent
        self.block(body)
        self.divergent = outer

    def barrier(self, stmt: Barrier) -> Problems:
        if stmt.cluster != self.cluster:  # nothing else orders what the blocks copy for each other
            yield f"a barrier of {stmt.cluster} blocks in clusters of {self.cluster}"

    def intrinsic(self, stmt: Intrinsic) -> Problems:
        if stmt.mbarrier:
            yield from self.mbarrier(getattr(stmt, stmt.mbarrier))

    # ---- registers

    def assign(self, stmt: Assign) -> Problems:
        dtype = yield from self.target(stmt.place)
        yield from self.numbers(dtype, stmt.val)
        yield from self.elements(stmt.place, stmt.val)

    def butterfly(self, stmt: Butterfly) -> Problems:
        yield from self.target(stmt.place)
        yield from self.elements(stmt.place)
        if not {stmt.low, stmt.high} <= LANES or stmt.low > stmt.high:
            yield "lanes are powers of two below 32"

    def shuffle(self, stmt: Shuffle) -> Problems:
        yield from self.target(stmt.place)
        yield from self.elements(stmt.place)
        if stmt.lanes not in LANES:
            yield "lanes are a power of two below 32"

    # ---- memory

    def load_from(self, stmt: LoadFrom) -> Problems:
        size = stmt.width * DTYPE_BYTES[stmt.dtype]
        yield from _width(size, INSTRUCTION_BYTES)
        yield from self.address(stmt.address, stmt.dtype, size)
        dtype = yield from self.target(stmt.into)
        if dtype not in (None, stmt.dtype, opmath(stmt.dtype)):
            yield "the registers have another dtype"
        if stmt.width > self.room(stmt.into):
            yield "the registers hold another number of values"
        if isinstance(stmt.into, Element):
            yield from self.places(stmt.into)
        yield from self.elements(stmt.when)

    def check_place(self, stmt: CheckPlace) -> Problems:
        if lowest(stmt.extent) < 1:
            yield "an axis has at least one place"
        yield from self.elements(stmt.place, stmt.when)

    def room(self, into: Expr) -> int:
        """Return the number of consecutive registers that a load may write from a register on."""
        shape = self.names[into.name].shape if isinstance(into, Var | Element) else ()
        index = into.index if isinstance(into, Element) else ()
        if len(index) == len(shape):
            return shape[-1] - index[-1] if shape and is_int(index[-1]) else 1
        return shape[-1] if len(index) == len(shape) - 1 else 0

    def store_to(self, stmt: StoreTo) -> Problems:
        size = len(stmt.values) * DTYPE_BYTES[stmt.dtype]
        yield from _width(size, INSTRUCTION_BYTES)
        base = yield from self.address(stmt.address, stmt.dtype, size)
        if not base.writable:
            yield f"`{stmt.address.base}` is an input"
        yield from self.elements(*stmt.values)
        yield from self.numbers(stmt.dtype, *stmt.values)

    def copy_async(self, stmt: CopyAsync) -> Problems:
        yield from _width(stmt.bytes, COPY_BYTES)
        to = yield from self.address(stmt.to, None, stmt.bytes)
        source = yield from self.address(stmt.source, None, stmt.bytes)
        if to.dtype is not None or source.dtype is None:
            yield "an asynchronous copy goes from global to shared memory"

    def tensor_map(self, stmt: TensorMap) -> Problems:
        source = next((param for param in self.kernel.ins if param.name == stmt.src), None)
        yield from self.bind(stmt.dst, KnownName("map", shape=stmt.box))
        if source is None or len(source.shape) != len(stmt.box) or not 1 <= len(stmt.box) <= BOX_RANK:
            yield f"`{stmt.src}` is not an input of as many dimensions"
            return
        size, row = DTYPE_BYTES[source.dtype], stmt.box[-1] * DTYPE_BYTES[source.dtype]
        if stmt.swizzle not in SWIZZLES or (stmt.swizzle and row > stmt.swizzle):
            yield f"rows of {row} bytes under a swizzle of {stmt.swizzle}"
        if row % 16 or (len(stmt.box) > 1 and source.shape[-1] * size % 16):
            yield "rows are not a multiple of 16 bytes"
        if not all(1 <= side <= BOX_SIDE for side in stmt.box):
            yield f"a box has 1 to {BOX_SIDE} elements a side"

    def mbarrier(self, address: Address) -> Problems:
        return self.shared(address, BARRIER_BYTES, "an mbarrier is in shared memory")

    def copy_box(self, stmt: CopyBox) -> Problems:
        yield from self.mbarrier(stmt.barrier)
        yield from self.shared(stmt.to, BOX_ALIGNMENT, "a box goes to shared memory")
        described = self.names[stmt.map]
        if described.kind != "map" or len(described.shape) != len(stmt.at):
            yield f"`{stmt.map}` is not a tensor map of {len(stmt.at)} dimensions"
        if stmt.cluster not in (1, self.cluster):
            yield f"a box for {stmt.cluster} blocks in clusters of {self.cluster}"

    def numbers(self, dtype: str | None, *values: Expr) -> Problems:
        """Check that numbers are values of a dtype."""
        for value in values:
            if dtype in INTEGERS and isinstance(value, float) and not math.isfinite(value):
                yield f"{value} is not a value of {dtype}"

    def wait_products(self, stmt: WaitProducts) -> Problems:
        """Accept the statement: the check that all threads reach it is enough."""
        return iter(())

    # ---- fragments and products of tensor cores

    def fragment(self, stmt: Fragment) -> Problems:
        return self.bind(stmt.dst, KnownName("fragment", stmt.dtype, (stmt.words,), mutable=True, divergent=True))

    def words(self, place: Expr, count: int) -> Checked[KnownName | None]:
        """Check that a fragment has `count` words from a given word on, and return the fragment."""
        known = self.names[place.name] if isinstance(place, Element) else None
        if known is None or known.kind != "fragment" or len(place.index) != 1:
            yield "this is no place of a fragment"
            return None
        yield from self.places(place)
        if is_int(place.index[0]) and place.index[0] + count > known.shape[0]:
            yield f"`{place.name}` has {known.shape[0]} words"
        return known

    def load_matrix(self, stmt: LoadMatrix) -> Problems:
        yield from self.shared(stmt.address, MATRIX_ROW_BYTES, "matrices are loaded from shared memory")
        known = yield from self.words(stmt.into, stmt.count)
        if stmt.count not in (1, 2, 4) or (stmt.trans and known and DTYPE_BYTES[known.dtype or ""] != 2):
            yield "1, 2 or 4 matrices; only elements of 2 bytes are transposed"

    def pack_word(self, stmt: PackWord) -> Problems:
        known = yield from self.words(stmt.into, 1)
        yield from self.elements(*stmt.values)
        if known and len(stmt.values) * DTYPE_BYTES[known.dtype or ""] != WORD_BYTES:
            yield f"a word does not hold {len(stmt.values)} values of {known.dtype}"

    def round_word(self, stmt: RoundWord) -> Problems:
        known = yield from self.words(stmt.into, 1)
        if known and known.dtype != "f32":
            yield f"a word of {known.dtype} is not rounded to TF32"

    def multiply(self, stmt: Multiply) -> Problems:
        atom = ATOMS[stmt.atom]
        left = yield from self.words(stmt.a, atom.words(atom.a_order))
        right = yield from self.words(stmt.b, atom.words(atom.b_order))
        if left and right and not atom.multiplies(left.dtype or "", right.dtype or ""):
            yield f"`{stmt.atom}` does not multiply {left.dtype} by {right.dtype}"
        yield from self.sums(stmt)

    def queue_product(self, stmt: QueueProduct) -> Problems:
        atom = ATOMS[stmt.atom]
        if not atom.asynchronous or stmt.dtype not in atom.dtypes:
            yield f"`{stmt.atom}` does not multiply {stmt.dtype} out of shared memory"
        if not isinstance(stmt.b, Matrix):
            yield "the right operand is not a matrix"
        matrices = [part for part in (stmt.a, stmt.b) if isinstance(part, Matrix)]
        for matrix in matrices:
            if matrix.at.xor != 0:
                yield "a matrix has its swizzle in its rows, no xor of its start"
            elif any(n % CORE_BYTES or not 0 <= n < REACH for n in (matrix.stride, matrix.leading)):
                yield f"a matrix goes on after a multiple of {CORE_BYTES} bytes, less than {REACH}"
        for matrix in matrices:
            yield from self.shared(matrix.at, MATRIX_START, "a matrix stands in shared memory")
        if not isinstance(stmt.a, Matrix):
            held = yield from self.words(stmt.a, atom.words(atom.a_order))
            if held and held.dtype != stmt.dtype:
                yield f"`{stmt.atom}` does not multiply {held.dtype} by {stmt.dtype}"
        yield from self.sums(stmt)

    def sums(self, stmt: Multiply | QueueProduct) -> Problems:
        dtype = yield from self.target(stmt.acc)
        if dtype not in (None, ATOMS[stmt.atom].sums):
            yield f"`{stmt.atom}` sums {ATOMS[stmt.atom].sums}"
        yield from self.elements(stmt.acc)


def _width(size: int, allowed: tuple[int, ...]) -> Problems:
    if size not in allowed:
        yield f"no instruction moves {size} bytes"


def names_of(value: Any) -> frozenset[str]:
    if value.__class__ is tuple:
        return frozenset().union(*map(names_of, value))
    return names_read(value) if hasattr(value, "_memo") else frozenset()


def _own_names(stmt: Stmt) -> set[str]:
    """Return the names that a statement itself reads, without those of its block."""
    own = (NAMED.get(type(stmt)), *(buffer for buffer, _ in type(stmt).memory))
    named = {getattr(stmt, name) for name in own if name and getattr(stmt, name)}
    return named | names_of(own_fields(stmt))


CHECKS = method_for_each(KernelCheck)


def problems(kernel: Kernel) -> tuple[str, ...]:
    """Return the errors of a kernel of this level, a sentence each; none for a valid one."""
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Launch):
        return (f"the body of kernel `{kernel.name}` is not one Launch",)
    check, launch = KernelCheck(kernel), kernel.body[0]
    check.report(launch, check.launch(launch))
    check.block(launch.body)
    return tuple(check.found)
