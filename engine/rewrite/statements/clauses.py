"""Clauses in their order: `let`, `pick`, `where`, `prefer`, and each parameter before the first clause that reads it.

A `let` runs as late as it can: just before the first clause that reads it, or where a choice is open that it does not
depend on, and if nothing reads it, only when the rule rewrites. What only a `prefer` reads costs a search nothing, and
what only a default reads costs nothing where the parameter is pinned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ....ir.diagnostic import DplcError, InternalError
from ....ir.expr import Undecided
from ....ir.sizes import among_choices, at_hint, at_the_hints
from ...language import core as s
from ...language.asking import holds, pays
from ...language.questions import MISTAKES, Closure, Environment, NotComputed
from ...language.rule import Rule
from ..why_not import Evidence
from .affine import names_in
from .expressions import RuleExpressions


class Every:
    """A pin that leaves a parameter open: every value of its domain is a site."""

    def __repr__(self) -> str:
        return "EVERY"


EVERY = Every()


@dataclass(frozen=True)
class PlannedLet:
    name: str
    value: Closure
    place: s.Syntax
    reads: frozenset[str]
    pays: bool = False  # nothing that must be right reads it


@dataclass(frozen=True)
class Pick:
    """first: the lets that do not depend on the choice, computed where it is open."""

    name: str
    domain: Closure
    place: s.Syntax
    reads: frozenset[str]
    first: tuple[PlannedLet, ...] = ()


@dataclass(frozen=True)
class PlannedGuard:
    guard: s.Guard
    holds: Closure
    depth: int
    reads: frozenset[str]


@dataclass(frozen=True)
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


def plans(rule: Rule, expressions: RuleExpressions) -> tuple[MatchPlan, MatchPlan]:
    """(for the default pipeline, for a search, which does not ask what is preferred)"""
    steps = _steps(rule, expressions)
    legal = [step for step in steps if not (isinstance(step, PlannedGuard) and step.guard.kind == "prefer")]
    built = frozenset(_words((rule.rewrite, rule.covers)))
    return _plan(steps, built), _plan(_free_first(legal), built)


def _words(node: Any) -> Iterator[str]:
    """Every word of a template, in whatever role: a name may stand for a kernel or a dtype, too."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _words(part)
    elif isinstance(node, s.Syntax):
        for field in fields(node):
            yield from _words(getattr(node, field.name))


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


def _steps(rule: Rule, expressions: RuleExpressions) -> list[Step]:
    """The clauses with the parameters placed between them."""
    parameters = {} if "local" in rule.attributes else {parameter.name: parameter for parameter in rule.parameters}
    steps: list[Step] = []
    proved = proved_names(rule)

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
        reads = names_in(read)
        place(reads)
        closure = expressions.compile(read)
        if isinstance(clause, s.Guard):
            steps.append(PlannedGuard(clause, closure, len(steps), reads))
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


@dataclass(frozen=True, slots=True)
class OpenChoice:
    """A plan that stands before a choice: the parameter or pick, its values here, and where the plan goes on."""

    step: PlannedParameter | Pick
    values: tuple[Any, ...]
    env: Environment
    position: int

    @property
    def name(self) -> str:
        return self.step.name


