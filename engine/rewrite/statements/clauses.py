"""Runs the clauses of a rule over the environment of a match, in their plan's order, on every level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ....ir.diagnostic import DplcError, InternalError, Span
from ....ir.expr import Undecided
from ....ir.sizes import among_choices, at_hint, at_the_hints
from ...language import core as s
from ...language.questions import MISTAKES, Closure, Environment, NotComputed
from ...language.rule import Rule
from .planning import MatchPlan, Pick, PlannedGuard, PlannedLet, PlannedParameter


class Refuses(Protocol):
    """Is told why a match was refused: `Evidence`, or the site of a rule on tensor."""

    def guard(self, rule: Rule, guard: s.Guard, depth: int, env: Environment) -> None: ...
    def domain(self, rule: Rule, place: s.Parameter, depth: int, which: str, value: Any, domain: Any) -> None: ...
    def refuse(self, rule: Rule, depth: int, span: Span, text: str) -> None: ...
    def undecided(self, rule: Rule, span: Span, name: str, condition: Any, depth: int = 0) -> None: ...


class Every:
    """A pin that leaves a parameter open: every value of its domain is a site."""

    def __repr__(self) -> str:
        return "EVERY"


EVERY = Every()


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
        self, env: Environment, pinned: Mapping[str, Any], evidence: Refuses | None, at: int = 0
    ) -> Iterator[Environment]:
        """Every complete environment: one per pick and per open parameter value. `env` is changed."""
        found = self.advance(env, pinned, evidence, at)
        if found.__class__ is OpenChoice:
            for value in found.values:  # type: ignore[union-attr]
                chosen = {**found.env, found.name: value}  # type: ignore[union-attr]
                yield from self.solutions(chosen, pinned, evidence, found.position)  # type: ignore[union-attr]
        elif found is not None:
            yield found  # type: ignore[misc]

    def first(self, every: bool = False) -> Callable[..., Environment | None]:
        """A function as `advance` that gives the first complete environment, with the lets that the template reads, or
        with every one. Where nothing is to choose or left to compute, it is `advance` itself.
        """
        lets = self.plan.left if every else self.plan.late
        if not lets and all(step.__class__ is PlannedGuard for step in self.plan.steps):
            return self._guarded
        chooses = any(step.__class__ is Pick or getattr(step, "domain", None) is not None for step in self.plan.steps)

        def first(env: Environment, pinned: Mapping[str, Any], evidence: Refuses | None) -> Environment | None:
            found = next(self.solutions(env, pinned, evidence), None)
            return found if found is not None and self.all_of(lets, found, evidence) else None

        return first if lets or chooses else self.advance  # type: ignore[return-value]

    def _guarded(self, env: Environment, pinned: Mapping[str, Any], evidence: Refuses | None) -> Environment | None:
        """`advance` of a plan of guards alone, as most rules on values have it."""
        step: Any = None
        try:
            for step in self.plan.steps:
                if not step.asked(step.holds, env):
                    if evidence is not None:
                        evidence.guard(self.rule, step.guard, step.depth, env)
                    return None
        except (InternalError, *MISTAKES) as error:
            raise self.mistaken_guard(error, step.guard) from error
        return env

    def advance(
        self, env: Environment, pinned: Mapping[str, Any], evidence: Refuses | None, at: int = 0
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
                try:
                    passed = step.asked(step.holds, env)  # type: ignore[union-attr]
                except (InternalError, *MISTAKES) as error:
                    raise self.mistaken_guard(error, step.guard) from error  # type: ignore[union-attr]
                if not passed:
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

    def mistaken_guard(self, error: Exception, guard: s.Guard) -> DplcError:
        if isinstance(error, InternalError):
            return DplcError(f"rule `{self.rule.name}`: {error.what}", guard.span)
        return self.mistake(error, guard.condition)

    def all_of(self, lets: tuple[PlannedLet, ...], env: Environment, evidence: Refuses | None) -> bool:
        """Compute some lets, unless that was done; whether they have values."""
        return all(let.name in env or self.let(let, env, evidence) for let in lets)

    def let(self, step: Any, env: Environment, evidence: Refuses | None) -> bool:
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

    def values(self, step: Any, env: Environment, pinned: Mapping[str, Any], evidence: Refuses | None) -> Any:
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
        self, step: PlannedParameter, value: Any, domain: Any, evidence: Refuses | None, which: str
    ) -> tuple[()]:
        if evidence is not None:
            evidence.domain(self.rule, step.place, step.depth, which, value, domain)
        return ()

    def refuse(self, step: PlannedParameter, evidence: Refuses | None, text: str) -> tuple[()]:
        if evidence is not None:
            evidence.refuse(self.rule, step.depth, step.place.span, text)
        return ()

    def finish(self, env: Environment, all_: bool = False) -> None:
        """Compute what only the template reads, or all that is left."""
        for let in self.plan.left if all_ else self.plan.late:
            if let.name not in env:
                env[let.name] = self.computed(let, env)
