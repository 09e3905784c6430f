"""Instructions of expressions, counted as the assembler would leave them.

What is unrolled is straight-line code, in which equal values are computed once, and what depends on no register is
folded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...ir.expr import Binary, Call, Not, Sum, Var, free_names
from ...ir.kernel import Element
from ...ir.node import nodes
from ...ir.ranges import simplify
from ...ir.substitute import substitute

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
        """The body of a loop at run time is a piece of straight-line code of its own."""
        outside, self._extents = self._extents, {}
        yield
        self._extents = outside

    def defined(self, name: str, depends: Copies) -> None:
        self._depends[name] = depends

    def changed(self, place: Any) -> None:
        """A register that is written here differs from copy to copy, but for the copies that its index names."""
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
        """(the replications on which a leaf or an index depends, whether it is known once all is unrolled)"""
        if isinstance(e, Var):
            if e.name in self._variables:
                return frozenset((self._variables[e.name],)) & self.here, True
            return self._depends.get(e.name, frozenset()) & self.here, False
        if isinstance(e, Element):
            return (self._depends.get(e.name, frozenset()) & self.here) | self._named(e.index), False
        parts = [self.depends(part) for part in operands(e)]
        return frozenset().union(*(copies for copies, _ in parts)), all(known for _, known in parts)

    def copies(self, depends: Copies) -> float:
        """How often a value is computed in all, over how often its statement runs: at most 1."""
        share = 1.0
        for number, extent in self._extents.items():
            if number not in depends:
                share /= extent
        return share

    def work(self, values: Sequence[Any]) -> tuple[Work, Copies]:
        """The instructions of some values of one statement, and what they depend on."""
        total = Work()
        seen: dict[Any, tuple[Copies, bool]] = {}
        depends = [self._visit(value, total, seen)[0] for value in values]
        return total, frozenset().union(*depends)

    def _visit(self, e: Any, total: Work, seen: dict[Any, tuple[Copies, bool]]) -> tuple[Copies, bool]:
        if not isinstance(e, Call | Binary | Sum | Not):
            return self.depends(e)
        if e not in seen:
            parts = [self._visit(part, total, seen) for part in operands(e)]
            depends, known = frozenset().union(*(p for p, _ in parts)), all(k for _, k in parts)
            seen[e] = depends, known
            if not known:
                total.add(self._own(e, depends, seen), self.copies(depends))
        return seen[e]

    def digits(self, values: Sequence[Any], varying: frozenset[str]) -> Work:
        """The instructions of indices and guards that hold a quotient or a remainder of what varies; the rest is
        part of an address, or is computed before the loop."""
        total, seen = Work(), dict[Any, tuple[Copies, bool]]()
        for value in values:
            if any(e.op in QUOTIENTS and not varying.isdisjoint(free_names(e)) for e in nodes(value, Binary)):
                self._digits(value, total, seen, varying)
        return total

    def _digits(
        self, e: Any, total: Work, seen: dict[Any, tuple[Copies, bool]], varying: frozenset[str]
    ) -> tuple[Copies, bool]:
        if not isinstance(e, Call | Binary | Sum | Not):
            depends, _ = self.depends(e)
            return depends, not (isinstance(e, Var) and e.name in varying)
        if e not in seen:
            parts = [self._digits(part, total, seen, varying) for part in operands(e)]
            depends, known = frozenset().union(*(p for p, _ in parts)), all(k for _, k in parts)
            seen[e] = depends, known
            if not known:
                divides = isinstance(e, Binary) and e.op in QUOTIENTS and not _power_of_two(e.b)
                share = self.copies(depends) * self._different(e)
                total.add(Work(DIVISION) if divides else self._own(e, depends, seen), share)
        return seen[e]

    def _different(self, e: Any) -> float:
        """Of the copies of an index that replication makes, the share that differ: `(k + r // 3) % 3` has a third."""
        names = sorted(free_names(e) & self._variables.keys())
        extents = [self._extents.get(self._variables[name], 1) for name in names]
        points = list(itertools.product(*(range(extent) for extent in extents)))
        if len(points) > MOST_COPIES or len(points) == 1:
            return 1.0
        made = {simplify(substitute(e, dict(zip(names, point, strict=True))), {}) for point in points}
        return len(made) / len(points)

    def _own(self, e: Any, depends: Copies, seen: dict[Any, tuple[Copies, bool]]) -> Work:
        """The instructions of an expression without its operands. A product that only this sum needs is part of it."""
        if not isinstance(e, Call):
            return Work(len(e.terms) if isinstance(e, Sum) else 1)
        issued, special = COSTS.get(e.fn, (1, 0))
        pipe = int(e.fn in _ARITHMETIC)
        products = (a for a in e.args if isinstance(a, Call) and a.fn == "multiply")
        if e.fn in ("add", "subtract") and any(seen[a][0] == depends for a in products):
            return Work(0, 0, 0)
        return Work(issued, pipe, special)


def operands(e: Any) -> tuple[Any, ...]:
    """The expressions right below an expression."""
    if isinstance(e, Call):
        return e.args
    if isinstance(e, Sum):
        return tuple(atom for atom, _ in e.terms)
    if isinstance(e, Binary):
        return (e.a, e.b)
    return (e.a,) if isinstance(e, Not) else ()


def _power_of_two(n: Any) -> bool:
    return isinstance(n, int) and n > 0 and n & (n - 1) == 0
