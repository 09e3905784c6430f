"""Clauses in the order in which they run: `let`, `pick`, `where`, `prefer`, and each parameter before its first reader.

A `let` runs as late as it can: just before the first clause that reads it, or where a choice is open that it does not
depend on, and if nothing reads it, only when the rule rewrites. What only a `prefer` reads costs a search nothing, and
what only a default reads costs nothing where the parameter is pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...language import core as s
from ...language.asking import holds, pays
from ...language.evaluate import Expressions
from ...language.positions import parts
from ...language.questions import Closure, Environment
from ...language.rule import Rule
from .affine import names_in


@dataclass(frozen=True, eq=False)
class PlannedLet:
    name: str
    value: Closure
    place: s.Syntax
    reads: frozenset[str]
    pays: bool = False  # nothing that must be right reads it


@dataclass(frozen=True, eq=False)
class Pick:
    """first: the lets that do not depend on the choice, computed where it is open."""

    name: str
    domain: Closure
    place: s.Syntax
    reads: frozenset[str]
    first: tuple[PlannedLet, ...] = ()


@dataclass(frozen=True, eq=False)
class PlannedGuard:
    guard: s.Guard
    holds: Closure
    depth: int
    reads: frozenset[str]
    asked: Callable[[Closure, Environment], bool]


@dataclass(frozen=True, eq=False)
class PlannedParameter:
    """first: as of Pick; for_default: the lets that only its default reads."""

    name: str
    domain: Closure | None
    default: Closure | None
    place: s.Parameter
    depth: int
    reads: frozenset[str]
    first: tuple[PlannedLet, ...] = ()
    for_default: tuple[PlannedLet, ...] = ()


Step = PlannedLet | Pick | PlannedGuard | PlannedParameter


@dataclass(frozen=True)
class MatchPlan:
    """What runs to decide about a match; the lets that were not computed by then, and those that the template reads."""

    steps: tuple[Step, ...]
    left: tuple[PlannedLet, ...]
    late: tuple[PlannedLet, ...]


def plans(rule: Rule, expressions: Expressions) -> tuple[MatchPlan, MatchPlan]:
    """(for the default pipeline, for a search, which does not ask what is preferred)"""
    steps = _steps(rule, expressions)
    legal = [step for step in steps if not (isinstance(step, PlannedGuard) and step.guard.kind == "prefer")]
    built = _built(rule)
    return _plan(steps, built), _plan(_free_first(legal), built)


def plan(rule: Rule, expressions: Expressions) -> MatchPlan:
    """For the default pipeline alone."""
    return _plan(_steps(rule, expressions), _built(rule))


def _lets(rule: Rule) -> bool:
    return any(isinstance(clause, s.LetClause) for clause in rule.clauses)


def _built(rule: Rule) -> frozenset[str]:
    """What the template may read of lets."""
    return frozenset(_words((rule.rewrite, rule.covers))) if _lets(rule) else frozenset()


def _words(node: Any) -> Iterator[str]:
    """Every word of a template, in whatever role: a name may stand for a kernel or a dtype, too."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _words(part)
    elif isinstance(node, s.Syntax):
        for part in parts(type(node)):
            yield from _words(getattr(node, part))


def _free_first(steps: list[Step]) -> list[Step]:
    """What depends on no choice before everything that does: a search then asks it once for all values."""
    chosen: set[str] = set()
    free: list[Step] = []
    bound: list[Step] = []
    for step in steps:
        if isinstance(step, PlannedParameter | Pick) or not chosen.isdisjoint(step.reads):
            bound.append(step)
            if not isinstance(step, PlannedGuard):
                chosen.add(step.name)
        else:
            free.append(step)
    return free + bound


