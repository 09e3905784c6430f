"""Proofs of rules on tensor: pattern and template have the same normal form in every case of their conditions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from ...ir.diagnostic import DplcError
from ...ir.functions import CAST, COMPARE, FUNCTIONS, LOGICAL
from ..language import core as s
from ..language.rule import Rule
from ..language.spelling import expression
from ..verify.proofs.integers import required
from . import normal_form as nf
from .laws import LAWS, Assumptions, Values, kind_of, source_axes
from .normal_form import Form, Polynomial, Stopped, Undefined

Places = Mapping[str, Form]  # the index of each region
ARITHMETIC: dict[str, Callable[..., Polynomial]] = {
    "add": nf.plus, "subtract": lambda a, b: nf.plus(a, b, -1), "negative": lambda a: nf.plus(nf.ZERO, a, -1),
    "multiply": nf.times, "divide": lambda a, b: nf.times(a, nf.inverse(b)), "reciprocal": nf.inverse,
    "copy": lambda a: a, "exp": nf.exponential, "log": nf.logarithm, "relu": partial(nf.extreme, "maximum", nf.ZERO),
    "maximum": partial(nf.extreme, "maximum"), "minimum": partial(nf.extreme, "minimum"),
}  # fmt: skip


class ByCases(Exception):
    """A condition to decide by cases: its argument."""


@dataclass(frozen=True)
class Equation:
    """Result for one rule. stopped: why there is no proof, "" for a proof.

    laws: the names of the laws that the proof uses. needed: the conditions of the rule without which it fails.
    """

    stopped: str
    laws: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


class Side:
    """Meaning of one side of a rule, under assumptions about conditions.

    partial: what must not be 0, or must be in the domain of a function, for the side to be a real number.
    """

    def __init__(self, values: Values, facts: Assumptions, assumed: Mapping[Form, bool], indices: nf.Indices):
        self.values, self.facts, self.assumed, self.indices = values, facts, assumed, indices
        self.partial = set[Form]()

    # ---- numbers
    def number(self, term: s.ValueTerm, at: Places) -> Polynomial:
        """Return the value at some indices. Raises Stopped, ByCases or Undefined."""
        match term:
            case s.NumberTerm(value=value) if value < math.inf:
                return nf.LOWEST if value == -math.inf else nf.number(value)
            case s.NameTerm(name=name) if name in self.values:
                return self.number(self.values[name], at)
            case s.NameTerm() | s.RunTerm():
                return self._unknown(named(term), at)
            case s.MatTerm(x=x):
                self.facts.used.add("mat")
                return self.number(x, at)
            case s.CaseTerm(cond=cond, a=a, b=b):
                sides = (nf.frozen(self.number(x, at)) for x in (a, b))
                return nf.power(("apply", f"Case {expression(cond)}", *sides, *sorted(at.items())))
            case s.MappedTerm(x=x, map=index_map):
                return self.number(x, {**at, **self._mapped(index_map, at)})
            case s.ReduceTerm() | s.FoldTerm():
                return self._reduction(term, at)
            case s.FunctionTerm(fn="where", operands=(condition, a, b)):
                return self.number(a if self.truth(condition, at) else b, at)
            case s.FunctionTerm():
                return self._function(term, at)
        raise Stopped(f"`{expression(term.node)}` has no normal form")

    def _unknown(self, name: str, at: Places) -> Polynomial:
        """Return a variable: what a fact says of it, or a function of its indices."""
        facts = self.facts
        for law, exponent in (("one_over", -1), ("literal", 1)):
            for axes in (axes for value, axes in facts.read[law] if value == name):
                facts.used.add(law)
                sizes = [(("size", region), exponent) for region in facts.regions_of(axes)]
                return {nf.ordered("*", sizes): Fraction(1)}
        for law in ("exact_reciprocal", "number"):
            for given in (given for made, given in facts.read[law] if made == name):
                if (name,) not in facts.read["none"]:
                    raise Stopped(f"`{name}` may be none")
                facts.used |= {law, "none"}
                if law == "exact_reciprocal":
                    return nf.inverse(self._unknown(given, at))
                pattern = Side(facts.left, facts, self.assumed, self.indices)
                return pattern.number(facts.left[given], at)
        if name in facts.computed:
            raise Stopped(f"`{facts.computed[name]}` has no law")
        places = tuple((region, at[region]) for region in facts.varies(name))
        maxima = [key[2] for key, holds in self.assumed.items() if holds and key[:2] == ("lowest", name)]
        for maximum in maxima:  # all elements of such a maximum are -inf
            if all(one == other or one[1][0] == "bound" for one, other in zip(maximum, places, strict=True)):
                return nf.LOWEST
        return nf.power(("value", name, places))

    def _mapped(self, index_map: str, at: Places) -> dict[str, Form]:
        """Return the indices at which a map reads the axes that it replaces."""
        facts = self.facts
        if index_map in facts.first:
            facts.used.add("first_along")
            return dict.fromkeys(facts.regions_of(facts.first[index_map]), ("first",))
        read = tuple((region, at[region]) for region in facts.varies(index_map))
        return {region: ("map", index_map, region, read) for region in facts.regions_of(source_axes(index_map))}

    def _reduction(self, term: s.ReduceTerm | s.FoldTerm, at: Places) -> Polynomial:
        """Return a reduction: a part of a tuple monoid by its closed form, without one as an unknown reduction."""
        regions = [region for axes in term.over for region in self.facts.regions_of(axes.name)]
        fresh = {region: self.indices.fresh(region) for region in regions}
        bound, total = set(fresh.values()), self.indices.total
        part, args = (term.fn, (term.x,)) if isinstance(term, s.ReduceTerm) else (term.part, term.args)
        first, *others = (self.number(x, {**at, **fresh}) for x in args)
        self.facts.used.add(part if part in LAWS else "fold")
        if part == "add":
            return total(bound, first)
        if isinstance(term, s.ReduceTerm) or part == "online.m":
            return self.indices.fold("maximum" if part == "online.m" else part, bound, first)
        if part in ("welford.mean", "welford.q"):
            mean = nf.times(total(bound, first), nf.inverse(total(bound, nf.UNIT)))
            apart = nf.plus(first, mean, -1)
            return mean if part == "welford.mean" else total(bound, nf.times(apart, apart))
        if part == "online.s":
            top = self.indices.fold("maximum", bound, first)
            base = nf.ZERO if self._is_lowest(top) else top
            return total(bound, nf.times(nf.exponential(nf.plus(first, base, -1)), others[0]))
        return nf.power(nf.closed(("fold", part), bound, tuple(map(nf.frozen, (first, *others)))))

    def _function(self, term: s.FunctionTerm, at: Places) -> Polynomial:
        fn, values = term.fn, [self.number(operand, at) for operand in term.operands]
        if fn in LAWS:
            self.facts.used.add(fn)
        kind = kind_of(term)
        if kind == CAST:
            (operand,) = term.operands
            law = self.facts.exact(fn, getattr(operand, "name", ""))
            self.facts.used |= {law} if law else set()
            if law or isinstance(operand, s.NumberTerm):
                return values[0]
        args = [nf.frozen(value) for value in values]
        if kind and FUNCTIONS[fn].commutative:
            args.sort(key=repr)
        plain = fn in ARITHMETIC and not term.runs
        needs = nf.inverse(values[-1]) if fn in ("divide", "reciprocal") else nf.power(("apply", fn, *args))
        if not plain or fn in ("divide", "reciprocal", "log"):
            atoms = [atom for product in needs for atom, _ in product[1:] if atom[0] not in ("size", "exp")]
            self.partial |= {nf.closed(("over",), nf.indices(atom), atom) for atom in atoms}
        return ARITHMETIC[fn](*values) if plain else needs

    # ---- truth values
    def truth(self, term: s.ValueTerm, at: Places) -> bool:
        """Return whether a condition holds. Raises ByCases for one that is undecided."""
        match term:
            case s.NumberTerm(value=value):
                return bool(value)
            case s.NameTerm(name=name) if name in self.values:
                return self.truth(self.values[name], at)
            case s.NameTerm():
                places = ((region, at[region]) for region in self.facts.varies(named(term)))
                return self._decided(("holds", named(term), tuple(places)))
            case s.FunctionTerm(fn="logical_not", operands=(a,)):
                return not self.truth(a, at)
            case s.FunctionTerm(fn="logical_and" | "logical_or" as fn, operands=operands):
                return (all if fn == "logical_and" else any)([self.truth(operand, at) for operand in operands])
            case s.FunctionTerm(fn="isinf", operands=(a,)):
                return self._is_lowest(self.number(a, at))
            case s.FunctionTerm(fn="equal", operands=(a, s.NumberTerm(value=value))) if value == -math.inf:
                return self._is_lowest(self.number(a, at))
        raise Stopped(f"the condition `{expression(term.node)}` has no law")

    def _is_lowest(self, value: Polynomial) -> bool:
        """Return whether a value is -inf: a number, or the maximum of an unknown value along axes."""
        self.facts.used.add("lowest")
        if value == nf.LOWEST:
            return True
        match nf.single(value):
            case ("fold", "maximum", _, _, ("+", (("*", (("value", name, places), 1)), 1))):
                return self._decided(("lowest", name, places))
        raise Stopped(f"`{nf.shown(nf.frozen(value))}` is compared with -inf, and is no maximum of an unknown value")

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


def defined(block: s.Nodes) -> dict[str, s.ValueTerm]:
    """Return the values of a side by name, also of `(a, b) = mat(v, w)`."""
    match block:
        case (s.Assign(target=s.Group(items=names), value=s.Apply(fn="mat", items=given)),):
            return {expression(name): s.term_of(x) for name, x in zip(names, given, strict=True)}
    return s.definitions(block)


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
    """Return the laws of a proof from some conditions of a rule. Raises Stopped, or DplcError for what is no value."""
    left, right = defined(rule.match), defined(rule.rewrite)
    lets = {let.name: f"{let.name} = {expression(let.value)}" for let in rule.clauses if isinstance(let, s.LetClause)}
    facts = Assumptions(conditions, lets, left, right)
    count = len(right) - len(rule.rewrite) + 1  # two of `(a, b) = mat(v, w)`
    for pair in zip(sorted([*left][-count:]), sorted([*right][-count:]), strict=True):
        _compare(pair, left, {**left, **right}, facts)
    return facts.used


def _compare(roots: tuple[str, str], left: Values, right: Values, facts: Assumptions) -> None:
    """Compare both sides in every case of their conditions. Raises Stopped."""
    at = {region: ("free", region) for region in facts.regions}
    waiting, cases = list[dict[Form, bool]]([{}]), 0
    logical = kind_of(left[roots[0]]) in (COMPARE, LOGICAL)

    def value(side: Side, root: str) -> Polynomial:
        term = side.values[root]
        return nf.number(side.truth(term, at)) if logical else side.number(term, at)

    while waiting:
        assumed = waiting.pop()
        one, other = (Side(values, facts, assumed, nf.Indices()) for values in (left, right))
        wanted = None
        try:
            wanted = value(one, roots[0])
            made = value(other, roots[1])
        except ByCases as split:
            waiting += [{**assumed, split.args[0]: holds} for holds in (True, False)]
            continue
        except Undefined:
            if wanted is not None:
                raise Stopped("the template is undefined where the pattern has a value") from None
            continue
        cases += 1
        if not nf.equal(wanted, made):
            pattern, template = nf.shown(nf.frozen(wanted)), nf.shown(nf.frozen(made))
            raise Stopped(f"`{roots[0]}` is `{pattern}` by the pattern, and `{template}` by the template")
        for form in sorted(other.partial - one.partial, key=repr):
            raise Stopped(f"the template needs `{nf.shown(form)}` to be defined, and the pattern does not")
    if not cases:
        raise Stopped("the pattern has no value in any case")
