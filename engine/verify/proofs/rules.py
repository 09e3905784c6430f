"""All that can be proved of a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ....ir.functions import ARITHMETIC, COMPARE, FUNCTIONS, LOGICAL, SELECT
from ...language import core as s
from ...language.core import FunctionTerm, NameOf, NameTerm, NumberTerm, ValueTerm, terms
from ...language.positions import every
from ...language.rule import Rule
from ...language.spelling import expression
from ...rewrite.terms.terms import mentions_mat
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
    """What a rule on tensor claims about integers, and what refutes it; nothing where it speaks of anything else."""
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
        """kind: `b8` where a truth value is wanted. Raises Unknown for what is not a function of integers."""
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


# ---- That a slab with other axes holds, where its loads look, what they looked for.
#
# A cell of a slab holds the element of its source whose index along a dimension is the sum of its own indices along the
# axes of that dimension, each times its stride. A load of the cell at `y` becomes a load at functions of `y`: the proof
# is that these are inside of the new axes, and that the element is the same.


Items = tuple[s.Syntax, ...]


@dataclass(frozen=True)
class Layout:
    """old, new: the axes of the slab; asked, given: the index of a load, before and after, its slot left out."""

    old: Items
    new: Items
    asked: Items
    given: Items


def of_slabs(rule: Rule, effort: SolverEffort) -> Iterator[tuple[str, Refuted | None]]:
    """What a rule claims about slabs that it gives other axes, and what refutes it. Raises Unknown."""
    for name, layout in _layouts(rule):
        integers = Integers(rule)
        text = f"the axes of `{name}` and its loads"
        yield text, _decide(rule, layout, integers, Solver(integers, integers.premises(), effort), text)


def _layouts(rule: Rule) -> Iterator[tuple[str, Layout]]:
    for capture in every(rule.match, s.CaptureStatement):
        old = _slab(capture.call.items)
        for run in every(rule.rewrite, s.RunStatement):
            if old is None or getattr(run.run.base, "text", "") != capture.name:
                continue
            new = _slab(tuple(change for change in run.changes if isinstance(change, s.Keyword)))
            arms = [arm for arm in every(rule.rewrite, s.Arm) if _of(arm.pattern, capture.name)]
            if new is not None and len(arms) == 1:
                asked, given = (_index(side) for side in (arms[0].pattern, arms[0].template))
                yield capture.name, Layout(old, new, asked[len(asked) - len(old) :], given[len(given) - len(new) :])


def _slab(items: Items) -> Items | None:
    found = [item.value for item in items if isinstance(item, s.Keyword) and item.name == "slab"]
    return found[0].items if found and isinstance(found[0], s.Group) else None


def _of(node: s.Syntax, slab: str) -> bool:
    """Whether a load reads a slab, `load s.dst[..]`."""
    base = node.access.base if isinstance(node, s.LoadOf) and isinstance(node.access, s.Subscript) else None
    return isinstance(base, s.Member) and base.field == "dst" and getattr(base.base, "text", "") == slab


def _index(node: s.Syntax) -> Items:
    assert isinstance(node, s.LoadOf) and isinstance(node.access, s.Subscript)
    return node.access.items


def _decide(rule: Rule, layout: Layout, integers: Integers, solver: Solver, text: str) -> Refuted | None:
    olds = dict(_paired(layout.old, layout.asked))
    cells = {name: integers.z3.Int(f"{name}!") for name in olds}
    extents = {name: integers.number(axis.extent, {}) for name, axis in olds.items()}
    inside = [c for name, cell in cells.items() for c in (cell >= 0, cell < extents[name])]
    wanted, elements = [], dict.fromkeys((_dim(axis) for axis in (*olds.values(), *_named(layout.new))), 0)
    for name, axis in olds.items():
        elements[_dim(axis)] = elements[_dim(axis)] + _stride(integers, axis) * cells[name]
    for axis, index in zip(*_matched(layout), strict=True):
        place = integers.number(index, cells)
        wanted += [place >= 0, place < integers.number(axis.extent, {})]
        elements[_dim(axis)] = elements[_dim(axis)] - _stride(integers, axis) * place
    sizes = [extent >= 1 for extent in extents.values() if not isinstance(extent, int)]
    if solver.counterexample(sizes, [False]) is None:
        raise Unknown("no extents satisfy its guards")
    found = solver.counterexample([*inside, *sizes], [*wanted, *(rest == 0 for rest in elements.values())])
    if found is None:
        return None
    numbers = shown(found)
    given = ", ".join(f"{name}={value}" for name, value in sorted(numbers.items()))
    cell = ", ".join(f"{name}={found.get(f'{name}!', 0)}" for name in cells)
    return Refuted(numbers, f"with {given}, {text} do not fit at {cell}")


def _named(axes: Items) -> list[s.AxisItem]:
    return [axis for axis in axes if isinstance(axis, s.AxisItem)]


def _dim(axis: s.AxisItem) -> str:
    return "" if axis.dim is None else expression(axis.dim)


def _stride(integers: Integers, axis: s.AxisItem) -> Any:
    return 1 if axis.stride is None else integers.number(axis.stride, {})


def _paired(axes: Items, index: Items) -> Iterator[tuple[str, s.AxisItem]]:
    """The names that stand for the old indices, and their axes; a run stands against a run."""
    for axis, item in zip(axes, index, strict=True):
        if isinstance(axis, s.Run) and isinstance(item, s.Run):
            continue
        if not isinstance(axis, s.AxisItem) or not isinstance(item, s.NameOf):
            raise Unknown("the axes of a slab and the index of its loads do not stand side by side")
        yield item.text, axis


def _matched(layout: Layout) -> tuple[list[s.AxisItem], list[s.Syntax]]:
    """The new axes and the new indices, those that come back as they are left out."""
    axes, places = [], []
    for axis, item in zip(layout.new, layout.given, strict=True):
        if isinstance(axis, s.Run) and isinstance(item, s.Run):
            continue
        if not isinstance(axis, s.AxisItem) or isinstance(item, s.Run):
            raise Unknown("the axes of a slab and the index of its loads do not stand side by side")
        axes.append(axis)
        places.append(item)
    return axes, places


STATEMENTS = ("module", "loop", "tile")
Claims = Iterator[tuple[str, Refuted | None]]


def available() -> bool:
    """Whether Z3 is installed."""
    return solver_module() is not None


def prove(rule: Rule) -> Proof:
    """The claims of a rule about integers, each proved, refuted or left open. A local rule has none of its own: the
    names in it come from the rules that use it.
    """
    sources: tuple[Callable[[Rule, SolverEffort], Claims], ...] = (of_terms,)
    if rule.level in STATEMENTS:
        sources = (of_loops, of_slabs)
    if "local" in rule.attributes:
        return Proof()
    proved: list[str] = []
    left: list[str] = []
    refuted: Refuted | None = None
    for source in sources:
        try:
            for text, wrong in source(rule, SolverEffort()):
                if wrong is None:
                    proved.append(text)
                elif refuted is None:
                    refuted = wrong
        except Unknown as unknown:
            left.append(str(unknown))
    return Proof(tuple(dict.fromkeys(proved)), refuted, tuple(left))
