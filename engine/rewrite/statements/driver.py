"""The engine: passes of rules over modules of kernels.

A pass fires at most once in a kernel (kernels that it makes count as done), with `@repeat` until no site is left. Rules
are tried in file order, sites in pre-order; the first legal, preferred one whose result differs from its input fires.
After each firing the `@canonical` rules run to a fixpoint on what changed.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....codegen.target import Target
from ....ir.diagnostic import DplcError, UsageError, did_you_mean
from ....ir.expr import Var, free_names
from ....ir.kernel import BLOCK_INDEX, SHARED, THREAD, Launch
from ....ir.loop import Accumulate, For, Let, Load, Merge
from ....ir.node import contents, memoised, nodes, walk
from ....ir.program import Kernel, Stmt
from ....ir.tile import Mma, SharedTile, Stage, Tile
from ...language.evaluate import MISTAKES, Environment, NotComputed
from ...language.pipeline import PassStep
from ...language.rule import PREFER, Rule, RuleSet, admits, pass_name, shown
from ..trace import Evidence, Firing, LeftOpen, Refusal, RewriteStep, Skip, Trace, endless, show
from .compiled import CompiledRule, Match, OpenChoice, Program, compiled_rule
from .site import Place, below

# Invariants after every rewrite, cheap enough for a check after each firing of a test.


def wellformed(kernel: Kernel) -> str | None:
    """Return the first fault of a kernel, or None if it has none.

    A block defines a value once, axes have one owner, values are defined, and loops belong to a thread.
    """
    for _, block in below(kernel):
        counts = Counter(statement.dst for statement in block if isinstance(statement, Let | Load))
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            return f"`{twice[0]}` is defined twice in one block"
    for tile in nodes(kernel.body, Tile):
        names = Counter(axis.name for axis in tile.axes)
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            return f"two axes of a tile are called `{twice[0]}`"
        registers = {axis.name for axis in tile.axes if axis.role in ("REG", "VEC")}
        for loop in nodes(tile.body, For):
            if not registers.isdisjoint(free_names((loop.start, loop.stop, loop.step))):
                return f"the bounds of loop `{loop.var}` vary with a register axis, so it is no one loop of a thread"
    unknown = dangling(kernel)
    return f"`{unknown[0]}` is used but nothing defines it" if unknown and kernel.ins + kernel.outs else None


def dangling(kernel: Kernel) -> tuple[str, ...]:
    """Return names of values that are used and defined nowhere in the kernel, whichever of the IRs it is in."""
    parts = tuple(walk(kernel))
    bound = {name for part in parts for name in _names_given(part)}
    used = {part.name for part in walk(kernel.body) if isinstance(part, Var)}
    return tuple(sorted(used - bound))


def _names_given(part: object) -> tuple[str, ...]:
    """Return the names of values that a statement defines for others to read."""
    if isinstance(part, Launch):
        return (THREAD, SHARED, *BLOCK_INDEX)
    if isinstance(part, Tile):
        return tuple(axis.name for axis in part.axes)
    if isinstance(part, Stage | SharedTile):
        return tuple(axis.name for axis in part.box)
    if isinstance(part, Accumulate | Mma):
        return (part.acc,)
    if isinstance(part, Merge):
        return part.accs
    return tuple(getattr(part, field) for field in ("dst", "var") if hasattr(part, field))


REPEAT_FUEL = 64
STATEMENT_FUEL = 4  # a pass that moves every statement fires as often as there are, past a guard or two each
CANONICAL_FUEL = 200
LEVELS = ("module", "loop", "tile", "kernel")
Pins = Mapping[str, Mapping[str, Any]]
Fired = tuple[CompiledRule, Match, Program]  # the program of the match


@dataclass(frozen=True)
class CompiledPass:
    """The rules of a pass, compiled, with the values that are given to them; whether it fires again and again.

    marks: for each rule the classes that a kernel must have for it, and those that it must not have.
    """

    rules: tuple[tuple[CompiledRule, dict[str, Any]], ...]
    repeat: bool
    marks: tuple[tuple[int, int], ...]

    def possible(self, program: Program) -> bool:
        """Return whether some rule could match in some kernel, by the classes of statements that it holds."""
        for kernel in program:
            found = kernel._contents or contents(kernel)
            for needs, bars in self.marks:
                if not needs & ~found and not bars & found:
                    return True
        return False


class Engine:
    """Compiler and runner of the rules of a rule set. It compiles each rule when first needed.

    pins: rule -> parameter -> value, as `--set RULE.PARAM=VALUE` says. check: look at every result (`wellformed`), not
    only at those of a user's rules.
    """

    def __init__(self, rules: RuleSet, pins: Pins | None = None, check: bool = False):
        self.rules, self.check = rules, check
        self._compiled: dict[str, CompiledRule] = {}
        self._own = object()  # identifies this engine where a kernel remembers which ones found it canonical
        self._canonical: dict[bool, list[CompiledRule]] = {}
        self._steps: weakref.WeakKeyDictionary[PassStep, CompiledPass] = weakref.WeakKeyDictionary()
        self.pins: Pins = dict(pins or {})
        for name, values in self.pins.items():
            self._check_pins(self.rule(name), values)

    # ---- rules
    def rule(self, rule: Rule | str) -> CompiledRule:
        """Return the compiled form of a rule."""
        name = rule if isinstance(rule, str) else rule.name
        found = self._compiled.get(name)
        if found is None:
            found = self._compiled[name] = compiled_rule(self.rules.rule(name), self.rules.locals)
        return found

    def _check_pins(self, rule: CompiledRule, values: Mapping[str, Any]) -> None:
        known = (*rule.parameters, *rule.pattern.names)
        for name in values:
            if name not in known:
                hint = did_you_mean(name, rule.parameters)
                raise DplcError(f"rule `{rule.rule.name}` has no parameter `{name}`", rule.rule.span, (), hint)

    def step(self, name: str, parameters: Mapping[str, Any] | None = None) -> PassStep:
        """Return the pass of this name, or of one rule. Raises DplcError with the closest name."""
        rules = self.rules.passes.get(name) or ((self.rules.rules[name],) if name in self.rules.rules else ())
        if not rules:
            raise DplcError(
                f"there is no pass `{name}`", hint=did_you_mean(name, (*self.rules.passes, *self.rules.rules))
            )
        numbered = self.rules.numbered.get(name, "")
        return PassStep(name, tuple(rules), dict(parameters or {}), name, numbered=numbered)

    def pinned(self, rule: CompiledRule, step: PassStep) -> dict[str, Any]:
        """Return the values that the pipeline and the user give to this rule."""
        given = {n: v for n, v in step.parameters.items() if n in rule.parameters or n in rule.pattern.names}
        return {**given, **self.pins.get(rule.rule.name, {})}

    def compiled(self, step: PassStep) -> CompiledPass:
        """Return the compiled form of a pass, compiled when it first runs."""
        found = self._steps.get(step)
        if found is None:
            rules = [self.rule(rule) for rule in step.rules]
            repeat = any("repeat" in rule.attributes for rule in step.rules)
            marks = dict.fromkeys((rule.needs, rule.bars) for rule in rules)
            given = tuple((rule, self.pinned(rule, step)) for rule in rules)
            found = self._steps[step] = CompiledPass(given, repeat, tuple(marks))
        return found

    # ---- sites
    def sites(
        self, rule: Rule | str, program: Program, target: Target, pinned: Mapping[str, Any] | None = None,
        evidence: Evidence | None = None, search: bool = False,
    ) -> Iterator[Match]:  # fmt: skip
        """Return every legal way to fire a rule, lazily. search: every parameter value, whether preferred or not."""
        found = self.rule(rule)
        return found.matches(program, range(len(program)), target, pinned or {}, evidence, search)

    def why_not(
        self, rule: Rule | str, program: Program, target: Target, pinned: Mapping[str, Any] | None = None
    ) -> tuple[Refusal, ...]:
        """Return every reason why a rule does not fire; empty if it does."""
        evidence = Evidence()
        if next(self.sites(rule, program, target, pinned, evidence), None) is not None:
            return ()
        return evidence.all(self.rule(rule).rule)

    # ---- passes
    def fire(
        self, step: PassStep | str, program: Program, target: Target, parameters: Mapping[str, Any] | None = None,
        trace: Trace | None = None, done: set[str] | None = None,
    ) -> Program:  # fmt: skip
        """Run one pass. done: names of kernels to leave alone; those that fired are added."""
        if isinstance(step, str):
            step = self.step(step, parameters)
        rules = self.compiled(step)
        if trace is None and not rules.possible(program):
            return program  # the reason is not needed
        run = _Run(self, step, rules, target, trace, set() if done is None else done)
        return run.over(program)

    def fire_at(
        self, step: PassStep, program: Program, number: int, target: Target
    ) -> tuple[Program, int, tuple[Fired, ...]]:
        """Run one pass in one kernel. Returns the program, the number of resulting kernels, and the firings."""
        run = _Run(self, step, self.compiled(step), target, None, set(), [])
        made, kernels = run.kernel(program, number)
        return made, kernels, tuple(run.log or ())

    def rewrite(
        self, rule: Rule | str, program: Program, match: Match, target: Target
    ) -> tuple[Program, tuple[str, ...]]:
        """Return the program after one firing, canonical again, and the canonical rules that ran."""
        compiled = self.rule(rule)
        try:
            made = compiled.rewrite(program, match)
        except NotComputed:
            raise
        except MISTAKES as error:  # the template needs something of its operands that this one lacks
            why = str(error) or type(error).__name__
            place = compiled.rule.rewrite[0].span if compiled.rule.rewrite else compiled.rule.span
            raise DplcError(f"rule `{compiled.rule.name}`: its template cannot be built here: {why}", place) from error
        log: list[str] = []
        first = match.path[0] if match.path else match.start
        matched = 1 if match.path else match.end - match.start
        changed = range(first, first + matched + len(made) - len(program))
        for number in changed:
            made = self._normal_kernel(made, number, target, compiled.rule.level, log)
        if self.check or compiled.checked:
            for number in changed:
                self._check(compiled.rule, made[number])
        return made, tuple(log)

    def _check(self, rule: Rule, kernel: Kernel) -> None:
        wrong = wellformed(kernel)
        if wrong:
            raise DplcError(
                f"rule `{rule.name}` gives a program that is not well formed: {wrong}",
                rule.span,
                (f"in kernel `{kernel.name}`",),
            )

    # ---- canonical form
    def normal(self, program: Program, target: Target, level: str = "tile") -> Program:
        """Return the canonical form of every kernel."""
        for number in range(len(program)):
            program = self._normal_kernel(program, number, target, level, [])
        return program

    def canonical(self, lowered: bool) -> list[CompiledRule]:
        """Return the canonical rules of Kernel IR, or those of Loop and Tile IR."""
        if lowered not in self._canonical:
            levels = ("kernel",) if lowered else LEVELS[:-1]
            self._canonical[lowered] = [self.rule(rule) for rule in self.rules.canonical if rule.level in levels]
        return self._canonical[lowered]

    def _normal_kernel(self, program: Program, number: int, target: Target, level: str, log: list[str]) -> Program:
        """Apply canonical rules to one kernel, cached per kernel: they may read only their kernel and the target."""
        key = (self._own, target, level == "kernel")
        rules = self.canonical(level == "kernel")
        first, steps = len(log), list[RewriteStep]()
        while key not in _canonical_for(program[number]):
            if len(log) - first >= CANONICAL_FUEL:
                raise endless(f"canonical form is not reached after {CANONICAL_FUEL} firings", steps)
            for rule in rules:
                changed = self._once(rule, program, number, target) if rule.possible(program[number]) else None
                if changed is not None:
                    steps.append(RewriteStep(rule.rule, program[number : number + 1], changed[number : number + 1]))
                    program = changed
                    log.append(rule.rule.name)
                    break
            else:
                _canonical_for(program[number]).add(key)
        return program

    def _once(self, rule: CompiledRule, program: Program, number: int, target: Target) -> Program | None:
        for match in rule.matches(program, (number,), target, {}):
            made = rule.rewrite(program, match)
            if made[number] is not program[number]:
                return made
        return None


@memoised
def _canonical_for(kernel: Kernel) -> set[Any]:
    """Return the engines and targets that found a kernel in canonical form."""
    return set()


@dataclass
class _Run:
    """One pass over one program."""

    engine: Engine
    step: PassStep
    compiled: CompiledPass
    target: Target
    trace: Trace | None
    done: set[str]
    log: list[Fired] | None = None  # on request
    told: set[tuple[str, str]] = field(default_factory=set)  # what sizes left open, by kernel

    def over(self, program: Program) -> Program:
        skip = frozenset(self.done)
        for _ in range(REPEAT_FUEL):
            before = program
            program = self.sweep(program, skip)
            # a pattern over several kernels may match earlier now
            again = self.compiled.repeat and program is not before
            if not again or all(rule.rule.level != "module" for rule, _ in self.compiled.rules):
                return program
        return program

    def sweep(self, program: Program, skip: frozenset[str]) -> Program:
        number = 0
        while number < len(program):
            if program[number].name in skip:
                self.left_alone(program[number].name)
                number += 1
                continue
            program, made = self.kernel(program, number)
            number += max(made, 1)
        return program

    def kernel(self, program: Program, number: int) -> tuple[Program, int]:
        """Fire the first rule that matches a kernel (repeatedly with @repeat). Also returns the number of kernels."""
        made, steps = 1, list[RewriteStep]()
        name, first = program[number].name, program[number]
        while number < len(program):
            evidence = [Evidence() for _ in self.compiled.rules] if self.trace is not None else None
            fired = self.once(program, number, evidence)
            if evidence is not None:
                self.open_of_sizes(name, evidence)
            if fired is None:
                if evidence is not None and not steps:
                    self.refused(name, evidence)
                return program, made
            made = len(fired[0]) - len(program) + fired[1]
            before, after = program[number : number + fired[1]], fired[0][number : number + made]
            steps.append(RewriteStep(fired[2], before, after))
            program = fired[0]
            self.done.update(kernel.name for kernel in program[number : number + made])
            if not self.compiled.repeat:
                return program, made
            if len(steps) >= REPEAT_FUEL and len(steps) >= STATEMENT_FUEL * sum(1 for _ in nodes(first, Stmt)):
                raise endless(f"pass `{self.label}` does not stop after {len(steps)} firings in kernel `{name}`", steps)
            made = 1
        return program, made

    def once(self, program: Program, number: int, evidence: list[Evidence] | None) -> tuple[Program, int, Rule] | None:
        """Return (program, number of matched kernels, rule) of the first firing, or None."""
        for place, (rule, pinned) in enumerate(self.compiled.rules):
            seen = evidence[place] if evidence is not None else None
            if seen is None and not rule.possible(program[number]):
                continue
            for match in rule.matches(program, (number,), self.target, pinned, seen):
                new, cleaned = self.engine.rewrite(rule.rule, program, match, self.target)
                used = match.end - match.start if not match.path else 1
                made = len(new) - len(program) + used
                if new[number : number + made] != program[number : number + used]:
                    if self.log is not None:
                        self.log.append((rule, match, program))
                    if self.trace is not None:
                        self.fired(rule, match, program[number : number + used], new[number : number + made], cleaned)
                    return new, used, rule.rule
                if seen is not None:
                    seen.unchanged(rule.rule)
        return None

    # ---- events of the trace
    def open_of_sizes(self, unit: str, evidence: list[Evidence]) -> None:
        """Tell what sizes left undecided, once for each kernel and pass."""
        for line in dict.fromkeys(line for seen in evidence for line in seen.left_open):
            if self.trace is not None and (unit, line) not in self.told:
                self.told.add((unit, line))
                self.trace.add(LeftOpen(self.trace.prefix, self.label, unit, line))

    @property
    def label(self) -> str:
        return self.step.label or self.step.name

    def fired(
        self, rule: CompiledRule, match: Match, before: Program, after: Program, cleaned: tuple[str, ...]
    ) -> None:
        assert self.trace is not None
        chosen = {name: match.env[name] for name in rule.parameters if name in match.env}
        r, prefix, unit = rule.rule, self.trace.prefix, before[0].name
        where = (self.step.shown(r), r.name, r.location, unit, match.where)
        weighed, guards = rule.weighed(match.env), functools.partial(rule.held, match.env)
        self.trace.add(Firing(prefix, *where, chosen, before, after, cleaned, weighed, match.env, held=guards))

    def left_alone(self, name: str) -> None:
        if self.trace is not None:
            rule = self.step.rules[0]
            reason = f"another pass of `one of {self.step.group}` fired"
            self.trace.add(Skip(self.trace.prefix, self.step.shown(rule), rule.name, name, reason))

    def refused(self, name: str, evidence: list[Evidence]) -> None:
        assert self.trace is not None
        reasons = [seen.best(rule.rule) for (rule, _), seen in zip(self.compiled.rules, evidence, strict=True)]
        best = max(reasons, key=lambda refusal: refusal.depth)
        asked = self.engine.pins.keys() | self.trace.asked  # rules that the user names are reported in any case
        for reason in reasons:
            if reason is best or reason.rule.name in asked:
                self.trace.add(Skip(self.trace.prefix, self.step.shown(reason.rule), reason.rule.name, name, reason))


# A pipeline over a program: the passes in their order, `one of` groups, `--only`.


Shaped = dict[str, list[str]]  # the labels of the passes that changed each kernel, by its name
Decide = Callable[[PassStep, Program], Program | None]  # the result of a pass; None: its default


def run_pipeline(
    engine: Engine,
    steps: Sequence[PassStep],
    program: Program,
    target: Target,
    trace: Trace | None = None,
    shaped: Shaped | None = None,
    decide: Decide | None = None,
) -> Program:
    """Return the program after all passes. In a `one of`, the first pass that fires in a kernel excludes the others.

    shaped: filled with the labels of the passes that changed each kernel, by the kernel's name. decide: called for
    every pass when a schedule is replayed or drawn at random.
    """
    taken: dict[str, set[str]] = {}
    for step in steps:
        before, decided = program, decide(step, program) if decide is not None else None
        if decided is None:
            done = taken.setdefault(step.group, set()) if step.group is not None else None
            program = engine.fire(step, program, target, trace=trace, done=done)
        else:
            program = decided
        if program is not before and shaped is not None:
            _note_shaped(shaped, step.label, before, program)
    return program


def _note_shaped(shaped: Shaped, label: str, before: Program, after: Program) -> None:
    """Write down that a pass changed kernels. A kernel that it split off has been through all that its parent was."""
    named = {kernel.name for kernel in before}
    parent = ""
    for kernel in reversed(after):  # templates write what is split off before the kernel that keeps the name
        inherited = [] if kernel.name in named else shaped.get(parent, [])
        parent = kernel.name if kernel.name in named else parent
        if kernel not in before:
            labels = shaped.setdefault(kernel.name, list(inherited))
            labels += [label] if labels[-1:] != [label] else []


def only(steps: Sequence[PassStep], names: Iterable[str]) -> tuple[PassStep, ...]:
    """Return the steps that `--only` names: by label, pass, file or rule. A rule alone runs without its neighbours."""
    out: list[PassStep] = []
    wanted = tuple(names)
    known = {name for step in steps for name in names_of(step)}
    for name in wanted:
        if name not in known:
            raise DplcError(f"--only: there is no pass or rule `{name}` here", hint=did_you_mean(name, known))
    for step in steps:
        if any(name in (step.label, step.name, step.numbered, *(r.file for r in step.rules)) for name in wanted):
            out.append(step)
            continue
        rules = tuple(rule for rule in step.rules if rule.name in wanted)
        if rules:
            out.append(replace(step, rules=rules))
    return tuple(out)


def names_of(step: PassStep) -> set[str]:
    """Return the names that select a step: its label, its pass, its files and its rules."""
    own = {step.label, step.name, step.numbered or step.label}
    return own.union(*({rule.name, rule.file, pass_name(rule.file)} for rule in step.rules))


# The space of a pass: every legal (rule, site, parameters), lazily, preferred or not.
#
# A `FiringChoice` is complete. A `RuleSite` is a rule at a site with open parameters. Its first parameter costs the
# preceding clauses, one value costs the following clauses, and the other values cost nothing.


@dataclass(frozen=True, slots=True)
class FiringChoice:
    """One way to fire. It holds the program that it was found in: apply it or drop it."""

    engine: Engine
    rule: CompiledRule
    program: Program
    match: Match
    target: Target

    @property
    def where(self) -> str:
        return self.match.where

    @property
    def kernel(self) -> str:
        """The kernel that it changes (the first of them, on a module)."""
        position = self.match.path[0] if self.match.path else self.match.start
        return self.program[position].name

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of what there was to choose: parameters and picks."""
        return {name: self.match.env[name] for name in self.rule.chosen if name in self.match.env}

    @property
    def key(self) -> str:
        """Text `rule@site(parameters)`, which identifies a recorded choice."""
        values = ", ".join(f"{name}={show(value)}" for name, value in self.parameters.items())
        return f"{self.rule.rule.name}@{self.where}({values})"

    def apply(self) -> Program:
        """Return the program after this firing, canonical again."""
        return self.engine.rewrite(self.rule.rule, self.program, self.match, self.target)[0]

    def __repr__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class RuleSite:
    """A rule at a site. open: the parameter to choose next, None once all are chosen. It holds its program."""

    choice: FiringChoice
    open: OpenChoice | None
    pinned: Mapping[str, Any]

    @property
    def rule(self) -> str:
        return self.choice.rule.rule.name

    @property
    def where(self) -> str:
        return self.choice.where

    @property
    def default(self) -> Any:
        """The value that the open parameter would have by itself; None if it has none."""
        assert self.open is not None
        return self.choice.rule.decisions[True].default(self.open.step, self.open.env)

    def choose(self, value: Any) -> RuleSite | None:
        """Return the site with a value for the open parameter; None if a guard refuses it."""
        assert self.open is not None
        env = {**self.open.env, self.open.name: value}
        return _spot(self.choice, env, self.pinned, self.open.position)

    def first(self, values: Iterable[Any]) -> RuleSite | None:
        """Return the site with the first of some values that no guard refuses; None if there is none."""
        return next((made for made in map(self.choose, values) if made is not None), None)

    def filled(self, order: Callable[[RuleSite], Iterable[Any]]) -> RuleSite | None:
        """Return the site with values for all open parameters, in the order of preference that a function gives."""
        found: RuleSite | None = self
        while found is not None and found.open is not None:
            found = found.first(order(found))
        return found


