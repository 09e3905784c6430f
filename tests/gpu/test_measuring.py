"""Measuring on the mock driver: right, wrong, hanging and crashing candidates; one process, killed and started again."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from mock_driver import environment
from worker_on_mock import serve_mock, serve_nothing, serve_prints

from dplc.codegen.build import build_host, host_text
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.pack import runner
from dplc.codegen.pack.worker import LEAST_RUNS, MOST_RUNS
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.space import ScheduleCandidate, Space
from dplc.engine.tune.evaluators import Measuring, cubin, measuring
from dplc.ir.diagnostic import DplcError

H200 = target("h200")


WRONG = "relu"


class Build:
    """Builds for the mock; `spoil` is put first in every kernel (WRONG: relu takes the other half).

    together: as many builds wait for each other.
    """

    def __init__(self) -> None:
        self.spoil, self.together = "", threading.Barrier(1)

    def __call__(self, kernel: CudaKernel, arch: str) -> bytes:
        self.together.wait()
        if self.spoil == WRONG:
            assert "max_nan(" in kernel.text
            text = kernel.text.replace("max_nan(", "fminf(")
        else:
            text = re.sub(r"\) \{\n", lambda found: f") {{\n{self.spoil}\n", kernel.text, count=1)
        return build_host(host_text([CudaKernel(**{**vars(kernel), "text": text})])).read_bytes()


def candidate(function: Any, *shapes: tuple[int, ...], dynamic: Any = None) -> ScheduleCandidate:
    tools = toolchain()
    captured = capture(function, [torch.randn(shape) for shape in shapes], None, dynamic)
    loops = Compiler(tools, H200).cut(captured)[1].kernels
    return Space(tools, loops, H200).default()


@pytest.fixture(scope="module")
def mock(driver: Path) -> Iterator[None]:
    """Processes that start find the mock before any other driver."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment(driver).items():
            patched.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def evaluator(mock: None) -> Iterator[Measuring]:
    with Measuring(H200, serve=serve_mock, build=Build()) as made:
        made.limit = 20
        yield made
        process, folder = made.process._process, made._folder
        assert process is not None and process.pid is not None and folder.is_dir()
    assert process.exitcode is not None and not folder.exists()  # nothing is left behind
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.fixture
def build(evaluator: Measuring) -> Iterator[Build]:
    assert isinstance(evaluator.build, Build)
    yield evaluator.build
    evaluator.build.spoil, evaluator.build.together, evaluator.limit = "", threading.Barrier(1), 20


@pytest.fixture(scope="module")
def product() -> ScheduleCandidate:
    return candidate(lambda x, w: torch.relu(x @ w), (16, 32), (32, 24))


def test_what_is_right_is_timed_and_says_how(evaluator: Measuring, product: ScheduleCandidate) -> None:
    score = evaluator(product)
    assert score.status == "ok", score.detail
    assert score.basis == evaluator.basis == "measured"
    assert score.seconds is not None and 0 < score.seconds < 1
    details = score.details
    assert details["gpu"] == "dplc mock GPU"
    assert LEAST_RUNS <= details["runs"] <= MOST_RUNS
    assert details["low_us"] <= details["median_us"] <= details["high_us"]
    assert score.seconds == pytest.approx(details["median_us"] * 1e-6)
    assert details["l2"].startswith("cold: 2097152 bytes")
    assert details["launched"] == "CUDA graph" and details["warm_us"] > 0
    assert details["compared"] == "whole" and details["error"] < 1e-5
    assert {"clocks", "assembler", "registers", "spills"} <= details.keys()


def test_several_kernels_and_buffers_between(evaluator: Measuring) -> None:
    split = candidate(lambda x, w: torch.relu(x @ w), (16, 4096), (4096, 16))
    assert len(split.tile) == 2
    assert evaluator(split).status == "ok"


def test_lengths_are_measured_at_their_hint(evaluator: Measuring, build: Build) -> None:
    """A row is a kernel with an int behind its buffers."""
    s = Dim("s", 5, 70, hint=37)
    row = candidate(lambda x, w: torch.relu(x @ w), (16, 32), (32, 24), dynamic={"x": {0: s}})
    assert row.cuda[0].values == (37,) and "const int s" in row.cuda[0].text
    score = evaluator(row)
    assert score.status == "ok", score.detail
    assert score.details["compared"] == "whole"
    build.spoil = "if (s == 37) return;"
    assert evaluator(row).status == "wrong"


def test_inputs_of_other_dtypes(evaluator: Measuring) -> None:
    gather = candidate(lambda x: x[torch.tensor([1, 0, 1])] * 2, (2, 8))
    assert evaluator(gather).status == "ok"


@pytest.mark.parametrize(
    ("spoil", "status", "said"),
    [
        ("if (blockIdx.x == 0) return;", "wrong", "were never written"),
        (WRONG, "wrong", "is off by"),
        ("*(volatile int*)8 = 1;", "failed", "the driver says"),
        ("asm volatile(\"mov $60, %eax; mov $7, %edi; syscall\");", "failed", "ended with 7"),
        ("while (true) asm volatile(\"\");", "timeout", "no result after 1 seconds: killed"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_one_line_and_the_next_one_is_measured(
    evaluator: Measuring, build: Build, product: ScheduleCandidate, spoil: str, status: str, said: str
) -> None:
    build.spoil = spoil
    evaluator.limit = 1.0 if status == "timeout" else 20.0
    score = evaluator(product)
    assert (score.status, score.seconds) == (status, None), score
    assert said in score.detail and "\n" not in score.detail
    assert not score.details.get("low_us")  # what is wrong is not timed
    build.spoil, evaluator.limit = "", 20.0
    assert evaluator(product).status == "ok"


def test_what_does_not_compile(evaluator: Measuring, build: Build, product: ScheduleCandidate) -> None:
    build.spoil = "this is no C++;"
    score = evaluator(product)
    assert score.status == "failed" and "could not compile" in score.detail


def test_compilers_run_side_by_side(evaluator: Measuring, build: Build) -> None:
    several = [candidate(lambda x: torch.relu(x) * 1.5, (n, 40)) for n in (3, 5, 7, 9)]
    build.together = threading.Barrier(4, timeout=60)
    with ThreadPoolExecutor(4) as pool:
        assert [score.status for score in pool.map(evaluator, several)] == ["ok"] * 4


def test_a_process_that_cannot_start_is_said_once(product: ScheduleCandidate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STARTS", 1)
    for serve, said in ((serve_nothing, "ended with 1: no such luck"), (serve_prints, "ended with 0: x")):
        with Measuring(H200, serve=serve, build=Build()) as broken, pytest.raises(DplcError, match=said):
            broken(product)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(product: ScheduleCandidate) -> None:
    assert measuring(H200) is None
    with Measuring(H200) as alone, pytest.raises(DplcError, match=r"nothing can be measured here: .*CUDA"):
        alone(product)


def test_the_device_compiler_is_asked(product: ScheduleCandidate) -> None:
    from dplc.engine.bench.bench import assembler

    if not assembler():
        pytest.skip("neither NVRTC nor nvcc is here")
    assert cubin(product.cuda[0], "sm_90a")[:4] == b"\x7fELF"
