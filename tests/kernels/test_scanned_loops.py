"""Loops that were written out: linear recurrences are scans, and what all steps do alike is done once along them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compared import judged
from drawing import draws
from hypothesis import given, settings, strategies as st

from dplc.ir.node import nodes
from dplc.ir.tensor import Case, Elementwise, Fold, Reduce, postorder
from dplc.ir.tile import ScanTuple

Tensor = torch.Tensor


def recurrence(a: Tensor, b: Tensor) -> Tensor:
    """h = a*h + b along the second dimension."""
    h, steps = torch.zeros_like(a[:, 0]), []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1)


def joined(a: Tensor, b: Tensor) -> Tensor:
    """The same from the first summand on, slices joined, the factor on the other side."""
    h = b[:, :1]
    steps = [h]
    for t in range(1, a.shape[1]):
        h = b[:, t : t + 1] + h * a[:, t : t + 1]
        steps.append(h)
    return torch.cat(steps, 1)


def backwards(a: Tensor, b: Tensor) -> Tensor:
    h, steps = torch.ones_like(a[:, 0]), []
    for t in reversed(range(a.shape[1])):
        h = torch.addcmul(b[:, t], a[:, t], h)
        steps.append(h)
    return torch.stack(steps[::-1], 2)


def averaged(a: Tensor, b: Tensor) -> Tensor:
    """One factor for all steps, and what is shown is made of each."""
    h, steps = a[:, 0], []
    for t in range(a.shape[1]):
        h = 0.9 * h + 0.1 * b[:, t]
        steps.append(torch.tanh(h) * (t + 1))
    return torch.stack(steps, 1)


def summed(a: Tensor, b: Tensor) -> Tensor:
    """A running sum: no factor at all."""
    h, steps = a[:, 0], []
    for t in range(a.shape[1]):
        h = h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1)


def shown_before(a: Tensor, b: Tensor) -> Tensor:
    """A step shows what stands before it."""
    h, steps = b[:, 0], []
    for t in range(a.shape[1]):
        steps.append(h * 2)
        h = a[:, t] * h + b[:, t]
    return torch.stack(steps, 0)


def coupled(a: Tensor, b: Tensor) -> Tensor:
    """The state of one is what another adds."""
    h = g = torch.zeros_like(a[:, 0])
    steps = []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        g = 0.5 * g + h
        steps.append(g)
    return torch.stack(steps, 1)


def state_space(a: Tensor, b: Tensor) -> Tensor:
    """A product of every step with a row of its own, as Mamba is written."""
    h, steps, rows = torch.zeros_like(a[:, 0]), [], b[0] * 2
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(torch.matmul(h, rows[t].unsqueeze(-1))[:, 0])
    return torch.stack(steps, -1)


LOOPS = [recurrence, joined, backwards, averaged, summed, shown_before, coupled, state_space]


@pytest.mark.parametrize("program", LOOPS)
@pytest.mark.sampled(2)
@settings(max_examples=draws(1), deadline=None)
@given(rows=st.integers(1, 3), steps=st.integers(1, 40), columns=st.sampled_from([1, 2, 7, 33, 64]))
def test_loops_are_right(program: Callable[..., Tensor], rows: int, steps: int, columns: int) -> None:
    judged(program, 2 * torch.rand(rows, steps, columns) - 1, torch.randn(rows, steps, columns))


@pytest.mark.parametrize("program", LOOPS)
@pytest.mark.sampled(4)
def test_linear_recurrences_are_scans(program: Callable[..., Tensor]) -> None:
    made = judged(program, torch.rand(2, 24, 40), torch.randn(2, 24, 40))
    scans = list(nodes(tuple(stmt for kernel in made.compilation.tile for stmt in kernel.body), ScanTuple))
    assert {scan.fn for scan in scans} == {"affine"}
    assert len(made.compilation.tile) <= 3


def values(made: Any, *kinds: type[Any]) -> list[Any]:
    """The terms of some classes in the program over values."""
    outs = [out.value for out in made.compilation.tensor.outs]
    return [term for term in postorder(outs) if isinstance(term, kinds)]


def of_heads(x: Tensor, w: Tensor) -> Tensor:
    """A product for each head, joined."""
    return torch.stack([x[:, head] @ w[head] for head in range(x.shape[1])], 1)


def of_rows(x: Tensor, w: Tensor) -> Tensor:
    return torch.stack([torch.softmax(row * w.sum(), -1) for row in x.flatten(0, 1)])


@pytest.mark.parametrize("program, folds", [(of_heads, 1), (of_rows, 3)])
def test_what_is_done_for_every_piece_is_done_once(program: Callable[..., Tensor], folds: int) -> None:
    made = judged(program, torch.randn(3, 6, 5), torch.randn(6, 5, 4))
    assert not values(made, Case)
    assert len(values(made, Reduce, Fold)) == folds


def with_the_last(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    h, steps = b[:, 0] * 2, []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1), h


def with_what_is_made_of_steps(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the last step, of one in the middle, and of what every step shows."""
    h, steps, shown = b[:, 0], [], []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
        shown.append(h @ b[0, 0])
    return torch.stack(shown, 1), torch.tanh(h), steps[len(steps) // 2] + 1


def with_the_last_backwards(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    h, steps = b[:, -1], []
    for t in reversed(range(a.shape[1])):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps[::-1], 2), h


@pytest.mark.parametrize("program", [with_the_last, with_what_is_made_of_steps, with_the_last_backwards])
@pytest.mark.parametrize("shape", [(2, 24, 40), (3, 11, 7)])
@pytest.mark.sampled(2)
def test_a_step_that_is_read_elsewhere_is_read_in_the_scan(program: Callable[..., Any], shape: Any) -> None:
    made = judged(program, 2 * torch.rand(shape) - 1, torch.randn(shape))
    chained = [term for term in values(made, Elementwise) if term.fn == "multiply"]
    assert len(chained) <= 3  # one chain would have a product for every step


def test_a_state_of_nothing_stays_nothing() -> None:
    """The product of all factors overflows, but a thread's own steps do not multiply the state before the first."""
    a, b = torch.full((1, 64, 3), 20.0), torch.zeros(1, 64, 3)
    judged(recurrence, a, b)


def test_pieces_of_other_functions_stay_apart() -> None:
    made = judged(lambda x: torch.stack([torch.sin(x[0]), torch.cos(x[1]), torch.sin(x[2])]), torch.randn(3, 9))
    assert values(made, Case)


def test_steps_that_round_are_done_one_after_the_other() -> None:
    """Whole numbers wrap around, and a step of 16-bit floats is rounded: neither is what a fold gives."""
    import dplc

    a, b = torch.randint(-9, 9, (2, 24, 5)), torch.randint(-9, 9, (2, 24, 5))
    made = dplc.compile(recurrence, (a, b), device="emulator")
    assert torch.equal(made(a, b), recurrence(a, b))
    half = dplc.compile(recurrence, (a.half() / 9, b.half()), device="emulator")
    for each in (made, half):
        assert not list(nodes(tuple(stmt for kernel in each.compilation.tile for stmt in kernel.body), ScanTuple))
    assert float((half(a.half() / 9, b.half()) - recurrence(a.half() / 9, b.half())).abs().max()) <= 0.02
