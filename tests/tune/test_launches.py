"""A launch before it is built: what the model must not be fooled by, and what no launch can be."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from dplc.engine.cost.instruction_counts import InstructionCounts, instruction_counts
from dplc.engine.cost.memory_model import Waits, alone
from dplc.engine.cost.predict import predict
from dplc.engine.schedule.scheduling import refusal
from dplc.engine.schedule.space import DEFAULT, SKIP, Fire
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program
from tests.tune.subjects import MACHINE, MATMUL, space

# ---- the model: idle blocks, one warp alone, waits that nothing covers


def test_threads_beyond_the_output_are_no_gain() -> None:
    """Half of the threads of a block that is twice as wide as the output do nothing."""

    def counted(threads: int) -> InstructionCounts:
        fire = Fire("blockify_flat", "0/0", (("T", threads), ("V", 1), ("Q", 1)))
        decided = {"split_rows": SKIP, "slice_matmul_k": SKIP, "blockify_launch": fire}
        made = space(MATMUL).walk(lambda space, state, slot: decided.get(slot.step, DEFAULT))
        return instruction_counts(made.kernels[0])

    one, more = counted(64), counted(128)
    assert more.threads > one.threads and more.fma == pytest.approx(one.fma, rel=0.05) and more.fma > 0


def test_the_same_work_takes_longer_in_one_warp() -> None:
    base = InstructionCounts(blocks=132, threads=128, shared=0, dram=1e3, issued=4000.0, fma=3500.0)
    wide, narrow = predict(base, MACHINE), predict(replace(base, threads=32), MACHINE)
    assert narrow.seconds - narrow.fixed > 3 * (wide.seconds - wide.fixed)


def test_copies_ahead_of_their_use_are_waited_for_less() -> None:
    def ring(keep: int, late: bool) -> float:
        waits = Waits()
        with waits.loop(64.0, 1, True):
            if late:
                waits.copies()
            waits.waits(keep)
            waits.barrier()
            if not late:
                waits.copies()
        return alone(0.0, waits.finish(), MACHINE)

    assert ring(0, True) > ring(0, False) > ring(2, False)
    assert ring(2, True) == ring(2, False), "two that stay in flight: those of this turn are not waited for"


def test_loads_in_a_loop_are_waited_for_and_unrolling_helps() -> None:
    def read(unroll: int, barriers: bool = False) -> float:
        waits = Waits()
        with waits.loop(64.0, unroll, barriers):
            waits.loads(shared=False)
        return alone(0.0, waits.finish(), MACHINE)

    assert read(1) > 3 * read(8) and read(8, True) == read(1)


def test_phases_in_flight_are_counted_down_to_none() -> None:
    waits = Waits()
    waits.phases = 3
    assert [waits.phases_kept() for _ in range(4)] == [2, 1, 0, 0]


# ---- limits, told from Tile IR: threads, shared memory, registers that would be spilled


def product(threads: int, registers: int, rows: int) -> tuple[Kernel, ...]:
    text = f"""## level: tile
kernel f(A: f32[64, 64], B: f32[64, 32, {registers}]) -> C: f32[64, 32, {registers}]:
    Tile(i:{threads}=THREAD, j:32=THREAD, p:{registers}=REG):
        A_smem = Stage(A, origin=(0, 0), box=(i1:{rows}@0, k:64@1))
        Sync()
        for k in 0..64 reduce:
            a = load A_smem[i, k]
            b = load B[k, j, p]
            c = multiply(a, b)
            acc <- add(acc, c)
        C[i, j, p] = acc
"""
    return read_program(text)[1]


@pytest.mark.parametrize(
    ("threads", "rows", "said"),
    [
        (8, 8, None),
        (64, 64, "2048 threads per block; 1024 are possible"),
        (8, 4096, "1048576 bytes of shared memory; 232448 are possible"),
    ],
)
def test_a_launch_is_refused_by_the_limit_that_it_exceeds(threads: int, rows: int, said: str | None) -> None:
    found = product(threads, 4, rows)
    assert refusal(found, MACHINE) == refusal(found, MACHINE, math.inf) == said


def test_more_registers_than_fit_or_were_granted_are_refused() -> None:
    found = product(8, 300, 8)
    wanted = re.fullmatch(r"about (\d+) registers per thread; 255 are possible", refusal(found, MACHINE) or "")
    assert wanted is not None
    for granted, refused in ((int(wanted[1]) - 1, True), (int(wanted[1]), False), (math.inf, False)):
        assert refusal(found, MACHINE, granted) == (wanted[0] if refused else None)


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
    for granted in (0, math.inf):
        assert refusal(program, MACHINE, granted) == "axis `j` of a block is as long as `s`, known at a call only"
