"""Expressions of the rule language over the integers: numbers where everything is known, terms of Z3 where it is not.

Names that a rule leaves open (extents, parameters, what a fact answers) become unknowns, one each for the whole rule.
`//` rounds down and `%` takes the sign of its divisor, as everywhere in the IRs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.expr import COMPARISONS
from ...language import core as s
from ...language.evaluate import facts_of
from ...language.rule import Rule
from ...language.spelling import expression
from ...language.typed_slots import without_lets

Integer = Any  # a number of Python, or a term of Z3
Truth = Any  # a truth value of Python, or a term of Z3
Scope = Mapping[str, Integer]  # names of loops and axes
SIZES = (1, 2, 4, 8)
POWERS = tuple(1 << n for n in range(24))


class Unknown(Exception):
    """Statement that cannot be expressed over the integers, in words."""


def solver_module() -> Any:
    """Return Z3, or None if it is not installed."""
    try:
        import z3  # type: ignore[import-untyped]
    except ImportError:
        return None
    return z3


# ---- Operations on numbers and truth values, each of Python or of Z3.


def quotient(a: Integer, b: Integer) -> Integer:
    """Return a // b; 0 for two numbers of which the second is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    return either(b > 0, a / b, (-a) / (-b))  # Z3 rounds so that remainders are not negative


def remainder(a: Integer, b: Integer) -> Integer:
    """Return a % b; a where quotient(a, b) is 0."""
    return a % b if isinstance(b, int) and b > 0 else a - b * quotient(a, b)


def either(condition: Truth, a: Integer, b: Integer) -> Integer:
    """Return a where a condition holds, elsewhere b."""
    return (a if condition else b) if isinstance(condition, bool) else solver_module().If(condition, a, b)


def negated(value: Truth) -> Truth:
    """Return `not value`."""
    return not value if isinstance(value, bool) else solver_module().Not(value)


def joined(op: str, *values: Truth) -> Truth:
    """Return whether all truth values hold for `and`, whether one holds for `or`."""
    z3 = None if all(isinstance(value, bool) for value in values) else solver_module()
    if op == "and":
        return z3.And(values) if z3 else all(values)
    return z3.Or(values) if z3 else any(values)


Meaning = Callable[..., Any]
ARITHMETIC: dict[str, Meaning] = {  # operators, and facts of two numbers
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": quotient, "%": remainder,
    "ceildiv": lambda a, b: -quotient(-a, b),
    "min": lambda a, b: either(a <= b, a, b),
    "max": lambda a, b: either(a >= b, a, b),
}  # fmt: skip


