"""The engine: passes of rules over modules of kernels.

A pass fires at most once in a kernel (kernels that it makes count as done), with `@repeat` until no site is left. Rules
are tried in file order, sites in pre-order; the first legal, preferred one whose result differs from its input fires.
After each firing the `@canonical` rules run to a fixpoint on what changed.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....codegen.target import Target
from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.node import contents, memoised, nodes
from ....ir.program import Kernel, Stmt
from ...language.pipeline import PassStep
from ...language.questions import MISTAKES, NotComputed
from ...language.rule import Rule, RuleSet
from ..loops import RewriteStep, endless
from ..trace import Firing, LeftOpen, Skip, TextReason, Trace
from ..why_not import Evidence, Refusal
from .compiled import CompiledRule, Match, Program, compiled_rule
from .well_formed import wellformed

REPEAT_FUEL = 64
STATEMENT_FUEL = 4  # a pass that moves every statement fires as often as there are, past a guard or two each
CANONICAL_FUEL = 200
LEVELS = ("module", "loop", "tile", "kernel")
Pins = Mapping[str, Mapping[str, Any]]
Fired = tuple[CompiledRule, Match, Program]  # the match stands in this program


@dataclass(frozen=True)
class CompiledPass:
    """The rules of a pass, compiled, with the values that are given to them; whether it fires again and again.

    marks: for each rule the classes that a kernel must have for it, and those that it must not have.
    """

    rules: tuple[tuple[CompiledRule, dict[str, Any]], ...]
    repeat: bool
    marks: tuple[tuple[int, int], ...]

    def possible(self, program: Program) -> bool:
        """Whether some rule could match in some kernel, by the classes of statements that it holds."""
        for kernel in program:
            found = kernel._contents or contents(kernel)
            for needs, bars in self.marks:
                if not needs & ~found and not bars & found:
                    return True
        return False


class Engine:
    """Compiles the rules of a rule set, each when first needed, and runs them.

    pins: rule -> parameter -> value, as `--set RULE.PARAM=VALUE` says. check: look at every result (`wellformed`), not
    only at those of a user's rules.
    """

    def __init__(self, rules: RuleSet, pins: Pins | None = None, check: bool = False):
        self.rules, self.check = rules, check
        self._compiled: dict[str, CompiledRule] = {}
        self._own = object()  # stands for this engine where a kernel remembers which ones found it canonical
        self._canonical: dict[bool, list[CompiledRule]] = {}
        self._steps: weakref.WeakKeyDictionary[PassStep, CompiledPass] = weakref.WeakKeyDictionary()
        self.pins: Pins = dict(pins or {})
        for name, values in self.pins.items():
            self._check_pins(self.rule(name), values)

    # ---- rules
    def rule(self, rule: Rule | str) -> CompiledRule:
        """A rule, compiled."""
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
        """The pass of this name, or of one rule. Raises DplcError with the closest name."""
        rules = self.rules.passes.get(name) or ((self.rules.rules[name],) if name in self.rules.rules else ())
        if not rules:
            raise DplcError(
                f"there is no pass `{name}`", hint=did_you_mean(name, (*self.rules.passes, *self.rules.rules))
            )
        numbered = self.rules.numbered.get(name, "")
        return PassStep(name, tuple(rules), dict(parameters or {}), name, numbered=numbered)

    def pinned(self, rule: CompiledRule, step: PassStep) -> dict[str, Any]:
        """The values that the pipeline and the user give to this rule."""
        given = {n: v for n, v in step.parameters.items() if n in rule.parameters or n in rule.pattern.names}
        return {**given, **self.pins.get(rule.rule.name, {})}

    def compiled(self, step: PassStep) -> CompiledPass:
        """A pass, compiled when it first runs."""
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
        """Every legal way to fire a rule, lazily. search: every parameter value, whether preferred or not."""
        found = self.rule(rule)
        return found.matches(program, range(len(program)), target, pinned or {}, evidence, search)

    def why_not(
        self, rule: Rule | str, program: Program, target: Target, pinned: Mapping[str, Any] | None = None
    ) -> tuple[Refusal, ...]:
        """Every reason why a rule does not fire; empty if it does."""
        evidence = Evidence()
        if next(self.sites(rule, program, target, pinned, evidence), None) is not None:
            return ()
        return evidence.all(self.rule(rule).rule)

    # ---- passes
    def fire(
        self, step: PassStep | str, program: Program, target: Target, parameters: Mapping[str, Any] | None = None,
        trace: Trace | None = None, done: set[str] | None = None,
    ) -> Program:  # fmt: skip
        """One pass. done: names of kernels to leave alone; those that fired are added."""
        if isinstance(step, str):
            step = self.step(step, parameters)
        rules = self.compiled(step)
        if trace is None and not rules.possible(program):
            return program  # nobody asks why
        run = _Run(self, step, rules, target, trace, set() if done is None else done)
        return run.over(program)

    def fire_at(
        self, step: PassStep, program: Program, number: int, target: Target
    ) -> tuple[Program, int, tuple[Fired, ...]]:
        """One pass in one kernel: the program after it, how many kernels that made, and what fired."""
        run = _Run(self, step, self.compiled(step), target, None, set(), [])
        made, kernels = run.kernel(program, number)
        return made, kernels, tuple(run.log or ())

    def rewrite(
        self, rule: Rule | str, program: Program, match: Match, target: Target
    ) -> tuple[Program, tuple[str, ...]]:
        """The program after one firing, canonical again, and the canonical rules that ran."""
        compiled = self.rule(rule)
        try:
            made = compiled.rewrite(program, match)
        except NotComputed:
            raise
        except MISTAKES as error:  # the template asks something of what it got that this has not
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
        """The canonical form of every kernel."""
        for number in range(len(program)):
            program = self._normal_kernel(program, number, target, level, [])
        return program

    def canonical(self, lowered: bool) -> list[CompiledRule]:
        """The canonical rules of Kernel IR, or those of Loop and Tile IR."""
        if lowered not in self._canonical:
            levels = ("kernel",) if lowered else LEVELS[:-1]
            self._canonical[lowered] = [self.rule(rule) for rule in self.rules.canonical if rule.level in levels]
        return self._canonical[lowered]

    def _normal_kernel(self, program: Program, number: int, target: Target, level: str, log: list[str]) -> Program:
        """Remembered per kernel: a canonical rule may ask about its kernel and the target only."""
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
    """The engines and targets that found a kernel in canonical form."""
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
    log: list[Fired] | None = None  # for those who ask
    told: set[tuple[str, str]] = field(default_factory=set)  # what sizes left open, by kernel

    def over(self, program: Program) -> Program:
        skip = frozenset(self.done)
        for _ in range(REPEAT_FUEL):
            before = program
            program = self.sweep(program, skip)
            # a pattern over several kernels may have a new place further up
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
        """The first rule that fires at a kernel (with @repeat again and again), and how many kernels that makes."""
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
        """(program, kernels that were matched, rule) of the first firing."""
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

    # ---- what the trace hears
    def open_of_sizes(self, unit: str, evidence: list[Evidence]) -> None:
        """Tell what sizes left undecided, once for each kernel and pass."""
        for line in dict.fromkeys(line for seen in evidence for line in seen.left_open):
            if self.trace is not None and (unit, line) not in self.told:
                self.told.add((unit, line))
                self.trace.add(LeftOpen(self.trace.prefix, self.label, unit, line))

    @property
    def label(self) -> str:
        return self.step.label or self.step.name

    def marker(self, rule: Rule) -> str:
        return self.step.shown(rule)

    def fired(
        self, rule: CompiledRule, match: Match, before: Program, after: Program, cleaned: tuple[str, ...]
    ) -> None:
        assert self.trace is not None
        chosen = {name: match.env[name] for name in rule.parameters if name in match.env}
        r, prefix, unit = rule.rule, self.trace.prefix, before[0].name
        where = (self.marker(r), r.name, r.location, unit, match.where)
        weighed, guards = rule.weighed(match.env), functools.partial(rule.held, match.env)
        self.trace.add(Firing(prefix, *where, chosen, before, after, cleaned, weighed, match.env, held=guards))

    def left_alone(self, name: str) -> None:
        if self.trace is not None:
            rule = self.step.rules[0]
            reason = TextReason(f"another pass of `one of {self.step.group}` fired")
            self.trace.add(Skip(self.trace.prefix, self.marker(rule), rule.name, name, reason))

    def refused(self, name: str, evidence: list[Evidence]) -> None:
        assert self.trace is not None
        reasons = [seen.best(rule.rule) for (rule, _), seen in zip(self.compiled.rules, evidence, strict=True)]
        best = max(reasons, key=lambda refusal: refusal.depth)
        asked = self.engine.pins.keys() | self.trace.asked  # whom the user names, hears of it in any case
        for reason in reasons:
            if reason is best or reason.rule.name in asked:
                self.trace.add(Skip(self.trace.prefix, self.marker(reason.rule), reason.rule.name, name, reason))
