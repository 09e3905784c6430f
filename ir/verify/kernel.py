"""Invariants of Kernel IR: names and types, widths and alignment, barriers that every thread of a block reaches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from ..atoms import ATOMS, WORD_BYTES
from ..dtypes import INTEGERS
from ..expr import Sum, Var, is_int, only_sizes
from ..facts.index import counters, divisor
from ..facts.layout import DTYPE_BYTES
from ..facts.structure import NAMED, names_read
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
    Shuffle,
    StoreTo,
    TensorMap,
    WaitProducts,
    method_for_each,
)
from ..node import Expr
from ..program import Block, Kernel, Stmt
from ..sizes import lowest
from ..text.print_statements import print_statement

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


@dataclass
class KernelCheck:
    """The checks of Kernel IR, one method for each statement.

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

    def say(self, stmt: Stmt, what: str) -> None:
        self.found.append(f"{what}: `{print_statement(stmt).splitlines()[0].strip()}`")

    def bind(self, stmt: Any, name: str, meaning: KnownName) -> None:
        if name in self.names:
            self.say(stmt, f"`{name}` is defined twice")
        self.names[name] = meaning

    def varies(self, e: Any) -> bool:
        """Return whether an expression may differ between threads of a block."""
        return not is_int(e) and any(self.names[name].divergent for name in names_of(e) if name in self.names)

    def elements(self, stmt: Stmt, e: Any) -> None:
        """Check that registers are read one at a time, at indices that are constant after unrolling."""
        if isinstance(e, Element):
            if len(e.index) != len(self.names[e.name].shape):
                self.say(stmt, f"`{e.name}` has {len(self.names[e.name].shape)} dimensions")
            self.places(stmt, e)
            return
        for part in _parts(e):
            self.elements(stmt, part)

    def places(self, stmt: Stmt, e: Element) -> None:
        for place, extent in zip(e.index, self.names[e.name].shape, strict=False):
            if is_int(place) and not 0 <= place < extent:
                self.say(stmt, f"`{e.name}` has {extent} registers here")
            if not all(self.names[name].constant for name in names_of(place)):
                self.say(stmt, f"`{e.name}` is indexed at run time")

    def target(self, stmt: Stmt, place: Expr) -> str | None:
        """Return the dtype of a written scalar or register, or None after a report that it is not writable."""
        if not isinstance(place, Var | Element):
            self.say(stmt, "this is no place")
            return None
        known = self.names[place.name]
        if known.kind not in ("value", "registers") or not known.mutable:
            self.say(stmt, f"`{place.name}` is not mutable")
        if known.kind == "value":
            known.divergent = True
        return known.dtype

    def address(self, stmt: Stmt, address: Address, dtype: str | None, size: int) -> KnownName:
        """Check memory and alignment of an address of `size` bytes, or of elements of a dtype, and return its base."""
        base = self.names[address.base]
        if base.kind != "base":
            self.say(stmt, f"`{address.base}` is not an address")
        unit = 1 if base.dtype is None else DTYPE_BYTES[base.dtype]
        if base.dtype is not None and dtype is not None and base.dtype != dtype:
            self.say(stmt, f"`{address.base}` points to {base.dtype}")
        reach = gcd(gcd(base.factor, divisor(address.offset, self.strides)), divisor(address.xor, self.strides)) * unit
        if size and reach % size:  # `width` has said what is wrong with a size of 0
            self.say(stmt, f"the address is a multiple of {reach} bytes only")
        return base

    def block(self, block: Block) -> None:
        outer = dict(self.names)
        for stmt in block:
            if type(stmt) not in CHECKS:
                self.say(stmt, f"{type(stmt).__name__} is not a statement of this level")
                continue
            missing = sorted(name for name in _own_names(stmt) if name not in self.names)
            if missing:
                self.say(stmt, f"undefined {', '.join(missing)}")
                continue
            if self.divergent and isinstance(stmt, Convergent):
                self.say(stmt, "not every thread of the block comes here")
            CHECKS[type(stmt)](self, stmt)
        self.names = outer

    def launch(self, stmt: Launch) -> None:
        """Check the grid, whose extents are numbers at a launch, the block and the cluster of a launch."""
        if len(stmt.grid) != 3 or not all(only_sizes(e) and lowest(e) >= 1 for e in stmt.grid):
            self.say(stmt, "a grid has three extents of 1 or more, made of numbers and sizes")
        if not 1 <= stmt.block <= MOST_THREADS or stmt.shared < 0:
            self.say(stmt, f"a block has 1 to {MOST_THREADS} threads and no fewer than 0 bytes")
        self.cluster = stmt.cluster
        if stmt.cluster < 1 or divisor(stmt.grid[0], {}) % stmt.cluster:
            self.say(stmt, "the blocks in x are not whole clusters")
        self.names[BLOCK_INDEX[0]] = KnownName("index", divergent=stmt.cluster > 1)

    # ---- definitions

    def define(self, stmt: Define) -> None:
        self.elements(stmt, stmt.val)
        self.numbers(stmt, stmt.dtype, stmt.val)
        self.bind(
            stmt, stmt.dst, KnownName("value", stmt.dtype, mutable=bool(stmt.mutable), divergent=self.varies(stmt.val))
        )

    def base(self, stmt: Base) -> None:
        root = self.names[stmt.root]
        if root.kind != "base":
            self.say(stmt, f"`{stmt.root}` is not an address")
            return
        factor = gcd(root.factor, divisor(stmt.offset, self.strides))
        self.bind(
            stmt,
            stmt.dst,
            KnownName("base", root.dtype, mutable=bool(stmt.mutable), writable=root.writable, factor=factor),
        )

    def advance(self, stmt: Advance) -> None:
        if not self.names[stmt.base].mutable:
            self.say(stmt, f"`{stmt.base}` is not mutable")

    def registers(self, stmt: Registers) -> None:
        if stmt.shape and stmt.fill is not None and stmt.fill != 0:
            self.say(stmt, "an array of registers is filled with zeros only")
        self.bind(stmt, stmt.dst, KnownName("registers", stmt.dtype, stmt.shape, mutable=True, divergent=True))

    # ---- control

    def replicate(self, stmt: Replicate) -> None:
        self.bind(stmt, stmt.var, KnownName("index", constant=True))
        self.block(stmt.body)
        self.names.pop(stmt.var, None)

    def loop(self, stmt: Loop) -> None:
        self.bind(stmt, stmt.var, KnownName("index", divergent=self.varies(stmt.start)))
        if is_int(stmt.step) and stmt.step < 1:
            self.say(stmt, "a loop counts up")
        self.inside(self.varies((stmt.start, stmt.stop)), stmt.body)
        self.names.pop(stmt.var, None)

    def branch(self, stmt: Branch) -> None:
        self.elements(stmt, stmt.cond)
        self.inside(self.varies(stmt.cond), stmt.body)

    def inside(self, divergent: bool, body: Block) -> None:
        outer, self.divergent = self.divergent, self.divergent or divergent
        self.block(body)
        self.divergent = outer

    def barrier(self, stmt: Barrier) -> None:
        if stmt.cluster != self.cluster:  # nothing else orders what the blocks copy for each other
            self.say(stmt, f"a barrier of {stmt.cluster} blocks in clusters of {self.cluster}")

    def intrinsic(self, stmt: Intrinsic) -> None:
        if stmt.mbarrier:
            self.mbarrier(stmt, getattr(stmt, stmt.mbarrier))

    # ---- registers

    def assign(self, stmt: Assign) -> None:
        self.numbers(stmt, self.target(stmt, stmt.place), stmt.val)
        self.elements(stmt, (stmt.place, stmt.val))

    def butterfly(self, stmt: Butterfly) -> None:
        self.target(stmt, stmt.place)
        self.elements(stmt, stmt.place)
        if any(lanes & (lanes - 1) or not 1 <= lanes <= 16 for lanes in (stmt.low, stmt.high)) or stmt.low > stmt.high:
            self.say(stmt, "lanes are powers of two below 32")

    def shuffle(self, stmt: Shuffle) -> None:
        self.target(stmt, stmt.place)
        self.elements(stmt, stmt.place)
        if stmt.lanes & (stmt.lanes - 1) or not 1 <= stmt.lanes <= 16:
            self.say(stmt, "lanes are a power of two below 32")

    # ---- memory

    def load_from(self, stmt: LoadFrom) -> None:
        size = stmt.width * DTYPE_BYTES[stmt.dtype]
        self.width(stmt, size, INSTRUCTION_BYTES)
        self.address(stmt, stmt.address, stmt.dtype, size)
        if self.target(stmt, stmt.into) not in (None, stmt.dtype, opmath(stmt.dtype)):
            self.say(stmt, "the registers have another dtype")
        if stmt.width > self.room(stmt.into):
            self.say(stmt, "the registers hold another number of values")
        if isinstance(stmt.into, Element):
            self.places(stmt, stmt.into)
        self.elements(stmt, stmt.when)

    def check_place(self, stmt: CheckPlace) -> None:
        if lowest(stmt.extent) < 1:
            self.say(stmt, "an axis has at least one place")
        self.elements(stmt, (stmt.place, stmt.when))

    def room(self, into: Expr) -> int:
        """Return the number of consecutive registers that a load may write from a register on."""
        shape = self.names[into.name].shape if isinstance(into, Var | Element) else ()
        index = into.index if isinstance(into, Element) else ()
        if len(index) == len(shape):
            return shape[-1] - index[-1] if shape and is_int(index[-1]) else 1
        return shape[-1] if len(index) == len(shape) - 1 else 0

    def store_to(self, stmt: StoreTo) -> None:
        size = len(stmt.values) * DTYPE_BYTES[stmt.dtype]
        self.width(stmt, size, INSTRUCTION_BYTES)
        if not self.address(stmt, stmt.address, stmt.dtype, size).writable:
            self.say(stmt, f"`{stmt.address.base}` is an input")
        self.elements(stmt, stmt.values)
        self.numbers(stmt, stmt.dtype, *stmt.values)

    def copy_async(self, stmt: CopyAsync) -> None:
        self.width(stmt, stmt.bytes, COPY_BYTES)
        to = self.address(stmt, stmt.to, None, stmt.bytes)
        source = self.address(stmt, stmt.source, None, stmt.bytes)
        if to.dtype is not None or source.dtype is None:
            self.say(stmt, "an asynchronous copy goes from global to shared memory")

    def tensor_map(self, stmt: TensorMap) -> None:
        source = next((param for param in self.kernel.ins if param.name == stmt.src), None)
        self.bind(stmt, stmt.dst, KnownName("map", shape=stmt.box))
        if source is None or len(source.shape) != len(stmt.box) or not 1 <= len(stmt.box) <= BOX_RANK:
            self.say(stmt, f"`{stmt.src}` is not an input of as many dimensions")
            return
        size, row = DTYPE_BYTES[source.dtype], stmt.box[-1] * DTYPE_BYTES[source.dtype]
        if stmt.swizzle not in SWIZZLES or (stmt.swizzle and row > stmt.swizzle):
            self.say(stmt, f"rows of {row} bytes under a swizzle of {stmt.swizzle}")
        if row % 16 or (len(stmt.box) > 1 and source.shape[-1] * size % 16):
            self.say(stmt, "rows are not a multiple of 16 bytes")
        if not all(1 <= side <= BOX_SIDE for side in stmt.box):
            self.say(stmt, f"a box has 1 to {BOX_SIDE} elements a side")

    def mbarrier(self, stmt: Stmt, address: Address) -> None:
        if self.address(stmt, address, None, BARRIER_BYTES).dtype is not None:
            self.say(stmt, "an mbarrier is in shared memory")

    def copy_box(self, stmt: CopyBox) -> None:
        self.mbarrier(stmt, stmt.barrier)
        if self.address(stmt, stmt.to, None, BOX_ALIGNMENT).dtype is not None:
            self.say(stmt, "a box goes to shared memory")
        described = self.names[stmt.map]
        if described.kind != "map" or len(described.shape) != len(stmt.at):
            self.say(stmt, f"`{stmt.map}` is not a tensor map of {len(stmt.at)} dimensions")
        if stmt.cluster not in (1, self.cluster):
            self.say(stmt, f"a box for {stmt.cluster} blocks in clusters of {self.cluster}")

    def numbers(self, stmt: Stmt, dtype: str | None, *values: Expr) -> None:
        """Check that numbers are values of a dtype."""
        for value in values:
            if dtype in INTEGERS and isinstance(value, float) and not math.isfinite(value):
                self.say(stmt, f"{value} is not a value of {dtype}")

    def width(self, stmt: Stmt, size: int, allowed: tuple[int, ...]) -> None:
        if size not in allowed:
            self.say(stmt, f"no instruction moves {size} bytes")

    def wait_products(self, stmt: WaitProducts) -> None:
        """Accept the statement: the check that all threads reach it is enough."""

    # ---- fragments and products of tensor cores

    def fragment(self, stmt: Fragment) -> None:
        self.bind(stmt, stmt.dst, KnownName("fragment", stmt.dtype, (stmt.words,), mutable=True, divergent=True))

    def words(self, stmt: Stmt, place: Expr, count: int) -> KnownName | None:
        """Check that a fragment has `count` words from a given word on, and return the fragment."""
        known = self.names[place.name] if isinstance(place, Element) else None
        if known is None or known.kind != "fragment" or len(place.index) != 1:
            self.say(stmt, "this is no place of a fragment")
            return None
        self.places(stmt, place)
        if is_int(place.index[0]) and place.index[0] + count > known.shape[0]:
            self.say(stmt, f"`{place.name}` has {known.shape[0]} words")
        return known

    def load_matrix(self, stmt: LoadMatrix) -> None:
        if self.address(stmt, stmt.address, None, MATRIX_ROW_BYTES).dtype is not None:
            self.say(stmt, "matrices are loaded from shared memory")
        known = self.words(stmt, stmt.into, stmt.count)
        if stmt.count not in (1, 2, 4) or (stmt.trans and known and DTYPE_BYTES[known.dtype or ""] != 2):
            self.say(stmt, "1, 2 or 4 matrices; only elements of 2 bytes are transposed")

    def pack_word(self, stmt: PackWord) -> None:
        known = self.words(stmt, stmt.into, 1)
        self.elements(stmt, stmt.values)
        if known and len(stmt.values) * DTYPE_BYTES[known.dtype or ""] != WORD_BYTES:
            self.say(stmt, f"a word does not hold {len(stmt.values)} values of {known.dtype}")

    def multiply(self, stmt: Multiply) -> None:
        atom = ATOMS[stmt.atom]
        places = ((stmt.a, atom.a_order), (stmt.b, atom.b_order))
        left, right = (self.words(stmt, place, atom.words(order)) for place, order in places)
        if left and right and not atom.multiplies(left.dtype or "", right.dtype or ""):
            self.say(stmt, f"`{stmt.atom}` does not multiply {left.dtype} by {right.dtype}")
        self.sums(stmt)

    def queue_product(self, stmt: QueueProduct) -> None:
        for problem in _product_problems(stmt):
            self.say(stmt, problem)
        for matrix in (stmt.a, stmt.b):
            if isinstance(matrix, Matrix) and self.address(stmt, matrix.at, None, MATRIX_START).dtype is not None:
                self.say(stmt, "a matrix stands in shared memory")
        atom = ATOMS[stmt.atom]
        if not isinstance(stmt.a, Matrix):
            held = self.words(stmt, stmt.a, atom.words(atom.a_order))
            if held and held.dtype != stmt.dtype:
                self.say(stmt, f"`{stmt.atom}` does not multiply {held.dtype} by {stmt.dtype}")
        self.sums(stmt)

    def sums(self, stmt: Multiply | QueueProduct) -> None:
        if self.target(stmt, stmt.acc) not in (None, ATOMS[stmt.atom].sums):
            self.say(stmt, f"`{stmt.atom}` sums {ATOMS[stmt.atom].sums}")
        self.elements(stmt, stmt.acc)


