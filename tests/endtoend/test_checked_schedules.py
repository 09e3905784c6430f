"""The rotating sample: random points of the rule space, lowered, whole in checked mode, against float64.

DPLC_SCHEDULE_SEED turns the sample (CI passes the number of its run), DPLC_SCHEDULE_POINTS makes it longer.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dplc.codegen.target import target
from dplc.engine.bench.cases import BenchCase, BenchOperation, Suite
from dplc.engine.capture.capture import capture_text
from dplc.engine.ruleset import toolchain
from dplc.ir.tile import Sync

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))

from short_extents import CheckedSpace, Points, reduced, shortened, summed_over, turns

SEED = int(os.environ.get("DPLC_SCHEDULE_SEED", "0"))
POINTS = int(os.environ.get("DPLC_SCHEDULE_POINTS", "2"))
DRAWN = 8  # times as many points are drawn at most: some cannot be launched
HALVES = "dtype=torch.bfloat16"
SUBJECTS = {
    "matmul of bf16": f"torch.randn(48, 96, {HALVES}) @ torch.randn(96, 64, {HALVES})",
    "ragged linear of bf16": f"F.linear(torch.randn(33, 65, {HALVES}), torch.randn(40, 65, {HALVES})).relu()",
    "sdpa of bf16": f"F.scaled_dot_product_attention(*[torch.randn(1, 2, 19, 16, {HALVES}) for _ in range(3)])",
    "ragged matmul": "torch.randn(17, 65) @ torch.randn(65, 33)",
    "matmul": "torch.randn(48, 96) @ torch.randn(96, 64)",
    "linear": "nn.Linear(72, 40)(torch.randn(20, 72))",
    "norm_linear": "nn.Linear(72, 40)(nn.RMSNorm(72)(torch.randn(20, 72)))",
    "matvec": "torch.randn(1, 96) @ torch.randn(96, 64)",
    "rms_norm": "nn.RMSNorm(200)(torch.randn(6, 200))",
    "softmax": "torch.softmax(torch.randn(5, 97), -1)",
    "pointwise": "F.silu(torch.randn(6, 100)) * torch.randn(6, 100)",
    "sdpa": "F.scaled_dot_product_attention(*[torch.randn(1, 2, 19, 16) for _ in range(3)], is_causal=True)",
}


@functools.cache
def space(name: str) -> CheckedSpace:
    return CheckedSpace(capture_text(SUBJECTS[name], 0), toolchain(), target("h200"))


@pytest.mark.parametrize("number", range(POINTS))
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.sampled(3)
def test_a_random_schedule(name: str, number: int) -> None:
    torch.set_num_threads(1)
    for again in range(DRAWN):
        seed = (SEED * POINTS + number) * DRAWN + again
        drawn = space(name).draw(seed)
        if drawn.program is not None:
            fault = space(name).check(drawn.program).fault
            assert fault is None, "\n".join([fault, f"seed {seed}", *drawn.choices])
            return
    pytest.fail(f"none of {DRAWN} schedules can be launched: {drawn.refused}")


def test_points_differ_and_repeat() -> None:
    drawn = [space("rms_norm").draw(seed) for seed in (1, 2, 3, 1)]
    assert drawn[0] == drawn[3]
    assert len({point.choices for point in drawn}) > 1


def test_deep_schedules_are_drawn() -> None:
    """Rings, vectors and layouts at once need most passes to do as by default."""
    fired = [space("matmul").draw(seed).rules for seed in range(60)]
    assert sum({"stage_inputs", "register_tile", "double_buffer"} <= rules for rules in fired) >= 10
    assert {"async_copy", "tma_copy", "xor_smem", "pad_smem", "pipeline_predicated"} <= frozenset().union(*fired)


def test_schedules_on_tensor_cores_are_drawn() -> None:
    """Products, attention in fragments and all that comes behind them; the whole suite in bf16: make check-schedules."""
    fired = [space("matmul of bf16").draw(seed).rules for seed in range(40)]
    assert sum("mma" in rules for rules in fired) >= 4
    assert {"fragment_tile", "mma", "double_buffer", "store_through_shared"} <= frozenset().union(*fired)
    assert any("online_fragments" in space("sdpa of bf16").draw(seed).rules for seed in range(20))


def test_a_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers are lost on the way down: checked mode says where."""
    from dplc.codegen.materialise import blocks

    lost: Any = {**blocks.LOWER, Sync: lambda low, stmt, at: ()}
    monkeypatch.setattr(blocks, "LOWER", lost)
    faults = []
    for seed in range(20):
        program = space("matmul").draw(seed).program
        if program is not None and (fault := space("matmul").check(program).fault) is not None:
            faults.append(fault)
            break
    assert "line " in faults[0]


def test_a_wrong_result_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = CheckedSpace(capture_text(SUBJECTS["softmax"], 0), toolchain(), target("h200"))
    program = next(drawn.program for seed in range(20) if (drawn := fresh.draw(seed)).program is not None)
    assert fresh.check(program).fault is None
    other = [value * 1.001 for value in fresh._reference]
    monkeypatch.setattr(fresh, "_reference", other, raising=False)
    monkeypatch.setattr(fresh, "_eager", [value.float() for value in other], raising=False)
    assert fresh.check(program).fault == "the result is wrong: outside of the gate"


SUITE = Suite(
    {"mm": BenchOperation("x @ w", {"x": "m k", "w": "k n"}), "bmm": BenchOperation("x @ w", {"x": "b m k", "w": "c k n"})},
    [BenchCase("a", "mm", {"m": 32, "k": 2048, "n": 5632}), BenchCase("b", "mm", {"m": 32, "k": 4096, "n": 3584}), BenchCase("c", "mm", {"m": 32, "k": 2049, "n": 64})],
)  # fmt: skip


def test_reduced_extents_keep_residues() -> None:
    assert [(case.sizes, len(cases)) for case, cases in reduced(SUITE)] == [
        ({"m": 32, "k": 192, "n": 192}, 2),
        ({"m": 32, "k": 193, "n": 64}, 1),
    ]


@pytest.mark.parametrize(
    ("sizes", "fewer"),
    [((28, 4), (14, 2)), ((32, 4), (16, 2)), ((30, 30), (14, 14)), ((5, 3), (5, 3)), ((9, 6), (9, 6))],
)
def test_fewer_batches_that_divide_each_other_as_before(sizes: tuple[int, int], fewer: tuple[int, int]) -> None:
    found = shortened(SUITE.operations["bmm"], {"b": sizes[0], "c": sizes[1], "m": 8, "k": 8, "n": 8})
    assert (found["b"], found["c"]) == fewer


def test_what_is_summed_over_is_long_where_a_ring_would_not_turn() -> None:
    assert summed_over(SUITE, SUITE.cases[0], toolchain(), target("h200")) == {"k"}
    points = Points(SUITE, SUITE.cases[0], toolchain(), target("h200"))
    drawn = [points.draw(seed) for seed in range(60)]
    assert all(point.thin or turns(point.drawn.tiles) >= 2 for point in drawn)
    assert {192, 256, 384} <= {point.sizes["k"] for point in drawn} <= {192, 256, 384, 512}
