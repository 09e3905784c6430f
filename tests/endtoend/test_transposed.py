"""Inputs that run along another axis than the results: squares of them are transposed in shared memory.

Ragged and prime sides, several dtypes, alone and within sums; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest

from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.rewrite.statements.driver import Settings
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import run_reference
from dplc.ir.facts.structure import summary

TURNED = (
    "torch.randn(67, 131).t().contiguous()",
    "torch.randn(64, 128).t().contiguous()",
    "torch.randn(100, 36).t().contiguous()",
    "torch.randn(97, 101).to(torch.bfloat16).t().contiguous()",
    "torch.randn(72, 104).half().t().contiguous()",
    "torch.randint(-9, 9, (33, 70), dtype=torch.int32).t().contiguous()",
    "torch.randn(50, 70) + torch.randn(70, 50).t()",
    "torch.exp(torch.randn(70, 53).t()) * torch.randn(70, 53).t()",
    "torch.randn(2, 24, 7, 11).permute(0, 2, 3, 1).contiguous()",
    "torch.randn(2, 7, 11, 3).permute(0, 3, 1, 2).contiguous()",
    "torch.randn(2, 3, 13, 5).permute(0, 2, 3, 1).contiguous()",
    "torch.randn(1, 37, 3, 16).permute(0, 2, 3, 1).contiguous()",
    "torch.cat([torch.randn(40, 20).t(), torch.randn(20, 30)], 1)",
)
LARGE = ("torch.randn(4096, 4096).t().contiguous()", "torch.randn(4, 256, 56, 56).permute(0, 2, 3, 1).contiguous()")


def compiled(
    text: str, settings: Settings | None = None, dtype: str | None = None, device: str = "h200"
) -> Compilation:
    return Compiler(toolchain(settings=settings), target(device)).compile(capture_text(text, dtype=dtype))


def is_right(text: str, settings: Settings | None = None, dtype: str | None = None) -> None:
    run_right(compiled(text, settings, dtype))


def run_right(compilation: Compilation) -> None:
    """Raises AssertionError for a finding of checked mode, or a result that is off float64."""
    checker, run = CheckingExecutor(("all",)), Compiled(compilation, "emulator")
    run.executor = checker
    results = run.run({})
    assert not checker.findings, checker.findings[0].describe()
    captured = compilation.captured
    assert judge(results, run_reference(captured, captured.tensors), captured.reference).ok


@pytest.mark.parametrize("text", TURNED)
@pytest.mark.sampled(2)
def test_a_transposed_copy_is_right(text: str) -> None:
    is_right(text)


@pytest.mark.parametrize("text", TURNED[:-1])
@pytest.mark.sampled(3)
def test_it_goes_through_a_shared_tile(text: str) -> None:
    assert any(summary(kernel.body).stages for kernel in compiled(text).tile)


@pytest.mark.parametrize("text", LARGE)
def test_every_sector_is_moved_once(text: str) -> None:
    (kernel,) = compiled(text).kernels
    counts = instruction_counts(kernel)
    assert counts.sectors == counts.ideal_sectors
    assert counts.wavefronts <= 1.3 * counts.ideal_wavefronts
