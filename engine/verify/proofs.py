"""Proofs about index arithmetic, by the SMT solver Z3 (de Moura and Bjorner 2008), for all extents at once.

`dplc check` runs rules on programs. The integer arithmetic of a rule on statements is proved as well: its loops and
axes run what those of its pattern run, so a substitution `body[k := ko*BK + k]` makes every iteration of the old loops
once. Z3 is an extra, and imported only when something is proved.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, reduce
from itertools import combinations_with_replacement, islice, permutations, product
from typing import Any

from ...ir.expr import COMPARISONS
from ...ir.node import immutable
from ..language.core import (
    Apply,
    AxisItem,
    Between,
    CaptureStatement,
    Choice,
    EachBlock,
    ForLoop,
    Group,
    IfBlock,
    Keyword,
    LetClause,
    LetExpression,
    Member,
    NameOf,
    Nodes,
    Number,
    Operation,
    Prefix,
    Run,
    RunStatement,
    Statement,
    Subscript,
    Substitution,
    Syntax,
    UseRule,
    bare,
)
from ..language.rule import Rule
from ..language.spelling import expression
from ..language.typed_slots import names_in, without_lets

# ---- Expressions of the rule language over the integers: numbers where everything is known, else terms of Z3.
#
# Names that a rule leaves open (extents, parameters, what a fact answers) become unknowns, one each for the whole rule.
# `//` rounds down and `%` takes the sign of its divisor, as everywhere in the IRs.


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
        self.lets = {c.name: c.value for c in rule.clauses if isinstance(c, LetClause)}
        self.domains = {p.name: p.domain for p in rule.parameters if p.domain is not None}
        self.unknowns: dict[str, Integer] = {}
        self.conditions: dict[str, tuple[str, ...]] = {}
        self.always = {name for name, *_ in asked(rule, "always")}

    @cached_property
    def premises(self) -> list[Truth]:
        """Constraints of the domains of parameters and of the guards, as far as integers express them."""
        constraints = []
        domains = (Operation(d.span, "in", NameOf(d.span, name), d) for name, d in self.domains.items())
        for condition in (*domains, *required(self.rule)):
            with suppress(Unknown):
                constraints.append(self.truth(condition, {}))
        return constraints

    def unknown(self, name: str) -> Integer:
        """Return the unknown of a name; with known numbers, its number."""
        if name not in self.unknowns:
            self.unknowns[name] = self.z3.Int(name) if self.known is None else self.known.get(name, 1)
        return self.unknowns[name]

    def number(self, node: Syntax, scope: Scope) -> Integer:
        """Return the integer value of an expression. Raises Unknown."""
        match bare(node):
            case Number(value=int(value)):
                return value
            case NameOf(text=name):
                if name in scope:
                    return scope[name]
                if name in self.lets:
                    with suppress(Unknown):
                        return self.number(self.lets[name], scope)
                return self.unknown(name)
            case Prefix(op="-", a=a):
                return -self.number(a, scope)
            case Operation(op=op, a=a, b=b) | Apply(fn=op, items=(a, b)) if op in ARITHMETIC:
                return ARITHMETIC[op](self.number(a, scope), self.number(b, scope))
            case Choice(condition=condition, a=a, b=b):
                try:
                    holds = self.truth(condition, scope)
                except Unknown:  # either may be
                    holds = self.z3.Bool(expression(condition)) if self.known is None else True
                return either(holds, self.number(a, scope), self.number(b, scope))
            case Apply(fn="max" | "min" as fn, items=(Group() as items,)):
                first = operator.ge if fn == "max" else operator.le
                return reduce(lambda a, b: either(first(a, b), a, b), self.elements(items, scope))
            case LetExpression() as named:
                return self.number(without_lets(named), scope)
            case Apply() | Member() | Subscript() as asked_for:
                return self.unknown(expression(asked_for))  # one for each query
            case other:
                raise Unknown(f"`{expression(other)}` is not an integer")

    def truth(self, node: Syntax, scope: Scope) -> Truth:
        """Return the truth value of a condition. Raises Unknown."""
        match bare(node):
            case NameOf(text=name):
                return self._condition(name, scope)
            case LetExpression() as named:
                return self.truth(without_lets(named), scope)
            case Prefix(op="not", a=a):
                return negated(self.truth(a, scope))
            case Operation(op="and" | "or" as op, a=a, b=b):
                return joined(op, self.truth(a, scope), self.truth(b, scope))
            case Operation(op=op, a=a, b=b) if op in COMPARISONS:
                return COMPARISONS[op](self.number(a, scope), self.number(b, scope))
            case Operation(op="in", a=a, b=b):
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

    def member(self, value: Integer, domain: Syntax, scope: Scope) -> Truth:
        """Return whether a number is in a domain of the rule language. Raises Unknown."""
        match domain:
            case Apply(fn="divisors", items=(whole,)):
                return joined("and", value >= 1, remainder(self.number(whole, scope), value) == 0)
            case NameOf(text=name) if name in self.lets:
                return self.member(value, self.lets[name], scope)
        return joined("or", *(value == element for element in self.elements(domain, scope)))

    def elements(self, domain: Syntax, scope: Scope) -> list[Integer]:
        """Return the numbers of a domain, in order. Raises Unknown where they cannot be listed."""
        match domain:
            case NameOf(text=name) if name in self.lets:
                return self.elements(self.lets[name], scope)
            case Group(items=items):
                return [
                    number
                    for item in items
                    for number in (
                        self.elements(item.base, scope) if isinstance(item, Run) else [self.number(item, scope)]
                    )
                ]
            case Apply(fn="pow2", items=ends):
                low, high = (self.number(end, scope) for end in ends)
                if isinstance(low, int) and isinstance(high, int):
                    return [power for power in POWERS if low <= power <= high]
        raise Unknown(f"`{expression(domain)}` is not a set of integers")

    def few(self) -> dict[str, list[int]]:
        """Return the values of parameters, and of the bytes of elements, where they are few and known."""
        few = {}
        for name in tuple(self.unknowns):
            with suppress(Unknown, KeyError):
                few[name] = list(SIZES) if name.startswith("item(") else self.elements(self.domains[name], {})
        return {name: values for name, values in few.items() if values and all(type(n) is int for n in values)}


def required(rule: Rule) -> Iterator[Syntax]:
    """Yield what the guards of a rule require: of a conjunction, each part."""

    waiting = [guard.condition for guard in reversed(rule.required)]
    while waiting:
        match waiting.pop():
            case Operation(op="and", a=a, b=b):
                waiting += (b, a)
            case part:
                yield part


def asked(rule: Rule, fact: str) -> list[list[str]]:
    """Return the arguments of each requirement of a fact, by name; what is not a name is empty."""
    return [
        [getattr(item, "text", "") for item in part.items]
        for part in required(rule)
        if isinstance(part, Apply) and part.fn == fact
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
        with suppress(Unknown):
            return self._numbers(asked, unknowns, FIRST)
        for values in product(*few.values()):
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
        with suppress(Unknown):
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


@immutable
class Refuted:
    """Counterexample to a claim.

    problem: how the claim fails, in words; numbers: extents, parameters and values for which it does, by name.
    """

    problem: str
    numbers: dict[str, int]


@immutable
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


# ---- Proof that other loops and axes execute every iteration of the old ones exactly once.
#
# Loops, axes and conditions enclose each run of a pattern. They also enclose each occurrence of the run in the
# template, which has expressions for its old indices. The proof is that the occurrences together map onto the old
# iterations, one to one: none outside, none twice, none left out. For the last one an inverse is guessed, digit by
# digit, and proved to be one.


@immutable
class LoopRange:
    """A loop or an axis: `name` takes start, start + step, .. below the product of the extents.

    form: how a template refers to it. Two loops of a pattern that are read as one, `j*F + r`, are one of two extents.
    start: 0 if it is None; step: 1.
    """

    name: str
    form: Syntax
    extents: Nodes
    start: Syntax | None = None
    step: Syntax | None = None


@immutable
class RunOccurrence:
    """One occurrence of a run, with the loops and conditions around it.

    moves: the substitutions for a name, or for an affine form of two; changed: local rules rewrite it here; listed: it
    occurs once for every item of a list.
    """

    run: str = ""
    loops: tuple[LoopRange, ...] = ()
    conditions: Nodes = ()
    moves: tuple[Substitution, ...] = ()
    changed: bool = False
    listed: bool = False

    @property
    def shape(self) -> Any:
        """Loops and conditions in words: where they are the same, there is nothing to prove."""
        steps = [expression(loop.step) if loop.step else "1" for loop in self.loops]
        loops = [(loop.name, *map(expression, loop.extents)) for loop in self.loops]
        return loops, steps, [*map(expression, self.conditions)]

    def image(self, old: LoopRange) -> Syntax:
        """Return the expression for an old index here: by default, the index itself."""
        text = expression(old.form)
        return next((move.right for move in self.moves if expression(move.left) == text), old.form)


OUTERMOST = RunOccurrence()


def occurrences(
    block: Iterable[Syntax], lets: Mapping[str, Syntax], around: RunOccurrence = OUTERMOST
) -> Iterator[RunOccurrence]:
    """Yield the runs of a pattern or a template, in order."""
    for node in block:
        inner, found = around, list[tuple[Any, ...]]()
        match node:
            case CaptureStatement(name=name):
                yield replace(around, run=name)
            case RunStatement(run=Run(base=base), changes=changes):
                if isinstance(base, NameOf) and isinstance(lets.get(base.text), Subscript):
                    base = lets[base.text]
                items, base = (base.items, base.base) if isinstance(base, Subscript) else ((), base)
                when = (change.value for change in changes if isinstance(change, Keyword) and change.name == "when")
                yield replace(
                    around,
                    run=getattr(base, "text", ""),
                    moves=tuple(item for item in items if isinstance(item, Substitution)),
                    conditions=(*around.conditions, *when),
                    changed=any(isinstance(change, UseRule) for change in changes),
                )
            case Statement(call=Apply(fn="Tile", items=items)):
                found = [(axis.name, axis.extent) for axis in items if isinstance(axis, AxisItem)]
            case ForLoop(var=name):
                found = [(name, node.stop, node.start, node.step)]
            case EachBlock(variable=name, domain=Between(a=start, b=stop)):
                found = [(name, stop, start)]
            case EachBlock():
                inner = replace(around, listed=True)
            case IfBlock(condition=condition):
                inner = replace(around, conditions=(*around.conditions, condition))
        loops = (LoopRange(name, NameOf(node.span, name), (stop,), *rest) for name, stop, *rest in found)
        inner = replace(inner, loops=(*inner.loops, *loops))
        yield from occurrences(getattr(node, "body", None) or (), lets, inner)


def claims(rule: Rule) -> Iterator[Claim]:
    """Yield the claims of a rule to prove. Raises Unknown if a run occurs in a way that the proof does not cover."""
    lets = Integers(rule).lets
    before = {place.run: place for place in occurrences(rule.match, lets)}
    after = tuple(occurrences(rule.rewrite, lets))
    for run, old in before.items():
        found = tuple(place for place in after if place.run == run)
        moved = any(place.moves or place.shape != old.shape for place in found)
        if moved and any(place.moves or not place.changed for place in found):
            if any(place.listed for place in (old, *found)):
                raise Unknown(f"`{run}` stands once for every item of a list")
            whole = Claim(rule, replace(old, loops=_read_as_one(rule, old, found)), found)
            yield from [whole] if len(found) > 1 else _parts(whole)


def _read_as_one(rule: Rule, old: RunOccurrence, found: Sequence[RunOccurrence]) -> tuple[LoopRange, ...]:
    """Return the loops around a run; two that a guard says to be read as one, `strided(body, j, r, F)`, are one."""
    loops = {loop.name: loop for loop in old.loops}
    pairs = [names[1:3] for names in asked(rule, "strided") if names[0] == old.run]
    one: dict[str, LoopRange] = {}
    for left in (move.left for place in found for move in place.moves if not isinstance(move.left, NameOf)):
        names = [name for name in loops if name in names_in(left)]
        if names in pairs:
            extents = tuple(extent for name in names for extent in loops[name].extents)
            one[" ".join(names)] = LoopRange(" ".join(names), left, extents)
    within = " ".join(one).split()
    return (*one.values(), *(loop for name, loop in loops.items() if name not in within))


def _parts(whole: Claim) -> Iterator[Claim]:
    """Yield a claim about one occurrence by its indices, those together that a new loop or a condition links."""
    (place,) = whole.after
    own = {loop.name for loop in place.loops}
    conditions = [names_in(condition) for condition in place.conditions]
    groups: list[tuple[set[str], tuple[LoopRange, ...]]] = []
    for old in whole.before.loops:
        image = place.image(old)
        if image is old.form and old.name not in own:
            raise Unknown(f"`{place.run}` no longer stands under `{old.name}`")
        read = names_in(image) & own
        names = read.union(*(condition for condition in conditions if condition & read))
        # what a condition of the pattern is, is unknown: it may link all
        linked = [group for group in groups if group[0] & names or whole.before.conditions]
        groups = [group for group in groups if group not in linked]
        groups.append((names.union(*(n for n, _ in linked)), (*(old for _, olds in linked for old in olds), old)))
    loose = own.difference(*(names for names, _ in groups))
    if loose and whole.once and not place.changed:
        groups.append((loose, ()))
    for names, olds in groups:
        loops = tuple(loop for loop in place.loops if loop.name in names)
        yield Claim(whole.rule, replace(whole.before, loops=olds), (replace(place, loops=loops),))


# ---- The claims about loops and axes, decided; what Z3 refutes is counted by iteration before a report.


CELLS = 4096  # iterations of a counterexample that are counted one by one
GUESSES = 48  # inverses that are tried for one claim


class Claim(Integers):
    """Some of the indices around one run, and the occurrences in the template that set them.

    before: with the loops of these indices, and after: with those that matter here. once: no iteration may be repeated
    (a run of pure values may repeat).
    """

    def __init__(
        self,
        rule: Rule,
        before: RunOccurrence,
        after: Sequence[RunOccurrence],
        known: Mapping[str, int] | None = None,
    ):
        super().__init__(rule, known)
        self.before, self.after = before, after
        self.once = before.run not in {name for name, *_ in asked(rule, "plain")}
        opaque = (condition.text for condition in before.conditions if isinstance(condition, NameOf))
        self.conditions = dict.fromkeys(opaque, tuple(loop.name for loop in before.loops))

    @property
    def text(self) -> str:
        """The claim in words."""
        moved = [expression(move) for place in self.after for move in place.moves]
        return f"`{self.before.run}`" + (f" under {', '.join(dict.fromkeys(moved))}" if moved else "")

    def decided(self, solver: Solver) -> Refuted | None:
        """Return a counterexample, or None if the claim holds. Raises Unknown."""
        old = {loop.name for loop in self.before.loops}
        extents = (extent for loop in self.before.loops for extent in loop.extents if not names_in(extent) & old)
        self.premises += [size >= 1 for size in [self.number(extent, {}) for extent in extents]]
        places = [(place, self.iteration(place, f"!{n}0")) for n, place in enumerate(self.after)]
        missing = Unknown(f"{self.text}: no inverse was found")

        def refutation(given: Sequence[Truth], wanted: Sequence[Truth]) -> Refuted | None:
            found = solver.counterexample(self, given, wanted)
            if found is None:
                return None
            problem = Claim(self.rule, self.before, self.after, found).miscounted()
            if problem is None:
                raise missing
            # of the names in the rule: not results of facts, not single iterations
            numbers = {name: value for name, value in found.items() if name.isidentifier()}
            return Refuted(f"with {_values(sorted(numbers.items()))}, {problem}", numbers)

        if solver.counterexample(self, [], [False]) is None:
            raise Unknown("no extents satisfy its guards")
        for place in places:  # every new iteration maps to an old one
            if wrong := refutation(self.inside(*place), self.old_inside(self.images(*place))):
                return wrong
        for one, (later, scope) in combinations_with_replacement(places if self.once else (), 2):  # no two to the same
            other = self.iteration(later, "!other")
            equal = map(operator.eq, self.images(*one), self.images(later, other))
            same = [scope[name] == other[name] for name in other] if one[0] is later else [False]
            if wrong := refutation([*self.inside(*one), *self.inside(later, other), *equal], same):
                return wrong
        if not self.before.loops:
            return None
        olds = [*self.iteration(self.before, "!old").values()]
        given, last = self.old_inside(olds), missing

        def leads(place: RunOccurrence, guess: Scope) -> Truth:
            equal = [*map(operator.eq, self.images(place, guess), olds)]
            return joined("and", *self.inside(place, guess), *equal)

        guesses = [islice(self.inverses(place, olds), 24) for place in self.after]
        for chosen in islice(product(*guesses), GUESSES):  # an iteration maps to every old one
            ways = [*map(leads, self.after, chosen)]
            try:
                return refutation(given, [joined("or", *ways)])
            except Unknown as unknown:
                last = unknown
        raise last

    def iteration(self, place: RunOccurrence, suffix: str) -> dict[str, Integer]:
        """Return an unknown iteration."""
        return {loop.name: self.z3.Int(f"{loop.name}{suffix}") for loop in place.loops}

    def bounds(self, loop: LoopRange, scope: Scope) -> tuple[Integer, Integer, Integer]:
        """Return where a loop starts, its step, and where it stops."""
        start, step = (n if e is None else self.number(e, scope) for n, e in ((0, loop.start), (1, loop.step)))
        return start, step, reduce(operator.mul, [self.number(extent, scope) for extent in loop.extents])

    def inside(self, place: RunOccurrence, scope: Scope) -> list[Truth]:
        """Return the constraints that loops are within their bounds, and that conditions hold."""
        constraints = []
        for loop in place.loops:
            value, (start, step, stop) = scope[loop.name], self.bounds(loop, scope)
            constraints += [value >= start, value < stop]
            if loop.step:
                constraints.append(remainder(value - start, step) == 0)
        for condition in place.conditions:
            if isinstance(condition, NameOf) or names_in(condition) & {loop.name for loop in place.loops}:
                constraints.append(self.truth(condition, scope))
        return constraints

    def old_inside(self, values: Iterable[Integer]) -> list[Truth]:
        """Return the constraints that old indices have these values in an old iteration."""
        return self.inside(self.before, self.old_scope(values))

    def old_scope(self, values: Iterable[Integer]) -> dict[str, Integer]:
        """Return the values of old indices by name."""
        return {loop.name: value for loop, value in zip(self.before.loops, values, strict=True)}

    def images(self, place: RunOccurrence, scope: Scope) -> list[Integer]:
        """Return the old indices to which an iteration of an occurrence maps."""
        return [self.number(place.image(old), scope) for old in self.before.loops]

    def inverses(self, place: RunOccurrence, olds: Sequence[Integer]) -> Iterator[Scope]:
        """Yield guesses of the iteration of an occurrence that maps to some old indices."""
        names = [loop.name for loop in place.loops]
        known = self.old_scope(olds)
        if len(olds) == 1:  # the digits of a number whose digits weigh what the new indices do
            zero = dict.fromkeys(names, 0)
            (base,) = self.images(place, zero)
            weights = {name: self.images(place, {**zero, name: 1})[0] - base for name in names}
            for order in permutations(names):
                rest, digits = olds[0] - base, {}
                for name in order:
                    digits[name] = quotient(rest, weights[name])
                    rest = rest - digits[name] * weights[name]
                yield digits
        elif len(names) == 1:  # several old indices from one: its digits put together
            stops = [self.bounds(loop, {})[2] for loop in self.before.loops]
            for digits_order in permutations(zip(stops, olds, strict=True)):
                yield {names[0]: reduce(lambda whole, digit: whole * digit[0] + digit[1], digits_order, 0)}
        elif known.keys() >= set(names):
            yield {name: known[name] for name in names}

    def points(self, place: RunOccurrence) -> list[Scope]:
        """Return the values of the loops of an occurrence, where all numbers are known: at most one more than CELLS."""
        points: list[Scope] = [{}]
        for loop in place.loops:
            grown = (
                {**point, loop.name: value}
                for point in points
                for start, step, stop in [self.bounds(loop, point)]
                for value in range(start, stop, max(step, 1))
            )
            points = list(islice(grown, CELLS + 1))
        return points

    def miscounted(self) -> str | None:
        """Return the failure of the claim, in words, by counting its iterations; None if it holds or has too many."""
        before = self.points(self.before)
        if len(before) > CELLS:
            return None
        wanted = {tuple(point.values()) for point in before if all(self.inside(self.before, point))}
        made = Counter(
            tuple(self.images(place, point))
            for place in self.after
            for point in self.points(place)
            if all(self.inside(place, point))
        )

        def where(image: Sequence[int]) -> str:
            return f" for {_values(self.old_scope(image).items())}" if image else ""

        for image, count in sorted(made.items()):
            if image not in wanted:
                return f"{self.text} runs{where(image)}, which no loop of the pattern has"
            if self.once and count > 1:
                return f"{self.text} runs {count} times{where(image)}"
        return next((f"{self.text} never runs{where(image)}" for image in sorted(wanted - made.keys())), None)


def _values(numbers: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in numbers)


STATEMENTS = ("module", "loop", "tile")


def prove(rule: Rule) -> Proof:
    """Return the claims of a rule about its loops and axes, each proved, refuted or left open.

    A local rule has no claims of its own: the names in it come from the rules that use it.
    """
    if "local" in rule.attributes or rule.level not in STATEMENTS:
        return Proof()
    solver, decided = Solver(), list[tuple[str, Refuted | None]]()
    left: tuple[str, ...] = ()
    try:
        for claim in claims(rule):
            decided.append((claim.text, claim.decided(solver)))
    except Unknown as unknown:
        left = (str(unknown),)
    proved = dict.fromkeys(text for text, wrong in decided if wrong is None)
    return Proof(tuple(proved), next((wrong for _, wrong in decided if wrong is not None), None), left)
