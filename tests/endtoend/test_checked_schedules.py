"""The rotating sample: random points of the rule space, lowered, whole in checked mode, against float64.

DPLC_SCHEDULE_SEED turns the sample (CI passes the number of its run), DPLC_SCHEDULE_POINTS makes it longer.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest
import torch

from dplc.codegen.target import target
from dplc.engine.front.capture import Capture
from dplc.engine.front.text import capture_text
from dplc.engine.suite.schedules import Point, check_point, reduced
from dplc.engine.suite.suite_file import Case, Operation, Suite
from dplc.engine.toolchain import toolchain

SEED = int(os.environ.get("DPLC_SCHEDULE_SEED", "0"))
POINTS = int(os.environ.get("DPLC_SCHEDULE_POINTS", "2"))
DRAWN = 8  # times as many points are drawn at most: some cannot be launched
SUBJECTS = {
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
def captured(name: str) -> Capture:
    return capture_text(SUBJECTS[name], 0)


@pytest.mark.parametrize("number", range(POINTS))
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_random_schedule(name: str, number: int) -> None:
    torch.set_num_threads(1)
    for again in range(DRAWN):
        seed = (SEED * POINTS + number) * DRAWN + again
        point = check_point(captured(name), toolchain(), target("h200"), seed)
        assert point.fault is None, "\n".join([point.fault or "", f"seed {seed}", *point.choices])
        if point.refused is None:
            return
    pytest.fail(f"none of {DRAWN} schedules can be launched: {point.refused}")


def test_points_differ_and_repeat() -> None:
    points = [check_point(captured("rms_norm"), toolchain(), target("h200"), seed) for seed in (1, 2, 3, 1)]
    assert points[0] == points[3]
    assert len({point.choices for point in points}) > 1


def test_a_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers are lost on the way down: checked mode says where."""
    from dplc.codegen.materialise import blocks

    lost: Any = {**blocks.LOWER, blocks.Sync: lambda low, stmt, at: ()}
    monkeypatch.setattr(blocks, "LOWER", lost)
    points: list[Point] = []
    for seed in range(20):
        points.append(check_point(captured("matmul"), toolchain(), target("h200"), seed))
        if points[-1].fault is not None:
            break
    assert "line " in (points[-1].fault or "")


def test_reduced_extents_keep_residues() -> None:
    suite = Suite(
        {"mm": Operation("x @ w", {"x": "m k", "w": "k n"})},
        [Case("a", "mm", {"m": 32, "k": 2048, "n": 5632}), Case("b", "mm", {"m": 32, "k": 4096, "n": 3584}), Case("c", "mm", {"m": 32, "k": 2049, "n": 64})],
    )  # fmt: skip
    assert [case.sizes for case in reduced(suite)] == [{"m": 32, "k": 192, "n": 192}, {"m": 32, "k": 193, "n": 64}]
