"""Suite files: JSON that lists the operations to compile and their sizes.

    {"about": "two shapes of one operation",
     "operations": {"linear": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
     "cases": [{"name": "small", "operation": "linear", "sizes": {"rows": 32, "in": 64, "out": 48}}]}

An expression is a `-c` text, which may begin with statements, over the inputs by name; torch, nn, F and math are in
scope. Like the text after `-c` it is Python: run suites that you trust. An input names its dimensions: sizes of the
case, or numbers. Inputs are drawn from a normal distribution, in the dtype of the case. `fan_in` names weights whose
values are divided by the root of the number of summed terms, as trained models initialise them: `{"w": "in"}`.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import keyword
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...ir.diagnostic import Diagnostics, DplcError, UsageError, did_you_mean
from ...ir.interp import torch as meaning
from ..capture.capture import HOOK, Capture, capture, parse

DTYPES = ("float32", "float16", "bfloat16")


def _call(site: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


SCOPE = {  # of an expression
    "torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math, "__name__": "__main__", HOOK: _call,
}  # fmt: skip


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


class BenchCase(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Operation at sizes. published: figures of others by name, only for the reader.

    emulated: the sizes at which its schedules are checked, for cases whose sizes depend on each other (heads and
    columns). `examples/benches/short_extents.py` reduces the sizes of the others. rules: rule files that are applied as
    overrides for this case; in a suite file, their paths are relative to that file.
    """

    name: str
    operation: str
    sizes: dict[str, int]
    dtype: str = "float32"
    published: dict[str, float] = {}
    emulated: dict[str, int] = {}
    rules: tuple[str, ...] = ()


class Suite(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Suite. published: the source of the published figures of the cases."""

    operations: dict[str, BenchOperation]
    cases: list[BenchCase]
    about: str = ""
    published: str = ""

    def shapes(self, case: BenchCase) -> dict[str, tuple[int, ...]]:
        """Return {input: its shape} of a case."""
        inputs = self.operations[case.operation].inputs
        return {name: tuple(_extent(part, case.sizes) for part in text.split()) for name, text in inputs.items()}

    def spread(self, case: BenchCase, name: str) -> float:
        """Return the standard deviation of the values of an input."""
        terms = self.operations[case.operation].fan_in.get(name, "1")
        return 1.0 / math.sqrt(_extent(terms, case.sizes))

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


def _extent(part: str, sizes: dict[str, int]) -> int:
    return int(part) if part.isdigit() else sizes[part]


def read_suite(path: Path) -> Suite:
    """Read the suite in a file. Raises UsageError for an unreadable file, DplcError with all errors in it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the suite {path}: {error.strerror}") from None
    try:
        suite = msgspec.json.decode(data, type=Suite)
    except msgspec.ValidationError as error:
        raise DplcError(f"{path}: {error}", hint="engine/bench/suites.py shows a suite") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DplcError(f"{path} is not JSON: {error}") from None
    wrong = list(_mistakes(suite))
    if wrong:
        found = [DplcError(f"{path}: {what}", hint=hint) for what, hint in wrong]
        raise found[0] if len(found) == 1 else Diagnostics(found)
    replace = msgspec.structs.replace
    placed = [replace(c, rules=tuple(str(path.parent / rule) for rule in c.rules)) for c in suite.cases]
    return replace(suite, cases=placed)


def _mistakes(suite: Suite) -> Iterator[tuple[str, str | None]]:
    """Yield (error, help) for each error in a suite."""
    if not suite.cases:
        yield "the suite has no cases", None
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
        sizes = {part for text in operation.inputs.values() for part in text.split()}
        for weight, terms in operation.fan_in.items():
            if weight not in operation.inputs:
                yield f"{where}: `fan_in` names no input: `{weight}`", did_you_mean(weight, operation.inputs)
            if terms not in sizes or terms == "0":
                yield f"{where}: `{terms}` of `fan_in` is no dimension of its inputs", did_you_mean(terms, sizes)
    for name, count in Counter(case.name for case in suite.cases).items():
        if count > 1:
            yield f"two cases are named `{name}`", None
    for case in suite.cases:
        where = f"case `{case.name}`"
        if case.operation not in suite.operations:
            yield f"{where}: there is no operation `{case.operation}`", did_you_mean(case.operation, suite.operations)
            continue
        if case.dtype not in DTYPES:
            yield f"{where}: there is no dtype `{case.dtype}`", f"dtypes are {', '.join(DTYPES)}"
        inputs = suite.operations[case.operation].inputs.values()
        needed = {part for text in inputs for part in text.split() if not part.isdigit()}
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
    function: Callable[..., Any]
    shapes: dict[str, tuple[int, ...]]
    spreads: Mapping[str, float]

    def capture(self) -> Capture:
        """Capture the program on tensors without values. Raises DplcError."""
        try:
            return capture(self.function, [torch.empty(shape, dtype=self.dtype) for shape in self.shapes.values()])
        except DplcError as error:
            notes = (f"case `{self.case.name}`: {self.expression}", *error.notes)
            raise DplcError(error.what, error.span, notes, error.hint) from None

    def inputs(self) -> dict[str, Any]:
        """Return {input: values}, the same in every run."""
        made = {}
        for name, shape in self.shapes.items():
            generator = torch.Generator().manual_seed(zlib.crc32(f"{self.case.name}.{name}".encode()))
            drawn = torch.randn(shape, generator=generator) * self.spreads.get(name, 1.0)
            made[name] = drawn.to(self.dtype)
        return made

    @property
    def dtype(self) -> Any:
        return getattr(torch, self.case.dtype)


class Written:
    """Captured `-c` text in the form that a benchmark runs, on the values that its factories generated.

    `function` computes it in eager mode, one ATen op after the other, in the dtypes of the program.
    """

    def __init__(self, captured: Capture):
        self.captured = captured
        self._constants: dict[Any, dict[str, Any]] = {}  # by device, so that no run moves any

    def inputs(self) -> dict[str, Any]:
        """Return {input: values}."""
        return {name: self.captured.tensors[name] for name in self.captured.inputs}

    def function(self, *tensors: Any) -> Any:
        """Return the results of eager mode."""
        device = tensors[0].device if tensors else torch.device("cpu")
        if device not in self._constants:
            others = self.captured.tensors.items()
            inputs = self.captured.inputs
            self._constants[device] = {name: value.to(device) for name, value in others if name not in inputs}
        with device:
            return tuple(self._module(*tensors, *self._constants[device].values()))

    @functools.cached_property
    def _module(self) -> Any:
        """Program as one torch.fx module, which torch.compile compiles as a whole."""
        graph = torch.fx.Graph()
        tracer = torch.fx.proxy.GraphAppendingTracer(graph)
        names = (*self.captured.inputs, *(n for n in self.captured.tensors if n not in self.captured.inputs))
        values = {name: torch.fx.Proxy(graph.placeholder(name), tracer) for name in names}
        results = meaning.evaluated(self.captured.graph, values, wide=False)
        graph.output(tuple(result.node for result in results))
        return torch.fx.GraphModule(torch.nn.Module(), graph)


def subject_of(suite: Suite, case: BenchCase) -> BenchSubject:
    """Return the program of a case. Its text is parsed as a text after `-c` is. Raises DplcError."""
    operation = suite.operations[case.operation]
    program, names = parse(operation.expression), tuple(operation.inputs)

    def function(*tensors: Any) -> Any:
        return program.run({**SCOPE, **dict(zip(names, tensors, strict=True))})

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    spreads = {name: suite.spread(case, name) for name in operation.fan_in}
    return BenchSubject(case, operation.expression, function, suite.shapes(case), spreads)
