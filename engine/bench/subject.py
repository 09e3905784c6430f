"""A case as a program: its function, inputs that are only shapes, inputs with values."""

from __future__ import annotations

import functools
import inspect
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ...ir.interp import torch as meaning
from ..capture.capture import Capture, capture
from ..capture.instrument import HOOK, parse
from .suite_file import BenchCase, Suite


@dataclass(frozen=True)
class BenchSubject:
    """A case and what it computes. shapes: of its inputs, in order. spreads: standard deviations, where not 1."""

    case: BenchCase
    expression: str
    function: Callable[..., Any]
    shapes: dict[str, tuple[int, ...]]
    spreads: Mapping[str, float]

    def capture(self) -> Capture:
        """The program, traced on tensors without values. Raises DplcError."""
        try:
            return capture(self.function, [torch.empty(shape, dtype=self.dtype) for shape in self.shapes.values()])
        except DplcError as error:
            notes = (f"case `{self.case.name}`: {self.expression}", *error.notes)
            raise DplcError(error.what, error.span, notes, error.hint) from None

    def inputs(self) -> dict[str, Any]:
        """{input: values}, the same in every run."""
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
    """A `-c` text that was captured, as a bench runs it: on the values that its factories made.

    `function` computes it in eager, one ATen op after the other, in the dtypes that the program says.
    """

    def __init__(self, captured: Capture):
        self.captured = captured
        self._constants: dict[Any, dict[str, Any]] = {}  # by device, so that no run moves any

    def inputs(self) -> dict[str, Any]:
        """{input: values}"""
        return {name: self.captured.tensors[name] for name in self.captured.inputs}

    def function(self, *tensors: Any) -> Any:
        """What eager gives."""
        device = tensors[0].device if tensors else torch.device("cpu")
        if device not in self._constants:
            beside = self.captured.tensors.items()
            inputs = self.captured.inputs
            self._constants[device] = {name: value.to(device) for name, value in beside if name not in inputs}
        with device:
            return tuple(self._module(*tensors, *self._constants[device].values()))

    @functools.cached_property
    def _module(self) -> Any:
        """The program as torch.fx has it, which torch.compile takes whole."""
        graph = torch.fx.Graph()
        tracer = torch.fx.proxy.GraphAppendingTracer(graph)
        names = (*self.captured.inputs, *(n for n in self.captured.tensors if n not in self.captured.inputs))
        values = {name: torch.fx.Proxy(graph.placeholder(name), tracer) for name in names}
        results = meaning.evaluated(self.captured.graph, values, wide=False)
        graph.output(tuple(result.node for result in results))
        return torch.fx.GraphModule(torch.nn.Module(), graph)


def subject_of(suite: Suite, case: BenchCase) -> BenchSubject:
    """The program of a case. Raises DplcError for an expression that cannot be parsed."""
    operation = suite.operations[case.operation]
    function = _function(operation.expression, tuple(operation.inputs))
    spreads = {name: suite.spread(case, name) for name in operation.fan_in}
    return BenchSubject(case, operation.expression, function, suite.shapes(case), spreads)


def _function(expression: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """A text as a function of its inputs. The front end reads it, as it reads what stands after `-c`."""
    program = parse(expression)
    scope = {
        "torch": torch,
        "nn": torch.nn,
        "F": torch.nn.functional,
        "math": math,
        "__name__": "__main__",
        HOOK: _call,
    }

    def function(*tensors: Any) -> Any:
        local = {**scope, **dict(zip(names, tensors, strict=True))}
        for statement in program.statements:
            statement.run(local)
        return program.value(local)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return function


def _call(site: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)
