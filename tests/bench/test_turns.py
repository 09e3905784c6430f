"""How often rings turn: what is counted of copies before a loop and in it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from dplc.ir.text.programs import read_program

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))

from short_extents import turns

TEXT = """
kernel f(A: f32[64, 64]) -> y: f32[4, 16]:
    Tile(b:4=BLOCK, t:16=THREAD):
{before}        for k in {bounds} serial:
            As = Stage(A, origin=(0, k), box=(i:16@0, k:4@1){ring})
            Sync()
            a = load As[{slot}t, 0]
            acc <- add(acc, a)
        y[b, t] = acc
"""


def program(bounds: str, depth: int, before: str = "") -> Any:
    ring, slot = (f", depth={depth}, slot=k % {depth}", f"k % {depth}, ") if depth > 1 else ("", "")
    return read_program(TEXT.format(bounds=bounds, ring=ring, slot=slot, before=before))[1]


def test_turns_over_slots() -> None:
    assert turns(program("0..12", 2)) == 6
    assert turns(program("0..12", 4)) == 3
    assert turns(program("2..12", 2)) == 5
    assert turns((*program("0..12", 2), *program("0..12", 4))) == 3, "the ring that turns least"


def test_copies_before_the_loop_are_of_the_ring() -> None:
    before = "        As = Stage(A, origin=(0, 0), box=(i:16@0, k:4@1), depth=2, slot=0)\n"
    assert turns(program("0..11", 2, before)) == 6


def test_what_is_no_ring_or_has_no_number_is_not_counted() -> None:
    assert turns(program("0..12", 1)) == math.inf
    assert turns(program("0..b + 1", 2)) == turns(program("b..12", 2)) == math.inf
