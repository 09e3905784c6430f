"""What the assembler and the emulator say of a candidate; every figure with its source."""

from __future__ import annotations

import pytest
from schedules import H200, loops

from dplc.engine.bench.bench import Assembled, assembler
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.space import ScheduleCandidate, Space
from dplc.engine.tune import evaluators


@pytest.fixture(scope="module")
def split() -> ScheduleCandidate:
    """Two kernels: partial sums, and their sum."""
    tools = toolchain()
    made = Space(tools, loops(tools, lambda x, w: x @ w, (16, 4096), (4096, 16)), H200).default()
    assert len(made.tile) == 2
    return made


def test_counters(split: ScheduleCandidate) -> None:
    details = evaluators.of_emulator(split)
    assert details["counters_by"].startswith("emulator")
    assert len(details["sector_efficiency"]) == 2 and all(0 < share <= 1 for share in details["sector_efficiency"])
    assert details["wavefront_ratio"][0] >= 1


@pytest.mark.skipif(not assembler(), reason="neither NVRTC nor nvcc is here")
def test_the_assembler_is_asked(split: ScheduleCandidate) -> None:
    details = evaluators.evidence(split)
    assert details["registers_by"] == assembler()
    assert len(details["registers"]) == len(details["spills"]) == 2
    assert "counters_by" in details


def test_what_was_not_looked_at_is_left_out() -> None:
    assert "ffma_share" not in evaluators.of_assembler(
        [Assembled(registers=255, spill_bytes=40)]
    )  # nobody disassembled it


def test_what_was_disassembled_is_told_of_every_kernel() -> None:
    one = Assembled(registers=40, spill_bytes=0, instructions=90, has_loop=True, ffma_share=0.5, widths=("128",))
    other = Assembled(registers=41, spill_bytes=1, instructions=7, has_loop=False, ffma_share=0.0, widths=())
    details = evaluators.of_assembler([one, other])
    assert (details["registers"], details["spills"]) == ([40, 41], [0, 1])
    assert (details["ffma_share"], details["instructions"]) == ([0.5, 0.0], [90, 7])