def _spot(choice: FiringChoice, env: Environment, pinned: Mapping[str, Any], at: int) -> RuleSite | None:
    found = choice.rule.decisions[True].advance(env, pinned, None, at)
    if found is None:
        return None
    known, opened = (found.env, found) if isinstance(found, OpenChoice) else (found, None)
    match = dataclasses.replace(choice.match, env=known)
    return RuleSite(dataclasses.replace(choice, match=match), opened, pinned)


def spots(
    engine: Engine, step: PassStep, program: Program, target: Target, kernels: Iterable[int] | None = None
) -> Iterator[RuleSite]:
    """Yield every site where some rule of a pass may fire, as far as guards that read no parameter allow it."""
    numbers = tuple(range(len(program)) if kernels is None else kernels)
    for rule in map(engine.rule, step.rules):
        for path, block, start in rule.starts(rule.pattern, program, numbers, False):
            yield from _spots_at(engine, rule, step, program, target, (path, block, start))


def spot_at(engine: Engine, step: PassStep, rule: str, program: Program, target: Target, where: str) -> RuleSite | None:
    """Return one spot, found again by its rule and site: nothing else is searched."""
    compiled = next((engine.rule(one) for one in step.rules if one.name == rule), None)
    place = _place(program, where)
    if compiled is None or place is None:
        return None
    root = compiled.pattern.root
    path, block, start = place
    if not compiled.visible(program[path[0] if path else start]) or root not in (None, block[start].__class__):
        return None
    return next((s for s in _spots_at(engine, compiled, step, program, target, place) if s.where == where), None)


