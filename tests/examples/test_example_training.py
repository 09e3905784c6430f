"""The training example as a user runs it: two losses a step, equal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "training" / "train.py"


def test_both_losses_fall_together() -> None:
    done = subprocess.run([sys.executable, str(TRAIN)], capture_output=True, text=True, check=True)
    rows = [[float(word) for word in line.split()[1:]] for line in done.stdout.splitlines()]
    assert len(rows) == 10 and rows[-1][0] < rows[0][0] / 2
    assert all(abs(ours - eager) < 1e-4 * max(1.0, eager) for ours, eager in rows)
    assert done.stderr == ""
