"""The least time of kernels: of their bytes, of their operations, and of fused values that are computed again.

`least_seconds` counts every byte once, every operation once at the device's peak, and one launch. It counts in Loop
IR, where a value may be inside more loops than it varies with. Operations are counted by the axes that a value varies
with, so a nest that computes a value again in every iteration has the limit of a nest that does not. `parts`,
`slots_of` and `bytes_of` count values of Tensor IR, for the rules of fusion.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...codegen.target import Target
from ...ir.expr import Binary, Call, Not, Sum, Var, free_names, linear
from ...ir.facts.dataflow import Dataflow
from ...ir.facts.layout import DTYPE_BYTES, SECTOR
from ...ir.facts.structure import dependencies, summary
from ...ir.kernel import Element
from ...ir.loop import Accumulate, For, Let, Load, Merge, Store
from ...ir.monoids import monoid
from ...ir.node import Node, nodes
from ...ir.program import Block, Kernel
from ...ir.ranges import simplify
from ...ir.sizes import at_hint
from ...ir.substitute import substitute
from ...ir.tensor import Const, Elementwise, Index, Input, Reduce, Remap, dtype, operands
from ..language.rule import policy

# ---- Instructions of expressions, counted as the assembler would leave them.
#
# What is unrolled is straight-line code, in which equal values are computed once, and what depends on no register is
# folded.


# Instructions of a scalar function: all, and of these on the special function unit. Divisions and the functions of the
# C library are short programs; what is not named here is one instruction.
COSTS = {
    "exp2": (2, 1), "exp": (3, 1), "rsqrt": (2, 1), "reciprocal": (2, 1), "sigmoid": (5, 2), "divide": (9, 1),
    "sqrt": (8, 1), "log": (8, 1), "log2": (6, 1), "tanh": (12, 2), "sin": (20, 1), "cos": (20, 1), "erf": (20, 1),
    "pow": (30, 2), "negative": (0, 0), "copy": (0, 0), "floor_divide": (30, 2), "remainder": (12, 1),
    "hypot": (20, 1), "asinh": (25, 2), "acosh": (25, 2), "atanh": (20, 1), "erfc": (30, 2),
    "erfinv": (30, 2), "erfcinv": (40, 3), "erfcx": (40, 2), "lgamma": (60, 2), "zeta": (300, 16), "gcd": (800, 8),
    "gammainc": (900, 40), "gammaincc": (900, 40),
    "bessel_j0": (80, 3), "bessel_j1": (80, 3), "bessel_y0": (120, 5), "bessel_y1": (120, 5), "three_terms": (100, 5),
}  # fmt: skip
QUOTIENTS = ("//", "%")
DIVISION = 4  # by a number: a product's upper half, a shift, the sign; of a remainder a product more
MOST_COPIES = 256  # of one index, that are compared
_ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")

Copies = frozenset[int]  # the enclosing replications on which a value depends


@dataclass
class Work:
    """Instructions of a thread: all, on the fp32 pipe, on the special function unit."""

    issued: float = 0.0
    fma: float = 0.0
    special: float = 0.0

    def add(self, other: Work, times: float) -> None:
        self.issued += other.issued * times
        self.fma += other.fma * times
        self.special += other.special * times


class Replications:
    """The replications around a statement, and which of them each register depends on."""

    def __init__(self) -> None:
        self._extents: dict[int, int] = {}  # those that are open, outermost first
        self._variables: dict[str, int] = {}
        self._depends: dict[str, Copies] = {}
        self._count = 0

    @contextmanager
    def replicated(self, variable: str, extent: int) -> Iterator[None]:
        self._count += 1
        number, before = self._count, self._variables.get(variable)
        self._extents[number], self._variables[variable] = extent, number
        yield
        del self._extents[number]
        self._variables.pop(variable)
        if before is not None:
            self._variables[variable] = before

    @contextmanager
    def straight_line(self) -> Iterator[None]:
        """Enter the body of a loop at run time, a piece of straight-line code of its own."""
        outside, self._extents = self._extents, {}
        yield
        self._extents = outside

    def defined(self, name: str, depends: Copies) -> None:
        self._depends[name] = depends

    def changed(self, place: Any) -> None:
        """Record that a written register differs from copy to copy, but for the copies that its index names."""
        if isinstance(place, Var | Element):
            named = self._named(place.index) if isinstance(place, Element) else frozenset()
            self._depends[place.name] = self._depends.get(place.name, frozenset()) | (self._extents.keys() - named)

    @property
    def replicated_names(self) -> frozenset[str]:
        return frozenset(self._variables)

    @property
    def here(self) -> Copies:
        return frozenset(self._extents)

    def _named(self, index: Sequence[Any]) -> Copies:
        return frozenset().union(*(self.depends(e)[0] for e in index)) if index else frozenset()

    def depends(self, e: Any) -> tuple[Copies, bool]:
        """Return the replications on which a leaf or an index depends, and whether it is known once all is unrolled."""
        if isinstance(e, Var):
            if e.name in self._variables:
                return frozenset((self._variables[e.name],)) & self.here, True
            return self._depends.get(e.name, frozenset()) & self.here, False
        if isinstance(e, Element):
            return (self._depends.get(e.name, frozenset()) & self.here) | self._named(e.index), False
        parts = [self.depends(part) for part in value_operands(e)]
        return frozenset().union(*(copies for copies, _ in parts)), all(known for _, known in parts)

    def copies(self, depends: Copies) -> float:
        """Return how often a value is computed in all, over how often its statement runs: at most 1."""
        share = 1.0
        for number, extent in self._extents.items():
            if number not in depends:
                share /= extent
        return share

    def work(self, values: Sequence[Any]) -> tuple[Work, Copies]:
        """Return the instructions of some values of one statement, and what they depend on."""
        total = Work()
        seen: dict[Any, tuple[Copies, bool]] = {}
        depends = [self._visit(value, total, seen)[0] for value in values]
        return total, frozenset().union(*depends)

    def _visit(
        self, e: Any, total: Work, seen: dict[Any, tuple[Copies, bool]], varying: frozenset[str] | None = None
    ) -> tuple[Copies, bool]:
        """Count an expression and its operands. varying: of an index, the names that are not known before the loop."""
        if not isinstance(e, Call | Binary | Sum | Not):
            depends, known = self.depends(e)
            return depends, known if varying is None else not (isinstance(e, Var) and e.name in varying)
        if e not in seen:
            parts = [self._visit(part, total, seen, varying) for part in value_operands(e)]
            depends, known = frozenset().union(*(p for p, _ in parts)), all(k for _, k in parts)
            seen[e] = depends, known
            if not known:
                divides = isinstance(e, Binary) and e.op in QUOTIENTS and not _power_of_two(e.b)
                work = Work(DIVISION) if divides and varying is not None else self._own(e, depends, seen)
                total.add(work, self.copies(depends) * (1.0 if varying is None else self._different(e)))
        return seen[e]

    def digits(self, values: Sequence[Any], varying: frozenset[str]) -> Work:
        """Return the instructions of indices and guards that hold a quotient or a remainder of a varying name.

        The rest is part of an address, or is computed before the loop.
        """
        total, seen = Work(), dict[Any, tuple[Copies, bool]]()
        for value in values:
            if any(e.op in QUOTIENTS and not varying.isdisjoint(free_names(e)) for e in nodes(value, Binary)):
                self._visit(value, total, seen, varying)
        return total

    def _different(self, e: Any) -> float:
        """Return the share of different values among the copies of an index: `(k + r // 3) % 3` has a third."""
        names = sorted(free_names(e) & self._variables.keys())
        extents = [self._extents.get(self._variables[name], 1) for name in names]
        points = list(itertools.product(*(range(extent) for extent in extents)))
        if len(points) > MOST_COPIES or len(points) == 1:
            return 1.0
        made = {simplify(substitute(e, dict(zip(names, point, strict=True))), {}) for point in points}
        return len(made) / len(points)

    def _own(self, e: Any, depends: Copies, seen: dict[Any, tuple[Copies, bool]]) -> Work:
        """Return the instructions of an expression without its operands.

        A product that only this sum needs is part of it.
        """
        if not isinstance(e, Call):
            return Work(len(e.terms) if isinstance(e, Sum) else 1)
        issued, special = COSTS.get(e.fn, (1, 0))
        pipe = int(e.fn in _ARITHMETIC)
        products = (a for a in e.args if isinstance(a, Call) and a.fn == "multiply")
        if e.fn in ("add", "subtract") and any(seen[a][0] == depends for a in products):
            return Work(0, 0, 0)
        return Work(issued, pipe, special)


def value_operands(e: Any) -> tuple[Any, ...]:
    """Return the expressions right below an expression."""
    if isinstance(e, Call):
        return e.args
    if isinstance(e, Sum):
        return tuple(atom for atom, _ in e.terms)
    if isinstance(e, Binary):
        return (e.a, e.b)
    return (e.a,) if isinstance(e, Not) else ()


def _power_of_two(n: Any) -> bool:
    return isinstance(n, int) and n > 0 and n & (n - 1) == 0


# ---- What fusing costs: seconds to compute values again in every block, against seconds to store and load them once.
#
# The rates are what is reached of the device's published peaks, as in engine/cost: this is that model before there is a
# schedule. A value computed again takes the issue slots of its own instructions and of its way through shared memory; a
# value that is stored takes a launch, and the bytes that are written and read for it.


def blocks_across(extents: Iterable[int], tile: int) -> int:
    """Count the tiles along these axes: as many blocks compute again what does not depend on the axes."""
    return math.prod(-(-extent // tile) for extent in extents)


def slots(term: Any, target: Target) -> float:
    """Return the issue slots of one element of one operation; a special function holds its unit for longer than one."""
    if term.__class__ is Reduce:
        return 1.0
    return _cost(term.fn, target) if term.__class__ is Elementwise else 0.0


def issue_seconds(count: float, target: Target) -> float:
    """Return the seconds that a full device needs to issue so many instructions of a thread."""
    return count / (target.issue_share * target.multiprocessors * target.fp32_per_clock * target.clock)


def traffic_seconds(size: float, target: Target) -> float:
    """Return the seconds that so many bytes of global memory take, at the rate that copies reach."""
    return size / (target.dram_share * target.dram_bytes_per_second)


def fixed_seconds(target: Target, ends: float = 1.0) -> float:
    """Return the fixed seconds of a kernel: its launch, and `ends` times its first loads and last stores."""
    return float(target.launch_seconds + ends * policy(target).memory_trips * target.memory_latency_seconds)


def parts(root: Any, stored: Container[Any]) -> tuple[list[Any], list[Any]]:
    """Return (the operations that make a value from what is in memory, what they read there), each once."""
    made: list[Any] = []
    read: list[Any] = []
    seen: set[Any] = set()
    pending = [root]
    while pending:
        term = pending.pop()
        if term in seen or term.__class__ is Const or term.__class__ is Index:
            continue
        seen.add(term)
        if term.__class__ is Input or (term in stored and term is not root):
            read.append(term)
            continue
        made.append(term)
        pending.extend(operands(term))
    return made, read


def slots_of(flow: Dataflow, made: list[Any], target: Target) -> float:
    """Count the issue slots of some operations over all their elements.

    A product that is only summed up is part of the sum.
    """
    summed = {term.x for term in made if term.__class__ is Reduce and term.fn == "add"}
    total = 0.0
    for term in made:
        if term in summed and term.__class__ is Elementwise and term.fn == "multiply":
            continue
        mask = flow.mask[term.x] if term.__class__ is Reduce else flow.mask[term]
        total += slots(term, target) * flow.elements(mask)
    return total


def bytes_of(flow: Dataflow, values: list[Any]) -> int:
    """Return the bytes of some values in memory, each once."""
    return sum(flow.elements(flow.mask[v.x if v.__class__ is Remap else v]) * DTYPE_BYTES[dtype(v)] for v in values)


def blocks(flow: Dataflow, result: int, own: int, tile: int, target: Target) -> int:
    """Count the blocks of a product that compute an operand: one for every tile of the columns that the operand lacks.

    result, own: masks of the axes of the product and of the operand; tile: columns of a tile. Tiles are half as wide
    if there are too few outputs for all multiprocessors; a single row has blocks of a few columns each.
    """
    if not result & own:
        tile = min(tile, policy(target).row_columns)
    elif flow.elements(result) < (policy(target).tile_side // 2) ** 2 * target.multiprocessors:
        tile = max(tile // 2, 1)
    count = 1
    for axis in flow.axes_in(result & ~own):
        count *= -(-at_hint(axis.extent) // tile)
    return count


def least_seconds(kernel: Kernel, target: Target) -> float:
    """Return the seconds that a kernel of Loop IR takes at least, on a device at its published peaks."""
    moved = _bytes(kernel) / target.dram_bytes_per_second
    computed = _slots(kernel, target) / slots_per_second(target)
    return fixed_seconds(target) + max(moved, computed)


def program_seconds(kernels: Sequence[Kernel], least_bytes: int, launches: int, target: Target) -> float:
    """Return the least number of seconds of a program with a number of launches.

    It moves least_bytes (its arguments and results) once, or does every operation of its kernels of Loop IR once,
    whichever takes longer. Values stored in between count for nothing.
    """
    moved = min(least_bytes, sum(_bytes(kernel) for kernel in kernels)) / target.dram_bytes_per_second
    computed = sum(_slots(kernel, target) for kernel in kernels) / slots_per_second(target)
    return launches * fixed_seconds(target) + max(moved, computed)


def slots_per_second(target: Target) -> float:
    return target.multiprocessors * target.fp32_per_clock * target.clock


def _bytes(kernel: Kernel) -> float:
    """Return the bytes of global memory, each counted once.

    A buffer counts at most its size, and at most the bytes that come with each accessed index.
    """
    body, found = kernel.body, summary(kernel.body)
    extents = {loop.var: loop.stop for loop in found.loops}
    items = {param.name: DTYPE_BYTES[param.dtype] for param in (*kernel.ins, *kernel.outs)}
    asked: dict[str, float] = {}
    accesses: tuple[Load | Store, ...] = (*found.loads, *found.stores)
    for access in accesses:
        along = dependencies(access.idx, body) & extents.keys()
        places = math.prod(extents[name] for name in along)
        asked[access.buf] = asked.get(access.buf, 0) + places * _bytes_of_a_place(access.idx, items[access.buf])
    sizes = {param.name: items[param.name] * math.prod(param.shape) for param in (*kernel.ins, *kernel.outs)}
    return float(sum(min(asked.get(name, 0), size) for name, size in sizes.items()))


def _bytes_of_a_place(idx: tuple[Any, ...], item: int) -> int:
    """Return the bytes that one accessed index moves, at most a sector.

    Memory moves sectors whole: of every other element of a row, each brings the one that is left out.
    """
    steps = [step for step in linear(idx[-1])[0].values() if isinstance(step, int)] if idx else []
    return min(item * max(math.gcd(*steps), 1), SECTOR)


def _slots(kernel: Kernel, target: Target) -> float:
    """Return the issue slots of all operations, each done once for every element of its value.

    An inclusive scan needs one operation an element: each index goes on from the result of the preceding one. Running
    softmaxes of one key (attention has two: of its values, and of ones) share their exponentials.
    """
    body, found = kernel.body, summary(kernel.body)
    extents = {loop.var: loop.stop for loop in found.loops}
    summed = {stmt.val.name for stmt in found.sums if stmt.fn == "add" and stmt.val.__class__ is Var}
    running = _running(body, extents)
    keys: set[Any] = set()
    total = 0.0
    for stmt, around in _placed(body, frozenset()):

        def times(*values: Any, around: frozenset[str] = around) -> float:
            return float(math.prod(extents[name] for name in dependencies(values, body) & around))

        if isinstance(stmt, Let):
            call = stmt.val if stmt.val.__class__ is Call and stmt.dst not in running else None
            if call is not None and not (call.fn == "multiply" and stmt.dst in summed):  # one instruction with the sum
                total += times(Var(stmt.dst)) * _cost(call.fn, target)
        elif isinstance(stmt, Accumulate | Merge):
            total += _folded(stmt, running, times, target, keys)
    return total


def _placed(block: Block, around: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yield every statement with the loops around it.

    A value computed from a sum does not vary with the loops of the sum.
    """
    for stmt in block:
        yield stmt, around
        yield from _placed(getattr(stmt, "body", ()), around | {stmt.var} if isinstance(stmt, For) else around)


