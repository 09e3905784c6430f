"""Effect of rules and numbers on the predicted times of a suite: each rule left out, each number changed.

A variant is one more rule file: `without RULE`, or `override number NAME = VALUE`. A process captures the suite once,
and compiles it for one variant after the other. A rule that did not fire in a program cannot change the program.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import msgspec

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, Source, UsageError, did_you_mean
from ..compiler import Compiler
from ..language.check import load_facts
from ..language.rule import RuleSet, read_rules
from ..rewrite.statements.driver import Settings
from ..rewrite.trace import EACH, Trace
from ..ruleset import Toolchain, toolchain
from .cases import with_rules
from .suites import read_suite, subject_of

NOTICEABLE = 1e-3  # a predicted time that changes by less is the same
HEAD = ("variant", "geometric mean", "changed", "slowest", "program", "not compiled")
LEGEND = "Predicted time with the change over predicted time without it. Nothing was run."
Effect = dict[str, float | str]  # microseconds of the programs that a variant changes, or why one does not compile


class Variant(msgspec.Struct, frozen=True):
    """Change of the rules: a rule file, and the rules that the file leaves out."""

    name: str
    text: str
    rules: tuple[str, ...] = ()


class Ablation(msgspec.Struct):
    """JSON of `dplc bench SUITE --without ..`. rules: digest of the rules that the variants change."""

    suite: str
    target: str
    rules: str
    predicted_us: dict[str, float]
    effects: dict[str, Effect] = {}

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table, the variants that cost most first."""
        found = []
        for name, effect in self.effects.items():
            ratios = {case: us / self.predicted_us[case] for case, us in effect.items() if not isinstance(us, str)}
            mean = math.exp(sum(map(math.log, ratios.values())) / len(self.predicted_us))
            slowest = max(ratios, key=ratios.__getitem__, default="")
            failed = len(effect) - len(ratios)
            cells = (name, f"{mean:.4f}", str(len(ratios)), f"{ratios.get(slowest, 1):.2f}", slowest, str(failed))
            found.append((failed, mean, cells))
        return [cells for _, _, cells in sorted(found, reverse=True)]


def variants(without: Sequence[str], numbers: Sequence[str], tools: Toolchain) -> list[Variant]:
    """Read `--without` (`each`, or rules: `A,B` leaves out two together) and `--number` (`each`, or `NAME=VALUE`).

    Raises:
        UsageError: for a rule or a number that does not exist.
    """
    rules, made = tools.rules, []
    steps = [step for level in ("loop", "tile", "kernel") for step in tools.pipelines[level]]
    scheduled = [rule.name for step in steps for rule in step.rules]
    every = list(dict.fromkeys((*scheduled, *(rule.name for rule in rules.canonical))))
    for text in every if EACH in without else without:
        names = tuple(map(rules.plain, text.split(",")))
        for name in set(names) - rules.rules.keys():
            raise UsageError(f"--without {text}: there is no rule `{name}`", hint=did_you_mean(name, every))
        made.append(Variant(text, "".join(f"without {name}\n" for name in names), names))
    if EACH in numbers:  # every number, reduced and increased by half
        plain = [(name, number.value) for name, number in rules.numbers.items() if type(number.value) in (int, float)]
        halved = ((name, value, type(value)(value * factor)) for name, value in plain for factor in (0.5, 1.5))
        numbers = [f"{name}={changed}" for name, value, changed in halved if changed != value]
    for text in numbers:
        name, _, value = text.partition("=")
        if name not in rules.numbers or not value:
            hint = did_you_mean(name, rules.numbers) or "write NAME=VALUE, or each"
            raise UsageError(f"--number {text}: there is no number `{name}`", hint=hint)
        made.append(Variant(text, f"override number {name} = {value}\n"))
    return made


