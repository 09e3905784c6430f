"""`dplc run --check`: what it checks, what it prints, what it finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import MATMUL, SOFTMAX, Command

from dplc.codegen.emulator.executor import chosen_blocks
from dplc.codegen.kernel import CudaKernel
from dplc.ir.diagnostic import UsageError

RACY = """
@repeat
override rule async_copy on tile
match
    for k in 0..K serial:
        stages: Stage(depth=N, via=SYNC)+
        Sync()
        rest..
require N >= 2                                   else "single-buffered: nothing to overlap"
rewrite
    for k in 0..K serial:
        stages.. with via=ASYNC
        Sync()
        rest..
"""


def test_the_record(ok: Command) -> None:
    record = json.loads(ok("run --check --json -c", MATMUL).out)
    assert list(record) == ["dplc", "ok", "findings", "kernels", "orders", "max_abs_err", "max_rel_err"]
    assert (record["ok"], record["findings"], record["orders"]) == (True, [], [0, 1, 2])
    (kernel,) = record["kernels"]
    assert kernel["whole"] and kernel["blocks"] == list(range(len(kernel["blocks"])))
    assert {site["unit"] for site in kernel["sites"]} == {"sectors", "wavefronts"}
    assert all(site["text"] and site["cost"] >= 0 and site["requests"] > 0 for site in kernel["sites"])


def test_for_people(ok: Command) -> None:
    out = ok("run --check -c", SOFTMAX).out
    assert "all 64 blocks of 32 threads, 3 orders of threads" in out
    assert "global load" in out and "sectors" in out and "ldg128(" in out
    assert out.endswith("no findings\n")


def test_a_large_grid_is_checked_where_blocks_differ(ok: Command) -> None:
    out = ok("run --check -c", "torch.relu(torch.randn(4000, 300))").out
    assert "grids of more than 4096 threads: first, last, ragged blocks; `--blocks all` checks every one" in out
    assert "blocks 0, 3 of " in ok("run --check --blocks 0,3 -c", "torch.relu(torch.randn(4000, 300))").out


def test_a_race_is_found_and_quoted(dplc: Command, tmp_path: Path) -> None:
    rules = tmp_path / "racy.rw"
    rules.write_text(RACY)
    done = dplc(f"run --check --rules {rules} -c", "torch.randn(64, 64) @ torch.randn(64, 64)")
    assert done.code == 1
    assert "FOUND kernel `matmul`, block (" in done.out
    assert "copies asynchronously" in done.out and ": cp_async16(" in done.out
    assert "checked mode found" in done.err


def test_boxes(ok: Command) -> None:
    """tma_copy, swizzles and the peeled ring, from a user's rules to checked kernels."""
    rules = str(Path(__file__).parents[2] / "examples" / "overrides" / "copies_by_tma.rw")
    for text in ("torch.randn(64, 96) @ torch.randn(96, 128)", "torch.randn(50, 100) @ torch.randn(100, 200)"):
        record = json.loads(ok(f"run --check --rules {rules} --target h200 --json -c", text).out)
        assert record["ok"] and {"box copy"} <= {site["access"] for site in record["kernels"][0]["sites"]}


def test_ragged_blocks_are_the_far_ends() -> None:
    kernel = CudaKernel("k", "", (4, 3, 1), 1024, 0, ())
    assert chosen_blocks(kernel, None) == (0, 3, 8, 11)
    assert chosen_blocks(kernel, ("1", "last")) == (1, 11)
    assert len(chosen_blocks(kernel, ("all",))) == 12
    with pytest.raises(UsageError):
        chosen_blocks(kernel, ("12",))
