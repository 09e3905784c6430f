"""All that can be proved of a rule: its loops and axes, or its equation between functions of integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, islice, permutations, product
from typing import Any

from ....ir.functions import ARITHMETIC, COMPARE, FUNCTIONS, LOGICAL, SELECT
from ...language import core as s
from ...language.core import FunctionTerm, NameOf, NameTerm, NumberTerm, ValueTerm, terms
from ...language.rule import Rule
from ...language.spelling import expression
from ...language.typed_slots import names_in
from ...rewrite.terms.rewriter import mentions_mat
from .integers import COMPARED, Integers, Proof, Refuted, Solver, SolverEffort, Unknown, shown, solver_module

# ---- Proof that other loops and axes execute every iteration of the old ones exactly once.
#
# Loops, axes and conditions enclose each run of a pattern. They also enclose each occurrence of the run in the
# template, which has expressions for its old indices. The proof is that the occurrences together map onto the old
# iterations, one to one: none outside, none twice, none left out. For the last one an inverse is guessed, digit by
# digit, and proved to be one.


# ---- The context of the runs of a rule: loops, axes and conditions, and what replaces their indices.


@dataclass(frozen=True)
class LoopRange:
    """A loop or an axis: `name` takes start, start + step, .. below stop."""

    name: str
    start: s.Syntax
    stop: s.Syntax
    step: s.Syntax


@dataclass(frozen=True)
class RunOccurrence:
    """One occurrence of a run.

    moves: the substitutions for a name, or for an affine form of two; changed: local rules rewrite it here; listed: it
    occurs once for every item of a list.
    """

    run: str
    loops: tuple[LoopRange, ...] = ()
    conditions: s.Nodes = ()
    moves: tuple[tuple[s.Syntax, s.Syntax], ...] = ()
    changed: bool = False
    listed: bool = False

    def within(
        self, loops: Iterable[LoopRange] = (), conditions: Iterable[s.Syntax] = (), listed: bool = False
    ) -> RunOccurrence:
        """Return the occurrence one block further in."""
        return replace(
            self, loops=(*self.loops, *loops), conditions=(*self.conditions, *conditions), listed=self.listed or listed
        )


def places(rule: Rule, block: Iterable[s.Syntax]) -> list[RunOccurrence]:
    """Return the runs of a pattern or a template, in order."""
    lets = {clause.name: clause.value for clause in rule.clauses if isinstance(clause, s.LetClause)}
    return list(_places(block, RunOccurrence(""), lets))


def _places(block: Iterable[s.Syntax], around: RunOccurrence, lets: dict[str, s.Syntax]) -> Iterator[RunOccurrence]:
    for node in block:
        if isinstance(node, s.Unit | s.InsideBlock):
            yield from _places(node.body, around, lets)
        elif isinstance(node, s.Statement) and node.body is not None:
            yield from _places(node.body, around.within(_axes(node.call)), lets)
        elif isinstance(node, s.ForLoop):
            loop = LoopRange(node.var, node.start, node.stop, node.step or s.Number(node.span, 1))
            yield from _places(node.body, around.within([loop]), lets)
        elif isinstance(node, s.IfBlock):
            yield from _places(node.body, around.within(conditions=[node.condition]), lets)
        elif isinstance(node, s.EachBlock):
            domain = node.domain
            if isinstance(domain, s.Between) and len(node.names) == 1:
                loop = LoopRange(node.names[0], domain.a, domain.b, s.Number(node.span, 1))
                yield from _places(node.body, around.within([loop]), lets)
            else:
                yield from _places(node.body, around.within(listed=True), lets)
        elif isinstance(node, s.CaptureStatement):
            yield replace(around, run=node.name)
        elif isinstance(node, s.RunStatement):
            yield _run(node, around, lets)


def _axes(call: s.Syntax) -> list[LoopRange]:
    """Return the axes that a Tile names; a run of axes is returned as it is."""
    items = call.items if isinstance(call, s.Apply) and call.fn == "Tile" else ()
    return [
        LoopRange(item.name, s.Number(item.span, 0), item.extent, s.Number(item.span, 1))
        for item in items
        if isinstance(item, s.AxisItem)
    ]


def _run(node: s.RunStatement, around: RunOccurrence, lets: dict[str, s.Syntax]) -> RunOccurrence:
    base, moves = node.run.base, []
    if isinstance(base, s.NameOf) and isinstance(lets.get(base.text), s.Subscript):
        base = lets[base.text]
    if isinstance(base, s.Subscript):
        moves = [(item.left, item.right) for item in base.items if isinstance(item, s.Substitution)]
        base = base.base
    when = [c.value for c in node.changes if isinstance(c, s.Keyword) and c.name == "when"]
    changed = any(isinstance(change, s.UseRule) for change in node.changes)
    name = base.text if isinstance(base, s.NameOf) else ""
    return replace(around.within(conditions=when), run=name, moves=tuple(moves), changed=changed)


@dataclass(frozen=True)
class Old:
    """An index of the pattern: a loop, an axis, or two of them that are read as one, `j*F + r`."""

    names: tuple[str, ...]
    loops: tuple[LoopRange, ...]
    form: s.Syntax | None = None


@dataclass(frozen=True)
class Claim:
    """Some of the indices around one run, and the occurrences in the template that set them.

    once: no iteration may be repeated (a run of pure values may repeat).
    """

    run: str
    olds: tuple[Old, ...]
    before: RunOccurrence
    after: tuple[RunOccurrence, ...]
    loops: tuple[tuple[LoopRange, ...], ...]  # of each position, those that matter here
    once: bool = True

    @property
    def text(self) -> str:
        """The claim in words."""
        moved = [f"{expression(a)} := {expression(b)}" for place in self.after for a, b in place.moves]
        return f"`{self.run}`" + (f" under {', '.join(dict.fromkeys(moved))}" if moved else "")


def claims(rule: Rule) -> Iterator[Claim]:
    """Yield the claims of a rule to prove. Raises Unknown if a run occurs in a way that the proof does not cover."""
    before = {place.run: place for place in places(rule, rule.match)}
    after: dict[str, list[RunOccurrence]] = {}
    for place in places(rule, rule.rewrite):
        after.setdefault(place.run, []).append(place)
    pure = _asked(rule, "plain")
    for run, old in before.items():
        found = tuple(after.get(run, ()))
        around = _shape(old)  # nothing to prove if only statements have changed around the run
        if any(place.moves or _shape(place) != around for place in found) and any(
            p.moves or not p.changed for p in found
        ):
            yield from _claims(rule, run, old, found, run not in pure)


def _asked(rule: Rule, fact: str) -> set[str]:
    """Return the runs for which a guard requires one fact."""

    def found(node: Any) -> set[str]:
        if isinstance(node, s.Operation) and node.op == "and":
            return found(node.a) | found(node.b)
        if isinstance(node, s.Apply) and node.fn == fact and isinstance(node.items[0], s.NameOf):
            return {node.items[0].text}
        return set()

    return {name for guard in rule.guards if guard.kind == "require" for name in found(guard.condition)}


def _shape(place: RunOccurrence) -> Any:
    loops = [
        (loop.name, expression(loop.stop), getattr(loop.step, "value", None) or expression(loop.step))
        for loop in place.loops
    ]
    return loops, [expression(condition) for condition in place.conditions]


def _claims(rule: Rule, run: str, old: RunOccurrence, found: tuple[RunOccurrence, ...], once: bool) -> Iterator[Claim]:
    if any(place.listed for place in (old, *found)):
        raise Unknown(f"`{run}` stands once for every item of a list")
    olds = _olds(rule, old, found)
    if len(found) > 1:
        yield Claim(run, olds, old, found, tuple(place.loops for place in found), once)
        return
    (place,) = found
    bound = {loop.name for loop in place.loops}
    for old_index in olds:
        if old_index.form is None and old_index.names[0] not in bound | {
            getattr(a, "text", "") for a, _ in place.moves
        }:
            raise Unknown(f"`{run}` no longer stands under `{old_index.names[0]}`")
    loose = list(place.loops)
    for group in _groups(olds, old, place):
        names = set().union(*(_reads(place, item) for item in group))
        names |= set().union(*(names_in(c) for c in place.conditions if names_in(c) & names))
        loops = tuple(loop for loop in place.loops if loop.name in names)
        loose = [loop for loop in loose if loop not in loops]
        yield Claim(run, tuple(group), old, found, (loops,), once)
    if loose and once and not place.changed:
        yield Claim(run, (), old, found, (tuple(loose),))


def _olds(rule: Rule, old: RunOccurrence, found: tuple[RunOccurrence, ...]) -> tuple[Old, ...]:
    """Return the old indices; two that a guard says to be read as one, `strided(body, j, r, F)`, are one."""
    loops = {loop.name: loop for loop in old.loops}
    out: list[Old] = []
    for place in found:
        for left, _ in place.moves:
            names = tuple(name for name in loops if name in names_in(left))
            if not isinstance(left, s.NameOf) and len(names) == 2 and _read_as_one(rule, old.run, names):
                out.append(Old(names, tuple(loops[name] for name in names), left))
    joined = {name for item in out for name in item.names}
    return (*dict.fromkeys(out), *(Old((name,), (loop,)) for name, loop in loops.items() if name not in joined))


def _read_as_one(rule: Rule, run: str, names: tuple[str, ...]) -> bool:
    """Return whether a guard says that a run depends on two names through one affine form only."""
    conditions = [guard.condition for guard in rule.guards if guard.kind == "require"]
    asked = [c for c in conditions if isinstance(c, s.Apply) and c.fn == "strided"]
    return any([getattr(item, "text", "") for item in c.items[:3]] == [run, *names] for c in asked)


def _groups(olds: tuple[Old, ...], before: RunOccurrence, place: RunOccurrence) -> list[list[Old]]:
    """Return the old indices, grouped if one new loop or one condition links them."""
    groups: list[tuple[set[str], list[Old]]] = []
    conditions = [names_in(condition) for condition in place.conditions]
    for old in olds:
        names = _reads(place, old)
        names |= set().union(*(c for c in conditions if c & names))
        for condition in before.conditions:  # what a condition of the pattern is, is unknown
            names |= {f"condition {expression(condition)}"}
        members = [old]
        for group in [g for g in groups if g[0] & names]:
            names |= group[0]
            members = [*group[1], *members]
            groups.remove(group)
        groups.append((names, members))
    return [members for _, members in groups]


def _reads(place: RunOccurrence, old: Old) -> set[str]:
    """Return the new loops and axes that an old index is computed from."""
    loops = {loop.name for loop in place.loops}
    return names_in(image_of(place, old)) & loops


def image_of(place: RunOccurrence, old: Old) -> s.Syntax:
    """Return the expression of an occurrence for an old index: by default, the index itself."""
    for left, right in place.moves:
        if (old.form is not None and left == old.form) or (isinstance(left, s.NameOf) and (left.text,) == old.names):
            return right
    if old.form is not None:
        return old.form
    return s.NameOf(old.loops[0].start.span, old.names[0])


class Terms:
    """Claim over integers: the domains of its indices, and the image of a new iteration."""

    def __init__(self, integers: Integers, claim: Claim):
        self.integers, self.claim = integers, claim
        for condition in claim.before.conditions:
            if isinstance(condition, s.NameOf):
                scope = tuple(loop.name for loop in claim.before.loops)
                integers.conditions.setdefault(condition.text, scope)

    def inside(self, loops: tuple[LoopRange, ...], conditions: s.Nodes, scope: dict[str, Any]) -> list[Any]:
        """Return the constraints that some loops are within their bounds, and that conditions hold."""
        number = self.integers.number
        found = []
        for loop in loops:
            value, start, step = scope[loop.name], number(loop.start, scope), number(loop.step, scope)
            found += [value >= start, value < number(loop.stop, scope)]
            if not (isinstance(step, int) and step == 1):
                found.append(self.integers.divided("%", value - start, step) == 0)
        names = {loop.name for loop in loops}
        for condition in conditions:
            opaque = isinstance(condition, s.NameOf)
            if opaque or names_in(condition) & names:
                found.append(self.integers.truth(condition, scope))
        return found

    def old_inside(self, values: list[Any]) -> list[Any]:
        """Return the constraints that old indices have these values in an old iteration."""
        scope: dict[str, Any] = {}
        found = []
        for old, value in zip(self.claim.olds, values, strict=True):
            if old.form is None:
                scope[old.names[0]] = value
            else:  # j*F + r with r below F takes every value below the product
                size: Any = 1
                for loop in old.loops:
                    size = size * self.integers.number(loop.stop, {})
                found += [value >= 0, value < size]
        loops = tuple(loop for old in self.claim.olds if old.form is None for loop in old.loops)
        return found + self.inside(loops, self.claim.before.conditions, scope)

    def images(self, n: int, scope: dict[str, Any]) -> list[Any]:
        """Return the old indices to which an iteration of the n-th occurrence maps."""
        return [self.integers.number(image_of(self.claim.after[n], old), scope) for old in self.claim.olds]

    def sizes(self) -> list[Any]:
        """Return the constraints that all extents are at least one."""
        loops = [loop for old in self.claim.olds for loop in old.loops]
        stops = [
            self.integers.number(loop.stop, {}) for loop in loops if not names_in(loop.stop) & {t.name for t in loops}
        ]
        return [stop >= 1 for stop in stops if not isinstance(stop, int)]


def inverses(terms: Terms, n: int, olds: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield guesses of the iteration of the n-th occurrence that maps to some old indices."""
    names = [loop.name for loop in terms.claim.loops[n]]
    integers = terms.integers
    if len(olds) == 1:
        yield from _digits(terms, n, names, olds[0])
    elif len(names) == 1:  # several old indices from one: its digits put together
        stops = [integers.number(old.loops[0].stop, {}) for old in terms.claim.olds]
        for order in permutations(range(len(olds))):
            whole: Any = 0
            for place in order:
                whole = whole * stops[place] + olds[place]
            yield {names[0]: whole}
    elif set(names) <= {old.names[0] for old in terms.claim.olds if len(old.names) == 1}:
        known = {old.names[0]: value for old, value in zip(terms.claim.olds, olds, strict=True)}
        yield {name: known[name] for name in names}


