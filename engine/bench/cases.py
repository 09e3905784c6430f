"""Cases of suites: read, captured and compiled; and what rules and numbers change in them."""

from __future__ import annotations

import fnmatch
import functools
import gc
import keyword
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import torch

from ...codegen.pack.contents import drawn, function_of
from ...ir.diagnostic import DplcError, Source, UsageError, did_you_mean, raise_all
from ..capture.capture import SCOPE, capture, parse
from ..capture.fx_rewrites import Function
from ..capture.signature import Capture, Tensors
from ..compiler import Compilation, Compiler, Stopwatch
from ..language.rule import read_rules
from ..rewrite.trace import EACH, Trace
from ..ruleset import Toolchain, extended, here, processes, toolchain
from .records import read_json

Say = Callable[[str], None]  # shows the current activity

# ---- Suite files: JSON that lists the operations to compile and their sizes.
#
#     {"about": "two shapes of one operation",
#      "operations": {"linear": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
#      "cases": [{"name": "small", "operation": "linear", "sizes": {"rows": 32, "in": 64, "out": 48}}]}
#
# An expression is a `-c` text, which may begin with statements, over the inputs by name; torch, nn, F and math are in
# scope. Like the text after `-c` it is Python: run suites that you trust. An input names its dimensions: sizes of the
# case, or numbers. Inputs are drawn from a normal distribution, in the dtype of the case. `fan_in` names weights whose
# values are divided by the root of the number of summed terms, as trained models initialise them: `{"w": "in"}`.


class BenchOperation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Expression over named inputs. Each input is a text with its dimensions in order: `"rows in"`.

    fan_in: {weight: the number of its products that are summed}, a size or a number. Without it the weights of a layer
    have a standard deviation of 1. Its scores are then in the hundreds, and a softmax of them amplifies the last bit of
    each.
    """

    expression: str
    inputs: dict[str, str]
    about: str = ""
    fan_in: dict[str, str] = {}

    @property
    def dimensions(self) -> set[str]:
        """Sizes and numbers in the shapes of the inputs."""
        return {part for text in self.inputs.values() for part in text.split()}


class BenchCase(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Operation at sizes. published: figures of others by name, only for the reader.

    emulated: the sizes at which its schedules are checked, for cases whose sizes depend on each other (heads and
    columns). `examples/benches/short_extents.py` reduces the sizes of the others. rules: rule files that are applied as
    overrides for this case; in a suite file, their paths are relative to that file.
    """

    name: str
    operation: str
    sizes: dict[str, int]
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    published: dict[str, float] = {}
    emulated: dict[str, int] = {}
    rules: tuple[str, ...] = ()


