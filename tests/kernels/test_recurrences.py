"""Steps of a loop that was written out, stacked: each is computed once, by one kernel that stores every step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compared import judged
from drawing import draws
from hypothesis import given, settings, strategies as st

import dplc
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import toolchain
from dplc.ir.loop import Let, Load, Store
from dplc.ir.node import nodes
from dplc.ir.tile import Tile


def recurrence(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """h = a*h + b along the second dimension, as people write it."""
    h, steps = torch.zeros_like(a[:, 0]), []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1)


def backwards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h, steps = b[:, -1], []
    for t in reversed(range(a.shape[1])):
        h = torch.where(a[:, t] > 0.5, torch.tanh(h) + b[:, t], h)
        steps.append(h)
    return torch.stack(steps[::-1], 1)


def squashed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """No linear recurrence: what no scan computes."""
    h, steps = torch.zeros_like(a[:, 0]), []
    for t in range(a.shape[1]):
        h = torch.tanh(a[:, t] * h + b[:, t])
        steps.append(h)
    return torch.stack(steps, 1)


def two_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Another state, that every second step shows."""
    h, steps = a[:, 0], []
    for t in range(1, a.shape[1]):
        h = h * b[:, t] - a[:, t]
        steps.append(torch.stack([h, h * h], 1))
    return torch.cat(steps or [a[:, :1]], 1)


@pytest.mark.parametrize("program", [recurrence, backwards, squashed, two_rows])
@settings(max_examples=draws(2), deadline=None)
@given(rows=st.integers(1, 3), steps=st.integers(1, 9), columns=st.sampled_from([1, 2, 7, 64, 131]))
def test_steps_are_right(program: Any, rows: int, steps: int, columns: int) -> None:
    judged(program, torch.rand(rows, steps, columns), torch.randn(rows, steps, columns))


def test_every_step_is_computed_once_and_stored_as_soon_as_it_is_there() -> None:
    a, b = torch.rand(2, 24, 640), torch.randn(2, 24, 640)
    made = judged(squashed, a, b)
    (kernel,) = made.compilation.tile
    (tile,) = nodes(kernel.body, Tile)
    assert len(list(nodes(tile, Load))) == 2 * 24
    assert len(list(nodes(tile, Let))) <= 3 * 24
    order = [type(stmt) for stmt in nodes(tile, Let, Store)]
    assert order.count(Store) == 24
    assert order.index(Store) <= 3


def test_a_loop_nest_grows_with_the_steps_not_with_their_square() -> None:
    def statements(steps: int) -> int:
        made = dplc.compile(squashed, (torch.rand(2, steps, 64), torch.randn(2, steps, 64)), device="emulator")
        return len(list(nodes(made.compilation.plan.kernels[0].body, Let)))

    assert statements(24) <= 2.2 * statements(12)


def test_a_chain_longer_than_the_stack_of_python() -> None:
    """510 steps are 1,020 operations, each of which reads the one before."""
    tools = toolchain()
    captured = capture(recurrence, [torch.rand(1, 510, 4), torch.randn(1, 510, 4)])
    values = Compiler(tools, tools.on(target("h200"))).values(captured)
    assert [len(out.axes) for out in values.graph.outs] == [2]


def test_values_of_a_chain_longer_than_the_stack_of_python_are_stacked() -> None:
    """These operations are not a recurrence: both values are compared operand by operand."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        made = [x]
        for _ in range(300):
            made.append(torch.tanh(made[-1] * 0.5 + x))
        return torch.stack(made[-2:], 1)

    tools = toolchain()
    (out,) = Compiler(tools, tools.on(target("h200"))).values(capture(chain, [torch.randn(4, 8)])).graph.outs
    assert len(out.axes) == 3
