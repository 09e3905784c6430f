"""One rule, compiled at its first use: its matches, its conditions, and the statements that it builds for a match."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ....codegen.target import Target
from ....ir.diagnostic import DplcError, InternalError, did_you_mean
from ....ir.expr import Undecided, only_sizes
from ....ir.node import contents, replace
from ....ir.program import Block, Kernel
from ....ir.sizes import among_choices, at_hint, at_the_hints, sizes_in, telling, value_of
from ....ir.tile import Tile
from ...language import core as s
from ...language.evaluate import MISTAKES, Closure, Environment, Expressions, NotComputed, holds, pays
from ...language.rule import Rule, is_built_in
from ...language.spelling import expression
from ...language.typed_slots import children, every
from ..trace import Evidence, WeighedChoice, held
from .pattern import Pattern, RuleExpressions, compile_pattern, free_names
from .site import NAMES, Names, Path, Site, places, splice
from .template import Template, apart, declare, defined, families, weighed

# Clauses in the order in which they run, on every level: `let`, `pick`, `require`, `prefer`, and each parameter before
# its first reader.
#
# A `let` runs as late as possible: just before the first clause that reads it. A let that does not depend on an open
# choice runs where the choice opens. A let that only the template reads runs when the rule rewrites. So a search does
# not pay for a let that only a `prefer` reads, and a pinned parameter does not pay for its default.


@dataclass(frozen=True, eq=False)
class PlannedLet:
    name: str
    value: Closure
    place: s.Syntax
    reads: frozenset[str]
    pays: bool = False  # nothing that must be right reads it


@dataclass(frozen=True, eq=False)
class Pick:
    """Planned `pick`. first: the lets that do not depend on the choice, computed where it is open."""

    name: str
    domain: Closure
    place: s.Syntax
    reads: frozenset[str]
    first: tuple[PlannedLet, ...] = ()


class PlannedGuard(NamedTuple):
    guard: s.Guard
    holds: Closure
    depth: int
    reads: frozenset[str]
    asked: Callable[[Closure, Environment], bool]


@dataclass(frozen=True, eq=False)
class PlannedParameter:
    """Planned parameter. first: as in `Pick`; for_default: the lets that only its default reads."""

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
    """Steps that decide about a match.

    left: the lets that the steps do not compute. late: those among them that the template reads.
    """

    steps: tuple[Step, ...]
    left: tuple[PlannedLet, ...]
    late: tuple[PlannedLet, ...]


def plans(rule: Rule, expressions: Expressions) -> tuple[MatchPlan, MatchPlan]:
    """Return the plan for the default pipeline and the plan for a search, which ignores `prefer` clauses."""
    steps = _steps(rule, expressions)
    legal = [step for step in steps if not (isinstance(step, PlannedGuard) and step.guard.kind == "prefer")]
    built = _built(rule)
    return _plan(steps, built), _plan(_free_first(legal), built)


def plan(rule: Rule, expressions: Expressions) -> MatchPlan:
    """Return the plan for the default pipeline alone."""
    return _plan(_steps(rule, expressions), _built(rule))


def _lets(rule: Rule) -> bool:
    return any(isinstance(clause, s.LetClause) for clause in rule.clauses)


def _built(rule: Rule) -> frozenset[str]:
    """Return the words of the template, which include the lets that it reads; empty if the rule has no lets."""
    return frozenset(_words((rule.rewrite, rule.covers))) if _lets(rule) else frozenset()


def _words(node: Any) -> Iterator[str]:
    """Yield every word of a template, in whatever role: a name may denote a kernel or a dtype, too."""
    if isinstance(node, s.Syntax):
        node = children(node)
    if isinstance(node, str):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _words(part)


def _free_first(steps: list[Step]) -> list[Step]:
    """Put the steps that depend on no choice first: a search then evaluates them once for all values."""
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
    """Return the clauses with each parameter at its position among them."""
    parameters = {} if "local" in rule.attributes else {parameter.name: parameter for parameter in rule.parameters}
    steps: list[Step] = []
    proved = proved_names(rule) if _lets(rule) else frozenset()
    alone = not rule.parameters and all(isinstance(clause, s.Guard) for clause in rule.clauses)

    def place(names: frozenset[str]) -> None:
        for name in [name for name in parameters if name in names]:
            found = parameters.pop(name, None)
            if found is not None:
                reads = free_names((found.domain, found.default))
                place(reads)
                domain = None if found.domain is None else expressions.compile(found.domain)
                default = None if found.default is None else expressions.compile(found.default)
                steps.append(PlannedParameter(name, domain, default, found, len(steps), reads))

    for clause in rule.clauses:
        read = clause.condition if isinstance(clause, s.Guard) else _value(clause)
        reads = frozenset() if alone else free_names(read)
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
    """Return the names that a `require`, a domain or the template depends on; others matter only for profitability."""
    proved = set(free_names(tuple(p.domain for p in rule.parameters if p.domain is not None)))
    proved |= free_names(rule.rewrite) if rule.rewrite is not None else frozenset()
    for clause in reversed(rule.clauses):
        if isinstance(clause, s.Guard):
            proved |= free_names(clause.condition) if clause.kind == "require" else frozenset()
        elif not isinstance(clause, s.LetClause) or clause.name in proved:
            proved |= free_names(_value(clause))
    return frozenset(proved)


def _value(clause: Any) -> s.Syntax:
    return clause.value if isinstance(clause, s.LetClause) else clause.domain  # type: ignore[no-any-return]


def _plan(steps: list[Step], built: frozenset[str]) -> MatchPlan:
    """Move lets towards their readers. The lets of a choice go with it, and again to their first other reader."""
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
            release(free_names(step.place.domain) if isinstance(step, PlannedParameter) else step.reads)  # type: ignore[attr-defined]
            first = _in_order(waiting, frozenset(let.name for let in waiting if let.name in needed))
            step = dataclasses.replace(step, first=first)
            if isinstance(step, PlannedParameter):
                step = dataclasses.replace(step, for_default=_in_order(waiting, step.reads))
        else:
            release(step.reads)
        out.append(step)
    return MatchPlan(tuple(out), tuple(waiting), _in_order(waiting, built))


def _in_order(lets: list[PlannedLet], wanted: frozenset[str]) -> tuple[PlannedLet, ...]:
    """Return the lets of some names and the lets that they read, each after those that it reads."""
    found: dict[PlannedLet, None] = {}
    for let in lets:
        if let.name in wanted and let not in found:
            found |= dict.fromkeys((*_in_order([other for other in lets if other is not let], let.reads), let))
    return tuple(found)


def _needed(steps: list[Step]) -> frozenset[str]:
    """Return the names that some guard, choice or parameter reads, through lets."""
    wanted: set[str] = set()
    for step in reversed(steps):
        if not isinstance(step, PlannedLet) or step.name in wanted:
            wanted |= step.reads
    return frozenset(wanted)


Pinned = Mapping[str, Any]  # values of parameters
EVERY = object()  # a pin that leaves a parameter open: every value of its domain is a site


@dataclass(frozen=True, slots=True)
class OpenChoice:
    """Plan that stopped at a choice: the parameter or pick, its values here, and the position to continue from."""

    step: PlannedParameter | Pick
    values: tuple[Any, ...]
    env: Environment
    position: int

    @property
    def name(self) -> str:
        return self.step.name


class PlanExecutor:
    """Executor of a plan over the environment of a match."""

    def __init__(self, rule: Rule, plan: MatchPlan):
        self.rule, self.plan = rule, plan

    def solutions(
        self, env: Environment, pinned: Pinned, evidence: Evidence | None, at: int = 0
    ) -> Iterator[Environment]:
        """Yield every complete environment: one per pick and per open parameter value. `env` is changed."""
        found = self.advance(env, pinned, evidence, at)
        if found.__class__ is OpenChoice:
            for value in found.values:  # type: ignore[union-attr]
                chosen = {**found.env, found.name: value}  # type: ignore[union-attr]
                yield from self.solutions(chosen, pinned, evidence, found.position)  # type: ignore[union-attr]
        elif found is not None:
            yield found  # type: ignore[misc]

    def first(self, every: bool = False) -> Callable[..., Environment | None]:
        """Return a function like `advance` that returns the first complete environment.

        The environment has the lets that the template reads, or every let. If nothing is left to choose or to compute,
        the function is `advance` itself.
        """
        lets = self.plan.left if every else self.plan.late
        if not lets and all(step.__class__ is PlannedGuard for step in self.plan.steps):
            return self._guarded
        chooses = any(step.__class__ is Pick or getattr(step, "domain", None) is not None for step in self.plan.steps)

        def first(env: Environment, pinned: Pinned, evidence: Evidence | None) -> Environment | None:
            found = next(self.solutions(env, pinned, evidence), None)
            return found if found is not None and self.all_of(lets, found, evidence) else None

        return first if lets or chooses else self.advance  # type: ignore[return-value]

    def _guarded(self, env: Environment, pinned: Pinned, evidence: Evidence | None) -> Environment | None:
        """Run `advance` for a plan of guards alone, as most rules on values have it."""
        guard: Any = None
        try:
            for guard, holds, depth, _, asked in self.plan.steps:  # type: ignore[misc]
                if not asked(holds, env):
                    if evidence is not None:
                        evidence.guard(self.rule, guard, depth, env)
                    return None
        except (InternalError, *MISTAKES) as error:
            raise self.mistaken_guard(error, guard) from error
        return env

    def advance(
        self, env: Environment, pinned: Pinned, evidence: Evidence | None, at: int = 0
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
        """Return the default value of a parameter; None if it has none here."""
        if isinstance(step, Pick) or step.default is None:
            return None
        try:
            return self._default(step, env)
        except (Undecided, *MISTAKES):
            return None

    def _default(self, step: PlannedParameter, env: Environment) -> Any:
        """Return the value of a default, as a number: a size is replaced by its example value."""
        with at_the_hints():
            value = step.default(env)  # type: ignore[misc]
        return tuple(map(at_hint, value)) if value.__class__ is tuple else at_hint(value)

    def mistaken_guard(self, error: Exception, guard: s.Guard) -> DplcError:
        if isinstance(error, InternalError):
            return DplcError(f"rule `{self.rule.name}`: {error.what}", guard.span)
        return self.mistake(error, guard.condition)

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
        """Return the value of a let. A let that only profitability depends on uses the example values of dimensions."""
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

    def values(self, step: Any, env: Environment, pinned: Pinned, evidence: Evidence | None) -> Any:
        """Return the values that a parameter or a pick may have here. A value outside of its domain is a refusal."""
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


# Every split implies that its parts cover the extent. dplc checks this at every firing.


def cover_check(rule: Rule, cover: s.Cover, expressions: RuleExpressions) -> Callable[[Environment], None]:
    """Return a check that the parts of a split cover it. It raises DplcError.

    The parts have fewer values than the split index; or more, if they must divide it.
    """
    compute_size, compute_parts = expressions.compile(cover.size), list(map(expressions.compile, cover.parts))

    def check(env: Environment) -> None:
        counts = [part(env) for part in compute_parts]
        for whole, total in _pairs(compute_size(env), functools.reduce(operator.mul, counts)):
            if total < whole or (cover.divide and total != whole):
                said = " * ".join(f"({text})" if " " in text else text for text in map(expression, cover.parts))
                left, size = "leave values out" if total < whole else "are more", expression(cover.size)
                what = f"rule `{rule.name}`: the parts of `{cover.what}` {left}: {said} is {total}, of {whole}"
                hint = f"round up: `ceildiv({size}, ..)`"
                if cover.divide:
                    ask = "ask for that in a `require`, or write"
                    hint = f"a `//` says that the parts divide it: {ask} `ceildiv({size}, ..)`"
                raise DplcError(what, cover.span, (), hint)

    return check


def _pairs(size: Any, total: Any) -> Iterator[tuple[int, int]]:
    """Yield pairs (number of values that are split, number of values in the parts).

    For symbolic dimensions, the pairs belong to bindings that distinguish most expressions. Yields nothing if another
    value is part of the size, as for a loop whose end depends on an axis.
    """
    if size.__class__ is int and total.__class__ is int:
        yield size, total
        return
    if not all(number.__class__ is int or only_sizes(number) for number in (size, total)):
        return
    for values in telling(sizes_in((size, total))):
        yield value_of(size, values), value_of(total, values)


Program = tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """One legal way to fire: `block at path, [start:end]`, and what everything is bound to.

    ordinal: which of the ways to match at this start (split of runs, hole of a context), from 0.
    """

    path: tuple[int, ...]
    start: int
    end: int
    ordinal: int
    env: Environment

    @property
    def where(self) -> str:
        """`0/2/1#1`: the path and the start from the module down; `#n` for the n-th way to match there."""
        return "/".join(map(str, (*self.path, self.start))) + (f"#{self.ordinal}" if self.ordinal else "")


class CompiledRule:
    """A rule of the levels module, loop, tile or kernel."""

    def __init__(self, rule: Rule, locals_: tuple[Rule, ...]):
        self.rule, self.locals = rule, locals_
        self.changed = 0  # runs that a local rule changed so far
        self.local = "local" in rule.attributes
        self.given = tuple(parameter.name for parameter in rule.parameters) if self.local else ()
        self.expressions = RuleExpressions(rule.level)
        self.parameters = {parameter.name: EVERY for parameter in rule.parameters}
        picks = (clause.name for clause in rule.clauses if isinstance(clause, s.PickClause))
        self.chosen = (*self.parameters, *picks)

    # ---- the parts, compiled when first needed
    def _pattern(self, evidence: bool) -> Pattern:
        return compile_pattern(self.rule.match, self.expressions, self.rule.name, self.given, evidence)

    @cached_property
    def pattern(self) -> Pattern:
        return self._pattern(False)

    @cached_property
    def needs(self) -> int:
        """Marks of classes that a kernel needs for the pattern to match."""
        return 0 if self.rule.level == "module" and len(self.rule.match) > 1 else self.pattern.needs

    @cached_property
    def bars(self) -> int:
        """The marks of classes with which it has none."""
        return Tile.mark if self.rule.level == "loop" else 0

    @cached_property
    def reporting(self) -> Pattern:
        """The variant that collects near misses."""
        return self._pattern(True)

    @cached_property
    def decisions(self) -> tuple[PlanExecutor, PlanExecutor]:
        """Executor for the default pipeline, and for a search."""
        default, search = plans(self.rule, self.expressions)
        return PlanExecutor(self.rule, default), PlanExecutor(self.rule, search)

    @cached_property
    def known(self) -> frozenset[str]:
        """The names that are bound when the template is built, less those that it defines."""
        clauses = {clause.name for clause in self.rule.clauses if not isinstance(clause, s.Guard)}
        parameters = {parameter.name for parameter in self.rule.parameters}
        return frozenset(self.pattern.names) | clauses | parameters | {"target"}

    @cached_property
    def defines(self) -> tuple[str, ...]:
        return defined(self.rule.rewrite, self.known)

    @cached_property
    def template(self) -> Closure:
        known = self.known | set(self.defines)
        runs = families(self.rule.match)
        return Template(self.rule.level, known, self._local, runs).block(self.rule.rewrite)

    @cached_property
    def checked(self) -> bool:
        """Return whether every result is checked: true for rules that are not built in."""
        return not is_built_in(self.rule)

    @cached_property
    def covers(self) -> list[Callable[[Environment], None]]:
        """Checks that the parts of its splits cover them."""
        return [cover_check(self.rule, cover, self.expressions) for cover in self.rule.covers]

    @cached_property
    def weighs(self) -> bool:
        return any(every((self.rule.parameters, self.rule.clauses), s.Chosen))

    def weighed(self, match_env: Environment) -> tuple[WeighedChoice, ...]:
        """Return the alternatives of each `choose` at a match, with their costs."""
        return tuple(weighed(self.rule, self.expressions, self._whole(match_env))) if self.weighs else ()

    def held(self, match_env: Environment) -> tuple[str, ...]:
        """Return the guards that held at a match, each with the values that it saw."""
        return held(self.rule, self._whole(match_env), self.expressions)

    def _whole(self, match_env: Environment) -> Environment:
        """Return all names of a match, also the lets that only a search leaves out."""
        env = dict(match_env)
        self.decisions[True].finish(env, all_=True)
        return env

    def _local(self, name: str, span: Any) -> Any:
        found = next((rule for rule in self.locals if rule.name == name), None)
        if found is None:
            names = [rule.name for rule in self.locals]
            raise DplcError(f"there is no local rule `{name}`", span, (), did_you_mean(name, names))
        rule = compiled_rule(found, self.locals)
        return lambda block, arguments, env: rule.everywhere(block, arguments, env)

    # ---- sites
    def matches(
        self, program: Program, kernels: Iterable[int], target: Target, pinned: Pinned,
        evidence: Evidence | None = None, search: bool = False,
    ) -> Iterator[Match]:  # fmt: skip
        """Yield every legal way to fire in the given kernels, lazily: pre-order, left to right, pattern order."""
        pattern = self.pattern if evidence is None else self.reporting
        decision = self.decisions[search]
        pinned = {**self.parameters, **pinned} if search else pinned
        given = self.taken([pinned[name] for name in self.given if name in pinned]) if self.local else None
        for path, block, start in self.starts(pattern, program, kernels, evidence is not None):
            for match in self.matches_at(pattern, (program, path, target), block, start, evidence, given):
                if self.agrees(match.env, pinned, evidence):
                    for found in decision.solutions(match.env, pinned, evidence):
                        yield Match(path, start, match.end, match.ordinal, found)

    def matches_at(
        self, pattern: Pattern, where: tuple[Program, Path, Target], block: Block, start: int,
        evidence: Evidence | None = None, given: Mapping[str, Any] | None = None,
    ) -> Iterator[Match]:  # fmt: skip
        """Yield every match of the pattern alone at one start. where: the arguments of the Site."""
        near = None if evidence is None else evidence.near
        site = None
        for ordinal, (end, env) in enumerate(pattern.match(block, start, {"target": where[2], **(given or {})}, near)):
            site = env["@site"] = site or Site(*where)
            yield Match(site.path, start, end, ordinal, env)

    def starts(self, pattern: Pattern, program: Program, kernels: Iterable[int], all_: bool) -> Iterator[Any]:
        """Yield (path, block, start) where the first statement could match. all_: also where it surely does not."""
        root = None if all_ else pattern.root
        if self.rule.level == "module":
            yield from (((), program, number) for number in kernels if all_ or self.possible(program[number]))
            return
        for number in kernels:
            kernel = program[number]
            if not (self.visible(kernel) if all_ else self.possible(kernel)):
                continue
            for path, block, position in places(kernel, root):
                yield (number, *path), block, position

    def possible(self, kernel: Kernel) -> bool:
        """Return whether the kernel has the statements of the pattern (a run of kernels may find them elsewhere)."""
        found = kernel._contents or contents(kernel)
        return not self.needs & ~found and not self.bars & found

    def visible(self, kernel: Kernel) -> bool:
        return not self.bars & contents(kernel)

    def agrees(self, env: Environment, pinned: Pinned, evidence: Evidence | None) -> bool:
        """Return whether variables of the match that are pinned have the pinned value."""
        for name, value in pinned.items():
            if name in env and value is not EVERY and env[name] != value:
                if evidence is not None:
                    evidence.refuse(self.rule, 0, self.rule.span, f"{name} is pinned to another value")
                return False
        return True

    # ---- rewriting
    def build(self, match_env: Environment) -> Block:
        """Return the statements that the template builds for a match."""
        env = dict(match_env)
        self.decisions[True].finish(env)  # the lets that a search leaves out are a superset
        for cover in self.covers:
            cover(env)
        env.setdefault(NAMES, Names(env["@site"], env))
        declare(self.defines, env)
        return self.template(env)  # type: ignore[no-any-return]

    def rewrite(self, program: Program, match: Match) -> Program:
        """Return the program after one firing."""
        block: Any = program
        for position in match.path:
            block = block[position].body
        made = apart(self.build(match.env), (*block[: match.start], *block[match.end :]), match.env["@site"])
        return splice(program, match.path, match.start, match.end, made)  # type: ignore[no-any-return]

    def taken(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments of a local rule by name. Raises DplcError if their number is wrong."""
        if len(arguments) != len(self.given):
            what = f"local rule `{self.rule.name}` takes {len(self.given)} arguments, not {len(arguments)}"
            raise DplcError(what, self.rule.span)
        return dict(zip(self.given, arguments, strict=True))

    def everywhere(self, block: Block, arguments: tuple[Any, ...], outer: Environment) -> Block:
        """Apply a local rule to a captured run: bottom-up, one pass; results are not matched again."""
        base = {"target": outer["target"], **self.taken(arguments)}
        names = outer.get(NAMES) or Names(outer["@site"], outer)
        made = self._pass(block, {**base, NAMES: names, "@site": outer["@site"]})
        self.changed += made != block
        return made

    def _pass(self, block: Block, base: Environment) -> Block:
        inner: list[Any] = []
        for statement in block:
            if "body" in type(statement).by_name:
                statement = replace(statement, body=self._pass(statement.body, base))  # type: ignore[attr-defined,call-arg]
            inner.append(statement)
        whole = tuple(inner)
        out: list[Any] = []
        position = 0
        while position < len(whole):
            end, new = self._first(whole, position, base)
            out += new
            position = end
        return tuple(out)

    def _first(self, block: Block, start: int, base: Environment) -> tuple[int, Block]:
        root = self.pattern.root
        if root is None or block[start].__class__ is root:
            for end, env in self.pattern.match(block, start, base, None):
                for found in self.decisions[0].solutions(env, {}, None):
                    return end, self.build(found)
        return start + 1, (block[start],)


def compiled_rule(rule: Rule, locals_: tuple[Rule, ...]) -> CompiledRule:
    """Return a rule, compiled once for all engines with the same local rules."""
    return rule.compiled(locals_, lambda: CompiledRule(rule, locals_))
