"""The training example as a user runs it: two losses a step, equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scripts import printed_by

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "training" / "train.py"


def test_both_losses_fall_together(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    rows = [[float(word) for word in line.split()[1:]] for line in printed_by(TRAIN).splitlines()]
    assert len(rows) == 10 and rows[-1][0] < rows[0][0] / 2
    assert all(abs(ours - eager) < 1e-4 * max(1.0, eager) for ours, eager in rows)
    assert capsys.readouterr().err == ""