class Subjects:
    """Captured programs of a suite. fired: the rules that fire in each, once they are compiled with all rules."""

    def __init__(self, path: Path, only: str | None, compiler: Compiler, fired: dict[str, set[str]]):
        suite = read_suite(path)
        self.cases = {case.name: (subject_of(suite, case).capture(), case.rules) for case in suite.select(only)}
        self.compiler, self.fired = compiler, fired

    def microseconds(self, name: str, compiler: Compiler) -> float:
        """Return the predicted time of a program. Raises DplcError."""
        captured, rules = self.cases[name]
        return with_rules(compiler, rules).compile(captured).predicted_seconds * 1e6

    def baseline(self) -> dict[str, float]:
        """Compile all programs with all rules. Raises DplcError."""
        found = {}
        for name in self.cases:
            trace = Trace()
            found[name] = self.microseconds(name, replace(self.compiler, trace=trace))
            self.fired[name] = {rule for event in trace.firings for rule in (event.rule, *event.cleaned)}
        return found

    def effect(self, variant: Variant, before: dict[str, float]) -> Effect:
        """Compile the programs that a variant may change, and keep those that it does change."""
        found: Effect = {}
        tools = self.compiler.tools
        files = (*tools.rules.files, read_rules(Source(variant.name, variant.text)))
        changed = replace(self.compiler, tools=toolchain(RuleSet(files), tools.settings))
        for name, us in before.items():
            if not variant.rules or not self.fired[name].isdisjoint(variant.rules):
                try:
                    time = self.microseconds(name, changed)
                except Exception as error:  # the rules that are left may build what none of them expects
                    found[name] = error.what if isinstance(error, DplcError) else f"{type(error).__name__}: {error}"
                else:
                    if abs(time / us - 1) > NOTICEABLE:
                        found[name] = time
        return found


def ablate(
    path: Path, only: str | None, compiler: Compiler, asked: Sequence[Variant], kept: Path | None,
    say: Callable[[str], None],
) -> Ablation:  # fmt: skip
    """Compile a suite once for every variant, in as many processes as there are cores.

    Args:
        kept: a file of an earlier run with the same rules, whose effects are not computed again. Each effect is
            written to the file as soon as it is known.

    Raises:
        DplcError: for a program that does not compile with all rules.
        UsageError: if `kept` has other results.
    """
    say(f"compiling {path.stem} with all rules")
    subjects = Subjects(path, only, compiler, {})
    record = Ablation(str(path), compiler.target.name, compiler.tools.rules.digest, subjects.baseline())
    if kept is not None and kept.exists():
        found = msgspec.json.decode(kept.read_bytes(), type=Ablation)
        if msgspec.structs.replace(found, effects={}) != record:
            hint = "name another file with -o, or delete this one"
            raise UsageError(f"{kept} has results of another suite, other rules or another target", hint=hint)
        record.effects = found.effects
    left = [variant for variant in asked if variant.name not in record.effects]
    for variant, effect in _effects(left, subjects, record.predicted_us, (path, only)):
        record.effects[variant.name] = effect
        say(f"{len(record.effects)}: {variant.name}")
        if kept is not None:
            kept.write_bytes(msgspec.json.encode(record))
    record.effects = {variant.name: record.effects[variant.name] for variant in asked}
    return record


def _effects(
    left: Sequence[Variant], subjects: Subjects, before: dict[str, float], given: tuple[Path, str | None]
) -> Iterator[tuple[Variant, Effect]]:
    count = min(len(os.sched_getaffinity(0)), len(left) // 4)  # every process captures the suite again
    if count <= 1:
        yield from ((variant, subjects.effect(variant, before)) for variant in left)
        return
    tools = subjects.compiler.tools
    sources = tuple(file.source for file in tools.rules.files)
    arguments = (*given, sources, tools.settings, subjects.compiler.target, subjects.fired)
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, arguments) as pool:
        made = {pool.submit(_effect, variant, before): variant for variant in left}
        yield from ((made[one], one.result()) for one in as_completed(made))


_OF_PROCESS: list[Subjects] = []


def _begin(
    path: Path, only: str | None, files: tuple[Source, ...], settings: Settings, machine: Target,
    fired: dict[str, set[str]],
) -> None:  # fmt: skip
    load_facts()
    compiler = Compiler(toolchain(RuleSet(map(read_rules, files)), settings), machine)
    _OF_PROCESS.append(Subjects(path, only, compiler, fired))


def _effect(variant: Variant, before: dict[str, float]) -> Effect:
    return _OF_PROCESS[0].effect(variant, before)
