"""`--prefer RULE`: what is legal fires though it would not pay, and is right; what cannot fire says why."""

from __future__ import annotations

import pytest
import torch
from command_line import Command

import dplc

MATMUL = "torch.randn(64, 64) @ torch.randn(64, 64)"


def test_a_rule_that_would_not_pay_fires_and_is_right(ok: Command) -> None:
    asked = "--target h200 --prefer tma_copy"
    before, after = ok("compile --target h200 -c", MATMUL).out, ok(f"compile {asked} -c", MATMUL)
    assert "tma_copy" not in before and "tma_copy" in after.out.split("// grid")[0] and after.err == ""
    assert "against float64" in ok(f"run {asked} --device emulator -c", MATMUL).out
    assert "races" not in ok(f"run --check {asked} -c", MATMUL).err


def test_with_a_parameter(ok: Command) -> None:
    given = "--target h200 --set split_matmul_k.S=2"
    refused = ok(f"compile {given} -c", MATMUL)
    assert 'not preferred: matched, but "the sum is short"' in refused.err and "split_matmul_k" not in refused.out
    done = ok(f"run {given} --prefer split_matmul_k --device emulator -c", MATMUL)
    assert "kernel matmul_partial: " in done.out and done.err == ""


def test_where_no_value_would_pay_the_first_legal_one_is_taken(ok: Command) -> None:
    """By default a value outside of the domain says `not here`: it must not keep away what somebody asks for."""
    assert "split_matmul_k" not in ok("compile -c", MATMUL).out
    done = ok("run --prefer split_matmul_k --device emulator -c", MATMUL)
    assert "kernel matmul_partial: grid 2 x" in done.out and ": ok" in done.out and done.err == ""


def test_of_several_ways_the_one_that_is_asked_for(ok: Command) -> None:
    """The ring is peeled, though a predicated one comes first by default."""
    assert "pipeline_predicated" in ok("compile --target sm_80 -c", MATMUL).out
    asked = "--target sm_80 --prefer pipeline_k_outer"
    out = ok(f"compile {asked} -c", MATMUL).out
    assert "pipeline_k_outer" in out and "pipeline_predicated" not in out
    assert ": ok" in ok(f"run {asked} --device emulator -c", MATMUL).out


def test_what_is_not_legal_says_why(ok: Command) -> None:
    done = ok("compile --prefer coarsen_rows -c", "torch.randn(5, 7, 640) + torch.randn(7, 640)")
    assert "warning: --prefer coarsen_rows: rule `coarsen_rows` fires nowhere" in done.err
    assert '"the rows do not divide" [N % R == 0; N=5, R=2' in done.err
    done = ok("compile --prefer pad_smem -c", "torch.randn(8) + 1")
    assert "warning: --prefer pad_smem: rule `pad_smem` fires nowhere" in done.err


def test_tracing(ok: Command) -> None:
    given = "rewrite --trace --only tma_copy --target h200"
    assert "not preferred" in ok(f"{given} -c", MATMUL).out
    assert "via=TMA" in ok(f"{given} --prefer tma_copy -c", MATMUL).out


def test_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"tma_copy": {"prefer": False}}
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    compiled = dplc.compile(torch.matmul, (x, y), target="h200", settings=settings, device="emulator")
    assert "via=TMA" in compiled.ir("tile")
    torch.testing.assert_close(compiled(x, y), x @ y, rtol=1e-5, atol=1e-4)


def test_recomputation_beyond_the_bound_is_a_matter_of_profit(ok: Command) -> None:
    """What a rule of fusion says of costs is `prefer`: one kernel, whose every block adds the row up again, is right."""
    rows = "torch.randn(4, 64).sum(-1, keepdim=True) * torch.randn(4, 4096)"
    assert ok("compile --ir loop -c", rows).out.count("\nkernel ") == 2
    assert ok("compile --ir loop --prefer fuse_epilogue -c", rows).out.count("\nkernel ") == 1
    assert ": ok" in ok("run --prefer fuse_epilogue --device emulator -c", rows).out
    why = ok("rules why fuse_epilogue -c", rows).out
    assert (
        'not preferred: matched, but "recomputation exceeds the bound"' in why and "recompute(v, y, columns)=32" in why
    )