def _steps(rule: Rule, expressions: Expressions) -> list[Step]:
    """The clauses with the parameters placed between them."""
    parameters = {} if "local" in rule.attributes else {parameter.name: parameter for parameter in rule.parameters}
    steps: list[Step] = []
    proved = proved_names(rule) if _lets(rule) else frozenset()
    alone = not rule.parameters and all(isinstance(clause, s.Guard) for clause in rule.clauses)

    def place(names: frozenset[str]) -> None:
        for name in [name for name in parameters if name in names]:
            found = parameters.pop(name, None)
            if found is not None:
                reads = names_in((found.domain, found.default))
                place(reads)
                domain = None if found.domain is None else expressions.compile(found.domain)
                default = None if found.default is None else expressions.compile(found.default)
                steps.append(PlannedParameter(name, domain, default, found, len(steps), reads))

    for clause in rule.clauses:
        read = clause.condition if isinstance(clause, s.Guard) else _value(clause)
        reads = frozenset() if alone else names_in(read)
        place(reads)
        closure = expressions.compile(read)
        if isinstance(clause, s.Guard):
            asked = pays if clause.kind == "prefer" else holds
            steps.append(PlannedGuard(clause, closure, len(steps), reads, asked))
        elif isinstance(clause, s.LetClause):
            steps.append(PlannedLet(clause.name, closure, clause, reads, clause.name not in proved))
        else:
            steps.append(Pick(clause.name, closure, clause, reads))
    place(frozenset(parameters))
    return steps


def proved_names(rule: Rule) -> frozenset[str]:
    """The names that a `where`, a domain or the template depends on; all others only say what pays."""
    proved = set(names_in(tuple(p.domain for p in rule.parameters if p.domain is not None)))
    proved |= names_in(rule.rewrite) if rule.rewrite is not None else frozenset()
    for clause in reversed(rule.clauses):
        if isinstance(clause, s.Guard):
            proved |= names_in(clause.condition) if clause.kind == "where" else frozenset()
        elif not isinstance(clause, s.LetClause) or clause.name in proved:
            proved |= names_in(_value(clause))
    return frozenset(proved)


def _value(clause: Any) -> s.Syntax:
    return clause.value if isinstance(clause, s.LetClause) else clause.domain  # type: ignore[no-any-return]


def _plan(steps: list[Step], built: frozenset[str]) -> MatchPlan:
    """Lets moved towards their readers. Those of a choice stand with it, and at their first other reader again."""
    out: list[Step] = []
    waiting: list[PlannedLet] = []

    def release(wanted: frozenset[str]) -> None:
        for let in _in_order(waiting, wanted):
            waiting.remove(let)
            out.append(let)

    needed = _needed(steps)
    for step in steps:
        if isinstance(step, PlannedLet):
            waiting.append(step)
            continue
        if isinstance(step, PlannedParameter | Pick):
            release(names_in(step.place.domain) if isinstance(step, PlannedParameter) else step.reads)  # type: ignore[attr-defined]
            first = _in_order(waiting, frozenset(let.name for let in waiting if let.name in needed))
            step = replace(step, first=first)
            if isinstance(step, PlannedParameter):
                step = replace(step, for_default=_in_order(waiting, step.reads))
        else:
            release(step.reads)
        out.append(step)
    return MatchPlan(tuple(out), tuple(waiting), _in_order(waiting, built))


def _in_order(lets: list[PlannedLet], wanted: frozenset[str]) -> tuple[PlannedLet, ...]:
    """The lets of some names and those that they read, each behind what it reads."""
    found: dict[PlannedLet, None] = {}
    for let in lets:
        if let.name in wanted and let not in found:
            found |= dict.fromkeys((*_in_order([other for other in lets if other is not let], let.reads), let))
    return tuple(found)


def _needed(steps: list[Step]) -> frozenset[str]:
    """The names that some guard, choice or parameter reads, through lets."""
    wanted: set[str] = set()
    for step in reversed(steps):
        if not isinstance(step, PlannedLet) or step.name in wanted:
            wanted |= step.reads
    return frozenset(wanted)
