"""Every family of kernels on the GPU that is here, and what a runtime must do with streams. Skipped without a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from families import CASES, check

import dplc
from dplc.codegen.launch import CudaExecutor
from dplc.engine.api import target_for
from dplc.engine.bench.cases import can_measure

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not can_measure(), reason="needs a GPU and PyCUDA")]


def split_linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """More than one launch: so few rows are summed up in parts."""
    return F.softmax(x @ w, -1)


@pytest.mark.parametrize("name", CASES)
def test_a_family(name: str) -> None:
    assert check(name, target_for("cuda"), CudaExecutor(), "cuda") == ""


@pytest.fixture
def compiled() -> dplc.Compiled:
    made = dplc.compile(split_linear, [torch.randn(16, 2048), torch.randn(2048, 64)], device="cuda")
    assert len(made.program.kernels) > 1
    return made


def close(got: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> bool:
    want = split_linear(x.double(), w.double())
    return bool(((got.double() - want).abs().max() / want.abs().max()) <= 1e-5)


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, 2048, device="cuda"), torch.randn(2048, 64, device="cuda")


def test_replays_on_the_default_stream_and_on_another(
    compiled: dplc.Compiled, tensors: tuple[torch.Tensor, torch.Tensor]
) -> None:
    x, w = tensors
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.default_stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                torch.cuda._sleep(1_000_000)  # whoever does not wait for the stream reads what is not there yet
                x.normal_()
                assert close(compiled(x, w), x, w) and compiled.notes == ()
        torch.cuda.current_stream().wait_stream(stream)


def test_inside_of_a_capture(compiled: dplc.Compiled, tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, w = tensors
    compiled(x, w)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x, w)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert close(y, x, w)
    assert close(compiled(x, w), x, w)


def test_nothing_is_copied(compiled: dplc.Compiled, tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The second run of a program takes the memory of its result, and no more."""
    kept = compiled(*tensors)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = compiled(*tensors)
    assert torch.cuda.max_memory_allocated() - before <= max(512, y.nbytes)
    assert compiled.notes == () and torch.equal(y, kept)


def test_a_product_of_four_warps() -> None:
    """Its launch passes tensor maps, and two blocks of a cluster copy for each other."""
    x, w = (torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = dplc.compile(torch.matmul, [x, w], device="cuda")
    if "sm_90" in target_for("cuda").arch:
        assert any(param.role == "tensor_map" for kernel in product.program.kernels for param in kernel.params)
    assert (product(x, w).double() - x.double() @ w.double()).norm() <= 5e-3 * (x.double() @ w.double()).norm()
