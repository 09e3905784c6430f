"""Whatever stands in a file that somebody else wrote, the answer is a result or a `DplcError`: no traceback, no signal, no long
wait, and nothing that is in it runs. DPLC_TEST_BUDGET=200 tries more than 30,000 mutants, from DPLC_FUZZ_FIRST on."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import harness
import pytest
from drawing import draws
from forked import done

SAMPLE = {
    "rules": 4, "compiles": 1, "policies": 1, "programs": 4, "dumps": 4, "artefacts": 4, "sized artefacts": 2,
    "stores": 2, "files": 6,
}  # fmt: skip
FIRST = int(os.environ.get("DPLC_FUZZ_FIRST", "0"))


def attacked(process: int) -> None:
    """Print what is wrong with mutants, and end with 1 for something."""
    words = [(victim, FIRST + process * count, count) for victim, count in SAMPLE.items()]
    sys.exit(harness.main([str(word) for one in words for word in one]))


@pytest.mark.parametrize("process", range(draws(1)))
def test_a_sample(process: int, tmp_path: Path) -> None:
    """In a process of its own, which may die of them."""
    code, printed = done(tmp_path / "log", attacked, process)
    assert not code, printed


class Bad:
    """Runs what it is given, waits and crashes."""

    name = "bad"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        self.evil, self.number = evil, -1

    def attack(self, dice: random.Random) -> None:
        self.number += 1
        if self.number == 0:
            eval(self.evil[0])
        while self.number == 1:
            pass
        if self.number == 2:
            raise KeyError


def test_the_canary_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SECONDS", 0.5)
    tally = harness.run(Bad, 0, 4)
    assert [failure.what.split()[0] for failure in tally.failures] == ["code", "no", "KeyError:"]
