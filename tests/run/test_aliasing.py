"""Which outputs may take the memory of an input: by what their kernels read, and when."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.run.calls import refusal, with_aliases


def compiled(function: Callable[..., Any], *inputs: Any) -> Compilation:
    return compiler_with(target("sm_80")).compile(capture(function, inputs))


X, ROW, P = torch.randn(16, 32), torch.randn(32), torch.tensor(5)


def row_written(x: Any, row: Any, p: Any) -> tuple[Any, Any]:
    """A row of x, at a place that is known when it runs; and what reads all of it afterwards."""
    y = torch.where((torch.arange(16) == p)[:, None], row, x)
    return y, torch.softmax(y, -1).sum(0)


@pytest.mark.parametrize("checked", [False, True])
def test_a_row_is_written_in_place(checked: bool) -> None:
    made = with_aliases(compiled(row_written, X, ROW, P), ("x", "no input"))
    (output,) = made.program.aliases
    executor = EmulatorExecutor(checked=checked, arena=True)
    given = {"x": X, "row": ROW, "p": P.reshape(made.program.inputs[2].shape)}
    results = list(executor.run(made.program, given).values())
    assert made.program.aliases[output] == "x"
    for result, want in zip(results, row_written(X, ROW, P), strict=True):
        torch.testing.assert_close(result, want)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.flip(0) * 2, "reads `x` at another element"),
        (lambda x: x[:, :1] + x, "reads `x` at another element"),
        (lambda x: x - x.sum(-1, keepdim=True), "reads `x` at another element"),
        (lambda x: (x + 1, x.sum(0)), "when `.*` has written"),
        (lambda x: x > 0, "differ in dtype or shape"),
        (lambda x: x.sum(-1), "differ in dtype or shape"),
    ],
)
def test_refusals(function: Callable[..., Any], reason: str) -> None:
    made = compiled(function, X)
    assert re.search(reason, refusal(made.plan, made.plan.outputs[0].name, "x") or "")
    others = ["no input"] * (len(made.plan.outputs) - 1)
    assert not with_aliases(made, ["x", *others]).program.aliases


def test_an_input_must_be_there() -> None:
    plan = compiled(lambda x: x + 1, X).plan
    assert refusal(plan, plan.outputs[0].name, "x") is None
    assert refusal(plan, plan.outputs[0].name, "z") == "there is no input `z`"