def _digits(terms: Terms, n: int, names: list[str], old: Any) -> Iterator[dict[str, Any]]:
    """Yield one old index from several new ones: the digits of a number whose digits weigh what the new ones do."""
    zero = dict.fromkeys(names, 0)
    (base,) = terms.images(n, zero)
    weights = {name: terms.images(n, {**zero, name: 1})[0] - base for name in names}
    for order in permutations(names):
        rest, found = old - base, {}
        for name in order:
            found[name] = terms.integers.divided("//", rest, weights[name])
            rest = rest - found[name] * weights[name]
        yield found


# ---- The claims about loops and axes, decided; what Z3 refutes is counted by iteration before a report.


CELLS = 4096  # iterations of a counterexample that are counted one by one
GUESSES = 48  # inverses that are tried for one claim
Scope = dict[str, Any]


def of_loops(rule: Rule, effort: SolverEffort) -> Iterator[tuple[str, Refuted | None]]:
    """Yield the claims of a rule about its loops and axes, each with its counterexample or None. Raises Unknown."""
    for claim in claims(rule):
        yield claim.text, _Decision(rule, claim, effort).made()


class _Decision:
    """One claim, as Z3 sees it."""

    def __init__(self, rule: Rule, claim: Claim, effort: SolverEffort):
        self.rule, self.claim = rule, claim
        self.integers = Integers(rule)
        premises = self.integers.premises()
        self.terms = Terms(self.integers, claim)
        self.solver = Solver(self.integers, [*premises, *self.terms.sizes()], effort)
        self.scopes = [self._scope(n, 0) for n in range(len(claim.after))]
        self.within = [self._inside(n, scope) for n, scope in enumerate(self.scopes)]
        self.images = [self.terms.images(n, scope) for n, scope in enumerate(self.scopes)]

    def made(self) -> Refuted | None:
        """Return a counterexample, or None if the claim holds. Raises Unknown."""
        if self.solver.counterexample([], [False]) is None:
            raise Unknown("no extents satisfy its guards")
        return self._outside() or (self._twice() if self.claim.once else None) or self._left_out()

    def _scope(self, n: int, copy: int) -> Scope:
        return {loop.name: self.integers.z3.Int(f"{loop.name}!{n}{copy}") for loop in self.claim.loops[n]}

    def _inside(self, n: int, scope: Scope) -> list[Any]:
        return self.terms.inside(self.claim.loops[n], self.claim.after[n].conditions, scope)

    def _asked(self, given: list[Any], wanted: list[Any]) -> Refuted | None:
        found = self.solver.counterexample(given, wanted)
        if found is None:
            return None
        problem = counted(self.rule, self.claim, found)
        if problem is None:
            raise Unknown(f"{self.claim.text}: no inverse was found")
        return Refuted(shown(found), problem)

    def _outside(self) -> Refuted | None:
        """Check that every new iteration maps to an old one."""
        ways = zip(self.within, self.images, strict=True)
        return next((bad for within, image in ways if (bad := self._asked(within, self.terms.old_inside(image)))), None)

    def _twice(self) -> Refuted | None:
        """Check that no two new iterations map to the same old iteration."""
        for n, m in combinations_with_replacement(range(len(self.claim.after)), 2):
            other = self._scope(m, 1)
            equal = [a == b for a, b in zip(self.images[n], self.terms.images(m, other), strict=True)]
            same = [self.scopes[n][name] == other[name] for name in other] if n == m else [False]
            if (bad := self._asked([*self.within[n], *self._inside(m, other), *equal], same)) is not None:
                return bad
        return None

    def _left_out(self) -> Refuted | None:
        """Check that some new iteration maps to every old one. Raises Unknown if no guessed inverse can be proved."""
        if not self.claim.olds:
            return None
        olds = [self.integers.z3.Int(f"{'-'.join(old.names)}!old") for old in self.claim.olds]
        given = self.terms.old_inside(olds)
        guesses = [list(islice(inverses(self.terms, n, olds), 24)) for n in range(len(self.claim.after))]
        last = Unknown(f"{self.claim.text}: no inverse was found")
        for chosen in islice(product(*guesses), GUESSES):
            ways = [self._leads(n, guess, olds) for n, guess in enumerate(chosen)]
            try:
                return self._asked(given, [self.integers.joined("or", ways)])
            except Unknown as unknown:
                last = unknown
        raise last

    def _leads(self, n: int, guess: Scope, olds: list[Any]) -> Any:
        """Return the condition that a guess is an iteration of the n-th occurrence, and maps to the old one."""
        equal = [a == b for a, b in zip(self.terms.images(n, guess), olds, strict=True)]
        return self.integers.joined("and", [*self._inside(n, guess), *equal])


