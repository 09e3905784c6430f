"""Loops of a program: recurrent layers, torch's scan, map and cond. One statement, and launches that repeat."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import draws
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

import dplc
from dplc.codegen.emulator.executor import CheckingExecutor, EmulatorExecutor
from dplc.codegen.kernel import lifetimes
from dplc.engine.cli.programs import read_dump, reference_of
from dplc.ir.text.programs import print_program, read_program

LAYERS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "tanh": nn.RNN, "relu": partial(nn.RNN, nonlinearity="relu")}


def compared(function: Callable[..., Any], *args: Tensor, **options: Any) -> dplc.Compiled:
    """Run a function in eager mode and on the emulator, in float64 and f32, and return it compiled."""
    compiled = dplc.compile(function, args, device="emulator", **options)
    with torch.no_grad():
        got, wanted = (pytree.tree_leaves(f(*args)) for f in (compiled, function))
    for ours, eager in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-6)
    return compiled


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=draws(6))
@given(data=st.data())
def test_recurrent_layers_of_any_form_are_as_in_eager(kind: str, data: st.DataObject) -> None:
    draw = lambda *choices: data.draw(st.sampled_from(choices))  # noqa: E731
    torch.manual_seed(draw(1, 2, 3))
    width, hidden, first, both = draw(1, 3, 8), draw(4, 5, 7), draw(True, False), draw(True, False)
    more = {"proj_size": draw(0, 3)} if kind == "LSTM" else {}
    layers, bias = draw(1, 2), draw(True, False)
    layer = LAYERS[kind](width, hidden, layers, bias=bias, batch_first=first, bidirectional=both, **more)
    steps, batch = draw(1, 2, 7, 64), draw(1, 3, 4)
    x = torch.randn(batch, steps, width) if first else torch.randn(steps, batch, width)
    compiled = compared(layer, x if draw(True, False) else x[0])
    assert len(compiled.compilation.kernels) <= 14
    if draw(True, False):
        state = torch.randn(layers * (1 + both), batch, more.get("proj_size") or hidden)
        memory = (state, torch.randn(layers * (1 + both), batch, hidden)) if kind == "LSTM" else state
        compared(lambda x, *given: layer(x, memory), x)


@settings(max_examples=draws(20))
@given(
    carried=st.integers(1, 4), kept=st.integers(0, 2), steps=st.sampled_from((1, 2, 7, 64)),
    shape=st.sampled_from(((), (3,), (2, 5), (4, 4))), seed=st.integers(0, 99),
)  # fmt: skip
def test_random_recurrences_are_as_in_eager(
    carried: int, kept: int, steps: int, shape: tuple[int, ...], seed: int
) -> None:
    dice = torch.Generator().manual_seed(seed)
    functions = (torch.tanh, torch.sin, torch.sigmoid, lambda x: x.clamp(-1, 1), lambda x: x - x.mean())
    picks = torch.randint(len(functions), (carried + kept,), generator=dice).tolist()

    def step(weight: Tensor, states: list[Tensor], row: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        mixed = [functions[p](states[n % carried] * 0.5 + row * weight) for n, p in enumerate(picks)]
        after = [*mixed[1:carried], mixed[0]]  # a state may be that of another one before
        return after, [mixed[-1].clone(), *[x + 1 for x in mixed[carried:]]][: kept + 1]

    weight = torch.randn(shape, generator=dice)
    states = [torch.randn(shape, generator=dice) for _ in range(carried)]
    rows = torch.randn(steps, *shape, generator=dice)
    compared(lambda x, w, *states: scan(partial(step, w), [*states], x), rows, weight, *states)


def decayed(x: Tensor, state: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    def step(before: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        after = torch.tanh(row + before @ (w * 2).t())
        return after, after.clone()

    return scan(step, state, x)


STEPS = (torch.randn(7, 3, 4), torch.randn(3, 4), torch.randn(4, 4) / 8)


def test_a_loop_is_one_statement_whatever_its_length() -> None:
    texts = []
    for steps in (2, 100):
        compiled = compared(decayed, torch.randn(steps, 3, 4), *STEPS[1:])
        texts.append(compiled.compilation.ir("torch").replace(str(steps), "N").splitlines())
        assert len(compiled.compilation.launched) == 3 + steps
        assert len(list(compiled.compilation.program.steps())) == 3 + steps
    assert len(texts[0]) == len(texts[1])
    product = next(line for line in texts[0] if "Mul" in line)
    assert not product.startswith(" " * 8), "what all steps compute alike is computed before the loop"


@pytest.mark.parametrize("stage", ["torch", "tensor"])
def test_programs_with_loops_are_printed_and_read(stage: str) -> None:
    printed = dplc.compile(decayed, STEPS, device="emulator").compilation.ir(stage)
    level, units = read_program(printed)
    assert print_program(units, level) == printed


@pytest.mark.parametrize("stage", ["torch", "tensor"])
def test_dumps_with_loops_mean_what_they_compute(stage: str, tmp_path: Path) -> None:
    file = tmp_path / "loop.ir"
    file.write_text(dplc.compile(decayed, STEPS, device="emulator").compilation.ir(stage))
    dump = read_dump(file)
    tensors = dict(zip(dump.kinds, STEPS, strict=True))
    for got, wanted in zip(reference_of(dump, tensors), decayed(*STEPS), strict=True):
        torch.testing.assert_close(got.float(), wanted)


@pytest.mark.parametrize("executor", [CheckingExecutor(), EmulatorExecutor(arena=True)])
def test_loops_are_right_when_checked_and_in_one_piece_of_memory(executor: EmulatorExecutor) -> None:
    layer = nn.LSTM(4, 4, 2, bidirectional=True)
    x = torch.randn(9, 4, 4)
    compiled = dplc.compile(layer, (x,), device="emulator")
    compiled.executor = executor
    for got, wanted in zip(pytree.tree_leaves(compiled(x)), pytree.tree_leaves(layer(x)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-6)
    assert not getattr(executor, "findings", ())


def test_what_an_iteration_finds_lives_through_its_loop() -> None:
    program = dplc.compile(nn.GRU(4, 4, 2), (torch.randn(9, 4, 4),), device="emulator").compilation.program
    lives = lifetimes(program)
    for loop in program.loops:
        inside = {name for place in range(loop.first, loop.end) for name in program._names(place)}
        wholes = {program.slots[name].whole for name in inside & program.slots.keys()} & lives.keys()
        assert wholes
        assert all(lives[name][0] <= loop.first and lives[name][1] >= loop.end - 1 for name in wholes)


def test_open_lengths_are_those_of_a_call() -> None:
    layer = nn.GRU(4, 8, 2, batch_first=True)
    sizes = {0: dplc.Dim("batch", 1, 64, hint=4), 1: dplc.Dim("steps", 1, 64, hint=9)}
    compiled = dplc.compile(layer, (torch.randn(4, 9, 4),), dynamic=(sizes,), device="emulator")
    for batch, steps in ((4, 9), (1, 1), (3, 2), (7, 31)):
        x = torch.randn(batch, steps, 4)
        torch.testing.assert_close(compiled(x)[0], layer(x)[0], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(5, 3), (6, 4), (1, 7)])
def test_map_applies_a_function_to_each_row(shape: tuple[int, int]) -> None:
    compared(lambda x: torch_map(lambda row: row.sin().cumsum(0) / row.amax(), x), torch.randn(shape))


def test_cond_chooses_by_the_value_of_a_tensor() -> None:
    def chosen(x: Tensor) -> Tensor:
        result: Tensor = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() + 1, (x,))
        return result

    compiled = compared(chosen, torch.ones(5))
    torch.testing.assert_close(compiled(-torch.ones(5)), chosen(-torch.ones(5)))


def test_torch_compile_gives_loops_and_their_gradients() -> None:
    torch._dynamo.reset()
    ours, eager = [[x.clone().requires_grad_() for x in STEPS] for _ in range(2)]
    grads = [
        torch.autograd.grad(sum(x.square().sum() for x in f(*args)), args)
        for f, args in ((torch.compile(decayed, backend="dplc"), ours), (decayed, eager))
    ]
    for got, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-4, atol=2e-5)


def test_a_loop_inside_of_a_loop_is_refused_at_its_line() -> None:
    nested = lambda x: torch_map(lambda y: torch_map(lambda z: z + 1, y), x)  # noqa: E731
    with pytest.raises(dplc.DplcError, match="loop"):
        dplc.compile(nested, (torch.randn(2, 3, 4),), device="emulator")