def _spots_at(
    engine: Engine, rule: CompiledRule, step: PassStep, program: Program, target: Target, place: tuple[Place, Any, int]
) -> Iterator[RuleSite]:
    path, block, start = place
    pinned = {**rule.parameters, **engine.pinned(rule, step)}
    for match in rule.matches_at(rule.pattern, (program, path, target), block, start):
        if rule.agrees(match.env, pinned, None):
            found = _spot(FiringChoice(engine, rule, program, match, target), match.env, pinned, 0)
            if found is not None:
                yield found


def _place(program: Program, where: str) -> tuple[Place, Any, int] | None:
    """Return (path, block, start) of `0/2/1#1`, or None if the program does not have this position."""
    numbers = where.split("#")[0].split("/")
    if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
        return None
    *path, start = map(int, numbers)
    block: Any = program
    for position in path:
        if not 0 <= position < len(block) or not hasattr(block[position], "body"):
            return None
        block = block[position].body
    return (tuple(path), block, start) if 0 <= start < len(block) else None


def choices(
    engine: Engine, step: PassStep | str, program: Program, target: Target,
    parameters: Mapping[str, Any] | None = None, without: frozenset[str] = frozenset(),
) -> Iterator[FiringChoice]:  # fmt: skip
    """Yield every choice of a pass. parameters: values to pin; without: kernels to leave alone."""
    found = engine.step(step) if isinstance(step, str) else step
    kernels = [number for number, kernel in enumerate(program) if kernel.name not in without]
    for rule in map(engine.rule, found.rules):
        known = {**engine.pinned(rule, found), **(parameters or {})}
        pinned = {name: value for name, value in known.items() if name in rule.parameters or name in rule.pattern.names}
        for match in rule.matches(program, kernels, target, pinned, None, True):
            yield FiringChoice(engine, rule, program, match, target)