def names_of(value: Any) -> frozenset[str]:
    if value.__class__ is tuple:
        return frozenset().union(*map(names_of, value))
    return names_read(value) if hasattr(value, "_memo") else frozenset()


def _parts(e: Any) -> list[Any]:
    if e.__class__ is tuple:
        return list(e)
    if e.__class__ is Sum:
        return [atom for atom, _ in e.terms]
    if hasattr(e, "_memo") and not isinstance(e, Var):
        return [getattr(e, f.name) for f in type(e).fields]
    return []


def _product_problems(stmt: QueueProduct) -> Iterator[str]:
    """Yield the errors of a product, a sentence each."""
    atom = ATOMS[stmt.atom]
    if not atom.asynchronous or stmt.dtype not in atom.dtypes:
        yield f"`{stmt.atom}` does not multiply {stmt.dtype} out of shared memory"
    if not isinstance(stmt.b, Matrix):
        yield "the right operand is not a matrix"
    for matrix in (part for part in (stmt.a, stmt.b) if isinstance(part, Matrix)):
        if matrix.at.xor != 0:
            yield "a matrix has its swizzle in its rows, no xor of its start"
        elif any(n % CORE_BYTES or not 0 <= n < REACH for n in (matrix.stride, matrix.leading)):
            yield f"a matrix goes on after a multiple of {CORE_BYTES} bytes, less than {REACH}"


def _own_names(stmt: Stmt) -> set[str]:
    """Return the names that a statement itself reads, without those of its block."""
    fields = [getattr(stmt, f.name) for f in type(stmt).fields if f.name != "body"]
    found = set().union(*(names_of(value) for value in fields))
    own = (NAMED.get(type(stmt)), *(buffer for buffer, _ in type(stmt).memory))
    return found | {getattr(stmt, name) for name in own if name and getattr(stmt, name)}


CHECKS = method_for_each(KernelCheck)


def problems(kernel: Kernel) -> tuple[str, ...]:
    """Return the errors of a kernel of this level, a sentence each; none for a valid one."""
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Launch):
        return (f"the body of kernel `{kernel.name}` is not one Launch",)
    check = KernelCheck(kernel)
    check.launch(kernel.body[0])
    check.block(kernel.body[0].body)
    return tuple(check.found)
