"""What the assembler and the emulator say of a candidate; every figure with its source."""

from __future__ import annotations

from typing import Any

import pytest
from schedules import H200, loops

from dplc.engine.suite.assembling import Assembled, assembler
from dplc.engine.toolchain import toolchain
from dplc.engine.tune import evidence
from dplc.engine.tune.space import Candidate, Space, Start


@pytest.fixture(scope="module")
def split() -> Candidate:
    """Two kernels: partial sums, and their sum."""
    tools = toolchain()
    made = Space(tools, (Start(loops(tools, lambda x, w: x @ w, (16, 4096), (4096, 16))),), H200).default()
    assert len(made.tile) == 2
    return made


def test_counters(split: Candidate) -> None:
    details = evidence.of_emulator(split)
    assert details["counters_by"].startswith("emulator")
    assert len(details["sector_efficiency"]) == 2 and all(0 < share <= 1 for share in details["sector_efficiency"])
    assert details["wavefront_ratio"][0] >= 1


@pytest.mark.skipif(not assembler(), reason="neither NVRTC nor nvcc is here")
def test_assembled_kernels_are_predicted(split: Candidate) -> None:
    score = evidence.AssembledModel()(split)
    assert score.status == "ok" and score.basis == "predicted"
    assert score.details["registers_by"] == assembler() and assembler() in score.detail
    assert len(score.details["registers"]) == 2
    assert evidence.evidence(split, emulate=False)["registers"] == score.details["registers"]


def test_what_spills_is_refused(split: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    def spilled(*_: Any) -> Assembled:
        return Assembled(255, 40, None)

    monkeypatch.setattr(evidence, "assembled", spilled)
    score = evidence.AssembledModel()(split)
    assert (score.status, score.seconds) == ("refused", None)
    assert "80 bytes" in score.detail
    assert "ffma_share" not in score.details  # nobody disassembled it
