"""How many teams share a chunk: as many as a multiprocessor's warps need over its blocks. Run, checked, compared with float64."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import run_reference
from dplc.ir.node import nodes
from dplc.ir.tile import Combine, Tile

PRODUCT = "torch.randn(96, 128) @ torch.randn(128, 96)"
CONVOLUTION = "F.conv2d(torch.randn(2, 64, 7, 7), torch.randn(64, 64, 3, 3), padding=1)"
# Tiles of 32 x 32 by 32 threads, chunks of 32: four teams have eight elements each. The product has 9 blocks: 288 threads.
SIZES = {"blockify_launch": {"BM": 32, "BN": 32}, "chunk_matmul_k": {"BK": 32}}
# (program, multiprocessors, warps asked for or None for the policy's 16, teams)
CASES = (
    (PRODUCT, 1, None, 2),  # 512 threads wanted, 1.8 times what the blocks have
    (PRODUCT, 2, None, 2),  # 3.6 times: four would be too many
    (PRODUCT, 3, None, 4),  # 5.3 times
    (PRODUCT, 1, 36, 4),  # 4 times
    (PRODUCT, 1, 35, 2),
    (PRODUCT, 1, 1, 2),  # fewer than the policy's least ways are those
    (CONVOLUTION, 1, None, 2),
    (CONVOLUTION, 3, None, 4),
)


@pytest.mark.parametrize(("text", "multiprocessors", "warps", "teams"), CASES)
@pytest.mark.sampled(2)
def test_teams_fill_a_multiprocessor(
    text: str, multiprocessors: int, warps: int | None, teams: int, tmp_path: Path
) -> None:
    asked = tmp_path / "warps.rw"
    asked.write_text("" if warps is None else f"override number slice_warps = {warps}\n")
    tools = toolchain([asked], SIZES)
    made = Compiler(tools, replace(target("h200"), multiprocessors=multiprocessors)).compile(capture_text(text))
    (tile,) = nodes(made.tile, Tile)
    (combined,) = nodes(tile, Combine)
    (over,) = combined.over
    assert [axis.extent for axis in tile.axes if axis.name == over.name] == [teams]
    assert prod(axis.extent for axis in tile.axes if axis.role == "THREAD") == 32 * teams
    run = Compiled(made, "emulator")
    run.executor = checker = CheckingExecutor(("all",))
    results = run.run({})
    assert checker.launches and not checker.findings
    assert judge(results, run_reference(made.captured, made.captured.tensors), made.captured.reference).ok
