"""One rule, compiled at its first use: its matches, its conditions, and the statements that it builds for a match."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from ....codegen.target import Target
from ....ir.diagnostic import DplcError, InternalError, Span, did_you_mean
from ....ir.expr import Undecided, only_sizes
from ....ir.node import contents
from ....ir.program import Block, Kernel
from ....ir.sizes import among_choices, at_hint, at_the_hints, sizes_in, telling, value_of
from ....ir.tile import Tile
from ...language.core import (
    DECREASES,
    Chosen,
    Comprehension,
    Cover,
    Guard,
    LetClause,
    Parameter,
    PickClause,
    Syntax,
    children,
    walk,
)
from ...language.evaluate import MISTAKES, Closure, Environment, Expressions, NotComputed, Value, holds, pays
from ...language.rule import PREFER, Clause, Rule, built_in_files, in_order
from ...language.spelling import expression
from ...language.typed_slots import binders, every
from ..trace import Evidence, WeighedChoice, held, show, written
from .pattern import Pattern, RuleExpressions, Template, apart, compile_pattern, defined, families, free_names
from .site import NAMES, Names, Path, Site, descended, places, splice

# Clauses in the order in which they run, on every level: `let`, `pick`, `require`, `prefer`, and each parameter before
# its first reader.
#
# A `let` runs as late as possible: just before the first clause that reads it. A let that does not depend on an open
# choice runs where the choice opens. A let that only the template reads runs when the rule rewrites. So a search does
# not pay for a let that only a `prefer` reads, and a pinned parameter does not pay for its default.


@dataclass(eq=False, slots=True)
class PlannedClause:
    """A clause or a parameter of a rule, compiled.

    name: what it binds, if it does. value: computes a `let`, a domain or a condition; default: that of a parameter
    (None where there is none). reads: the names that the value reads. before: the lets that it needs; for_default:
    those that the default needs. depth: how many steps precede it. asked: of a guard, what decides by its condition.
    """

    name: str
    clause: Any
    value: Any
    default: Closure | None
    reads: frozenset[str]
    before: Lets
    for_default: Lets
    depth: int
    asked: Callable[[Closure, Environment], bool] | None = None


Lets = Sequence[PlannedClause]


def plan(rule: Rule, expressions: Expressions) -> list[PlannedClause]:
    """Return the clauses of a rule, compiled, with each parameter before its first reader.

    A let that no `require`, no domain and no template depends on matters only for profitability, so it may use the
    example values of dimensions.
    """
    steps, lets = list[PlannedClause](), list[PlannedClause]()

    def add(clause: Parameter | Clause, asked: Syntax | None, default: Syntax | None = None) -> None:
        reads, more = free_names(asked), free_names(default)
        value, other = (None if node is None else expressions.compile(node) for node in (asked, default))
        needs = _wanted(reads, lets), _wanted(more, lets)
        step = PlannedClause(getattr(clause, "name", ""), clause, value, other, reads, *needs, len(steps))
        steps.append(step)
        if isinstance(clause, LetClause):
            lets.append(step)
        elif isinstance(clause, Guard):
            step.asked = pays if clause.kind == PREFER else holds

    for clause in in_order(rule):
        match clause:
            case Parameter() if "local" not in rule.attributes:
                add(clause, clause.domain, clause.default)
            case LetClause(value=asked) | PickClause(domain=asked) | Guard(condition=asked):
                add(clause, asked)
    proved = {*_wanted(free_names(rule.rewrite), lets)} if lets else set()
    proved.update(*(step.before for step in steps if step.asked is not pays and step not in lets))
    for let in lets:
        if let not in proved:
            let.value = partial(_at_the_hints, let.value)
    return steps


def _wanted(names: Container[str], lets: Lets) -> Lets:
    """Return the lets of some names, each after the lets that it reads."""
    return [*dict.fromkeys(one for let in lets if let.name in names for one in (*let.before, let))]


def _at_the_hints(closure: Closure, env: Environment) -> Value:
    with at_the_hints():
        return closure(env)


def searched(steps: Iterable[PlannedClause]) -> list[PlannedClause]:
    """Return the steps of a search, which ignores `prefer`.

    Those that depend on no choice come first: they are evaluated once for all its values.
    """
    chosen = set[str]()

    def depends(step: PlannedClause) -> bool:
        found = isinstance(step.clause, Parameter | PickClause) or not chosen.isdisjoint(step.reads)
        if found:
            chosen.add(step.name)
        return found

    return sorted((step for step in steps if step.asked is not pays), key=depends)


Pinned = Mapping[str, Value]  # values of parameters
NO_PINS: Pinned = {}
EVERY = object()  # a pin that leaves a parameter open: every value of its domain is a site


@dataclass(frozen=True, slots=True)
class OpenChoice:
    """Plan that stopped at a choice: the parameter or pick, its values here, and the position to continue from."""

    step: PlannedClause
    values: tuple[Value, ...]
    env: Environment
    position: int

    @property
    def name(self) -> str:
        return self.step.name


Decide = Callable[[Environment, Pinned, Evidence | None], Environment | OpenChoice | None]


class PlanExecutor:
    """Executor of the steps of a rule over the environment of a match, with each let just before its first reader.

    opening: the lets to compute where a choice is open, because they do not depend on it. late: the lets that the
    template reads.
    """

    def __init__(self, rule: Rule, planned: Sequence[PlannedClause]):
        self.rule = rule
        self.lets = [step for step in planned if isinstance(step.clause, LetClause)]
        self.steps = [step for step in planned if step not in self.lets]
        needed = {let for step in self.steps for let in (*step.before, *step.for_default)}
        self.opening = {step: [let for let in planned[:at] if let in needed] for at, step in enumerate(planned)}
        # words of the template, in whatever role: a name may denote a kernel or a dtype, too
        read = walk((rule.rewrite, rule.covers)) if self.lets else ()
        self.late = _wanted({word for node in read for word in children(node) if word.__class__ is str}, self.lets)

    def solutions(
        self, env: Environment, pinned: Pinned, evidence: Evidence | None, at: int = 0
    ) -> Iterator[Environment]:
        """Yield every complete environment: one per pick and per open parameter value. `env` is changed."""
        found = self.advance(env, pinned, evidence, at)
        if isinstance(found, OpenChoice):
            for value in found.values:
                yield from self.solutions({**found.env, found.name: value}, pinned, evidence, found.position)
        elif found is not None:
            yield found

    def first(self, every: bool = False) -> Decide:
        """Return a function like `advance` that returns the first complete environment.

        The environment has the lets that the template reads, or every let. If nothing is left to choose or to compute,
        the function is `advance` itself.
        """
        lets = self.lets if every else self.late

        def first(env: Environment, pinned: Pinned, evidence: Evidence | None) -> Environment | None:
            found = next(self.solutions(env, pinned, evidence), None)
            return found if found is not None and self.known(lets, found, evidence) else None

        opens = any(step.value and not step.asked for step in self.steps)
        return first if lets or opens else self.advance

    def advance(
        self, env: Environment, pinned: Pinned, evidence: Evidence | None, at: int = 0
    ) -> Environment | OpenChoice | None:
        """Run the steps up to the next choice of several values, or to the end; None where a clause refuses."""
        for step in self.steps[at:] if at else self.steps:
            if step.before and not self.known(step.before, env, evidence):
                return None
            if step.asked:
                try:
                    passed = step.asked(step.value, env)
                except (InternalError, *MISTAKES) as error:
                    raise self.mistake(error, step.clause) from error
                if not passed:
                    if evidence is not None:
                        evidence.guard(step.clause, step.depth, env)
                    return None
            else:
                values = self.values(step, env, pinned, evidence)
                if len(values) == 1:
                    env[step.name] = values[0]
                elif values and self.known(self.opening[step], env, evidence):
                    return OpenChoice(step, values, env, self.steps.index(step) + 1)
                else:
                    return None
        return env

    def known(self, lets: Lets, env: Environment, evidence: Evidence | None) -> bool:
        """Compute some lets; return whether they have values."""
        try:
            self.compute(lets, env)
        except Undecided as undecided:
            if evidence is not None:
                let = next(let for let in lets if let.name not in env)
                evidence.undecided(let.clause.span, let.name, undecided.condition)
            return False
        return True

    def compute(self, lets: Lets, env: Environment) -> None:
        """Compute some lets, unless that was done. Raises Undecided for one that sizes leave open."""
        for let in lets:
            if let.name not in env:
                env[let.name] = self.ask(let.value, env, let.clause.value)

    def ask(self, closure: Closure, env: Environment, place: Syntax) -> Value:
        try:
            return closure(env)
        except MISTAKES as error:
            raise self.mistake(error, place) from error

    def mistake(self, error: Exception, place: Syntax) -> DplcError:
        """Return the error of a clause that has no value, or of a guard that is no condition."""
        if isinstance(error, NotComputed | InternalError):
            return self.rule.without_value(error.what, error.span or place.span)
        read = place.condition if isinstance(place, Guard) else place
        return self.rule.without_value(f"this cannot be evaluated: {error}", read.span)

    def default(self, step: PlannedClause, env: Environment) -> Value:
        """Return the default value of a parameter as a number: a size is replaced by its example value."""
        if step.default is None:
            return None
        value = _at_the_hints(step.default, env)
        return tuple(map(at_hint, value)) if value.__class__ is tuple else at_hint(value)

    def values(
        self, step: PlannedClause, env: Environment, pinned: Pinned, evidence: Evidence | None
    ) -> tuple[Value, ...]:
        """Return the values that a parameter or a pick may have here. A value outside of its domain is a refusal."""
        place = step.clause
        if isinstance(place, PickClause):
            return tuple(self.ask(step.value, env, place))
        if step.name in env:  # the pattern binds it
            return (env[step.name],)
        domain, value = None, pinned.get(step.name, EVERY)
        own = value is EVERY
        try:
            with among_choices():
                domain = step.value(env) if step.value else None
            if own:
                if step.name in pinned and domain is not None:
                    return tuple(domain)
                if not self.known(step.for_default, env, evidence):
                    return ()
                value = self.default(step, env)
        except Undecided as undecided:
            if evidence is not None:
                evidence.undecided(place.span, step.name, undecided.condition, step.depth)
            return ()
        except MISTAKES as error:  # `max` of an empty list, say
            why = f"no default here: {error.what if isinstance(error, NotComputed) else error}"
        else:
            if own and value is None:
                if domain:
                    return (domain[0],)
                why = "no value: its domain is empty"
            elif domain is None or value in domain:
                return (value,)
            elif own and self.rule.wherever_legal:  # no value pays: the first that is legal
                return tuple(domain)
            else:
                if evidence is not None:
                    evidence.domain(place, step.depth, "the default " if own else "", value, domain)
                return ()
        if evidence is not None:
            evidence.refuse(step.depth, place.span, f"{step.name} has {why}")
        return ()


def check_cover(rule: Rule, cover: Cover, expressions: RuleExpressions, env: Environment) -> None:
    """Check that the parts of a split cover it, as every split implies. Raises DplcError.

    The parts have fewer values than the split index; or more, if they must divide it. For symbolic dimensions, bindings
    are tried that distinguish most expressions. A size that another value is part of is not checked, as for a loop
    whose end depends on an axis.
    """
    size, covered = expressions.compile(cover.size)(env), math.prod(expressions.compile_all(cover.parts)(env))
    for values in telling(sizes_in((size, covered))) if only_sizes(size) and only_sizes(covered) else ():
        whole, total = value_of(size, values), value_of(covered, values)
        if total < whole or (cover.divide and total != whole):
            said = " * ".join(f"({text})" if " " in text else text for text in map(expression, cover.parts))
            left, written = "leave values out" if total < whole else "are more", expression(cover.size)
            what = f"rule `{rule.name}`: the parts of `{cover.what}` {left}: {said} is {total}, of {whole}"
            exact = "a `//` says that the parts divide it: ask for that in a `require`, or write"
            raise DplcError(what, cover, f"{exact if cover.divide else 'round up:'} `ceildiv({written}, ..)`")


# The values that each `choose` of a rule compared where it fired, for traces.


def weighed(rule: Rule, expressions: RuleExpressions, env: Environment) -> Iterator[WeighedChoice]:
    """Yield the alternatives of each `choose` at a match, except for those that cannot be evaluated there."""
    for binder in binders(rule.parameters, rule.clauses):
        value = getattr(binder, "default", getattr(binder, "value", None))
        for node in _outermost(value):
            try:
                with at_the_hints():
                    pairs = expressions.weighing(node)(env)
                    found = sorted(pairs, key=lambda pair: pair[1], reverse=node.most)  # stable, in both directions
            except (Undecided, *MISTAKES):
                continue
            alternatives = tuple({"value": show(value), "cost": show(cost)} for value, cost in found)
            winner, now = found[0][0] if found else 0, env.get(binder.name)
            other = show(now) if isinstance(binder, Parameter) and node is value and now != winner else None
            yield WeighedChoice(binder.name, written(node.costs.element), node.most, other, alternatives)


def _outermost(node: object) -> Iterator[Chosen]:
    """Yield each `choose` outside of comprehensions; inside of one it may read the variable of the comprehension."""
    inner = {id(below) for found in every(node, Comprehension) for below in walk(found)}
    return (found for found in every(node, Chosen) if id(found) not in inner)


Program = tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """One legal way to fire: `block at path, [start:end]`, and what everything is bound to.

    ordinal: which of the ways to match at this start (split of runs, hole of a context), from 0.
    """

    path: Path
    start: int
    end: int
    ordinal: int
    env: Environment

    @property
    def where(self) -> str:
        """`0/2/1#1`: the path and the start from the module down; `#n` for the n-th way to match there."""
        return where(self.path, self.start) + (f"#{self.ordinal}" if self.ordinal else "")

    @property
    def kernels(self) -> range:
        """The positions of the kernels that it is in."""
        return range(self.path[0], self.path[0] + 1) if self.path else range(self.start, self.end)


def where(path: Path, start: int) -> str:
    """Return a path and a position in the block that it leads to as text: `0/2/1`."""
    return "/".join(map(str, (*path, start)))


class CompiledRule:
    """A rule of the levels module, loop, tile or kernel. Its parts are compiled when first needed."""

    def __init__(self, rule: Rule, locals_: tuple[Rule, ...]):
        self.rule, self.locals = rule, locals_
        self.changed = 0  # runs that a local rule changed so far
        self.expressions = RuleExpressions(rule.level)
        self.parameters = {parameter.name: EVERY for parameter in rule.parameters}
        self.given = tuple(self.parameters) if "local" in rule.attributes else ()
        self.chosen = (*self.parameters, *(clause.name for clause in rule.clauses if isinstance(clause, PickClause)))
        self.bars = Tile.mark if rule.level == "loop" else 0  # marks of classes that a kernel must not have

    def _pattern(self, evidence: bool) -> Pattern:
        return compile_pattern(self.rule.match, self.rule.level, self.rule.name, self.given, evidence)

    @cached_property
    def pattern(self) -> Pattern:
        return self._pattern(False)

    @cached_property
    def reporting(self) -> Pattern:
        """The variant that collects near misses."""
        return self._pattern(True)

    @cached_property
    def needs(self) -> int:
        """Marks of classes that a kernel needs for the pattern to match; a run of kernels may have them elsewhere."""
        return 0 if self.rule.level == "module" and len(self.rule.match) > 1 else self.pattern.needs

    @cached_property
    def decisions(self) -> tuple[PlanExecutor, PlanExecutor]:
        """Executor for the default pipeline, and for a search."""
        steps = plan(self.rule, self.expressions)
        return PlanExecutor(self.rule, steps), PlanExecutor(self.rule, searched(steps))

    @cached_property
    def template(self) -> Closure:
        """A function from the environment of a match to the statements that the rule builds for it."""
        rule, decided = self.rule, self.decisions[False]
        known = frozenset((*self.pattern.names, *self.chosen, *(let.name for let in decided.lets), "target"))
        fresh = defined(rule.rewrite, known)
        build = Template(rule.level, known.union(fresh), self._local, families(rule.match)).block(rule.rewrite)

        def whole(match_env: Environment) -> Value:
            env = dict(match_env)
            decided.compute(decided.late, env)
            for cover in rule.covers:
                check_cover(rule, cover, self.expressions, env)
            names = env.setdefault(NAMES, Names(env["@site"], env))
            for name in fresh:
                if name not in env:
                    env[name] = names.fresh(name)
            return build(env)

        return whole

    @cached_property
    def checked(self) -> bool:
        """Return whether every result is checked: true for rules that are in no file of `rules/` as it is in force."""
        return self.rule.span.source not in [file.source for file in built_in_files()]  # or equal, of another thread

    def weighed(self, match_env: Environment) -> tuple[WeighedChoice, ...]:
        """Return the alternatives of each `choose` at a match, with their costs."""
        if not any(every((self.rule.parameters, self.rule.clauses), Chosen)):
            return ()
        return tuple(weighed(self.rule, self.expressions, self._whole(match_env)))

    def held(self, match_env: Environment) -> tuple[str, ...]:
        """Return the guards that held at a match, each with the values that it saw."""
        return held(self.rule, self._whole(match_env), self.expressions)

    def measure(self, match_env: Environment) -> Value:
        """Return the value of `decreases` at a match, which is less at every further firing; None without one."""
        decided, env = self.decisions[True], dict(match_env)
        decided.compute(_wanted((DECREASES,), decided.lets), env)
        return env.get(DECREASES)

    def _whole(self, match_env: Environment) -> Environment:
        """Return all names of a match, also the lets that only a search leaves out."""
        env = dict(match_env)
        self.decisions[True].compute(self.decisions[True].lets, env)
        return env

    def _local(self, name: str, span: Span) -> Callable[..., Block]:
        known = {rule.name: rule for rule in self.locals}
        if name not in known:
            raise DplcError(f"there is no local rule `{name}`", span, did_you_mean(name, known))
        return compiled_rule(known[name], self.locals).everywhere

    # ---- sites
    def matches(
        self, program: Program, kernels: Iterable[int], target: Target, pinned: Pinned,
        evidence: Evidence | None = None, search: bool = False,
    ) -> Iterator[Match]:  # fmt: skip
        """Yield every legal way to fire in the given kernels, lazily: pre-order, left to right, pattern order."""
        decision = self.decisions[search]
        pinned = {**self.parameters, **pinned} if search else pinned
        given = self.taken([pinned[name] for name in self.given if name in pinned])
        for path, block, start in self.starts(program, kernels, evidence is not None):
            for match in self.matches_at((program, path, target), block, start, evidence, given):
                if self.agrees(match.env, pinned, evidence):
                    for found in decision.solutions(match.env, pinned, evidence):
                        yield Match(path, start, match.end, match.ordinal, found)

    def matches_at(
        self, where: tuple[Program, Path, Target], block: Block, start: int,
        evidence: Evidence | None = None, given: Pinned = NO_PINS,
    ) -> Iterator[Match]:  # fmt: skip
        """Yield every match of the pattern alone at one start. where: the arguments of the Site."""
        pattern, near = (self.pattern, None) if evidence is None else (self.reporting, evidence.near)
        site = None
        for ordinal, (end, env) in enumerate(pattern.match(block, start, {"target": where[2], **given}, near)):
            site = env["@site"] = site or Site(*where)
            yield Match(site.path, start, end, ordinal, env)

    def starts(self, program: Program, kernels: Iterable[int], all_: bool) -> Iterator[tuple[Path, Any, int]]:
        """Yield (path, block, start) where the first statement could match. all_: also where it surely does not."""
        root = None if all_ else self.pattern.root
        for number in kernels:
            kernel = program[number]
            if not self.possible(kernel, all_):
                continue
            if self.rule.level == "module":
                yield (), program, number
                continue
            for path, block, position in places(kernel).get(root, ()):
                yield (number, *path), block, position

    def possible(self, kernel: Kernel, all_: bool = False) -> bool:
        """Return whether the kernel has the statements of the pattern, or with `all_` none that rule it out."""
        found = kernel._contents or contents(kernel)
        return not self.bars & found and (all_ or not self.needs & ~found)

    def agrees(self, env: Environment, pinned: Pinned, evidence: Evidence | None) -> bool:
        """Return whether variables of the match that are pinned have the pinned value."""
        for name, value in pinned.items():
            if value is not EVERY and env.get(name, value) != value:
                if evidence is not None:
                    evidence.refuse(0, self.rule.span, f"{name} is pinned to another value")
                return False
        return True

    # ---- rewriting
    def rewrite(self, match: Match) -> Program:
        """Return the program after one firing."""
        site, start, end = match.env["@site"], match.start, match.end
        block = descended(site.program, match.path)[1]
        made = apart(self.template(match.env), (*block[:start], *block[end:]), site)
        return splice(site.program, match.path, start, end, made)  # type: ignore[no-any-return]

    def taken(self, arguments: Sequence[Value]) -> Environment:
        """Return the arguments of a local rule by name. Raises DplcError if their number is wrong."""
        if len(arguments) != len(self.given):
            raise DplcError(
                f"local rule `{self.rule.name}` takes {len(self.given)} arguments, not {len(arguments)}", self.rule
            )
        return dict(zip(self.given, arguments, strict=True))

    def everywhere(self, block: Block, arguments: tuple[Value, ...], outer: Environment) -> Block:
        """Apply a local rule to a captured run: bottom-up, one pass; results are not matched again."""
        site = outer["@site"]
        names = outer.get(NAMES) or Names(site, outer)
        base = {"target": outer["target"], "@site": site, **self.taken(arguments), NAMES: names}

        def fire(whole: Block, start: int) -> tuple[int, Block] | None:
            for end, bound in self.pattern.match(whole, start, base, None):
                for env in self.decisions[False].solutions(bound, {}, None):
                    return end, self.template(env)
            return None

        made = self.pattern.everywhere(block, fire)
        self.changed += made != block
        return made


def compiled_rule(rule: Rule, locals_: tuple[Rule, ...]) -> CompiledRule:
    """Return a rule, compiled once for all engines with the same local rules."""
    return rule.compiled(locals_, lambda: CompiledRule(rule, locals_))
