"""Torch programs drawn with one or two lengths that are known at a call: compiled once, right at every length.

Each is judged at its ends, its hint and beside it by the meaning of its Loop IR and Kernel IR, and on the emulator: an
error of the printer alone was found by no meaning. Verifiers have to find nothing for any length. What torch.export takes for another
program at some lengths is compiled for the rest of them; what it takes for one number is left out, and counted.

    DPLC_TEST_BUDGET=25 DPLC_SIZED_FIRST=300 python -m pytest tests/programs/test_sized_programs.py    # two hundred others
"""

from __future__ import annotations

import os

import pytest
from drawing import draws
from sized_checks import Asked, check_sized
from sized_programs import Length, sized_program

FIRST, TOGETHER = int(os.environ.get("DPLC_SIZED_FIRST", "0")), 8
LEFT_OUT = 0.15  # of all programs: torch.export says they ask for a number


def check_seeds(first: int, count: int) -> None:
    found, asked = list[str](), 0
    for seed in range(first, first + count):
        program = sized_program(seed)
        try:
            check_sized(program)
        except Asked:
            asked += 1
        except Exception as error:
            what = next(iter(str(error).splitlines()), "")
            found.append(f"seed {seed}: {type(error).__name__}: {what}\n{program.text}")
    assert not found, "\n".join((f"{len(found)} of {count} programs fail", *found))
    assert asked <= max(LEFT_OUT * count, 2), f"{asked} of {count} were not compiled"


@pytest.mark.parametrize("first", range(FIRST, FIRST + draws(TOGETHER), TOGETHER))
def test_drawn_programs_are_right_at_every_length(first: int) -> None:
    check_seeds(first, TOGETHER)


def test_they_are_many_and_of_lengths() -> None:
    drawn = [sized_program(seed) for seed in range(60)]
    text = "\n".join(each.text for each in drawn)
    assert len({each.text for each in drawn}) > 55
    for word in (".shape[", "torch.cat", "reshape", "cumsum", "arange", "softmax", "@", "dim(t, 1..50", "::2", "argm"):
        assert word in text, word
    assert all(each.lengths for each in drawn) and any(len(each.lengths) == 2 for each in drawn)
    assert "Length(" not in text and f"{Length(3, 'x0.shape[0]')}" == "x0.shape[0]"
