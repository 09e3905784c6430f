"""The least time of kernels: of their bytes, of their operations, and of fused values that are computed again.

`least_seconds` counts every byte once, every operation once at the device's peak, and one launch. It counts in Loop
IR, where a value may be inside more loops than it varies with. Operations are counted by the axes that a value varies
with, so a nest that computes a value again in every iteration has the limit of a nest that does not. `parts`,
`slots_of` and `bytes_of` count values of Tensor IR, for the rules of fusion.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from math import gcd, inf, prod
from typing import NamedTuple

from ...codegen.target import Target
from ...ir.expr import Binary, Call, NameSet, Not, Sum, Var, free_names, linear
from ...ir.facts.dataflow import Dataflow
from ...ir.facts.layout import DTYPE_BYTES, SECTOR, params
from ...ir.facts.structure import dependencies, summary
from ...ir.functions import FUNCTIONS
from ...ir.kernel import Element
from ...ir.loop import Accumulate, For, Let, Load, Merge, Store
from ...ir.monoids import monoid
from ...ir.node import CLASSES, Expr, Node, distinct, immutable, nodes
from ...ir.program import Block, Kernel, Stmt
from ...ir.ranges import simplify
from ...ir.sizes import at_hint
from ...ir.substitute import substitute
from ...ir.tensor import Const, Elementwise, Index, Input, Reduce, Remap, Term, dtype, operands
from ..language.rule import policy

# ---- Instructions of expressions, counted as the assembler would leave them.
#
# What is unrolled is straight-line code, in which equal values are computed once, and what depends on no register is
# folded.


# Instructions of a scalar function: all, and of these on the special function unit.
COSTS = {function.name: function.cost for function in FUNCTIONS.values()}
QUOTIENTS = ("//", "%")
DIVISION = 4  # by a number: a product's upper half, a shift, the sign; of a remainder a product more
MOST_COPIES = 256  # of one index, that are compared
MEMORY_TRIPS = 1.5  # memory latencies of every kernel: its first loads, and half of its last stores
_ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")

Copies = NameSet  # the enclosing replications on which a value depends


class Work(NamedTuple):
    """Instructions of a thread: all, on the fp32 pipe, on the special function unit."""

    issued: float = 0.0
    fma: float = 0.0
    special: float = 0.0


@immutable
class Replications:
    """The replications around a statement.

    extents: those inside of the innermost loop, whose body is straight-line code of its own. open: all. depends: on
    which of them each register depends.
    """

    extents: dict[str, int] = field(default_factory=dict)
    open: NameSet = frozenset()
    depends: dict[str, Copies] = field(default_factory=dict)

    def of(self, variable: str, extent: int) -> Replications:
        """Return those around the copies of a block. Until now, no register differs between these copies."""
        for name in self.depends:
            self.depends[name] -= {variable}
        return Replications({**self.extents, variable: extent}, self.open | {variable}, self.depends)

    def changed(self, place: Expr) -> None:
        """Record that a written register differs from copy to copy, but for the copies that its index names."""
        if isinstance(place, Var | Element):
            differs = self.extents.keys() - free_names(getattr(place, "index", ()))
            self.depends[place.name] = self.depends.get(place.name, frozenset()) | differs

    def work(self, values: Iterable[Expr], varying: NameSet | None = None) -> tuple[Work, Copies]:
        """Return the instructions of some values of one statement, and what they depend on.

        varying: the values are indices and guards, of which those count that hold a quotient or a remainder of one of
        these names. The rest is part of an address, or is computed before the loop.
        """
        seen: dict[Expr, tuple[Copies, bool]] = {}
        counted: list[list[float]] = []

        def visit(e: Expr) -> tuple[Copies, bool]:
            """Return on what an expression depends, and whether it is known once all is unrolled, or before a loop."""
            if e in seen:
                return seen[e]
            kind, depends, known = e.__class__, Copies(), True
            for part in e if kind is tuple else kind.read_inner(e) if kind in CLASSES else ():
                copies, ready = visit(part)
                depends, known = depends | copies, known and ready
            if kind in (Var, Element):
                depends |= (self.depends.get(e.name, Copies()) | {e.name}) & self.extents.keys()
                known &= e.name in self.open if varying is None else e.name not in varying
            seen[e] = depends, known
            if not known and kind in (Call, Binary, Sum, Not):
                alike = prod(extent for name, extent in self.extents.items() if name not in depends)
                share = 1.0 / alike if varying is None else self._different(e) / alike
                counted.append([amount * share for amount in _instructions(e, varying is not None, seen)])
            return seen[e]

        if varying is not None:
            values = [
                value
                for value in values
                if any(e.op in QUOTIENTS and not varying.isdisjoint(free_names(e)) for e in distinct(value, Binary))
            ]
        depends, _ = visit(tuple(values))
        return Work(*map(sum, zip(*counted, strict=True))), depends

    def _different(self, e: Expr) -> float:
        """Return the share of different values among the copies of an index: `(k + r // 3) % 3` has a third."""
        names = sorted(free_names(e) & self.open)
        points = list(itertools.product(*(range(self.extents.get(name, 1)) for name in names)))
        if not 1 < len(points) <= MOST_COPIES:
            return 1.0
        made = {simplify(substitute(e, dict(zip(names, point, strict=True))), {}) for point in points}
        return len(made) / len(points)


def _instructions(e: Expr, index: bool, depends: Mapping[Expr, tuple[Copies, bool]]) -> Work:
    """Return the instructions of an expression without its operands.

    A product that only this sum needs is part of it: one that depends on the same.
    """
    if not isinstance(e, Call):
        divides = index and isinstance(e, Binary) and e.op in QUOTIENTS
        if divides and not (isinstance(e.b, int) and e.b.bit_count() == 1):
            return Work(DIVISION)
        return Work(len(e.terms) if isinstance(e, Sum) else 1)
    products = [arg for arg in e.args if isinstance(arg, Call) and arg.fn == "multiply"]
    if e.fn in ("add", "subtract") and any(depends[arg][0] == depends[e][0] for arg in products):
        return Work()
    issued, special = COSTS.get(e.fn, (1, 0))
    return Work(issued, e.fn in _ARITHMETIC, special)


# ---- What fusing costs: seconds to compute values again in every block, against seconds to store and load them once.
#
# The rates are what is reached of the device's published peaks, as in engine/cost: this is that model before there is a
# schedule. A value computed again takes the issue slots of its own instructions and of its way through shared memory; a
# value that is stored takes a launch, and the bytes that are written and read for it.


def blocks_across(extents: Iterable[int], tile: int) -> int:
    """Count the tiles along these axes: as many blocks compute again what does not depend on the axes."""
    return prod(-(-extent // tile) for extent in extents)


def issue_seconds(count: float, target: Target) -> float:
    """Return the seconds that a full device needs to issue so many instructions of a thread."""
    return count / (target.issue_share * target.multiprocessors * target.fp32_per_clock * target.clock)


def traffic_seconds(size: float, target: Target) -> float:
    """Return the seconds that so many bytes of global memory take, at the rate that copies reach."""
    return size / (target.dram_share * target.dram_bytes_per_second)


def fixed_seconds(target: Target, ends: float = 1.0) -> float:
    """Return the fixed seconds of a kernel: its launch, and `ends` times its first loads and last stores."""
    return target.launch_seconds + ends * MEMORY_TRIPS * target.memory_latency_seconds


def parts(root: Term, stored: Container[Term], ends: Container[Term] = ()) -> tuple[list[Term], list[Term]]:
    """Return (the operations that make a value from what is in memory, what they read there), each once.

    The values at the ends count as stored.
    """
    made: dict[Term, None] = {}
    read: dict[Term, None] = {}
    pending = [root]
    while pending:
        term = pending.pop()
        kind = term.__class__
        if term in made or kind is Const or kind is Index:
            continue
        if kind is Input or (term is not root and (term in stored or term in ends)):
            read[term] = None
        else:
            made[term] = None
            pending += operands(term)
    return list(made), list(read)


def slots_of(flow: Dataflow, made: list[Term], target: Target) -> float:
    """Count the issue slots of some operations over all their elements.

    A product that is only summed up is part of the sum.
    """
    summed = {term.x for term in made if term.__class__ is Reduce and term.fn == "add"}
    costs = {fn: _cost(fn, target) for fn in {term.fn for term in made if term.__class__ is Elementwise}}
    total = 0.0
    for term in made:
        if term.__class__ is Reduce:
            total += flow.elements(flow.mask[term.x])
        elif term.__class__ is Elementwise and not (term.fn == "multiply" and term in summed):
            total += costs[term.fn] * flow.elements(flow.mask[term])
    return total


def bytes_of(flow: Dataflow, values: list[Term]) -> int:
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
    return blocks_across((at_hint(axis.extent) for axis in flow.axes_in(result & ~own)), tile)


def least_seconds(kernel: Kernel, target: Target) -> float:
    """Return the seconds that a kernel of Loop IR takes at least, on a device at its published peaks."""
    return program_seconds((kernel,), inf, 1, target)


def program_seconds(kernels: Sequence[Kernel], least_bytes: float, launches: int, target: Target) -> float:
    """Return the least number of seconds of a program with a number of launches.

    It moves least_bytes (its arguments and results) once, or does every operation of its kernels of Loop IR once,
    whichever takes longer. Values stored in between count for nothing.
    """
    moved = min(least_bytes, sum(map(_bytes, kernels))) / target.dram_bytes_per_second
    computed = sum(_slots(kernel, target) for kernel in kernels) / slots_per_second(target)
    return launches * fixed_seconds(target) + max(moved, computed)


def slots_per_second(target: Target) -> float:
    return target.multiprocessors * target.fp32_per_clock * target.clock


def _bytes(kernel: Kernel) -> float:
    """Return the bytes of global memory, each counted once.

    A buffer counts at most its size, and at most the bytes that come with each accessed index. Memory moves sectors
    whole: of every other element of a row, each brings the one that is left out.
    """
    found, buffers = summary(kernel.body), params(kernel)
    asked: Counter[str] = Counter()
    accesses: tuple[Load | Store, ...] = (*found.loads, *found.stores)
    for access in accesses:
        steps = [step for step in linear(access.idx[-1])[0].values() if isinstance(step, int)] if access.idx else []
        moved = min(DTYPE_BYTES[buffers[access.buf].dtype] * max(gcd(*steps), 1), SECTOR)
        asked[access.buf] += moved * _times(access.idx, kernel.body, _extents(kernel.body).keys())
    sizes = {name: DTYPE_BYTES[param.dtype] * prod(param.shape) for name, param in buffers.items()}
    return float(sum(min(asked[name], size) for name, size in sizes.items()))


def _times(value: Expr, body: Block, around: Set[str]) -> int:
    """Return how many values something in a kernel has: one for each iteration of the loops around that it needs."""
    extents = _extents(body)
    return prod(extents[name] for name in dependencies(value, body) & around)


def _extents(body: Block) -> dict[str, Expr]:
    return {loop.var: loop.stop for loop in summary(body).loops}


def _slots(kernel: Kernel, target: Target) -> float:
    """Return the issue slots of all operations, each done once for every element of its value.

    An inclusive scan needs one operation an element: each index goes on from the result of the preceding one. A running
    softmax also computes an exponential of its key; those of one key (attention has two: of its values, and of ones)
    share it.
    """
    body, sums = kernel.body, summary(kernel.body).sums
    summed = {stmt.val.name for stmt in sums if stmt.fn == "add" and stmt.val.__class__ is Var}
    running = _running(body)
    keys: set[Expr] = set()
    total = 0.0
    for stmt, around in _placed(body, frozenset()):
        match stmt:
            case Let(name, Call(fn)) if name not in running and not (fn == "multiply" and name in summed):
                total += _times(Var(name), body, around) * _cost(fn, target)
            case Accumulate() | Merge():
                folded = stmt.vals if isinstance(stmt, Merge) else (stmt.val,)
                slots: float = _times(folded, body, around)
                if isinstance(stmt, Merge) and any(c.fn in ("exp", "exp2") for c in nodes(monoid(stmt.fn).step, Call)):
                    if folded[0] not in keys:
                        slots += _times(folded[0], body, around) * _cost("exp", target)
                    keys.add(folded[0])
                total += slots / max(running.get(getattr(value, "name", ""), 1) for value in folded)
    return total


def _placed(block: Block, around: NameSet) -> Iterator[tuple[Stmt, NameSet]]:
    """Yield every statement with the loops around it.

    A value computed from a sum does not vary with the loops of the sum.
    """
    for stmt in block:
        yield stmt, around
        yield from _placed(getattr(stmt, "body", ()), around | {stmt.var} if isinstance(stmt, For) else around)


def _running(body: Block) -> dict[str, Expr]:
    """Return the values `where(k <= t, x, e)` of running reductions, each with the extent of its k.

    x is the same for every t. Scores under a causal mask are not, and each of them is an operation of its own.
    If t is `u % n`, x may depend on `u // n`.
    """
    found = summary(body)
    extents = _extents(body)
    made = {let.dst: let.val for let in found.lets} | {load.dst: load.idx for load in found.loads}
    made |= {stmt.acc: stmt.val for stmt in found.sums}
    running = {}
    for let in found.lets:
        match let.val:
            case Call("where", (Var(condition), chosen, _)):
                match made.get(condition):
                    case Binary("<=", Var(k), t) if k in extents:
                        rest = Binary("//", t.a, t.b) if isinstance(t, Binary) and t.op == "%" else None
                        if _names(t, made) & extents.keys() - _names(chosen, made, rest):
                            running[let.dst] = extents[k]
    return running


def _names(value: Expr, made: dict[str, Expr], skipped: Node | None = None) -> set[str]:
    """Return the names that a value depends on, through the definitions of its operands, but for a part of it."""
    todo, found = [value], set[str]()
    while todo:
        part = todo.pop()
        if part.__class__ is tuple:
            todo += part
        elif part.__class__ is Var and part.name not in found:
            found.add(part.name)
            todo.append(made.get(part.name, ()))
        elif isinstance(part, Node) and part is not skipped:
            todo += type(part).read_inner(part)
    return found


def _cost(fn: str, target: Target) -> float:
    issued, special = COSTS.get(fn, (1, 0))
    return max(float(issued), special * target.fp32_per_clock / target.special_per_clock)