class Integers:
    """Translator of expressions of one rule.

    known: numbers for unknowns, by name; all others are Z3's. conditions: those that the pattern binds, with the loops
    around each.
    """

    def __init__(self, rule: Rule, known: Mapping[str, int] | None = None):
        self.z3, self.rule, self.known = solver_module(), rule, known
        self.lets = {c.name: c.value for c in rule.clauses if isinstance(c, s.LetClause)}
        self.domains = {p.name: p.domain for p in rule.parameters if p.domain is not None}
        self.facts = facts_of(rule.level)
        self.unknowns: dict[str, Integer] = {}
        self.conditions: dict[str, tuple[str, ...]] = {}
        self.always = {name for name, *_ in asked(rule, "always")}

    @functools.cached_property
    def premises(self) -> list[Truth]:
        """Constraints of the domains of parameters and of the guards, as far as integers express them."""
        constraints = []
        domains = (s.Operation(d.span, "in", s.NameOf(d.span, name), d) for name, d in self.domains.items())
        for condition in (*domains, *required(self.rule)):
            with contextlib.suppress(Unknown):
                constraints.append(self.truth(condition, {}))
        return constraints

    def unknown(self, name: str) -> Integer:
        """Return the unknown of a name; with known numbers, its number."""
        if name not in self.unknowns:
            self.unknowns[name] = self.z3.Int(name) if self.known is None else self.known.get(name, 1)
        return self.unknowns[name]

    def number(self, node: s.Syntax, scope: Scope) -> Integer:
        """Return the integer value of an expression. Raises Unknown."""
        match s.bare(node):
            case s.Number(value=int(value)):
                return value
            case s.NameOf(text=name):
                if name in scope:
                    return scope[name]
                if name in self.lets:
                    with contextlib.suppress(Unknown):
                        return self.number(self.lets[name], scope)
                return self.unknown(name)
            case s.Prefix(op="-", a=a):
                return -self.number(a, scope)
            case s.Operation(op=op, a=a, b=b) | s.Apply(fn=op, items=(a, b)) if op in ARITHMETIC:
                return ARITHMETIC[op](self.number(a, scope), self.number(b, scope))
            case s.Choice(condition=condition, a=a, b=b):
                return either(self.truth(condition, scope), self.number(a, scope), self.number(b, scope))
            case s.Apply(fn="max" | "min" as fn, items=(s.Group() as items,)):
                return {"max": max, "min": min}[fn](self.elements(items, scope))
            case s.LetExpression() as named:
                return self.number(without_lets(named), scope)
            case s.Apply(fn=name) as query if name in self.facts and self.facts[name].result in ("int", "any", "num"):
                return self.unknown(expression(query))  # one for each query
            case s.Member() | s.Subscript() as part:
                return self.unknown(expression(part))
            case other:
                raise Unknown(f"`{expression(other)}` is not an integer")

    def truth(self, node: s.Syntax, scope: Scope) -> Truth:
        """Return the truth value of a condition. Raises Unknown."""
        match s.bare(node):
            case s.NameOf(text=name):
                return self._condition(name, scope)
            case s.LetExpression() as named:
                return self.truth(without_lets(named), scope)
            case s.Prefix(op="not", a=a):
                return negated(self.truth(a, scope))
            case s.Operation(op="and" | "or" as op, a=a, b=b):
                return joined(op, self.truth(a, scope), self.truth(b, scope))
            case s.Operation(op=op, a=a, b=b) if op in COMPARISONS:
                return COMPARISONS[op](self.number(a, scope), self.number(b, scope))
            case s.Operation(op="in", a=a, b=b):
                return self.member(self.number(a, scope), b, scope)
            case other:
                raise Unknown(f"`{expression(other)}` is not a comparison of integers")

    def _condition(self, name: str, scope: Scope) -> Truth:
        """Return a condition that the pattern binds: any function of the loops around it."""
        if name in ("true", "false") or name in self.always:
            return name != "false"
        if name not in self.conditions:
            raise Unknown(f"`{name}` is not a condition of the pattern")
        if self.known is not None:
            return True
        given = [scope.get(x, self.unknown(f"{x} outside")) for x in self.conditions[name]]
        return self.z3.Function(f"{name}?", *(self.z3.IntSort() for _ in given), self.z3.BoolSort())(*given)

    def member(self, value: Integer, domain: s.Syntax, scope: Scope) -> Truth:
        """Return whether a number is in a domain of the rule language. Raises Unknown."""
        match domain:
            case s.Apply(fn="divisors", items=(whole,)):
                return joined("and", value >= 1, remainder(self.number(whole, scope), value) == 0)
            case s.NameOf(text=name) if name in self.lets:
                return self.member(value, self.lets[name], scope)
        return joined("or", *(value == element for element in self.elements(domain, scope)))

    def elements(self, domain: s.Syntax, scope: Scope) -> list[Integer]:
        """Return the numbers of a domain, in order. Raises Unknown where they cannot be listed."""
        match domain:
            case s.NameOf(text=name) if name in self.lets:
                return self.elements(self.lets[name], scope)
            case s.Group(items=items):
                return [
                    number
                    for item in items
                    for number in (
                        self.elements(item.base, scope) if isinstance(item, s.Run) else [self.number(item, scope)]
                    )
                ]
            case s.Apply(fn="pow2", items=ends):
                low, high = (self.number(end, scope) for end in ends)
                if isinstance(low, int) and isinstance(high, int):
                    return [power for power in POWERS if low <= power <= high]
        raise Unknown(f"`{expression(domain)}` is not a set of integers")

    def few(self) -> dict[str, list[int]]:
        """Return the values of parameters, and of the bytes of elements, where they are few and known."""
        few = {}
        for name in tuple(self.unknowns):
            with contextlib.suppress(Unknown, KeyError):
                few[name] = list(SIZES) if name.startswith("item(") else self.elements(self.domains[name], {})
        return {name: values for name, values in few.items() if values and all(type(n) is int for n in values)}


def required(rule: Rule) -> Iterator[s.Syntax]:
    """Yield what the guards of a rule require: of a conjunction, each part."""

    waiting = [guard.condition for guard in reversed(rule.required)]
    while waiting:
        match waiting.pop():
            case s.Operation(op="and", a=a, b=b):
                waiting += (b, a)
            case part:
                yield part


def asked(rule: Rule, fact: str) -> list[list[str]]:
    """Return the arguments of each requirement of a fact, by name; what is not a name is empty."""
    return [
        [getattr(item, "text", "") for item in part.items]
        for part in required(rule)
        if isinstance(part, s.Apply) and part.fn == fact
    ]


