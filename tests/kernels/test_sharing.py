"""Kernels of one structure are compiled once, launched with buffers of their own, and right."""

from __future__ import annotations

import torch

from dplc.codegen.judge import GATE, judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.run.calls import run_reference


def compiled(function: object, *tensors: torch.Tensor, arch: str = "sm_80") -> Compilation:
    return compiler_with(target(arch)).compile(capture(function, tensors))  # type: ignore[arg-type]


def right(compilation: Compilation) -> bool:
    captured = compilation.captured
    return judge(Compiled(compilation, "emulator").run({}), run_reference(captured, captured.tensors)).relative <= GATE


def three_layers(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    for w in (a, b, c):
        x = x + torch.relu(x @ w)
    return x


def test_layers_share_their_kernels() -> None:
    made = compiled(three_layers, torch.randn(24, 64), *(torch.randn(64, 64) for _ in range(3)))
    assert (len(made.program.kernels), len(made.cuda_kernels)) == (3, 1)
    assert len(made.cuda_kernels) == len(made.kernels)
    assert [made.cuda_kernels[index] for index in made.launched] == list(made.program.kernels)
    assert made.cuda.count("__global__") == len(made.cuda_kernels)
    assert right(made)


def test_chains_have_buffers_of_their_own_between_their_kernels() -> None:
    """K is split in two kernels; two such matmuls have two buffers of partial sums, or they could not overlap."""

    def two(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ a, y @ b

    shapes = ((32, 2048), (32, 2048), (2048, 32), (2048, 32))
    made = compiled(two, *(torch.randn(shape) for shape in shapes))
    assert len(made.cuda_kernels) == 2 and len(made.program.kernels) == 4
    first, second, third, fourth = made.program.bindings
    assert first[-1] in second and third[-1] in fourth and first[-1] != third[-1]
    assert {buffer.name for buffer in made.program.temporaries} == {first[-1], third[-1]}
    assert right(made)


def test_what_differs_by_a_number_is_not_shared() -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x, -1) * 2.0, torch.softmax(y, -1) * 3.0

    made = compiled(scaled, torch.randn(8, 64), torch.randn(8, 64))
    assert len(made.cuda_kernels) == len(made.program.kernels) == 2
    assert right(made)