# ---- counting


def counted(rule: Rule, claim: Claim, numbers: dict[str, int]) -> str | None:
    """Return the failure of a claim for some numbers, by counting its iterations.

    Returns None if the claim holds, or if there are too many iterations.
    """
    terms = Terms(Integers(rule, numbers), claim)
    old_loops = tuple(loop for old in claim.olds for loop in old.loops)
    before = _points(terms, old_loops, claim.before.conditions)
    if before is None:
        return None
    forms = [old.form or s.NameOf(rule.span, old.names[0]) for old in claim.olds]
    wanted = {tuple(int(terms.integers.number(form, point)) for form in forms) for point in before}
    made: dict[tuple[int, ...], int] = {}
    for n, place in enumerate(claim.after):
        for point in _points(terms, claim.loops[n], place.conditions) or ():
            image = tuple(terms.images(n, point))
            made[image] = made.get(image, 0) + 1
    problem = _problem(claim, wanted, made)
    return problem and f"with {', '.join(f'{k}={v}' for k, v in sorted(shown(numbers).items()))}, {problem}"


def _problem(claim: Claim, wanted: set[tuple[int, ...]], made: dict[tuple[int, ...], int]) -> str | None:
    names = [" ".join(old.names) for old in claim.olds]

    def where(image: tuple[int, ...]) -> str:
        values = ", ".join(f"{name}={value}" for name, value in zip(names, image, strict=True))
        return f" for {values}" if values else ""

    for image, count in sorted(made.items()):
        if image not in wanted:
            return f"{claim.text} runs{where(image)}, which no loop of the pattern has"
        if claim.once and count > 1:
            return f"{claim.text} runs {count} times{where(image)}"
    return next((f"{claim.text} never runs{where(image)}" for image in sorted(wanted) if image not in made), None)


