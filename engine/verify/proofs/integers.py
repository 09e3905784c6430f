"""Expressions of the rule language over the integers: numbers where everything is known, terms of Z3 where it is not.

Names that a rule leaves open (extents, parameters, what a fact answers) become unknowns, one each for the whole rule.
`//` rounds down and `%` takes the sign of its divisor, as everywhere in the IRs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...language import core as s
from ...language.evaluate import facts_of
from ...language.rule import Rule
from ...language.spelling import expression

Scope = Mapping[str, Any]  # names of loops and axes
SIZES = (1, 2, 4, 8)
MOST_VALUES = 64  # of a parameter, to be tried one after the other


class Unknown(Exception):
    """Statement that cannot be expressed over the integers, in words."""


def solver_module() -> Any:
    """Return Z3, or None if it is not installed."""
    try:
        import z3  # type: ignore[import-untyped]
    except ImportError:
        return None
    return z3


class Integers:
    """Translator of expressions of one rule. known: numbers for unknowns, by name; all others are Z3's."""

    def __init__(self, rule: Rule, known: Mapping[str, int] | None = None):
        self.z3, self.rule, self.known = solver_module(), rule, known
        self.lets = {c.name: c.value for c in rule.clauses if isinstance(c, s.LetClause)}
        self.parameters = {p.name: p for p in rule.parameters}
        self.facts = facts_of(rule.level)
        self.unknowns: dict[str, Any] = {}
        self.conditions: dict[str, tuple[str, ...]] = {}  # a condition of the pattern: the names in its scope
        self.holding: set[str] = set()  # conditions that a guard says always hold

    def unknown(self, name: str) -> Any:
        """Return the unknown of a name; with known numbers, its number."""
        if name not in self.unknowns:
            if self.known is not None:
                self.unknowns[name] = self.known.get(name, 1)
            else:
                self.unknowns[name] = self.z3.Int(name)
        return self.unknowns[name]

    # ---- numbers
    def number(self, node: s.Syntax, scope: Scope) -> Any:
        """Return the integer value of an expression. Raises Unknown."""
        node = s.bare(node)
        if isinstance(node, s.Number) and isinstance(node.value, int):
            return node.value
        if isinstance(node, s.NameOf):
            return self.name(node, scope)
        if isinstance(node, s.Prefix) and node.op == "-":
            return -self.number(node.a, scope)
        if isinstance(node, s.Operation) and node.op in (*ARITHMETIC, "//", "%"):
            a, b = self.number(node.a, scope), self.number(node.b, scope)
            return self.divided(node.op, a, b) if node.op in ("//", "%") else ARITHMETIC[node.op](a, b)
        if isinstance(node, s.Choice):
            return self.either(
                self.truth(node.condition, scope), self.number(node.a, scope), self.number(node.b, scope)
            )
        if isinstance(node, s.Apply):
            return self.asked(node, scope)
        if isinstance(node, s.Member | s.Subscript):
            return self.unknown(expression(node))
        raise Unknown(f"`{expression(node)}` is not an integer")

    def name(self, node: s.NameOf, scope: Scope) -> Any:
        if node.text in scope:
            return scope[node.text]
        if node.text in self.lets and not self._fresh(self.lets[node.text]):
            value = self.lets[node.text]
            try:
                return self.number(value, scope)
            except Unknown:
                return self.unknown(node.text)
        return self.unknown(node.text)

    def _fresh(self, node: s.Syntax) -> bool:
        return isinstance(node, s.Apply) and node.fn == "fresh"

    def asked(self, node: s.Apply, scope: Scope) -> Any:
        """Return the value of a fact: arithmetic if it is that, otherwise one unknown for each query."""
        if node.fn == "ceildiv" and len(node.items) == 2:
            a, b = (self.number(item, scope) for item in node.items)
            return -self.divided("//", -a, b)
        if node.fn in ("min", "max") and len(node.items) == 2:
            a, b = (self.number(item, scope) for item in node.items)
            return self.either(a <= b if node.fn == "min" else a >= b, a, b)
        if node.fn == "literal" and len(node.items) == 1 and isinstance(node.items[0], s.NameOf):
            return self.name(node.items[0], scope)
        fact = self.facts.get(node.fn)
        if fact is None or fact.result not in ("int", "any", "num"):
            raise Unknown(f"`{expression(node)}` is not an integer")
        return self.unknown(expression(node))

    def divided(self, op: str, a: Any, b: Any) -> Any:
        if self.known is not None or (isinstance(a, int) and isinstance(b, int)):
            return (a // b if op == "//" else a % b) if b else 0
        if isinstance(b, int) and b > 0:
            return a / b if op == "//" else a % b
        floored = self.z3.If(b > 0, a / b, (-a) / (-b))  # Z3 rounds so that remainders are not negative
        return floored if op == "//" else a - b * floored

    def either(self, condition: Any, a: Any, b: Any) -> Any:
        return (a if condition else b) if isinstance(condition, bool) else self.z3.If(condition, a, b)

    # ---- truth values
    def truth(self, node: s.Syntax, scope: Scope) -> Any:
        """Return the truth value of a condition. Raises Unknown."""
        node = s.bare(node)
        if isinstance(node, s.NameOf):
            return self.condition(node.text, scope)
        if isinstance(node, s.Prefix) and node.op == "not":
            return self.negated(self.truth(node.a, scope))
        if isinstance(node, s.Operation) and node.op in ("and", "or"):
            return self.joined(node.op, [self.truth(node.a, scope), self.truth(node.b, scope)])
        if isinstance(node, s.Operation) and node.op in COMPARED:
            return COMPARED[node.op](self.number(node.a, scope), self.number(node.b, scope))
        if isinstance(node, s.Operation) and node.op == "in":
            return self.member(self.number(node.a, scope), node.b, scope)
        raise Unknown(f"`{expression(node)}` is not a comparison of integers")

    def condition(self, name: str, scope: Scope) -> Any:
        """Return a condition that the pattern binds: any function of the loops around it."""
        if name in ("true", "false") or name in self.holding:
            return name != "false"
        if name not in self.conditions:
            raise Unknown(f"`{name}` is not a condition of the pattern")
        if self.known is not None:
            return True
        names = self.conditions[name]
        sorts = [self.z3.IntSort()] * len(names)
        function = self.z3.Function(f"{name}?", *sorts, self.z3.BoolSort())
        return function(*(scope.get(x, self.unknown(f"{x} outside")) for x in names))

    def negated(self, value: Any) -> Any:
        return not value if isinstance(value, bool) else self.z3.Not(value)

    def joined(self, op: str, values: list[Any]) -> Any:
        if all(isinstance(value, bool) for value in values):
            return all(values) if op == "and" else any(values)
        return self.z3.And(values) if op == "and" else self.z3.Or(values)

    def member(self, value: Any, domain: s.Syntax, scope: Scope) -> Any:
        """Return whether a number is in a domain of the rule language."""
        if isinstance(domain, s.NameOf) and domain.text in self.lets:
            return self.member(value, self.lets[domain.text], scope)
        if isinstance(domain, s.Group):
            return self.joined(
                "or",
                [
                    (
                        self.member(value, item.base, scope)
                        if isinstance(item, s.Run)
                        else value == self.number(item, scope)
                    )
                    for item in domain.items
                ],
            )
        if isinstance(domain, s.Apply) and domain.fn == "pow2":
            low, high = (self.number(item, scope) for item in domain.items)
            if isinstance(low, int) and isinstance(high, int):
                return self.joined("or", [value == 1 << n for n in range(24) if low <= 1 << n <= high])
        if isinstance(domain, s.Apply) and domain.fn == "divisors":
            whole = self.number(domain.items[0], scope)
            return self.joined("and", [value >= 1, self.divided("%", whole, value) == 0])
        raise Unknown(f"`{expression(domain)}` is not a set of integers")

    # ---- what the rule says about its unknowns
    def values(self, name: str) -> tuple[int, ...] | None:
        """Return the values of a parameter, or of the bytes of an element, where they are few and known; else None."""
        if name.startswith("item("):
            return SIZES
        parameter = self.parameters.get(name)
        if parameter is None or parameter.domain is None:
            return None
        return self._listed(parameter.domain)

    def _listed(self, domain: s.Syntax) -> tuple[int, ...] | None:
        if isinstance(domain, s.NameOf) and domain.text in self.lets:
            return self._listed(self.lets[domain.text])
        if isinstance(domain, s.Group):
            each = [self._listed(item.base) if isinstance(item, s.Run) else whole(item) for item in domain.items]
            return None if None in each else tuple(n for items in each for n in items)  # type: ignore[union-attr]
        if isinstance(domain, s.Apply) and domain.fn == "pow2" and all(isinstance(i, s.Number) for i in domain.items):
            low, high = (int(item.value) for item in domain.items)  # type: ignore[attr-defined]
            return tuple(1 << n for n in range(MOST_VALUES) if low <= 1 << n <= high)
        return None

    def premises(self) -> list[Any]:
        """Return the constraints of the parameters' domains and of the guards, as far as integers express them."""
        found = []
        for name, parameter in self.parameters.items():
            if parameter.domain is not None:
                domain = parameter.domain
                found += self._said(functools.partial(self.member, self.unknown(name), domain, {}))
        for clause in self.rule.clauses:
            if isinstance(clause, s.Guard) and clause.kind == "require":
                found += self._said_by(clause.condition)
        return found

    def _said_by(self, node: s.Syntax) -> list[Any]:
        """Return the constraints of a guard; for a conjunction, those parts that integers express."""
        if isinstance(node, s.Operation) and node.op == "and":
            return self._said_by(node.a) + self._said_by(node.b)
        if isinstance(node, s.Apply) and node.fn == "always" and isinstance(node.items[0], s.NameOf):
            self.holding.add(node.items[0].text)
            return []
        return self._said(functools.partial(self.truth, node, {}))

    def _said(self, say: Callable[[], Any]) -> list[Any]:
        try:
            return [say()]
        except Unknown:
            return []


def whole(item: s.Syntax) -> tuple[int, ...] | None:
    """Return the value of a literal number as a tuple, or None for other syntax."""
    return (int(item.value),) if isinstance(item, s.Number) else None


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
}  # fmt: skip
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