def find(engine: Engine, step: PassStep | str, program: Program, target: Target, key: str) -> FiringChoice | None:
    """Return the recorded choice, if it is still there."""
    return next((choice for choice in choices(engine, step, program, target) if choice.key == key), None)


# Parameters that the user set: dplc reports every value that no rule used.


Settings = Mapping[str, Mapping[str, Any]]  # rule -> parameter -> value
Tell = Callable[[str], None]


class SettingWarning(UserWarning):
    """A parameter was set of a rule that does not fire."""


@dataclass(frozen=True)
class Unheard:
    """A rule with a parameter that was set, and that fired nowhere. reason: of its nearest refusal, if one is known."""

    rule: str
    setting: str
    reason: Refusal | None

    @property
    def text(self) -> str:
        return f"{self.setting}: {self._said}"

    @property
    def line(self) -> str:
        """Message with the options of the command line."""
        preferred = f"{self.rule}.{PREFER}="
        return f"--prefer {self.rule}: {self._said}" if self.setting.startswith(preferred) else f"--set {self.text}"

    @property
    def _said(self) -> str:
        said = self.reason.render() if self.reason is not None else "another rule of its pass fired instead"
        return f"rule `{self.rule}` fires nowhere in this program: {said}"


def check_settings(settings: Settings, rules: RuleSet) -> None:
    """Raise UsageError for a value outside of a domain that is the same for all programs."""
    for name, values in settings.items():
        rule = rules.rules.get(name)
        for parameter, value in values.items() if rule is not None else ():
            known = any(p.name == parameter for p in rule.parameters)  # type: ignore[union-attr]
            if known and not admits(rule, parameter, value):  # type: ignore[arg-type]
                what = f"{name}.{parameter}={show(value)}: the value is not in the domain of `{parameter}`"
                notes = (f"the domain is {shown(rule, parameter)}", f"the rule is at {rule.location}")  # type: ignore[arg-type,union-attr]
                raise UsageError(what, notes=notes)


