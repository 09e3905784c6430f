"""Cases of suites: read, captured and compiled."""

from __future__ import annotations

import fnmatch
import functools
import gc
import keyword
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import torch

from ...codegen.pack.contents import drawn, function_of
from ...ir.diagnostic import DplcError, UsageError, did_you_mean, raise_all
from ..capture.capture import SCOPE, capture, parse
from ..capture.fx_rewrites import Function
from ..capture.signature import Capture, Tensors
from ..compiler import Compilation, Compiler, Stopwatch
from ..ruleset import extended
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
        """Return the cases whose names fit a pattern, see `selected`."""
        names = selected([case.name for case in self.cases], pattern)
        return [case for case in self.cases if case.name in names]


def selected(names: Iterable[str], pattern: str | None) -> list[str]:
    """Return the names that contain a text, or match a pattern with `*`. Raises UsageError if none does."""
    pattern = pattern or "*"
    wanted = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    if found := [name for name in names if fnmatch.fnmatchcase(name, wanted)]:
        return found
    raise UsageError(f"--only {pattern}: no case has such a name", hint=did_you_mean(pattern, names))


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


def programs_of(path: Path, only: str | None) -> dict[str, Callable[[Compiler], Compilation]]:
    """Capture the cases of a suite. Return {case: the function from a compiler to its compilation}."""
    suite = read_suite(path)
    subjects = [subject_of(suite, case) for case in suite.select(only)]
    return {one.case.name: functools.partial(one.compile, captured=one.capture()) for one in subjects}


def with_rules(compiler: Compiler, paths: Sequence[str]) -> Compiler:
    """Return a compiler with more rule files as overrides. Raises DplcError for a file that does not check."""
    return replace(compiler, tools=extended(compiler.tools, paths))


def import_everything() -> None:
    """Import all modules that the first call of torch.export imports, so that no compile time includes them."""
    capture(lambda x: torch.relu(x), [torch.empty(8)])
    gc.collect()
    gc.freeze()
