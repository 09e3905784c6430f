"""The engine: passes of rules over modules of kernels.

A rule fires at most once in a kernel (kernels that it makes count as done), with `@repeat` until no site is left. What
such a rule `decreases` is less at every firing. A pass without such a rule fires once. Rules are tried in file order,
sites in pre-order; the first legal, preferred one whose result differs from its input fires. After each firing the
`@canonical` rules run to a fixpoint on what changed.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....codegen.target import Target
from ....ir.diagnostic import DplcError, UsageError, did_you_mean
from ....ir.expr import Undecided, Var, free_names
from ....ir.kernel import BLOCK_INDEX, SHARED, THREAD, Launch
from ....ir.loop import Accumulate, For, Let, Load, Merge
from ....ir.node import Node, nodes, walk
from ....ir.program import Kernel, Stmt
from ....ir.tile import Mma, RegisterTile, SharedTile, Stage, Tile
from ...language.evaluate import MISTAKES, Environment, NotComputed, Value
from ...language.pipeline import PassStep
from ...language.rule import PREFER, Rule, RuleSet, admits, pass_name, shown
from ..trace import (
    CHANGES_NOTHING,
    Evidence,
    Firing,
    LeftOpen,
    Refusal,
    RewriteStep,
    Skip,
    Trace,
    endless,
    is_strict,
    not_smaller,
    show,
    smaller,
)
from .compiled import NO_PINS, CompiledRule, Match, OpenChoice, Pinned, Program, compiled_rule, where
from .site import below

# Invariants after every rewrite, cheap enough for a check after each firing of a test.


def wellformed(kernel: Kernel) -> str | None:
    """Return the first fault of a kernel, or None if it has none.

    A block defines a value once, axes have one owner, values are defined, and loops belong to a thread.
    """
    for _, block in below(kernel):
        if twice := _repeated(statement.dst for statement in block if isinstance(statement, Let | Load)):
            return f"`{twice}` is defined twice in one block"
    for tile in nodes(kernel.body, Tile):
        if twice := _repeated(axis.name for axis in tile.axes):
            return f"two axes of a tile are called `{twice}`"
        registers = {axis.name for axis in tile.axes if axis.role in ("REG", "VEC")}
        for loop in nodes(tile.body, For):
            if not registers.isdisjoint(free_names((loop.start, loop.stop, loop.step))):
                return f"the bounds of loop `{loop.var}` vary with a register axis, so it is no one loop of a thread"
    used = {var.name for var in nodes(kernel.body, Var)}
    unknown = used.difference(*map(names_given, walk(kernel))) if kernel.ins + kernel.outs else ()
    return f"`{min(unknown)}` is used but nothing defines it" if unknown else None


def _repeated(names: Iterable[str]) -> str | None:
    """Return the first name, by the alphabet, of those that occur twice."""
    return min((name for name, count in Counter(names).items() if count > 1), default=None)


def names_given(part: Node) -> tuple[str, ...]:
    """Return the names of values that a node of any IR defines for others to read."""
    match part:
        case Launch():
            return (THREAD, SHARED, *BLOCK_INDEX)
        case Stage(box=axes) | SharedTile(box=axes) | RegisterTile(box=axes):
            return tuple(axis.name for axis in axes)
        case Accumulate(acc=name) | Mma(acc=name):
            return (name,)
        case Merge(accs=names):
            return names
    return bound_names(part)


def bound_names(statement: Node) -> tuple[str, ...]:
    """Return the names that a statement gives to its block, or to what follows it."""
    if isinstance(statement, Tile):
        return tuple(axis.name for axis in statement.axes)
    return tuple(getattr(statement, field) for field in ("var", "dst") if hasattr(statement, field))


REPEAT_FUEL = 64  # firings of rules that do not say what they decrease
STATEMENT_FUEL = 4  # a pass that moves every statement fires as often as there are, past a guard or two each
CANONICAL_FUEL = 200
LEVELS = ("module", "loop", "tile", "kernel")
Settings = Mapping[str, Pinned]  # rule -> parameter -> value


def repeats(step: PassStep) -> bool:
    """Return whether a pass fires again and again."""
    return any("repeat" in rule.attributes for rule in step.rules)


class Engine:
    """Compiler and runner of the rules of a rule set. It compiles each rule when first needed.

    pins: rule -> parameter -> value, as `--set RULE.PARAM=VALUE` says. check: look at every result (`wellformed`), not
    only at those of a user's rules.
    """

    def __init__(self, rules: RuleSet, pins: Settings | None = None, check: bool = False):
        self.rules, self.pins, self.check = rules, dict(pins or {}), check
        self._compiled = functools.cache(lambda name: compiled_rule(rules.rule(name), rules.locals))
        self._normal = defaultdict[tuple[Target, bool], weakref.WeakSet[Kernel]](weakref.WeakSet)  # by target and level
        own = [self.rule(rule) for rule in rules.canonical if rule.level in LEVELS]
        self._canonical = [[r for r in own if (r.rule.level == "kernel") is lowered] for lowered in (False, True)]
        for name, values in self.pins.items():
            rule = self.rule(name)
            for parameter in values:
                if parameter not in (*rule.parameters, *rule.pattern.names):
                    raise DplcError(
                        f"rule `{name}` has no parameter `{parameter}`",
                        rule.rule,
                        did_you_mean(parameter, rule.parameters),
                    )

    # ---- rules
    def rule(self, rule: Rule | str) -> CompiledRule:
        """Return the compiled form of a rule."""
        return self._compiled(rule if isinstance(rule, str) else rule.name)

    def step(self, name: str | PassStep) -> PassStep:
        """Return the pass of this name, or of one rule; a pass as it is. Raises DplcError with the closest name."""
        if isinstance(name, PassStep):
            return name
        passes, rules = self.rules.passes, self.rules.rules
        found = passes.get(name) or ((rules[name],) if name in rules else ())
        if not found:
            raise DplcError(f"there is no pass `{name}`", hint=did_you_mean(name, (*passes, *rules)))
        number = self.rules.numbered.get(name, "")
        return PassStep(name, tuple(found), {}, name, found[0].span, numbered=number)

    def pinned(self, rule: CompiledRule, step: PassStep) -> Environment:
        """Return the values that the pipeline and the user give to this rule."""
        return {**step.parameters, **self.pins.get(rule.rule.name, {})}

    # ---- sites
    def sites(
        self, rule: Rule | str, program: Program, target: Target, pinned: Pinned = NO_PINS,
        evidence: Evidence | None = None, search: bool = False,
    ) -> Iterator[Match]:  # fmt: skip
        """Return every legal way to fire a rule, lazily. search: every parameter value, whether preferred or not."""
        found = self.rule(rule)
        return found.matches(program, range(len(program)), target, pinned, evidence, search)

    def why_not(
        self, rule: Rule | str, program: Program, target: Target, pinned: Pinned = NO_PINS
    ) -> tuple[Refusal, ...]:
        """Return every reason why a rule does not fire; empty if it does."""
        evidence = Evidence(self.rule(rule).rule)
        fires = any(self.sites(rule, program, target, pinned, evidence))
        return () if fires else evidence.all()

    # ---- passes
    def fire(self, step: PassStep | str, program: Program, target: Target, trace: Trace | None = None) -> Program:
        """Run one pass."""
        return PassRun(self, self.step(step), target, trace).over(program)

    def rewrite(self, rule: Rule | str, match: Match) -> tuple[Program, RewriteStep]:
        """Return the program after one firing, canonical again, and the kernels that changed."""
        compiled, site = self.rule(rule), match.env["@site"]
        rule, program = compiled.rule, site.program
        try:
            made = compiled.rewrite(match)
        except NotComputed:
            raise
        except MISTAKES as error:  # the template needs something of its operands that this one lacks
            why = str(error) or type(error).__name__
            place = rule.rewrite[0] if rule.rewrite else rule
            raise DplcError(f"rule `{rule.name}`: its template cannot be built here: {why}", place) from error
        start, end = match.kernels.start, match.kernels.stop
        changed = slice(start, end + len(made) - len(program))
        cleaned: list[str] = []
        for number in range(start, changed.stop):
            made, steps = self._normal_kernel(made, number, site.target, rule.level)
            cleaned += [step.rule.name for step in steps]
        for kernel in made[changed] if self.check or compiled.checked else ():
            if wrong := wellformed(kernel):
                raise DplcError(
                    f"rule `{rule.name}` gives a program that is not well formed: {wrong}",
                    rule,
                    notes=(f"in kernel `{kernel.name}`",),
                )
        return made, RewriteStep(rule, program[start:end], made[changed], cleaned=tuple(cleaned))

    # ---- canonical form
    def normal(self, program: Program, target: Target, level: str = "tile") -> Program:
        """Return the canonical form of every kernel."""
        for number in range(len(program)):
            program, _ = self._normal_kernel(program, number, target, level)
        return program

    def _normal_kernel(
        self, program: Program, number: int, target: Target, level: str
    ) -> tuple[Program, list[RewriteStep]]:
        """Apply canonical rules to one kernel, cached per kernel: they may read only their kernel and the target."""
        lowered, steps = level == "kernel", list[RewriteStep]()
        normal = self._normal[target, lowered]
        while program[number] not in normal:
            if len(steps) >= CANONICAL_FUEL:
                raise endless(f"canonical form is not reached after {CANONICAL_FUEL} firings", steps)
            rules = (rule for rule in self._canonical[lowered] if rule.possible(program[number]))
            ways = ((rule, match) for rule in rules for match in rule.matches(program, (number,), target, NO_PINS))
            for rule, match in ways:
                made = rule.rewrite(match)
                if made[number] is not program[number]:
                    steps.append(RewriteStep(rule.rule, program[number : number + 1], made[number : number + 1]))
                    program = made
                    break
            else:
                normal.add(program[number])
        return program, steps


Seen = Mapping[CompiledRule, Evidence | None]  # the rules of a pass in one kernel; no evidence without a trace


@dataclass
class PassRun:
    """One pass over one program.

    done: the kernels to leave alone, and those in which it fired, by name; log: the sites where it fired; measures: of
    the last firing of each rule in each kernel; larger: the error of a firing that made its measure no smaller;
    left_open: the conditions that sizes left open.
    """

    engine: Engine
    step: PassStep
    target: Target
    trace: Trace | None = None
    done: set[str] = field(default_factory=set)
    log: list[RuleSite] = field(default_factory=list)
    measures: dict[tuple[str, CompiledRule], Value] = field(default_factory=dict)
    larger: DplcError | None = None
    left_open: set[LeftOpen] = field(default_factory=set)

    def over(self, program: Program) -> Program:
        """Run the pass in every kernel that is not done from the start."""
        skip = frozenset(self.done)
        again = repeats(self.step) and any(rule.level == "module" for rule in self.step.rules)
        for _ in range(REPEAT_FUEL if again else 1):  # a pattern over several kernels may match earlier now
            before, number = program, 0
            while number < len(program):
                kernels = 1
                if program[number].name not in skip:
                    program, kernels = self.kernel(program, number)
                elif self.trace is not None:
                    reason = f"another pass of `one of {self.step.group}` fired"
                    self.skipped(self.trace, self.step.rules[0], program[number].name, reason)
                number += kernels
            if program is before:
                break
        return program

    def kernel(self, program: Program, number: int) -> tuple[Program, int]:
        """Fire the first rule that matches a kernel (repeatedly with @repeat). Also returns the number of kernels."""
        first, steps, traced = program[number], list[RewriteStep](), self.trace is not None
        unmeasured = 0
        while number < len(program):
            seen = {rule: Evidence(rule.rule) if traced else None for rule in map(self.engine.rule, self.step.rules)}
            fired = self.once(program, number, seen)
            if self.trace is not None:
                self.tell(self.trace, first.name, seen, fired is None and not steps)
            if fired is None:
                break
            program, step = fired
            steps.append(step)
            unmeasured += self.measures[first.name, self.engine.rule(step.rule)] is None
            self.done.update(kernel.name for kernel in step.after)
            if not repeats(self.step):
                return program, len(step.after)
            if unmeasured >= REPEAT_FUEL and unmeasured >= STATEMENT_FUEL * sum(1 for _ in nodes(first, Stmt)):
                what = f"pass `{self.step.label}` does not stop after {len(steps)} firings in kernel `{first.name}`"
                raise self.larger or endless(what, steps)
        return program, 1

    def once(self, program: Program, number: int, seen: Seen) -> tuple[Program, RewriteStep] | None:
        """Return the program after the first firing, and the kernels that it changed; None if nothing fires.

        Without evidence to collect, rules are tried only where they are possible.
        """
        for rule, evidence in seen.items():
            if evidence is None and not rule.possible(program[number]):
                continue
            if (program[number].name, rule) in self.measures and "repeat" not in rule.rule.attributes:
                continue
            pinned = self.engine.pinned(rule, self.step)
            for match in rule.matches(program, (number,), self.target, pinned, evidence):
                site = RuleSite(self.engine, rule, match, pinned)
                new, step = site.fire()
                if step.before != step.after:
                    self.measure(program[number].name, rule, match, step)
                    self.log.append(site)
                    if self.trace is not None:
                        self.fired(self.trace, site, step)
                    return new, step
                if evidence is not None:
                    evidence.refuse(len(step.rule.clauses) + 1, step.rule.span, CHANGES_NOTHING)
        return None

    def measure(self, kernel: str, compiled: CompiledRule, match: Match, step: RewriteStep) -> None:
        """Note what a rule `decreases` at a firing, nothing if it is not less than at the one before.

        Such a firing counts towards the limit of rules without the clause. DPLC_STRICT raises the DplcError.
        """
        last, value = self.measures.get((kernel, compiled)), compiled.measure(match.env)
        if last is not None and not smaller(value, last):
            self.larger, value = not_smaller(step, f"`{kernel}`", last, value), None
            if is_strict():
                raise self.larger
        self.measures[kernel, compiled] = value

    # ---- events of the trace
    def fired(self, trace: Trace, site: RuleSite, step: RewriteStep) -> None:
        compiled, rule, env = site.compiled, step.rule, site.match.env
        trace.add(Firing(
            trace.prefix, self.step.shown(rule), rule.name, rule.location, site.kernel, site.where,
            {name: env[name] for name in compiled.parameters if name in env}, step.before, step.after, step.cleaned,
            compiled.weighed(env), env, held=functools.partial(compiled.held, env),
        ))  # fmt: skip

    def skipped(self, trace: Trace, rule: Rule, unit: str, reason: Refusal | str) -> None:
        trace.add(Skip(trace.prefix, self.step.shown(rule), rule.name, unit, reason))

    def tell(self, trace: Trace, unit: str, seen: Seen, idle: bool) -> None:
        """Tell what sizes left undecided, once for each kernel and pass; if no rule fired, the nearest refusal."""
        found = [evidence for evidence in seen.values() if evidence is not None]
        for text in (text for evidence in found for text in evidence.left_open):
            event = LeftOpen(trace.prefix, self.step.label, unit, text)
            if event not in self.left_open:
                self.left_open.add(event)
                trace.add(event)
        reasons = [evidence.best() for evidence in found] if idle else []
        best = max(reasons, key=lambda refusal: refusal.depth, default=None)
        for reason in reasons:  # rules that the user names are reported in any case
            if reason is best or reason.rule.name in self.engine.pins.keys() | trace.asked:
                self.skipped(trace, reason.rule, unit, reason)


# A pipeline over a program: the passes in their order, `one of` groups, `--only`.


Shaped = dict[str, list[str]]  # the labels of the passes that changed each kernel, by its name
Decide = Callable[[PassStep, Program], Program | None]  # the result of a pass; None: its default


def run_pipeline(
    engine: Engine, steps: Sequence[PassStep], program: Program, target: Target, trace: Trace | None = None,
    shaped: Shaped | None = None, decide: Decide | None = None,
) -> Program:  # fmt: skip
    """Return the program after all passes. In a `one of`, the first pass that fires in a kernel excludes the others.

    shaped: filled with the labels of the passes that changed each kernel, by the kernel's name. decide: called for
    every pass when a schedule is replayed or drawn at random.
    """
    taken = defaultdict[PassStep | str, set[str]](set)
    for step in steps:
        made = decide(step, program) if decide is not None else None
        if made is None:
            made = PassRun(engine, step, target, trace, taken[step.group or step]).over(program)
        if made is not program and shaped is not None:
            _note_shaped(shaped, step.label, program, made)
        program = made
    return program


def _note_shaped(shaped: Shaped, label: str, before: Program, after: Program) -> None:
    """Write down that a pass changed kernels. A kernel that it split off has been through all that its parent was."""
    named, parent = {kernel.name for kernel in before}, ""
    for kernel in reversed(after):  # templates write what is split off before the kernel that keeps the name
        parent = kernel.name if kernel.name in named else parent
        if kernel not in before:
            shaped.setdefault(kernel.name, [*shaped.get(parent, ())]).append(label)


def only(steps: Sequence[PassStep], names: Iterable[str]) -> tuple[PassStep, ...]:
    """Return the steps that `--only` names: by label, pass, file or rule. A rule alone runs without its neighbours.

    Names of other steps are ignored.
    """
    wanted = tuple(names)
    out: list[PassStep] = []
    for step in steps:
        whole = {step.label, step.name, step.numbered, *(rule.file for rule in step.rules)}.intersection(wanted)
        if rules := tuple(rule for rule in step.rules if whole or rule.name in wanted):
            out.append(dataclasses.replace(step, rules=rules))
    return tuple(out)


def names_of(step: PassStep) -> set[str]:
    """Return the names that select a step: its label, its pass, its files and its rules."""
    own = {step.label, step.name, step.numbered or step.label}
    return own.union(*({rule.name, rule.file, pass_name(rule.file)} for rule in step.rules))


# The space of a pass: every legal (rule, site, parameters), lazily, preferred or not.
#
# The first parameter of a rule at a site costs the preceding clauses, one value costs the following clauses, and the
# other values cost nothing.


@dataclass(frozen=True, slots=True)
class RuleSite:
    """A rule at a site: a way to fire, once all parameters are chosen. It holds its program: apply it or drop it.

    pinned: the values that parameters are given. open: the parameter to choose next, None once all are chosen.
    """

    engine: Engine
    compiled: CompiledRule
    match: Match
    pinned: Pinned
    open: OpenChoice | None = None

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return self.compiled.rule.name

    @property
    def where(self) -> str:
        return self.match.where

    @property
    def kernel(self) -> str:
        """The kernel that it changes (the first of them, on a module)."""
        return self.match.env["@site"].program[self.match.kernels.start].name  # type: ignore[no-any-return]

    @property
    def parameters(self) -> Environment:
        """The values of what there was to choose: parameters and picks."""
        return {name: self.match.env[name] for name in self.compiled.chosen if name in self.match.env}

    @property
    def default(self) -> Value:
        """The value that the open parameter would have by itself; None if it has none."""
        assert self.open is not None
        try:
            return self.compiled.decisions[True].default(self.open.step, self.open.env)
        except (Undecided, *MISTAKES):
            return None

    def fire(self) -> tuple[Program, RewriteStep]:
        """Return the program after this firing, canonical again, and the kernels that changed."""
        return self.engine.rewrite(self.rule, self.match)

    def apply(self) -> Program:
        """Return the program after this firing."""
        return self.fire()[0]

    def decided(self, env: Environment, position: int = 0) -> RuleSite | None:
        """Return the site after the clauses up to the next open parameter; None if one of them refuses."""
        found = self.compiled.decisions[True].advance(env, self.pinned, None, position)
        if found is None:
            return None
        known, opened = (found.env, found) if isinstance(found, OpenChoice) else (found, None)
        match = dataclasses.replace(self.match, env=known)
        return dataclasses.replace(self, match=match, open=opened)

    def choose(self, value: Value) -> RuleSite | None:
        """Return the site with a value for the open parameter; None if a guard refuses it."""
        assert self.open is not None
        return self.decided({**self.open.env, self.open.name: value}, self.open.position)

    def first(self, values: Iterable[Value]) -> RuleSite | None:
        """Return the site with the first of some values that no guard refuses; None if there is none."""
        return next(filter(None, map(self.choose, values)), None)

    def filled(self, order: Callable[[RuleSite], Iterable[Value]]) -> RuleSite | None:
        """Return the site with values for all open parameters, in the order of preference that a function gives."""
        found: RuleSite | None = self
        while found is not None and found.open is not None:
            found = found.first(order(found))
        return found


def spots(
    engine: Engine, step: PassStep, program: Program, target: Target, kernels: Iterable[int] | None = None,
    rule: str | None = None, place: str | None = None,
) -> Iterator[RuleSite]:  # fmt: skip
    """Yield every site where some rule of a pass may fire, as far as guards that read no parameter allow it.

    kernels, rule, place: those to look at (`place` as a site's `where`); None for all.
    """
    numbers, start_there = range(len(program)) if kernels is None else kernels, place and place.split("#")[0]
    for compiled in (engine.rule(one) for one in step.rules if rule in (None, one.name)):
        pinned = {**compiled.parameters, **engine.pinned(compiled, step)}
        for path, block, start in compiled.starts(program, numbers, False):
            if start_there not in (None, where(path, start)):
                continue
            for match in compiled.matches_at((program, path, target), block, start):
                wanted = (place is None or match.where == place) and compiled.agrees(match.env, pinned, None)
                if wanted and (found := RuleSite(engine, compiled, match, pinned).decided(match.env)):
                    yield found


# Parameters that the user set: dplc reports every value that no rule used.


Tell = Callable[[str], None]


class SettingWarning(UserWarning):
    """A parameter was set of a rule that does not fire."""


class Unheard(NamedTuple):
    """A rule with a parameter that was set, and that fired nowhere.

    text: what was set, and why it has no effect. line: the same with the options of the command line. outside: the
    value is in the domain of its parameter nowhere in the program.
    """

    rule: str
    text: str
    line: str
    outside: bool


def check_settings(settings: Settings, rules: RuleSet) -> None:
    """Raise UsageError for a value outside of a domain that is the same for all programs."""
    for rule in (rules.rules[name] for name in settings if name in rules.rules):
        own = [parameter.name for parameter in rule.parameters]
        for name, value in settings[rule.name].items():
            if name in own and not admits(rule, name, value):
                raise UsageError(
                    f"{rule.name}.{name}={show(value)}: the value is not in the domain of `{name}`",
                    notes=(f"the domain is {shown(rule, name)}", f"the rule is at {rule.location}"),
                )


def unheard(trace: Trace, settings: Settings, rules: RuleSet) -> tuple[Unheard, ...]:
    """Return the rules on loop nests and schedules whose parameters were set and that did not fire.

    Of rules on values nothing is said: what is set there is how much they may cost.
    """
    fired = {event.rule for event in trace.firings}
    settings_unheard = []
    for name, values in settings.items():
        if values and name not in fired and rules.rule(name).level in LEVELS:
            reasons = [skip.reason for skip in trace.skips if skip.rule == name and isinstance(skip.reason, Refusal)]
            reason = max(reasons, key=lambda reason: reason.depth, default=None)
            said = reason.render() if reason else "another rule of its pass fired instead"
            why = f"rule `{name}` fires nowhere in this program: {said}"
            text = f"{', '.join(f'{name}.{parameter}={show(value)}' for parameter, value in values.items())}: {why}"
            line = f"--prefer {name}: {why}" if next(iter(values)) == PREFER else f"--set {text}"
            settings_unheard.append(Unheard(name, text, line, bool(reason and reason.outside)))
    return tuple(settings_unheard)


def tell_unheard(found: Sequence[Unheard], tell: Tell | None = None) -> None:
    """Report settings without effect; by default as a Python warning.

    Raises UsageError for a value that is in the domain of its parameter nowhere in the program.
    """
    for each in found:
        if each.outside:
            raise UsageError(each.text)
        if tell is not None:
            tell(each.line)
        else:
            warnings.warn(f"dplc: {each.text}", SettingWarning, stacklevel=3)


def unheard_by_all(found: Sequence[Sequence[Unheard]]) -> tuple[Unheard, ...]:
    """Return the settings that had no effect in any of several programs."""
    rules = [{each.rule for each in one} for one in found]
    return tuple(each for one in found[:1] for each in one if all(each.rule in others for others in rules))
