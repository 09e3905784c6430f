"""Proofs of rules on tensor: pattern and template have the same normal form in every case of their conditions."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sympy import Dummy, Integer, Max, Min, Mul, Rational, S, Symbol, default_sort_key, exp, expand, nan

from ...ir.diagnostic import DplcError
from ...ir.functions import CAST, COMPARE, FUNCTIONS, LOGICAL
from ...ir.node import immutable
from ..language.core import (
    Apply,
    Assign,
    CaseTerm,
    FoldTerm,
    FunctionTerm,
    Group,
    LetClause,
    MappedTerm,
    MatTerm,
    NameTerm,
    Nodes,
    NumberTerm,
    ReduceTerm,
    RunTerm,
    ValueTerm,
    definitions,
    term_of,
)
from ..language.rule import Rule
from ..language.spelling import expression
from ..verify.proofs import required
from . import normal_form as nf
from .laws import LAWS, Assumptions, Values, kind_of, source_axes
from .normal_form import Form, Stopped

Places = Mapping[str, Form]  # the index of each region
ARITHMETIC: dict[str, Callable[..., Form]] = {
    "add": operator.add, "subtract": operator.sub, "negative": operator.neg, "multiply": nf.product,
    "divide": lambda a, b: nf.product(a, nf.inverse(b)), "reciprocal": nf.inverse, "copy": lambda a: a,
    "exp": exp, "log": nf.logarithm, "relu": lambda a: Max(a, 0), "maximum": Max,
    "minimum": Min,
}  # fmt: skip


class ByCases(Exception):
    """A condition to decide by cases: its argument."""


@immutable
class Equation:
    """Result for one rule. stopped: why there is no proof, "" for a proof.

    laws: the names of the laws that the proof uses. needed: the conditions of the rule without which it fails.
    """

    stopped: str
    laws: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


@dataclass
class Side:
    """Meaning of one side of a rule, under assumptions about conditions.

    partial: what must not be 0, or must be in the domain of a function, for the side to be a real number.
    """

    values: Values
    facts: Assumptions
    assumed: Mapping[Form, bool]

    def __post_init__(self) -> None:
        self.partial = set[Form]()
        self.unknown = set[str]()

    # ---- numbers
    def number(self, term: ValueTerm, at: Places) -> Form:
        """Return the value at some indices. Raises Stopped or ByCases."""
        match term:
            case NumberTerm(value=value) if value < math.inf:
                return nf.LOWEST if value == -math.inf else Rational(value)
            case NameTerm(name=name) if name in self.values:
                return self.number(self.values[name], at)
            case NameTerm() | RunTerm():
                return self._unknown(named(term), at)
            case MatTerm(x=x):
                self.facts.used.add("mat")
                return self.number(x, at)
            case CaseTerm(cond=cond, a=a, b=b):
                sides = (expand(self.number(x, at)) for x in (a, b))
                return nf.applied(f"Case {expression(cond)}", *sides, *at.values())
            case MappedTerm(x=x, map=index_map):
                return self.number(x, {**at, **self._mapped(index_map, at)})
            case ReduceTerm() | FoldTerm():
                return self._reduction(term, at)
            case FunctionTerm(fn="where", operands=(condition, a, b)):
                return self.number(a if self.truth(condition, at) else b, at)
            case FunctionTerm():
                return self._function(term, at)
        raise Stopped(f"`{expression(term.node)}` has no normal form")

    def _unknown(self, name: str, at: Places) -> Form:
        """Return a variable: what a fact says of it, or a function of its indices."""
        facts = self.facts
        for law in ("one_over", "literal", "exact_reciprocal", "number"):
            if (other := dict(facts.read[law]).get(name)) is None:
                continue
            facts.used.add(law)
            if law in ("one_over", "literal"):
                return Mul(*map(nf.extent, facts.regions_of(other))) ** (1 if law == "literal" else -1)
            if (name,) not in facts.read["none"]:
                raise Stopped(f"`{name}` may be none")
            facts.used.add("none")
            if law == "exact_reciprocal":
                return 1 / self._unknown(other, at)
            return Side(facts.left, facts, self.assumed).number(facts.left[other], at)
        if name in facts.computed:
            raise Stopped(f"`{facts.computed[name]}` has no law")
        self.unknown.add(name)
        value = nf.applied(name, *map(at.get, facts.varies(name)))
        for maximum in (key for key, holds in self.assumed.items() if holds and nf.kind(key) == name):
            if all(
                one == other or nf.kind(one) == nf.BOUND for one, other in zip(maximum.args, value.args, strict=True)
            ):
                return nf.LOWEST  # all elements of such a maximum are
        return value

    def _mapped(self, index_map: str, at: Places) -> dict[str, Form]:
        """Return the indices at which a map reads the axes that it replaces."""
        facts = self.facts
        if index_map in facts.first:
            facts.used.add("first_along")
            return dict.fromkeys(facts.regions_of(facts.first[index_map]), S.Zero)
        read = [at[region] for region in facts.varies(index_map)]
        axes = facts.regions_of(source_axes(index_map))
        return {region: nf.applied(f"{index_map} {region}", *read) for region in axes}

    def _reduction(self, term: ReduceTerm | FoldTerm, at: Places) -> Form:
        """Return a reduction: a part of a tuple monoid by its closed form, without one as an unknown reduction."""
        fresh = {region: Dummy(region) for axes in term.over for region in self.facts.regions_of(axes.name)}
        bound = set(fresh.values())
        part, args = (term.fn, (term.x,)) if isinstance(term, ReduceTerm) else (term.part, term.args)
        first, *others = (expand(self.number(x, {**at, **fresh})) for x in args)
        self.facts.used.add(part if part in LAWS else "fold")
        if part == "add":
            return nf.total(bound, first)
        if part == "online.m":
            return nf.fold("maximum", bound, first)
        if isinstance(term, ReduceTerm):
            return nf.fold(part, bound, first)
        if part in ("welford.mean", "welford.q"):
            mean = nf.total(bound, first) / nf.total(bound, S.One)
            return mean if part == "welford.mean" else nf.total(bound, (first - mean) ** 2)
        if part == "online.s":
            top = nf.fold("maximum", bound, first)
            return nf.total(bound, exp(first - (0 if self._is_lowest(top) else top)) * others[0])
        return nf.closed("fold", bound, nf.applied(part, first, *others))

    def _function(self, term: FunctionTerm, at: Places) -> Form:
        fn, values = term.fn, [expand(self.number(operand, at)) for operand in term.operands]
        if fn in LAWS:
            self.facts.used.add(fn)
        kind = kind_of(term)
        if kind == CAST:
            (operand,) = term.operands
            if isinstance(operand, NumberTerm) or self.facts.exact(fn, getattr(operand, "name", "")):
                return values[0]
        plain, ordered = fn in ARITHMETIC and not term.runs, kind and FUNCTIONS[fn].commutative
        made = nf.applied(fn, *(sorted(values, key=default_sort_key) if ordered else values))
        if not plain or fn in ("divide", "reciprocal", "log"):
            needs = values[-1] if fn in ("divide", "reciprocal") else made
            factors = (factor.as_base_exp()[0] for factor in Mul.make_args(needs) if not factor.is_nonzero)
            self.partial |= {nf.closed("all", nf.indices(factor), factor) for factor in factors}
        return ARITHMETIC[fn](*values) if plain else made

    # ---- truth values
    def truth(self, term: ValueTerm, at: Places) -> bool:
        """Return whether a condition holds. Raises ByCases for one that is undecided."""
        match term:
            case NumberTerm(value=value):
                return bool(value)
            case NameTerm(name=name) if name in self.values:
                return self.truth(self.values[name], at)
            case NameTerm():
                name = named(term)
                return self._decided(nf.applied(f"holds {name}", *map(at.get, self.facts.varies(name))))
            case FunctionTerm(fn="logical_not", operands=(a,)):
                return not self.truth(a, at)
            case FunctionTerm(fn="logical_and" | "logical_or" as fn, operands=operands):
                return (all if fn == "logical_and" else any)([self.truth(operand, at) for operand in operands])
            case (
                FunctionTerm(fn="isinf", operands=(a,))
                | FunctionTerm(fn="equal", operands=(a, NumberTerm(value=nf.LOWEST)))
            ):
                return self._is_lowest(self.number(a, at))
        raise Stopped(f"the condition `{expression(term.node)}` has no law")

    def _is_lowest(self, value: Form) -> bool:
        """Return whether a value is -inf: a number, or the maximum of an unknown value along axes."""
        self.facts.used.add("lowest")
        if value == nf.LOWEST:
            return True
        if nf.kind(value) == "Reduce maximum" and nf.kind(value.args[0]) in self.unknown:
            return self._decided(value.args[0])
        raise Stopped(f"`{nf.shown(value)}` is compared with -inf, and is not a maximum of an unknown value")

    def _decided(self, condition: Form) -> bool:
        if nf.indices(condition):
            raise Stopped("a condition varies along a reduced axis")
        if condition not in self.assumed:
            raise ByCases(condition)
        return self.assumed[condition]


def named(term: Form) -> Form:
    """Return the name of an unknown value. Each `_` is another one."""
    return f"_{term.span.line}:{term.span.column}" if term.name == "_" else term.name


# ---- One rule.


def defined(block: Nodes) -> dict[str, ValueTerm]:
    """Return the values of a side by name, also of `(a, b) = mat(v, w)`."""
    match block:
        case (Assign(target=Group(items=names), value=Apply(fn="mat", items=given)),):
            return {expression(name): term_of(x) for name, x in zip(names, given, strict=True)}
    return definitions(block)


def prove(rule: Rule) -> Equation:
    """Prove the equation of a rule on tensor from its text, and find the conditions that the proof needs."""
    needed = [expression(condition) for condition in required(rule)]
    try:
        laws = _laws(rule, needed)
    except (Stopped, DplcError) as reason:
        return Equation(getattr(reason, "what", str(reason)))
    for condition in tuple(needed):
        fewer = [other for other in needed if other != condition]
        with contextlib.suppress(Stopped):
            laws, needed = _laws(rule, fewer), fewer
    return Equation("", tuple(sorted(laws)), tuple(needed))


def _laws(rule: Rule, conditions: Sequence[str]) -> set[str]:
    """Return the laws of a proof from some conditions of a rule. Raises Stopped or DplcError."""
    left, right = defined(rule.match), defined(rule.rewrite)
    lets = {let.name: f"{let.name} = {expression(let.value)}" for let in rule.clauses if isinstance(let, LetClause)}
    facts = Assumptions(conditions, lets, left, right)
    count = len(right) - len(rule.rewrite) + 1  # two of `(a, b) = mat(v, w)`
    for pair in zip(sorted([*left][-count:]), sorted([*right][-count:]), strict=True):
        _compare(pair, left, {**left, **right}, facts)
    return facts.used


def _compare(roots: tuple[str, str], left: Values, right: Values, facts: Assumptions) -> None:
    """Compare both sides in every case of their conditions. Raises Stopped."""
    at = {region: Symbol(region) for region in facts.regions}
    waiting, cases = list[dict[Form, bool]]([{}]), 0
    logical = kind_of(left[roots[0]]) in (COMPARE, LOGICAL)

    def value(side: Side, root: str) -> Form:
        term = side.values[root]
        return Integer(side.truth(term, at)) if logical else side.number(term, at)

    while waiting:
        assumed = waiting.pop()
        one, other = (Side(values, facts, assumed) for values in (left, right))
        try:
            wanted, made = value(one, roots[0]), value(other, roots[1])
        except ByCases as split:
            waiting += [{**assumed, split.args[0]: holds} for holds in (True, False)]
            continue
        if wanted.has(nan):
            continue
        cases += 1
        if not nf.equal(wanted, made):
            pattern, template = nf.shown(wanted), nf.shown(made)
            raise Stopped(f"`{roots[0]}` is `{pattern}` by the pattern, and `{template}` by the template")
        for form in sorted(other.partial - one.partial, key=default_sort_key):
            raise Stopped(f"the template needs `{nf.shown(form)}` to be defined, and the pattern does not")
    if not cases:
        raise Stopped("the pattern has no value in any case")