def _running(body: Block, extents: dict[str, Any]) -> dict[str, Any]:
    """Return the values `where(k <= t, x, e)` of running reductions, each with the extent of its k.

    x is the same for every t. Scores under a causal mask are not, and each of them is an operation of its own.
    """
    found = summary(body)
    made: dict[str, Any] = {let.dst: let.val for let in found.lets} | {load.dst: load.idx for load in found.loads}
    made |= {stmt.acc: stmt.val for stmt in found.sums}
    running = {}
    for let in found.lets:
        chosen = let.val.__class__ is Call and let.val.fn == "where"
        bound: Any = made.get(getattr(let.val.args[0], "name", "")) if chosen else None
        extent = extents.get(getattr(bound.a, "name", "")) if bound.__class__ is Binary and bound.op == "<=" else None
        if extent and set(_names(bound.b, made)) & extents.keys() - set(_names(let.val.args[1], made, bound.b)):
            running[let.dst] = extent
    return running


def _names(value: Any, made: dict[str, Any], digit: Any = None) -> Iterator[str]:
    """Yield the names that a value depends on, through the definitions of its operands.

    digit: if it is `t % n`, `t // n` does not depend on it, and is left out.
    """
    rest = Binary("//", digit.a, digit.b) if digit.__class__ is Binary and digit.op == "%" else None
    todo, seen = [value], set()
    while todo:
        part = todo.pop()
        if part.__class__ is tuple:
            todo += part
        elif part.__class__ is Var and part not in seen:
            seen.add(part)
            yield part.name
            todo.append(made.get(part.name, ()))
        elif isinstance(part, Node) and part is not rest and part.__class__ is not Var:
            todo += [getattr(part, field.name) for field in type(part).fields]


def _folded(stmt: Accumulate | Merge, running: dict[str, Any], times: Any, target: Target, keys: set[Any]) -> float:
    """Return the issue slots of a reduction: one operation an element.

    A running softmax also computes an exponential of its key. keys: those whose exponentials are counted.
    """
    folded = (stmt.val,) if isinstance(stmt, Accumulate) else stmt.vals
    places = max(running.get(getattr(value, "name", ""), 1) for value in folded)
    keyed = isinstance(stmt, Merge) and any(call.fn in ("exp", "exp2") for call in nodes(monoid(stmt.fn).step, Call))
    key = times(folded[0]) * _cost("exp", target) if keyed and folded[0] not in keys else 0
    keys.update(folded[:1] if keyed else ())
    return float(times(*folded) + key) / float(places)


def _cost(fn: str, target: Target) -> float:
    issued, special = COSTS.get(fn, (1, 0))
    return max(float(issued), special * target.fp32_per_clock / target.special_per_clock)