def unheard(trace: Trace, settings: Settings, rules: RuleSet) -> tuple[Unheard, ...]:
    """Return the rules on loop nests and schedules whose parameters were set and that did not fire.

    Of rules on values nothing is said: what is set there is how much they may cost.
    """
    fired = {event.rule for event in trace.firings}
    found = []
    for name, values in settings.items():
        if values and name not in fired and rules.rule(name).level in LEVELS:
            setting = ", ".join(f"{name}.{parameter}={show(value)}" for parameter, value in values.items())
            reasons = [skip.reason for skip in trace.skips if skip.rule == name and isinstance(skip.reason, Refusal)]
            found.append(Unheard(name, setting, max(reasons, key=lambda reason: reason.depth, default=None)))
    return tuple(found)


def tell_unheard(found: Sequence[Unheard], tell: Tell | None = None) -> None:
    """Report settings without effect; by default as a Python warning.

    Raises UsageError for a value that is in the domain of its parameter nowhere in the program.
    """
    for each in found:
        if each.reason is not None and each.reason.outside:
            raise UsageError(each.text)
        if tell is not None:
            tell(each.line)
        else:
            warnings.warn(f"dplc: {each.text}", SettingWarning, stacklevel=3)


def unheard_by_all(found: Sequence[Sequence[Unheard]]) -> tuple[Unheard, ...]:
    """Return the settings that had no effect in any of several programs."""
    rules = [{each.rule for each in one} for one in found]
    return tuple(each for each in (found[0] if found else ()) if all(each.rule in one for one in rules))