# ---- Asking Z3. Its effort is limited by what it does, not by the clock: a question has the same answer anywhere.


FIRST = 200_000  # Z3's units for a query as written, about a tenth of a second
EACH = 2_000_000  # for a question about one choice of parameters
ALL = 20_000_000  # for one rule
SMALL = 9  # extents of a counterexample, if there is one so small


class SolverEffort:
    """Solver effort spent on a rule."""

    def __init__(self) -> None:
        self.first: int | None = None

    def spend(self, statistics: Any) -> None:
        """Count one question. Raises Unknown when it was too much. Z3 counts from the start of the process."""
        units = next((int(n) for key, n in statistics if key == "rlimit count"), self.first or 0)
        self.first = units if self.first is None else self.first
        if units - self.first > ALL:
            raise Unknown("it takes Z3 too long")


class Solver:
    """Questions about one rule. premises: what is known."""

    def __init__(self, integers: Integers, premises: Sequence[Any], effort: SolverEffort):
        self.z3, self.integers, self.effort = integers.z3, integers, effort
        self.premises = list(premises)

    def counterexample(self, premises: Sequence[Any], conclusions: Sequence[Any]) -> dict[str, int] | None:
        """Return numbers for which a conclusion does not hold, or None if all follow. Raises Unknown if Z3 gives up.

        After a first failure, it tries each combination of parameters: most products then have a number as a factor.
        """
        given, wanted = [*self.premises, *premises], [c for c in conclusions if c is not True]
        if not wanted or any(p is False for p in given):
            return None
        broken = self.z3.Or([self.z3.BoolVal(True) if c is False else self.z3.Not(c) for c in wanted])
        asked = [*(p for p in given if p is not True), *self._few(), broken]
        try:
            return self._model(asked, FIRST)
        except Unknown:
            choices = list(self._choices(asked))
            if len(choices) < 2:
                return self._model(asked, EACH)
        for chosen in choices:
            found = self._model([self.z3.substitute(part, *chosen) for part in asked], EACH)
            if found is not None:
                return {**found, **{str(name): value.as_long() for name, value in chosen}}
        return None

    def _few(self) -> list[Any]:
        """Return the constraints that each unknown with few values equals one of them."""
        found = ((unknown, self.integers.values(name)) for name, unknown in self.integers.unknowns.items())
        return [self.z3.Or([unknown == v for v in values]) for unknown, values in found if values]

    def _choices(self, asked: Sequence[Any]) -> Iterator[list[tuple[Any, Any]]]:
        """Yield the values of the parameters in a query."""
        used = {str(x) for part in asked for x in self.z3.z3util.get_vars(part)}
        few = [(n, values) for n in self.integers.unknowns if n in used and (values := self.integers.values(n))]
        for values in itertools.product(*(values for _, values in few)):
            yield [(self.z3.Int(name), self.z3.IntVal(v)) for (name, _), v in zip(few, values, strict=True)]

    def _model(self, asked: Sequence[Any], units: int) -> dict[str, int] | None:
        """Return numbers that satisfy the whole query, small ones if there are any; None if it is unsatisfiable."""
        whole = self._checked(asked, units)
        if whole is None:
            return None
        small = [self.z3.And(x <= SMALL, x >= -SMALL) for x in self.integers.unknowns.values()]
        try:
            model = self._checked([*asked, *small], units) or whole
        except Unknown:
            model = whole
        return {str(d): model[d].as_long() for d in model.decls() if self.z3.is_int_value(model[d])}

    def _checked(self, asked: Sequence[Any], units: int) -> Any:
        solver = self.z3.Solver()
        solver.set("rlimit", units)
        solver.set("random_seed", 0)
        solver.add(*asked)
        answer = solver.check()
        self.effort.spend(solver.statistics())
        if answer == self.z3.unknown:
            raise Unknown("Z3 gives up")
        return solver.model() if answer == self.z3.sat else None


