"""What the model must not be fooled by: idle blocks, one warp alone, waits that nothing covers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import InstructionCounts, instruction_counts
from dplc.engine.cost.memory_model import Waits, alone
from dplc.engine.cost.predict import predict
from dplc.engine.schedule.space import DEFAULT, SKIP, Fire
from tests.tune.subjects import MATMUL, space

H200 = target("sm_90a")


def counted(name: str, tokens: dict[str, object]) -> InstructionCounts:
    found = space(MATMUL)
    candidate = found.walk(lambda space, state, slot: tokens.get(slot.step, DEFAULT))  # type: ignore[arg-type,return-value]
    return instruction_counts(candidate.kernels[0])


def test_threads_beyond_the_output_are_no_gain() -> None:
    """Half of the threads of a block that is twice as wide as the output do nothing."""
    tokens = {
        "split_rows": SKIP,
        "slice_matmul_k": SKIP,
        "blockify_launch": Fire("blockify_flat", "0/0", (("T", 64), ("V", 1), ("Q", 1))),
    }
    wide = {**tokens, "blockify_launch": Fire("blockify_flat", "0/0", (("T", 128), ("V", 1), ("Q", 1)))}
    one, more = counted("one", tokens), counted("more", wide)
    assert more.threads > one.threads and more.fma == pytest.approx(one.fma, rel=0.05) and more.fma > 0


def test_the_same_work_takes_longer_in_one_warp() -> None:
    base = InstructionCounts(blocks=132, threads=128, shared=0, dram=1e3, issued=4000.0, fma=3500.0)
    wide, narrow = predict(base, H200), predict(replace(base, threads=32), H200)
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
        return alone(0.0, waits.finish(), H200)

    assert ring(0, True) > ring(0, False) > ring(2, False)
    assert ring(2, True) == ring(2, False), "two that stay in flight: those of this turn are not waited for"


def test_loads_in_a_loop_are_waited_for_and_unrolling_helps() -> None:
    def read(unroll: int, barriers: bool = False) -> float:
        waits = Waits()
        with waits.loop(64.0, unroll, barriers):
            waits.loads(shared=False)
        return alone(0.0, waits.finish(), H200)

    assert read(1) > 3 * read(8) and read(8, True) == read(1)


def test_phases_in_flight_are_counted_down_to_none() -> None:
    waits = Waits()
    waits.phases = 3
    assert [waits.phases_kept() for _ in range(4)] == [2, 1, 0, 0]