# ---- Asking Z3. Its effort is limited by what it does, not by the clock: a question has the same answer anywhere.


FIRST = 200_000  # Z3's units for a query as written, about a tenth of a second
EACH = 2_000_000  # for a question about one choice of parameters
ALL = 20_000_000  # for one rule
SMALL = 9  # extents of a counterexample, if there is one so small


class Solver:
    """Z3, for the questions about one rule."""

    def __init__(self) -> None:
        self.z3 = solver_module()
        self.first: int | None = None  # what Z3 had spent in this process after the first question

    def counterexample(
        self, integers: Integers, given: Sequence[Truth], wanted: Sequence[Truth]
    ) -> dict[str, int] | None:
        """Return numbers for which a conclusion does not hold, or None if all follow. Raises Unknown if Z3 gives up.

        After a first failure, it tries each combination of parameters: most products then have a number as a factor.
        """
        few, unknowns = integers.few(), integers.unknowns
        chosen = (self.z3.Or([unknowns[name] == value for value in values]) for name, values in few.items())
        broken = self.z3.Or([negated(conclusion) for conclusion in wanted if conclusion is not True])
        asked = [*(part for part in (*integers.premises, *given) if part is not True), *chosen, broken]
        with contextlib.suppress(Unknown):
            return self._numbers(asked, unknowns, FIRST)
        for values in itertools.product(*few.values()):
            choice = dict(zip(few, values))
            pairs = [(unknowns[name], self.z3.IntVal(value)) for name, value in choice.items()]
            found = self._numbers([self.z3.substitute(part, *pairs) for part in asked], unknowns, EACH)
            if found is not None:
                return found | choice
        return None

    def _numbers(self, asked: Sequence[Truth], unknowns: Scope, units: int) -> dict[str, int] | None:
        """Return numbers that satisfy the whole query, small ones if there are any; None if it is unsatisfiable."""
        model = self._model(asked, units)
        if model is None:
            return None
        small = [self.z3.And(x <= SMALL, x >= -SMALL) for x in unknowns.values()]
        with contextlib.suppress(Unknown):
            model = self._model([*asked, *small], units) or model
        return {str(d): model[d].as_long() for d in model.decls() if self.z3.is_int_value(model[d])}

    def _model(self, asked: Sequence[Truth], units: int) -> Any:
        solver = self.z3.Solver()
        solver.set(rlimit=units, random_seed=0)
        solver.add(*asked)
        answer = solver.check()
        spent = solver.statistics().get_key_value("rlimit count")
        if self.first is None:
            self.first = spent
        if spent - self.first > ALL:
            raise Unknown("it takes Z3 too long")
        if answer == self.z3.unknown:
            raise Unknown("Z3 gives up")
        return solver.model() if answer == self.z3.sat else None


# ---- What proving says about a rule.


@dataclass(frozen=True)
class Refuted:
    """Counterexample to a claim.

    problem: how the claim fails, in words; numbers: extents, parameters and values for which it does, by name.
    """

    problem: str
    numbers: dict[str, int]


@dataclass(frozen=True)
class Proof:
    """One rule. proved: its claims that hold; refuted: a claim that does not; open: why others are not decided."""

    proved: tuple[str, ...] = ()
    refuted: Refuted | None = None
    open: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        """Verdict: proved, refuted, not provable, or none (it has no arithmetic of indices)."""
        if self.refuted is not None:
            return "refuted"
        return "not provable" if self.open else "proved" if self.proved else "none"

    def record(self) -> dict[str, Any]:
        """Return the record for `--json`."""
        found = {"result": self.result, "proved": list(self.proved), "open": list(self.open)}
        return found | (vars(self.refuted) if self.refuted is not None else {})


def shown(numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of names in the rule: not results of facts, not single iterations."""
    return {name: value for name, value in numbers.items() if name.isidentifier()}


def proof_lines(proofs: Iterable[tuple[str, Proof]], each: bool) -> list[str]:
    """Return a summary: the number of proved rules, and for each rule its claims and the reasons of failures."""
    known = [(rule, proof) for rule, proof in proofs if proof.result != "none"]
    if not known:
        return []
    counts = Counter(proof.result for _, proof in known)
    results = ", ".join(f"{counts[result]} {result}" for result in ("proved", "not provable", "refuted"))
    lines = [f"index arithmetic, over all integers: {results}"]
    for rule, proof in known:
        if each or proof.refuted is not None:
            wrong = [proof.refuted.problem] if proof.refuted is not None else []
            said = {"proved": proof.proved, "not provable": proof.open, "refuted": wrong}
            lines += [f"  {rule}: {kind}: {text}" for kind, texts in said.items() for text in texts]
    return lines
