"""Which outputs may take the memory of an input: by what their kernels read, and when."""

from __future__ import annotations

import re

import pytest
import torch

from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.run.calls import refusal, with_aliases


def compiled(text: str) -> Compilation:
    return compiler_with(target("sm_80")).compile(capture_text("x = torch.randn(16, 32)\n" + text))


@pytest.mark.parametrize("checked", [False, True])
def test_a_row_is_written_in_place(checked: bool) -> None:
    """A row of x, at a place that is known when it runs; and what reads all of it afterwards."""
    place = "(torch.arange(16) == torch.tensor(5))[:, None]"
    made = compiled(f"y = torch.where({place}, torch.randn(32), x)\n(y, torch.softmax(y, -1).sum(0))")
    program = with_aliases(made, ("x", "no input")).program
    assert list(program.aliases.values()) == ["x"]
    given = {buffer.name: made.captured.tensors[buffer.name].reshape(buffer.shape) for buffer in program.inputs}
    results = EmulatorExecutor(checked=checked, arena=True).run(program, given)
    torch.testing.assert_close(list(results.values()), list(made.captured.reference))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x.flip(0) * 2", "reads `x` at another element"),
        ("x[:, :1] + x", "reads `x` at another element"),
        ("x - x.sum(-1, keepdim=True)", "reads `x` at another element"),
        ("(x + 1, x.sum(0))", "when `.*` has written"),
        ("x > 0", "differ in dtype or shape"),
        ("x.sum(-1)", "differ in dtype or shape"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    made = compiled(text)
    outputs = made.plan.outputs
    assert re.search(reason, refusal(made.plan, outputs[0].name, "x") or "")
    assert not with_aliases(made, ["x", "no input"][: len(outputs)]).program.aliases


def test_an_input_must_be_there() -> None:
    plan = compiled("x + 1").plan
    refusals = [refusal(plan, plan.outputs[0].name, name) for name in "xz"]
    assert refusals == [None, "there is no input `z`"]
