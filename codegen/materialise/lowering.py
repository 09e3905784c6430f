"""The state of one lowering: what is replicated, where values are, the levels of the nest, the names that are taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ir.expr import Binary, Call, Var, free_names, is_int, rebuild
from ...ir.facts.layout import params, stages, tidy
from ...ir.functions import ARITHMETIC, FUNCTIONS
from ...ir.kernel import Element, Replicate
from ...ir.loop import For
from ...ir.node import Expr, Node, memoised, nodes
from ...ir.program import Block, Kernel, Param, Stmt
from ...ir.ranges import Interval, interval
from ...ir.tile import Stage, Tile
from ..dtypes import dtype_of, is_index_arithmetic
from ..target import Target
from .accumulators import Accumulator, find_accumulators
from .prepare import RESERVED, TID, fresh_name
from .widths import INT_LIMIT, exact, fits

if TYPE_CHECKING:
    from .boxes import Boxes
    from .slabs import Cell

Path = tuple[
    int, ...
]  # positions of nested statements, outermost first: a block's identity (equal blocks are one tuple)


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


Value = Held | Inlined


@dataclass
class Level:
    """The kernel's top (var None) or a loop at run time: where address registers and ring counters of that level live.

    before: ahead of the loop; head and tail: first and last in its body.
    """

    var: str | None = None
    start: Expr = 0
    step: Expr = 1
    before: list[Stmt] = field(default_factory=list)
    head: list[Stmt] = field(default_factory=list)
    tail: list[Stmt] = field(default_factory=list)
    bases: dict[Any, str] = field(default_factory=dict)


class Lowering:
    """One kernel on its way down. Replicated axes are kept in the order in which their loops nest."""

    def __init__(self, kernel: Kernel, tile: Tile, target: Target):
        self.kernel, self.tile, self.target = kernel, tile, target
        self.params: dict[str, Param] = params(kernel)
        self.written = frozenset(param.name for param in kernel.outs)
        self.stages: dict[str, Stage] = stages(kernel)
        self.threads = tuple(axis for axis in tile.axes if axis.role == "THREAD")
        self.thread_count = math.prod(axis.extent for axis in self.threads)
        self.replicated = {axis.name: axis.extent for axis in tile.axes if axis.role in ("REG", "VEC")}
        self.vectors = {axis.name: axis.extent for axis in tile.axes if axis.role == "VEC"}
        self.fixed = {axis.name for axis in tile.axes if axis.role in ("THREAD", "BLOCK")} | {TID}
        self.ranges: dict[str, Interval] = {axis.name: (0, axis.extent - 1) for axis in tile.axes}
        self.ranges[TID] = (0, self.thread_count - 1)
        self.levels = [Level()]
        self.repeats = 0  # how many loops of any kind are around the current statement
        self.env: dict[str, Value] = {}
        self.taken = {
            *RESERVED,
            *self.params,
            *(axis.name for axis in tile.axes),
            *(loop.var for loop in nodes(tile.body, For)),
        }
        self.shared_bytes = 0
        self.slab_bases: dict[str, str] = {}
        self.slab_starts: dict[str, int] = {}
        self.commits: frozenset[tuple[Path, int]] = frozenset()
        self.group = 1
        self.fetched: dict[str, Block] = {}  # by slab: the stores that its next Put is
        self.boxes: Boxes | None = None
        self._tidied: dict[Expr, Expr] = {}
        self.cells: dict[tuple[str, Expr, Expr], Cell] = {}
        self.accumulators: dict[str, Accumulator] = find_accumulators(self)

    # ---- names and ranges

    @property
    def top(self) -> Level:
        return self.levels[0]

    def fresh(self, hint: str) -> str:
        name = fresh_name(hint, self.taken)
        self.taken.add(name)
        return name

    @property
    def thread(self) -> Var:
        """The index in the block: the THREAD axis itself where there is only one."""
        return Var(self.threads[0].name if len(self.threads) == 1 else TID)

    def tidy(self, e: Expr) -> Expr:
        """e simplified by the ranges of the names in scope."""
        if not isinstance(e, Node):
            return e
        known = self._tidied.get(e)
        if known is None:
            known = self._tidied[e] = self.rounded_down(tidy(e, self.ranges))
        return known

    def rounded_down(self, e: Expr) -> Expr:
        """C rounds to zero: a quotient whose dividend may be negative is a call, but for shifts and masks."""
        if not isinstance(e, Node) or all(self.low(division.a) >= 0 for division in divisions(e)):
            return e
        e = rebuild(e, self.rounded_down)
        if e not in divisions(e) or self.low(e.a) >= 0:
            return e
        return Call("floor_divide" if e.op == "//" else "remainder", (e.a, e.b))

    @contextmanager
    def ranging(self, ranges: Mapping[str, Interval]) -> Iterator[None]:
        """Within: these names have these ranges. What was simplified under others is forgotten where they differ."""
        before = {name: self.ranges.get(name) for name in ranges}
        if any(before[name] != ranges[name] for name in ranges):
            self._tidied, self.cells = {}, {}
        self.ranges.update(ranges)
        yield
        # a name stays known after its loop: nothing reads it there, and a loop of the same shape finds its answers

    def allocate(self, size: int, alignment: int = 128) -> int:
        """The offset of new shared memory. Aligned so that an xor of chunk numbers stays within its row."""
        offset = -(-self.shared_bytes // alignment) * alignment
        self.shared_bytes = offset + size
        return offset

    # ---- replication

    def axes_of(self, e: Any, bound: frozenset[str]) -> tuple[str, ...]:
        """The replicated axes that an expression varies with, outermost first, without those that a loop has fixed."""
        found: set[str] = set()
        for name in free_names(e):
            if name in self.replicated:
                found.add(name)
            elif name in self.env:
                found.update(self.env[name].axes)
        return tuple(axis for axis in self.replicated if axis in found and axis not in bound)

    def extents(self, axes: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.replicated[axis] for axis in axes)

    def nest(self, axes: tuple[str, ...], body: Block, snake: bool = False) -> Block:
        """The block once for every value of the axes. snake: inner axes run backwards where the outermost is odd."""
        for depth in reversed(range(len(axes))):
            reverse = axes[0] if snake and depth else None
            body = (Replicate(axes[depth], self.replicated[axes[depth]], body, reverse),)
        return body

    # ---- values

    def dtype(self, e: Expr) -> str:
        """The dtype of an expression of the program."""
        return dtype_of(e, self.type_of, "i64")

    def type_of(self, name: str) -> str:
        value = self.env.get(name)
        return "i64" if value is None else value.dtype

    def value(self, e: Expr, fixed: Mapping[str, int] | None = None) -> Expr:
        """A value or a condition of the program in registers, with the axes in `fixed` at one value."""
        return exact(self.read(e, fixed), self.ranges)

    def counter(self, start: Expr, stop: Expr, step: Expr) -> str:
        """The dtype of a loop's variable, which must hold the value that ends the loop too."""
        last = self.high(stop) - 1 + (step if is_int(step) else self.high(step))
        return "i32" if fits(start, self.ranges) and fits(stop, self.ranges) and last < INT_LIMIT else "i64"

    def read(self, e: Expr, fixed: Mapping[str, int] | None = None) -> Expr:
        """An expression of the program in registers, index arithmetic in int outside of calls."""
        fixed = fixed or {}
        kind = e.__class__
        if kind is Var:
            value = self.env.get(e.name)
            if value is None:
                return fixed.get(e.name, e)
            return self.register(value, fixed) if isinstance(value, Held) else self.read(value.val, fixed)
        if kind is Call:
            integer = FUNCTIONS[e.fn].kind == ARITHMETIC
            return Call(e.fn, tuple(self._operand(arg, fixed, integer) for arg in e.args))
        if isinstance(e, Node):
            return self.tidy(rebuild(e, lambda part: self.read(part, fixed)))
        return e

    def _operand(self, e: Expr, fixed: Mapping[str, int], arithmetic: bool) -> Expr:
        """Index arithmetic is i64 as a value; in a kernel it is int until something computes further with it."""
        further = arithmetic and is_index_arithmetic(e, self.env.__contains__)
        value = self.value(e, fixed)
        return value if not further or (value.__class__ is Call and value.fn == "i64") else Call("i64", (value,))

    def register(self, value: Held, fixed: Mapping[str, int] | None = None, skip: tuple[str, ...] = ()) -> Expr:
        """The registers of a value at the current place of its axes, but for the axes in `skip` at the end."""
        index = tuple((fixed or {}).get(axis, Var(axis)) for axis in value.axes if axis not in skip)
        return Element(value.name, index) if index else Var(value.name)

    def varies(self, e: Expr, axis: str) -> bool:
        """Whether a value in the expression (not the axis itself) varies with a replicated axis."""
        return any(axis in self.env[name].axes for name in free_names(e) if name in self.env)

    def low(self, e: Expr) -> int:
        return interval(e, self.ranges)[0]

    def high(self, e: Expr) -> int:
        return interval(e, self.ranges)[1]


@memoised
def divisions(e: Any) -> tuple[Any, ...]:
    """The quotients and remainders in an expression that are no shifts and masks."""
    found = (part for part in nodes(e, Binary) if part.op in ("//", "%"))
    return tuple(part for part in found if not (is_int(part.b) and part.b > 0 and part.b & (part.b - 1) == 0))
