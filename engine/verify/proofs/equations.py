"""Equations between functions of integers, on Tensor IR: pattern and template are one number for all operands.

What holds of integers is proved of integers; that it also holds of floats is for programs to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ....ir.functions import ARITHMETIC, COMPARE, FUNCTIONS, LOGICAL, SELECT
from ....ir.text import syntax as s
from ...language.rule import Rule
from ...language.spelling import expression
from ...rewrite.terms.pattern import constant_of, definitions
from ...rewrite.terms.terms import mentions_mat
from .integers import COMPARED, Integers, Unknown
from .outcome import Refuted, shown
from .solver import Solver, SolverEffort

COMPARISONS = {
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip


def of_terms(rule: Rule, effort: SolverEffort) -> Iterator[tuple[str, Refuted | None]]:
    """What a rule on tensor claims about integers, and what refutes it; nothing where it speaks of anything else."""
    if rule.level != "tensor" or mentions_mat(rule):
        return
    before, after = definitions(rule, rule.match), definitions(rule, rule.rewrite)
    root = list(before)[-1]
    if root not in after or not any(_of_integers(node) for node in before.values()):
        return
    integers = _Values(rule, before)
    old = integers.value(s.NameOf(rule.span, root), before, None)
    divisors = list(integers.divisors)
    new = integers.value(s.NameOf(rule.span, root), after, None)
    premises = [*integers.premises(), *(divisor != 0 for divisor in divisors)]
    found = Solver(integers, premises, effort).counterexample([], [old == new])
    text = f"`{root}` of integers"
    if found is None:
        yield text, None
        return
    numbers = {name: found.get(name, 0) for name in integers.leaves}
    given = ", ".join(f"{name}={value}" for name, value in numbers.items())
    yield text, Refuted(shown(found) | numbers, f"with {given}, {text} is another one")


def _of_integers(node: Any) -> bool:
    """Whether an expression divides integers, or takes remainders: it is about indices."""
    if isinstance(node, s.Apply) and node.fn in ("floor_divide", "remainder"):
        return True
    return isinstance(node, s.Apply) and any(map(_of_integers, node.items))


class _Values(Integers):
    """Terms as integers and truth values. leaves: variables of the pattern, by name; divisors: what is divided by."""

    def __init__(self, rule: Rule, before: dict[str, s.Syntax]):
        super().__init__(rule)
        self.leaves: dict[str, Any] = {}
        self.divisors: list[Any] = []

    def name(self, node: s.NameOf, scope: Any) -> Any:
        return self.leaves[node.text] if node.text in self.leaves else super().name(node, scope)

    def value(self, node: s.Syntax, defined: dict[str, s.Syntax], kind: str | None) -> Any:
        """kind: `b8` where a truth value is wanted. Raises Unknown for what is not a function of integers."""
        number = constant_of(node)
        if number is not None:
            if isinstance(number, float) and not number.is_integer():
                raise Unknown(f"`{expression(node)}` is no integer")
            return number if isinstance(number, bool) else int(number)
        if isinstance(node, s.NameOf):
            if node.text in defined and node.text not in self.leaves:
                return self.value(defined[node.text], defined, kind)
            return self._leaf(node.text, kind)
        if isinstance(node, s.Apply) and node.fn in FUNCTIONS:
            return self._applied(node, defined)
        raise Unknown(f"`{expression(node)}` is no function of integers")

    def _leaf(self, name: str, kind: str | None) -> Any:
        if name not in self.leaves:
            self.leaves[name] = self.z3.Bool(name) if kind == "b8" else self.unknown(name)
        return self.leaves[name]

    def _applied(self, node: s.Apply, defined: dict[str, s.Syntax]) -> Any:
        function = FUNCTIONS[node.fn]
        kinds: list[str | None] = ["b8"] * function.arity if function.kind == LOGICAL else [None] * function.arity
        if function.kind == SELECT:
            kinds[0] = "b8"
        if len(node.items) != function.arity or function.kind not in (ARITHMETIC, COMPARE, LOGICAL, SELECT):
            raise Unknown(f"`{expression(node)}` is no function of integers")
        given = [self.value(item, defined, kind) for item, kind in zip(node.items, kinds, strict=True)]
        if node.fn in COMPARISONS:
            return COMPARED[COMPARISONS[node.fn]](*given)
        if node.fn in ("floor_divide", "remainder"):
            self.divisors.append(given[1])
            return self.divided("//" if node.fn == "floor_divide" else "%", *given)
        if node.fn not in MEANINGS:
            raise Unknown(f"`{expression(node)}` is no function of integers")
        return MEANINGS[node.fn](self, *given)


MEANINGS: dict[str, Callable[..., Any]] = {
    "add": lambda i, a, b: a + b,
    "subtract": lambda i, a, b: a - b,
    "multiply": lambda i, a, b: a * b,
    "negative": lambda i, a: -a,
    "copy": lambda i, a: a,
    "maximum": lambda i, a, b: i.either(a >= b, a, b),
    "minimum": lambda i, a, b: i.either(a <= b, a, b),
    "abs": lambda i, a: i.either(a >= 0, a, -a),
    "relu": lambda i, a: i.either(a >= 0, a, 0),
    "where": lambda i, c, a, b: i.either(c, a, b),
    "logical_not": lambda i, a: i.negated(a),
    "logical_and": lambda i, a, b: i.joined("and", [a, b]),
    "logical_or": lambda i, a, b: i.joined("or", [a, b]),
}  # fmt: skip