class PlanRunner:
    """Runs a plan over the environment of a match."""

    def __init__(self, rule: Rule, plan: MatchPlan):
        self.rule, self.plan = rule, plan

    def solutions(
        self, env: Environment, pinned: Mapping[str, Any], evidence: Evidence | None, at: int = 0
    ) -> Iterator[Environment]:
        """Every complete environment: one per pick and per open parameter value. `env` is changed."""
        found = self.advance(env, pinned, evidence, at)
        if found.__class__ is OpenChoice:
            for value in found.values:  # type: ignore[union-attr]
                chosen = {**found.env, found.name: value}  # type: ignore[union-attr]
                yield from self.solutions(chosen, pinned, evidence, found.position)  # type: ignore[union-attr]
        elif found is not None:
            yield found  # type: ignore[misc]

    def advance(
        self, env: Environment, pinned: Mapping[str, Any], evidence: Evidence | None, at: int = 0
    ) -> Environment | OpenChoice | None:
        """Run the plan up to its next choice of several values, or to its end; None where a clause refuses."""
        steps = self.plan.steps
        for position in range(at, len(steps)):
            step = steps[position]
            kind = step.__class__
            if kind is PlannedLet:
                if step.name not in env and not self.let(step, env, evidence):  # type: ignore[union-attr]
                    return None
            elif kind is PlannedGuard:
                if not self.passes(step, env):  # type: ignore[arg-type]
                    if evidence is not None:
                        evidence.guard(self.rule, step.guard, step.depth, env)  # type: ignore[union-attr]
                    return None
            else:
                values = self.values(step, env, pinned, evidence)
                if len(values) == 1:
                    env[step.name] = values[0]  # type: ignore[union-attr]
                elif values and self.all_of(step.first, env, evidence):  # type: ignore[union-attr]
                    return OpenChoice(step, tuple(values), env, position + 1)  # type: ignore[arg-type]
                else:
                    return None
        return env

    def default(self, step: PlannedParameter | Pick, env: Environment) -> Any:
        """The value that a parameter would have by itself; None where it has none here."""
        if isinstance(step, Pick) or step.default is None:
            return None
        try:
            return self._default(step, env)
        except (Undecided, *MISTAKES):
            return None

    def _default(self, step: PlannedParameter, env: Environment) -> Any:
        """A default is a choice: of a size it is what the size is as a rule."""
        with at_the_hints():
            value = step.default(env)  # type: ignore[misc]
        return tuple(map(at_hint, value)) if value.__class__ is tuple else at_hint(value)

    def passes(self, step: PlannedGuard, env: Environment) -> bool:
        try:
            return (pays if step.guard.kind == "prefer" else holds)(step.holds, env)
        except InternalError as error:
            raise DplcError(f"rule `{self.rule.name}`: {error.what}", step.guard.span) from error
        except MISTAKES as error:
            raise self.mistake(error, step.guard.condition) from error

    def all_of(self, lets: tuple[PlannedLet, ...], env: Environment, evidence: Evidence | None) -> bool:
        """Compute some lets, unless that was done; whether they have values."""
        return all(let.name in env or self.let(let, env, evidence) for let in lets)

    def let(self, step: Any, env: Environment, evidence: Evidence | None) -> bool:
        try:
            env[step.name] = self.computed(step, env)
        except Undecided as undecided:
            if evidence is not None:
                evidence.undecided(self.rule, step.place.span, step.name, undecided.condition)
            return False
        return True

    def computed(self, step: Any, env: Environment) -> Any:
        """The value of a let. What tells only whether a rule pays is asked at the hints of sizes."""
        if not step.pays:
            return self.ask(step.value, env, step.place)
        with at_the_hints():
            return self.ask(step.value, env, step.place)

    def ask(self, closure: Closure, env: Environment, place: Any) -> Any:
        try:
            return closure(env)
        except MISTAKES as error:
            raise self.mistake(error, getattr(place, "value", place)) from error

    def mistake(self, error: Exception, place: s.Syntax) -> DplcError:
        if isinstance(error, NotComputed):
            return DplcError(f"rule `{self.rule.name}`: {error.what}", error.span)
        return DplcError(
            f"rule `{self.rule.name}`: this cannot be evaluated: {error or type(error).__name__}", place.span
        )

    def values(self, step: Any, env: Environment, pinned: Mapping[str, Any], evidence: Evidence | None) -> Any:
        """The values that a parameter or a pick may have here. A value outside of its domain is a refusal."""
        if isinstance(step, Pick):
            return tuple(self.ask(step.domain, env, step.place))
        if step.name in env:  # the pattern binds it
            return (env[step.name],)
        pin = pinned.get(step.name)
        domain = default = None
        try:
            with among_choices():
                domain = step.domain(env) if step.domain else None
            if step.default and (step.name not in pinned or (pin is EVERY and step.domain is None)):
                if not self.all_of(step.for_default, env, evidence):
                    return ()
                default = self._default(step, env)
        except Undecided as undecided:
            if evidence is not None:
                evidence.undecided(self.rule, step.place.span, step.name, undecided.condition, step.depth)
            return ()
        except MISTAKES as error:  # `max` of an empty list, say
            why = error.what if isinstance(error, NotComputed) else str(error)
            return self.refuse(step, evidence, f"{step.name} has no default here: {why}")
        if pin is EVERY and domain is not None:
            return tuple(domain)
        if step.name in pinned and pin is not EVERY:
            return (pin,) if domain is None or pin in domain else self.outside(step, pin, domain, evidence, "")
        if default is None:
            return (
                (domain[0],)
                if domain
                else self.refuse(step, evidence, f"{step.name} has no value: its domain is empty")
            )
        if domain is None or default in domain:
            return (default,)
        if self.rule.wherever_legal:  # no value pays: the first that is legal
            return tuple(domain)
        return self.outside(step, default, domain, evidence, "the default ")

    def outside(
        self, step: PlannedParameter, value: Any, domain: Any, evidence: Evidence | None, which: str
    ) -> tuple[()]:
        if evidence is not None:
            evidence.domain(self.rule, step.place, step.depth, which, value, domain)
        return ()

    def refuse(self, step: PlannedParameter, evidence: Evidence | None, text: str) -> tuple[()]:
        if evidence is not None:
            evidence.refuse(self.rule, step.depth, step.place.span, text)
        return ()

    def finish(self, env: Environment, all_: bool = False) -> None:
        """Compute what only the template reads, or all that is left."""
        for let in self.plan.left if all_ else self.plan.late:
            if let.name not in env:
                env[let.name] = self.computed(let, env)
