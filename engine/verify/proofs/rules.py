"""All that can be proved of a rule: its loops and axes, or its equation between functions of integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ....ir.functions import ARITHMETIC, COMPARE, FUNCTIONS, LOGICAL, SELECT
from ...language.core import FunctionTerm, NameOf, NameTerm, NumberTerm, ValueTerm, terms
from ...language.rule import Rule
from ...language.spelling import expression
from ...rewrite.terms.rewriter import mentions_mat
from .integers import COMPARED, Integers, Proof, Refuted, Solver, SolverEffort, Unknown, shown, solver_module
from .reindexing import of_loops

# ---- Equations between functions of integers, on Tensor IR: pattern and template are one number for all operands.
#
# What holds of integers is proved of integers; that it also holds of floats is for programs to show.


DIVISIONS = {"floor_divide": "//", "remainder": "%"}  # what has one is about indices
COMPARISONS = {
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip


def of_terms(rule: Rule, effort: SolverEffort) -> Iterator[tuple[str, Refuted | None]]:
    """Yield the claims of a rule on tensor about integers, each with its counterexample or None.

    Yields nothing for a rule about anything else.
    """
    if rule.level != "tensor" or mentions_mat(rule):
        return
    before, after = rule.left, rule.right
    root = list(before)[-1]
    if root not in after or not any(f.fn in DIVISIONS for f in terms(tuple(before.values()), FunctionTerm)):
        return
    integers = _Values(rule)
    old = integers.value(before[root], before, None)
    divisors = list(integers.divisors)
    new = integers.value(after[root], after, None)
    premises = [*integers.premises(), *(divisor != 0 for divisor in divisors)]
    found = Solver(integers, premises, effort).counterexample([], [old == new])
    text = f"`{root}` of integers"
    if found is None:
        yield text, None
        return
    numbers = {name: found.get(name, 0) for name in integers.leaves}
    given = ", ".join(f"{name}={value}" for name, value in numbers.items())
    yield text, Refuted(shown(found) | numbers, f"with {given}, {text} is another one")


class _Values(Integers):
    """Terms as integers and truth values. leaves: variables of the pattern, by name; divisors: what is divided by."""

    def __init__(self, rule: Rule):
        super().__init__(rule)
        self.leaves: dict[str, Any] = {}
        self.divisors: list[Any] = []

    def name(self, node: NameOf, scope: Any) -> Any:
        return self.leaves[node.text] if node.text in self.leaves else super().name(node, scope)

    def value(self, term: ValueTerm, defined: dict[str, ValueTerm], kind: str | None) -> Any:
        """Return the value of a term. kind: `b8` if a truth value is required.

        Raises Unknown for a term that is not a function of integers.
        """
        match term:
            case NumberTerm():
                if isinstance(term.value, float) and not term.value.is_integer():
                    raise Unknown(f"`{expression(term.node)}` is no integer")
                return term.value if isinstance(term.value, bool) else int(term.value)
            case NameTerm() if term.name in defined and term.name not in self.leaves:
                return self.value(defined[term.name], defined, kind)
            case NameTerm():
                return self._leaf(term.name, kind)
            case FunctionTerm(known=True):
                return self._applied(term, defined)
        raise Unknown(f"`{expression(term.node)}` is no function of integers")

    def _leaf(self, name: str, kind: str | None) -> Any:
        if name not in self.leaves:
            self.leaves[name] = self.z3.Bool(name) if kind == "b8" else self.unknown(name)
        return self.leaves[name]

    def _applied(self, term: FunctionTerm, defined: dict[str, ValueTerm]) -> Any:
        function, refusal = FUNCTIONS[term.fn], Unknown(f"`{expression(term.node)}` is no function of integers")
        kinds: list[str | None] = ["b8"] * function.arity if function.kind == LOGICAL else [None] * function.arity
        if function.kind == SELECT:
            kinds[0] = "b8"
        if term.runs or function.kind not in (ARITHMETIC, COMPARE, LOGICAL, SELECT):
            raise refusal
        given = [self.value(operand, defined, kind) for operand, kind in zip(term.operands, kinds, strict=True)]
        if term.fn in COMPARISONS:
            return COMPARED[COMPARISONS[term.fn]](*given)
        if term.fn in DIVISIONS:
            self.divisors.append(given[1])
            return self.divided(DIVISIONS[term.fn], *given)
        if term.fn not in MEANINGS:
            raise refusal
        return MEANINGS[term.fn](self, *given)


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


STATEMENTS = ("module", "loop", "tile")
Claims = Iterator[tuple[str, Refuted | None]]


def available() -> bool:
    """Return whether Z3 is installed."""
    return solver_module() is not None


def prove(rule: Rule) -> Proof:
    """Return the claims of a rule about integers, each proved, refuted or left open.

    A local rule has no claims of its own: the names in it come from the rules that use it.
    """
    source: Callable[[Rule, SolverEffort], Claims] = of_loops if rule.level in STATEMENTS else of_terms
    if "local" in rule.attributes:
        return Proof()
    proved: list[str] = []
    left: list[str] = []
    refuted: Refuted | None = None
    try:
        for text, wrong in source(rule, SolverEffort()):
            if wrong is None:
                proved.append(text)
            elif refuted is None:
                refuted = wrong
    except Unknown as unknown:
        left.append(str(unknown))
    return Proof(tuple(dict.fromkeys(proved)), refuted, tuple(left))
