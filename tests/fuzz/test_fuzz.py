"""Whatever stands in a file that somebody else wrote, the answer is a result or a `DplcError`: no traceback, no signal, no long
wait, and nothing that is in it runs. DPLC_TEST_BUDGET=200 tries more than 30,000 mutants, from DPLC_FUZZ_FIRST on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from drawing import draws

HERE = Path(__file__).parent
SAMPLE = {
    "rules": 4, "compiles": 1, "policies": 1, "programs": 4, "dumps": 4, "artefacts": 4, "sized artefacts": 2,
    "stores": 2, "files": 6,
}  # fmt: skip
FIRST = int(os.environ.get("DPLC_FUZZ_FIRST", "0"))
LIMIT = 1800.0


def told(*asked: tuple[str, int, int]) -> str:
    """What is wrong with mutants, "" for nothing. They have a process of their own, which may die of them.

    asked: victims, the first number and how many.
    """
    words = [str(word) for one in asked for word in one]
    command = [sys.executable, str(HERE / "harness.py"), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return "" if ended.returncode == 0 else f"exit {ended.returncode}\n{ended.stdout}\n{ended.stderr[-2000:]}"


@pytest.mark.parametrize("process", range(draws(1)))
def test_a_sample(process: int) -> None:
    assert told(*((victim, FIRST + process * count, count) for victim, count in SAMPLE.items())) == ""


def test_the_canary_is_found(tmp_path: Path) -> None:
    """A victim that runs what it is given, one that waits and one that crashes are noticed."""
    script = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import harness, os, random
harness.SECONDS = 0.5
class Bad:
    name = "bad"
    def __init__(self, folder, evil): self.evil, self.number = evil, -1
    def attack(self, dice):
        self.number += 1
        if self.number == 0: eval(self.evil[0])
        if self.number == 1:
            while True: pass
        if self.number == 2: {{}}["x"]
tally = harness.run(Bad, 0, 4)
print([failure.what.split()[0] for failure in tally.failures])
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.strip() == "['code', 'no', 'KeyError:']", ended
