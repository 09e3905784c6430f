"""Predicted times of a suite without a rule, or with another number: is the rule worth its lines?

    python examples/benches/ablation.py SUITE.json --without RULE[,RULE]|each --number NAME=V|each [-o FILE.json]

`each` means every rule of the schedule, or every number reduced and increased by half. A run that was stopped continues
from its file.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import msgspec

from dplc.codegen.target import target
from dplc.engine.bench.cases import Say, read_suite, subject_of
from dplc.engine.bench.records import read_json
from dplc.engine.compiler import Compilation, Compiler, compiler_with
from dplc.engine.language.rule import read_rules
from dplc.engine.rewrite.trace import EACH, Trace
from dplc.engine.ruleset import Toolchain, here, processes, toolchain
from dplc.ir.diagnostic import DplcError, Source, UsageError, did_you_mean

# A variant is one more rule file: `without RULE`, or `override number NAME = VALUE`. A process captures the suite once,
# and compiles it for one variant after the other. A rule that did not fire in a program cannot change the program.

NOTICEABLE = 1e-3  # a predicted time that changes by less is the same
ABLATION_HEAD = ("variant", "geometric mean", "changed", "slowest", "program", "not compiled")
ABLATION_LEGEND = "Predicted time with the change over predicted time without it. Nothing was run."
Effect = dict[str, float | str]  # microseconds of the programs that a variant changes, or why one does not compile


class Variant(msgspec.Struct, frozen=True):
    """Change of the rules: a rule file, and the rules that the file leaves out."""

    name: str
    text: str
    rules: tuple[str, ...] = ()


class Ablation(msgspec.Struct):
    """The results, as JSON. rules: digest of the rules that the variants change."""

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
            mean = statistics.geometric_mean(ratios.get(case, 1.0) for case in self.predicted_us)
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
    passes = (step.rules for level in ("loop", "tile", "kernel") for step in tools.pipelines[level])
    every = list(dict.fromkeys(rule.name for each in (*passes, rules.canonical) for rule in each))
    for text in every if EACH in without else without:
        names = tuple(rules.rule(rules.plain(name)).name for name in text.split(","))
        made.append(Variant(text, "".join(f"without {name}\n" for name in names), names))
    if EACH in numbers:  # every number, reduced and increased by half
        numbers = [
            f"{name}={changed}"
            for name, number in rules.numbers.items()
            if type(value := number.value) in (int, float)
            for factor in (0.5, 1.5)
            if (changed := type(value)(value * factor)) != value
        ]
    for text in numbers:
        name, _, value = text.partition("=")
        if name not in rules.numbers or not value:
            hint = did_you_mean(name, rules.numbers) or "write NAME=VALUE, or each"
            raise UsageError(f"--number {text}: there is no number `{name}`", hint=hint)
        made.append(Variant(text, f"override number {name} = {value}\n"))
    return made


@functools.lru_cache(1)
def _programs(path: Path, only: str | None) -> dict[str, Callable[[Compiler], Compilation]]:
    """Capture the cases of a suite. Return {case: the function from a compiler to its compilation}."""
    suite = read_suite(path)
    subjects = [subject_of(suite, case) for case in suite.select(only)]
    return {one.case.name: functools.partial(one.compile, captured=one.capture()) for one in subjects}


def _effect(
    path: Path, only: str | None, compiler: Compiler, before: Mapping[str, float], fired: Mapping[str, set[str]],
    variant: Variant,
) -> Effect:  # fmt: skip
    """Compile the programs of a suite that a variant may change, and keep those that it does change.

    before: predicted microseconds with all rules; fired: the rules that fired in each program.
    """
    found: Effect = {}
    tools = compiler.tools
    rules = tools.rules.extended(read_rules(Source(variant.name, variant.text)))
    changed = replace(compiler, tools=toolchain(rules, tools.settings))
    for name, program in _programs(path, only).items():
        if variant.rules and fired[name].isdisjoint(variant.rules):
            continue
        try:
            us = program(changed).predicted_seconds * 1e6
        except Exception as error:  # the rules that are left may build what none of them expects
            found[name] = error.what if isinstance(error, DplcError) else f"{type(error).__name__}: {error}"
        else:
            if abs(us / before[name] - 1) > NOTICEABLE:
                found[name] = us
    return found


def ablate(
    path: Path, only: str | None, compiler: Compiler, asked: Sequence[Variant], kept: Path | None, say: Say
) -> Ablation:
    """Compile a suite once for every variant, in as many processes as there are cores.

    Args:
        kept: a file of an earlier run with the same rules, whose effects are not computed again. Each effect is
            written to the file as soon as it and those of the preceding variants are known.

    Raises:
        DplcError: for a program that does not compile with all rules.
        UsageError: if `kept` has other results.
    """
    say(f"compiling {path.stem} with all rules")
    before, fired = dict[str, float](), dict[str, set[str]]()
    for name, program in _programs(path, only).items():
        trace = Trace()
        before[name] = program(replace(compiler, trace=trace)).predicted_seconds * 1e6
        fired[name] = {rule for event in trace.firings for rule in (event.rule, *event.cleaned)}
    record = Ablation(str(path), compiler.target.name, compiler.tools.rules.digest, before)
    if kept is not None and kept.exists():
        hint = "name another file with -o, or delete this one"
        earlier = read_json(kept, Ablation, hint)
        if msgspec.structs.replace(earlier, effects={}) != record:
            raise UsageError(f"{kept} has results of another suite, other rules or another target", hint=hint)
        record.effects = earlier.effects
    left = [variant for variant in asked if variant.name not in record.effects]
    effect = functools.partial(_effect, path, only, compiler, before, fired)
    count = min(len(os.sched_getaffinity(0)), len(left) // 4)  # fewer cost less than their captures
    with ProcessPoolExecutor(count, processes()) if count > 1 else nullcontext() as pool:
        effects = pool.map(here(effect), left) if pool else map(effect, left)
        for variant, changed in zip(left, effects):
            record.effects[variant.name] = changed
            say(f"{len(record.effects)}: {variant.name}")
            try:
                if kept is not None:
                    kept.write_bytes(msgspec.json.encode(record))
            except OSError as error:
                raise DplcError(f"cannot write {kept}: {error.strerror}") from None
    record.effects = {variant.name: record.effects[variant.name] for variant in asked}
    return record


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("--without", action="append", default=[], metavar="RULE[,RULE]|each")
    parser.add_argument("--number", action="append", default=[], metavar="NAME=V|each")
    parser.add_argument("--only", metavar="PATTERN", help="cases with this in their names")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help="rule files beside the built-in ones"
    )
    parser.add_argument("--target", default="h100")
    parser.add_argument("-o", type=Path, metavar="FILE.json", help="results, from which a stopped run continues")
    options = parser.parse_args()
    compiler = compiler_with(target(options.target), options.rules)
    asked = variants(options.without, options.number, compiler.tools)
    record = ablate(options.suite, options.only, compiler, asked, options.o, lambda text: print(text, file=sys.stderr))
    rows = [ABLATION_HEAD, *record.rows()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    print(f"{record.target}: {ABLATION_LEGEND}")


if __name__ == "__main__":
    try:
        main()
    except DplcError as error:
        sys.exit(error.render())