# ---- What proving says about a rule.


@dataclass(frozen=True)
class Refuted:
    """Counterexample to a claim.

    numbers: extents, parameters and values for which the claim fails, by name; problem: how, in words.
    """

    numbers: dict[str, int] = field(hash=False)
    problem: str


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
        found: dict[str, Any] = {"result": self.result, "proved": list(self.proved), "open": list(self.open)}
        if self.refuted is not None:
            found |= {"problem": self.refuted.problem, "numbers": self.refuted.numbers}
        return found


def shown(numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of names in the rule: not results of facts, not single iterations."""
    return {name: value for name, value in numbers.items() if name.isidentifier()}


def told(proofs: Iterable[tuple[str, Proof]], each: bool) -> list[str]:
    """Return a summary: the number of proved rules, and for each rule its claims and the reasons of failures."""
    known = [(rule, proof) for rule, proof in proofs if proof.result != "none"]
    if not known:
        return []
    counts = {result: sum(p.result == result for _, p in known) for result in ("proved", "not provable", "refuted")}
    lines = ["index arithmetic, over all integers: " + ", ".join(f"{n} {result}" for result, n in counts.items())]
    for rule, proof in known:
        if each or proof.result == "refuted":
            lines += [f"  {rule}: proved: {text}" for text in proof.proved]
            lines += [f"  {rule}: not provable: {text}" for text in proof.open]
            if proof.refuted is not None:
                lines.append(f"  {rule}: refuted: {proof.refuted.problem}")
    return lines
