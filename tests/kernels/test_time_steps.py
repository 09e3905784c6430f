"""Time steps of stencils and replaced columns: kernels grow with the number of steps, not with the paths through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compared import judged

import dplc
from dplc.ir.loop import Let, Load
from dplc.ir.node import nodes

Tensor = torch.Tensor
INNER = slice(1, -1)


def line(u: Tensor, steps: int) -> Tensor:
    u = u.clone()
    for _ in range(steps):
        u[1:-1] = 0.3 * u[2:] + 0.3 * u[:-2] + 0.4 * u[1:-1]
    return u


def plane(u: Tensor, steps: int) -> Tensor:
    u = u.clone()
    for _ in range(steps):
        u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return u


def space(u: Tensor, steps: int) -> Tensor:
    u, c = u.clone(), INNER
    for _ in range(steps):
        u[c, c, c] = (u[2:, c, c] + u[:-2, c, c] + u[c, 2:, c] + u[c, :-2, c] + u[c, c, 2:] + u[c, c, :-2]) / 6
    return u


def padded(u: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        p = F.pad(u, (1, 1, 1, 1))
        u = 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2])
    return u


def padded_back(u: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        u = F.pad(0.5 * (u[:, 1:] + u[:, :-1]), (0, 1))
    return u


def joined(u: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        u = torch.cat([u[:1], 0.5 * (u[2:] + u[:-2]), u[-1:]])
    return u


def rolled(u: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        u = 0.5 * u + 0.25 * (u.roll(1, 0) + u.roll(-1, 0))
    return u


def columns(u: Tensor, steps: int) -> Tensor:
    u = u.clone()
    for i in range(1, steps + 1):
        u[:, i] = torch.sin(u[:, i - 1]) + u[:, i]
    return u


def sums_of_columns(u: Tensor, steps: int) -> Tensor:
    u = u.clone()
    for i in range(1, steps + 1):
        u[:, i] = u[:, i] - 0.1 * u[:, :i].sum(1)
    return u


def wave(u: Tensor, steps: int) -> Tensor:
    """A step reads two steps: kernels must not begin with the first one."""
    a, b = u, u.clone()
    for _ in range(steps):
        c = b.clone()
        c[1:-1] = 2 * b[1:-1] - a[1:-1] + 0.1 * (b[2:] - 2 * b[1:-1] + b[:-2])
        a, b = b, c
    return b


def edges(u: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        v = u.clone()
        v[1:-1] = 0.5 * (u[2:] + u[:-2])
        v[0] = v[1]
        v[-1] = v[-2]
        u = v
    return u


def two_fields(u: Tensor, steps: int) -> Tensor:
    v, w = u.clone(), torch.zeros_like(u)
    for _ in range(steps):
        w[1:] -= 0.1 * (v[1:] - v[:-1])
        v[:-1] -= 0.1 * (w[1:] - w[:-1])
    return v + w


def even_and_odd(u: Tensor, steps: int) -> Tensor:
    u = u.clone()
    for _ in range(steps):
        u[1:-1:2] = 0.5 * (u[:-2:2] + u[2::2])
        u[2:-1:2] = 0.5 * (u[1:-2:2] + u[3::2])
    return u


SHAPES: dict[Callable[[Tensor, int], Tensor], tuple[int, ...]] = {
    line: (40,),
    plane: (9, 11),
    space: (6, 7, 8),
    padded: (9, 11),
    padded_back: (3, 40),
    joined: (40,),
    rolled: (40,),
    columns: (3, 40),
    sums_of_columns: (3, 40),
    wave: (40,),
    edges: (40,),
    two_fields: (40,),
    even_and_odd: (40,),
}


def compiled(program: Callable[[Tensor, int], Tensor], steps: int, settings: Any = None) -> Any:
    inputs = (torch.randn(SHAPES[program]),)
    return dplc.compile(lambda u: program(u, steps), inputs, device="emulator", settings=settings, trace=False)


def statements(made: Any) -> int:
    """The loads and operations of all launches: equal kernels count each."""
    return sum(1 for kernel in made.compilation.plan.kernels for _ in nodes(kernel.body, Load, Let))


@pytest.mark.parametrize("program", SHAPES)
@pytest.mark.sampled(2)
def test_time_steps_of_several_kernels_are_right(program: Callable[[Tensor, int], Tensor]) -> None:
    made = judged(lambda u: program(u, 5), torch.randn(SHAPES[program]))
    assert made.compilation.plan.kernels


@pytest.mark.parametrize("program", SHAPES)
@pytest.mark.sampled(2)
def test_time_steps_grow_linearly(program: Callable[[Tensor, int], Tensor]) -> None:
    few, more = (compiled(program, steps) for steps in (6, 12))
    assert statements(more) <= 2.6 * statements(few)
    assert len(more.cuda) <= 2.6 * len(few.cuda)


@pytest.mark.parametrize(("program", "readers"), [(line, 3), (padded_back, 2), (joined, 3)])
@pytest.mark.sampled(2)
def test_sides_of_selections_share_values_that_both_need(
    program: Callable[[Tensor, int], Tensor], readers: int
) -> None:
    """One kernel of six steps: step k is needed at 1 + k * (readers - 1) places, and on `readers` ** k paths."""
    steps, few = 6, 8
    made = compiled(program, steps, {"inline": {"PLACES": 1000}})
    assert len(made.compilation.plan.kernels) == 1
    assert statements(made) <= few * readers * sum(1 + k * (readers - 1) for k in range(steps))
    judged(lambda u: program(u, 3), torch.randn(SHAPES[program]))


def looked_up(u: Tensor) -> Tensor:
    """The places of elements are computed from elements that only some places have."""
    u = u.clone()
    for _ in range(3):
        u[1:-1] = u[(u[2:] + u[:-2]) % u.shape[0]] + 1
    return u


def test_lookups_in_sides_of_selections_are_right() -> None:
    given = torch.arange(1, 14)
    made = dplc.compile(looked_up, (given,), device="emulator")
    assert torch.equal(made(given), looked_up(given))