def _points(terms: Terms, loops: tuple[LoopRange, ...], conditions: s.Nodes) -> list[Scope] | None:
    """Return the combinations of values of some loops."""
    number: Callable[..., Any] = terms.integers.number
    points: list[Scope] = [{}]
    for loop in loops:
        grown = []
        for point in points:
            start, stop, step = (number(e, point) for e in (loop.start, loop.stop, loop.step))
            grown += [{**point, loop.name: value} for value in range(start, min(stop, start + CELLS), max(step, 1))]
            if len(grown) > CELLS:
                return None
        points = grown
    return [point for point in points if all(terms.inside(loops, conditions, point))]


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
                    raise Unknown(f"`{expression(term.node)}` is not an integer")
                return term.value if isinstance(term.value, bool) else int(term.value)
            case NameTerm() if term.name in defined and term.name not in self.leaves:
                return self.value(defined[term.name], defined, kind)
            case NameTerm():
                return self._leaf(term.name, kind)
            case FunctionTerm(known=True):
                return self._applied(term, defined)
        raise Unknown(f"`{expression(term.node)}` is not a function of integers")

    def _leaf(self, name: str, kind: str | None) -> Any:
        if name not in self.leaves:
            self.leaves[name] = self.z3.Bool(name) if kind == "b8" else self.unknown(name)
        return self.leaves[name]

    def _applied(self, term: FunctionTerm, defined: dict[str, ValueTerm]) -> Any:
        function, refusal = FUNCTIONS[term.fn], Unknown(f"`{expression(term.node)}` is not a function of integers")
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
