"""The claims about loops and axes, decided; what Z3 refutes is counted turn by turn before it is reported."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from ...language import core as s
from ...language.rule import Rule
from .integers import Integers, Unknown
from .outcome import Refuted, shown
from .places import Turn
from .reindexing import Claim, Old, Terms, claims, inverses
from .solver import Solver, SolverEffort

CELLS = 4096  # turns of a counterexample that are counted one by one
GUESSES = 48  # inverses that are tried for one claim
Scope = dict[str, Any]


def of_loops(rule: Rule, effort: SolverEffort) -> Iterator[tuple[str, Refuted | None]]:
    """What a rule claims about its loops and axes, and what refutes it. Raises Unknown."""
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
        """None if the claim holds. Raises Unknown."""
        if self.solver.counterexample([], [False]) is None:
            raise Unknown("no extents satisfy its guards")
        return self._outside() or (self._twice() if self.claim.once else None) or self._left_out()

    def _scope(self, n: int, copy: int) -> Scope:
        return {turn.name: self.integers.z3.Int(f"{turn.name}!{n}{copy}") for turn in self.claim.turns[n]}

    def _inside(self, n: int, scope: Scope) -> list[Any]:
        return self.terms.inside(self.claim.turns[n], self.claim.after[n].conditions, scope)

    def _asked(self, given: list[Any], wanted: list[Any]) -> Refuted | None:
        found = self.solver.counterexample(given, wanted)
        if found is None:
            return None
        problem = counted(self.rule, self.claim, found)
        if problem is None:
            raise Unknown(f"{self.claim.text}: no inverse was found")
        return Refuted(shown(found), problem)

    def _outside(self) -> Refuted | None:
        """That every new turn stands for an old one."""
        ways = zip(self.within, self.images, strict=True)
        return next((bad for within, image in ways if (bad := self._asked(within, self.terms.old_inside(image)))), None)

    def _twice(self) -> Refuted | None:
        """That no two new turns stand for one old turn."""
        for n, m in itertools.combinations_with_replacement(range(len(self.claim.after)), 2):
            other = self._scope(m, 1)
            equal = [a == b for a, b in zip(self.images[n], self.terms.images(m, other), strict=True)]
            same = [self.scopes[n][name] == other[name] for name in other] if n == m else [False]
            if (bad := self._asked([*self.within[n], *self._inside(m, other), *equal], same)) is not None:
                return bad
        return None

    def _left_out(self) -> Refuted | None:
        """That every old turn is one of some new turn."""
        if not self.claim.olds:
            return None
        olds = [self.integers.z3.Int(f"{'-'.join(old.names)}!old") for old in self.claim.olds]
        given = self.terms.old_inside(olds)
        guesses = [list(itertools.islice(inverses(self.terms, n, olds), 24)) for n in range(len(self.claim.after))]
        last = Unknown(f"{self.claim.text}: no inverse was found")
        for chosen in itertools.islice(itertools.product(*guesses), GUESSES):
            ways = [self._leads(n, guess, olds) for n, guess in enumerate(chosen)]
            try:
                return self._asked(given, [self.integers.joined("or", ways)])
            except Unknown as unknown:
                last = unknown
        raise last

    def _leads(self, n: int, guess: Scope, olds: list[Any]) -> Any:
        """That a guessed turn of the n-th place is one of its turns, and stands for the old one."""
        equal = [a == b for a, b in zip(self.terms.images(n, guess), olds, strict=True)]
        return self.integers.joined("and", [*self._inside(n, guess), *equal])


# ---- counting


def counted(rule: Rule, claim: Claim, numbers: dict[str, int]) -> str | None:
    """What is wrong with a claim for some numbers, turn by turn; None if nothing is, or there are too many turns."""
    terms = Terms(Integers(rule, numbers), claim)
    old_turns = tuple(turn for old in claim.olds for turn in old.turns)
    before = _points(terms, old_turns, claim.before.conditions)
    if before is None:
        return None
    wanted = {tuple(_value(terms, old, point) for old in claim.olds) for point in before}
    made: dict[tuple[int, ...], int] = {}
    for n, place in enumerate(claim.after):
        for point in _points(terms, claim.turns[n], place.conditions) or ():
            image = tuple(terms.images(n, point))
            made[image] = made.get(image, 0) + 1
    problem = _problem(claim, wanted, made)
    return problem and f"with {', '.join(f'{k}={v}' for k, v in sorted(shown(numbers).items()))}, {problem}"


def _problem(claim: Claim, wanted: set[tuple[int, ...]], made: dict[tuple[int, ...], int]) -> str | None:
    names = [" ".join(old.names) for old in claim.olds]

    def turn(image: tuple[int, ...]) -> str:
        values = ", ".join(f"{name}={value}" for name, value in zip(names, image, strict=True))
        return f" for {values}" if values else ""

    for image, count in sorted(made.items()):
        if image not in wanted:
            return f"{claim.text} runs{turn(image)}, which no loop of the pattern has"
        if claim.once and count > 1:
            return f"{claim.text} runs {count} times{turn(image)}"
    return next((f"{claim.text} never runs{turn(image)}" for image in sorted(wanted) if image not in made), None)


def _value(terms: Terms, old: Old, point: Scope) -> int:
    return int(terms.integers.number(old.form, point) if old.form is not None else point[old.names[0]])


def _points(terms: Terms, turns: tuple[Turn, ...], conditions: tuple[s.Syntax, ...]) -> list[Scope] | None:
    """The values that some loops take together."""
    number: Callable[..., Any] = terms.integers.number
    points: list[Scope] = [{}]
    for turn in turns:
        grown = []
        for point in points:
            start, stop, step = (number(e, point) for e in (turn.start, turn.stop, turn.step))
            grown += [{**point, turn.name: value} for value in range(start, min(stop, start + CELLS), max(step, 1))]
            if len(grown) > CELLS:
                return None
        points = grown
    return [point for point in points if all(terms.inside(turns, conditions, point))]
