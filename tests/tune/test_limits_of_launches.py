"""What no launch can be is told from Tile IR: too many threads, too much shared memory, registers that would be spilled."""

from __future__ import annotations

import math
import re

import pytest

from dplc.codegen.target import target
from dplc.engine.schedule.scheduling import refusal
from dplc.ir.text.programs import read_program

TEXT = """## level: tile
kernel f(A: f32[64, 64], B: f32[64, 32, {1}]) -> C: f32[64, 32, {1}]:
    Tile(i:{0}=THREAD, j:32=THREAD, p:{1}=REG):
        A_smem = Stage(A, origin=(0, 0), box=(i1:{2}@0, k:64@1))
        Sync()
        for k in 0..64 reduce:
            a = load A_smem[i, k]
            b = load B[k, j, p]
            c = multiply(a, b)
            acc <- add(acc, c)
        C[i, j, p] = acc
"""


@pytest.mark.parametrize(
    ("threads", "registers", "rows", "said", "launched"),
    [
        (8, 4, 8, None, True),
        (64, 4, 64, "2048 threads", False),
        (8, 4, 4096, "bytes of shared memory", False),
        (8, 300, 8, "registers per thread", True),
    ],
)
def test_a_launch_is_refused_by_what_is_too_much(
    threads: int, registers: int, rows: int, said: str | None, launched: bool
) -> None:
    _, program = read_program(TEXT.format(threads, registers, rows))
    found = refusal(program, target("h200"))
    assert found is None if said is None else said in (found or "")
    assert (refusal(program, target("h200"), math.inf) is None) is launched


@pytest.mark.parametrize("role", ["THREAD", "REG"])
def test_a_block_is_as_large_as_numbers_say(role: str) -> None:
    """A schedule of other sizes may leave a length to the threads, or to their registers."""
    text = f"""## level: tile
kernel copy(s: 1..64, x: f32[s, 64]) -> y: f32[s, 64]:
    Tile(i:64=BLOCK, j:s={role}):
        v = load x[j, i]
        y[j, i] = v
"""
    _, program = read_program(text, "<text>", None)
    for found in (refusal(program, target("h200"), math.inf), refusal(program, target("h200"))):
        assert found == "axis `j` of a block is as long as `s`, known at a call only"


def test_as_many_registers_as_were_granted_are_not_too_many() -> None:
    _, program = read_program(TEXT.format(8, 300, 8))
    said = refusal(program, target("h200")) or ""
    wanted = re.search(r"about (\d+) registers", said)
    assert wanted is not None
    assert refusal(program, target("h200"), int(wanted[1])) is None
    assert refusal(program, target("h200"), int(wanted[1]) - 1) == said