class Suite(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Suite. published: the source of the published figures of the cases."""

    operations: dict[str, BenchOperation]
    cases: Annotated[list[BenchCase], msgspec.Meta(min_length=1)]
    about: str = ""
    published: str = ""

    def select(self, pattern: str | None) -> list[BenchCase]:
        """Return the cases whose names contain a text, or match a pattern with `*`. Raises UsageError if none does."""
        if pattern is None:
            return self.cases
        wanted = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
        found = [case for case in self.cases if fnmatch.fnmatchcase(case.name, wanted)]
        if not found:
            hint = did_you_mean(pattern, [case.name for case in self.cases])
            raise UsageError(f"--only {pattern}: no case of the suite has such a name", hint=hint)
        return found


def read_suite(path: Path) -> Suite:
    """Read the suite in a file. Raises UsageError for an unreadable file, DplcError with all errors in it."""
    suite = read_json(path, Suite, "engine/bench/cases.py shows a suite", "suite")
    raise_all([DplcError(f"{path}: {what}", hint=hint) for what, hint in _mistakes(suite)])
    replace = msgspec.structs.replace
    placed = [replace(case, rules=tuple(str(path.parent / rule) for rule in case.rules)) for case in suite.cases]
    return replace(suite, cases=placed)


def _mistakes(suite: Suite) -> Iterator[tuple[str, str | None]]:
    """Yield (error, help) for each error in a suite."""
    for name, operation in suite.operations.items():
        where = f"operation `{name}`"
        if not operation.inputs:
            yield f"{where} has no inputs", "a program without inputs is a constant"
        for given, text in operation.inputs.items():
            if not given.isidentifier() or keyword.iskeyword(given) or given in SCOPE:
                yield f"{where}: an input cannot be named `{given}`", "take a Python name other than torch, nn, F, math"
            for part in text.split():
                if not part.isdigit() and not part.isidentifier():
                    yield f"{where}: `{part}` of input `{given}` is neither a number nor a name of a size", None
        for weight, terms in operation.fan_in.items():
            if weight not in operation.inputs:
                yield f"{where}: `fan_in` names no input: `{weight}`", did_you_mean(weight, operation.inputs)
            if terms not in operation.dimensions - {"0"}:
                hint = did_you_mean(terms, operation.dimensions)
                yield f"{where}: `{terms}` of `fan_in` is not a dimension of its inputs", hint
    for name, count in Counter(case.name for case in suite.cases).items():
        if count > 1:
            yield f"two cases are named `{name}`", None
    for case in suite.cases:
        where = f"case `{case.name}`"
        if case.operation not in suite.operations:
            yield f"{where}: there is no operation `{case.operation}`", did_you_mean(case.operation, suite.operations)
            continue
        needed = {part for part in suite.operations[case.operation].dimensions if not part.isdigit()}
        if case.emulated and case.emulated.keys() != case.sizes.keys():
            other = ", ".join(sorted(case.emulated.keys() ^ case.sizes.keys()))
            yield f"{where}: `sizes` and `emulated` name other sizes ({other})", "name the same sizes in both"
        for name in sorted(needed - case.sizes.keys()):
            hint = f"add it to its sizes: operation `{case.operation}` needs it"
            yield f"{where} does not say how large `{name}` is", hint
        for name in sorted(case.sizes.keys() - needed):
            yield f"{where}: no input of `{case.operation}` has a dimension `{name}`", did_you_mean(name, needed)
        for name, size in (*case.sizes.items(), *case.emulated.items()):
            if size < 1:
                yield f"{where}: `{name}` is {size}", "sizes are at least 1"


# ---- the program of a case


@dataclass(frozen=True)
class BenchSubject:
    """Case and its computation. shapes: of its inputs, in order. spreads: standard deviations other than 1."""

    case: BenchCase
    expression: str
    function: Function
    shapes: dict[str, tuple[int, ...]]
    spreads: Mapping[str, float]

    def capture(self) -> Capture:
        """Capture the program on tensors without values. Raises DplcError."""
        try:
            dtype = getattr(torch, self.case.dtype)
            return capture(self.function, [torch.empty(shape, dtype=dtype) for shape in self.shapes.values()])
        except DplcError as error:
            error.notes = (f"case `{self.case.name}`: {self.expression}", *error.notes)
            raise

    def compile(self, compiler: Compiler, captured: Capture | None = None) -> Compilation:
        """Compile the program, captured before or here, with the rules of its case. Raises DplcError."""
        watch = Stopwatch()
        with watch.stage("capture"):
            captured = captured or self.capture()
        return with_rules(compiler, self.case.rules).compile(captured, watch)

    def inputs(self) -> Tensors:
        """Return {input: values}, the same in every run."""
        return drawn(self.case.name, self.shapes, self.spreads, self.case.dtype)


def subject_of(suite: Suite, case: BenchCase) -> BenchSubject:
    """Return the program of a case. Raises DplcError for a text that is not an expression."""
    operation = suite.operations[case.operation]
    expression, inputs = operation.expression, operation.inputs
    parse(expression)

    def extent(part: str) -> int:
        return int(part) if part.isdigit() else case.sizes[part]

    shapes = {name: tuple(map(extent, text.split())) for name, text in inputs.items()}
    spreads = {name: 1.0 / math.sqrt(extent(terms)) for name, terms in operation.fan_in.items()}
    return BenchSubject(case, expression, function_of(expression, tuple(inputs)), shapes, spreads)


def with_rules(compiler: Compiler, paths: Sequence[str]) -> Compiler:
    """Return a compiler with more rule files as overrides. Raises DplcError for a file that does not check."""
    return replace(compiler, tools=extended(compiler.tools, paths))


def import_everything() -> None:
    """Import all modules that the first call of torch.export imports, so that no compile time includes them."""
    capture(lambda x: torch.relu(x), [torch.empty(8)])
    gc.collect()
    gc.freeze()


# ---- Effect of rules and numbers on the predicted times of a suite: each rule left out, each number changed.
#
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
