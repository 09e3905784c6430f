"""Invariants of Loop IR: indices in bounds, reductions with an identity, names defined once and before their use.

Index arithmetic is checked by intervals, narrowed by the guards around an access. An index that was read from memory (a
gather) is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import Any, TypeGuard

from ..expr import Binary, Var, add, free_names, is_int, linear, multiply, negate, only_sizes, subtract
from ..facts.layout import bound_ranges, params
from ..facts.structure import own_names, summary
from ..functions import FUNCTIONS
from ..kernel import Element
from ..loop import LOOP_ROLES, Accumulate, Carry, For, If, Let, Load, Merge, Scale, Store
from ..monoids import monoid
from ..node import Expr, distinct, immutable, nodes
from ..program import Block, Kernel, Stmt
from ..ranges import at_ends, interval
from ..sizes import Interval, has_sizes
from ..text.print_statements import print_head
from ..tile import AlongAxes, Collective, RegisterTile, SharedTile, Tile

LOOP_STATEMENTS = (For, If, Load, Let, Accumulate, Merge, Scale, Carry, Store)
TILE_STATEMENTS = (*LOOP_STATEMENTS, Collective, SharedTile, RegisterTile)


def problems(kernel: Kernel) -> tuple[str, ...]:
    """Return the problems of a kernel of this level, a sentence each; none for a valid kernel."""
    check = Check(kernel, LOOP_STATEMENTS)
    if check.grounded(kernel.body):
        check.block(kernel.body, Scope())
    return tuple(check.found)


@immutable
class Scope:
    """Facts known at a block: names, their ranges, and the guards around it (each reads `e <= 0`).

    ends: for names below a size, the greatest value as an expression of it.
    """

    names: frozenset[str] = frozenset()
    ranges: dict[str, Interval] = field(default_factory=dict)
    guards: tuple[Expr, ...] = ()
    ends: dict[str, Expr] = field(default_factory=dict)

    def bind(self, stmt: Any) -> Scope:
        ranges = dict(self.ranges)
        ranges.update(bound_ranges(stmt, ranges))
        stops = {a.name: a.extent for a in stmt.axes} if isinstance(stmt, Tile) else {stmt.var: stmt.stop}
        ends = {name: subtract(e, 1) for name, e in stops.items() if not is_int(e) and only_sizes(e)}
        return replace(self, names=self.names.union(stops), ranges=ranges, ends=self.ends | ends if ends else self.ends)

    def under(self, condition: Expr) -> Scope:
        return replace(self, guards=(*self.guards, *not_positive(condition)))

    def define(self, name: str) -> Scope:
        return replace(self, names=self.names | {name})

    def most(self, e: Expr) -> int:
        """Return an upper bound of an index expression by the ranges of its names."""
        plain = interval(e, self.ranges)[1]
        if plain <= 0 or not (self.ends or has_sizes(e)):
            return plain
        return min(plain, at_ends(e, lambda a: self.ends.get(a.name) if a.__class__ is Var else None, self.ranges))


Problems = Iterator[str]  # sentences, to which the statement is added


class Check:
    """Walk of a kernel that collects its problems. Tile IR extends it."""

    def __init__(self, kernel: Kernel, allowed: tuple[type[Stmt], ...]):
        self.kernel, self.allowed = kernel, allowed
        self.found: list[str] = []
        self.shapes = {name: param.shape for name, param in params(kernel).items()}
        self.written = {param.name for param in kernel.outs}
        self.sums = set(summary(kernel.body).folded)
        self.indices = {axis.name for tile in nodes(kernel.body, Tile) for axis in tile.axes}

    def report(self, stmt: Any, problems: Iterable[str]) -> None:
        """Add the problems of a statement; those of its block are added on the way."""
        for problem in problems:
            self.found.append(f"{problem}, in `{print_head(stmt)}`")

    def grounded(self, block: Block) -> bool:
        """Return whether the assumptions of facts hold.

        Named memory exists, conditions are of whole numbers, and no name means two things.
        """
        for stmt in nodes(block, Stmt):
            names = (getattr(stmt, buffer) for buffer, _ in type(stmt).memory)
            self.report(stmt, (f"`{name}` is not a buffer" for name in names if name not in self.shapes))
        for e in distinct(block, Binary):
            if e.a.__class__ is float or e.b.__class__ is float:
                self.found.append(f"`{print_head(e)}` is about places, which are whole numbers")
        indices = {loop.var for loop in nodes(block, For)} | self.indices
        values = {stmt.dst for stmt in nodes(block, Load, Let)}
        for name in sorted(indices & (values | self.sums) | values & self.sums):
            self.found.append(
                f"`{name}` has two meanings: an index, a value and an accumulator have names of their own"
            )
        for element in sorted(distinct(block, Element), key=lambda element: element.name):
            self.found.append(f"`{element.name}[..]` in an expression: `x = load {element.name}[..]` reads memory")
        return not self.found

    def block(self, block: Block, scope: Scope) -> None:
        defined: set[str] = set()
        for stmt in block:
            if not isinstance(stmt, self.allowed):
                self.report(
                    stmt,
                    [f"{type(stmt).__name__} is not a statement of this level: ir/loop.py and ir/kernel.py list them"],
                )
                continue
            for checks in (self.names(stmt, scope), self.ranks(stmt), self.statement(stmt, scope)):
                self.report(stmt, checks)
            if isinstance(stmt, Load | Let):
                if stmt.dst in defined:
                    self.report(stmt, [f"`{stmt.dst}` is defined twice in one block"])
                defined.add(stmt.dst)
                scope = scope.define(stmt.dst)

    def names(self, stmt: Any, scope: Scope) -> Problems:
        """Check that every name of an expression is bound here."""
        for name in sorted(own_names(stmt) - scope.names - self.sums):
            yield f"`{name}` is not defined here"

    def ranks(self, stmt: Stmt) -> Problems:
        """Check that memory has an index for each of its dimensions."""
        for buffer, index in type(stmt).memory:
            shape = self.shapes[getattr(stmt, buffer)]
            if index is not None and len(getattr(stmt, index)) != len(shape):
                yield f"`{getattr(stmt, buffer)}` has {len(shape)} dimensions"

    def statement(self, stmt: Any, scope: Scope) -> Problems:
        if isinstance(stmt, For):
            if stmt.role not in (*LOOP_ROLES, "VEC"):
                yield f"a loop has no role {stmt.role}"
            if stmt.role == "reduce" and summary(stmt.body).stores:
                yield "a reduction stores"
            if stmt.role == "reduce" and summary(stmt.body).scales:
                yield "a reduction scales what it adds to: its iterations have an order"
            self.block(stmt.body, scope.bind(stmt))
        elif isinstance(stmt, If):
            self.block(stmt.body, scope.under(stmt.cond))
        elif isinstance(stmt, Load):
            if stmt.buf in self.written:
                yield f"`{stmt.buf}` is an output: a kernel reads its inputs"
            yield from self.access(stmt, scope if stmt.when is True else scope.under(stmt.when))
        elif isinstance(stmt, Store):
            if not self.writable(stmt.buf):
                yield f"`{stmt.buf}` is not an output"
            yield from self.access(stmt, scope)
        elif isinstance(stmt, Accumulate):
            yield from self.reduction(stmt)
        elif isinstance(stmt, Merge):
            known = monoid(stmt.fn)
            if len(stmt.accs) != len(known.parts) or len(stmt.vals) != len(known.operands):
                yield f"`{stmt.fn}` has {len(known.parts)} parts and {len(known.operands)} operands"
        elif isinstance(stmt, Scale | Carry):
            yield from self.accumulator(stmt.acc)

    def writable(self, buffer: str) -> bool:
        return buffer in self.written

    def accumulator(self, name: str) -> Problems:
        if name not in self.sums:
            yield f"`{name}` is not an accumulator"

    def reduction(self, stmt: Accumulate | AlongAxes) -> Problems:
        if FUNCTIONS[stmt.fn].identity is None:
            yield f"`{stmt.fn}` has no identity to start a reduction from"

    def access(self, stmt: Load | Store, scope: Scope) -> Problems:
        """Check 0 <= position < extent, unless a name in the position was read from memory."""
        for position, extent in zip(stmt.idx, self.shapes[stmt.buf]):
            if free_names(position) <= scope.ranges.keys():
                low, high = negate(position), add(subtract(position, extent), 1)
                if not (implied(low, scope) and implied(high, scope)):
                    yield f"index `{print_head(position)}` may leave 0..{print_head(extent)}"


def not_positive(condition: Expr) -> Iterator[Expr]:
    """Yield the conjuncts of a condition as expressions that are at most 0 where it holds."""
    if condition.__class__ is not Binary:
        return
    if condition.op == "and":
        yield from not_positive(condition.a)
        yield from not_positive(condition.b)
    difference, strict = subtract(condition.a, condition.b), int(condition.op in ("<", ">"))
    if condition.op in ("<", "<=", "=="):
        yield add(difference, strict)
    if condition.op in (">", ">=", "=="):
        yield add(negate(difference), strict)


def implied(e: Expr, scope: Scope) -> bool:
    """Return whether e <= 0 follows from the ranges and the guards."""
    return greatest(e, scope) <= 0


def greatest(e: Expr, scope: Scope) -> int:
    """Return an upper bound of an index expression: by ranges, by one guard, and inside of divisions by both."""
    best = scope.most(e)
    terms, constant = linear(e)
    for guard in scope.guards:
        shared = {terms.get(atom, 0) // factor for atom, factor in linear(guard)[0].items()}
        for times in {max(n, 1) for n in shared or (1,)}:
            best = min(best, scope.most(subtract(e, multiply(guard, times))))
    if scope.guards and any(_is_quotient(atom) for atom in terms):
        best = min(best, constant + sum(_greatest_term(atom, factor, scope) for atom, factor in terms.items()))
    return best


def _is_quotient(atom: Expr) -> TypeGuard[Binary]:
    return atom.__class__ is Binary and atom.op == "//" and is_int(atom.b) and atom.b > 0


def _greatest_term(atom: Expr, factor: int, scope: Scope) -> int:
    if not _is_quotient(atom):
        return scope.most(multiply(atom, factor))
    bound = greatest(atom.a, scope) if factor > 0 else -greatest(negate(atom.a), scope)
    return factor * (bound // int(atom.b))
