"""A case as a program: its function, inputs that are only shapes, inputs with values."""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ..front.capture import Capture, capture
from ..front.instrument import HOOK, parse
from .suite_file import Case, Suite


@dataclass(frozen=True)
class Subject:
    """A case and what it computes. shapes: of its inputs, in order."""

    case: Case
    expression: str
    function: Callable[..., Any]
    shapes: dict[str, tuple[int, ...]]

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
            made[name] = torch.randn(shape, generator=generator).to(self.dtype)
        return made

    @property
    def dtype(self) -> Any:
        return getattr(torch, self.case.dtype)


def subject_of(suite: Suite, case: Case) -> Subject:
    """The program of a case. Raises DplcError for an expression that cannot be parsed."""
    operation = suite.operations[case.operation]
    return Subject(
        case, operation.expression, _function(operation.expression, tuple(operation.inputs)), suite.shapes(case)
    )


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
