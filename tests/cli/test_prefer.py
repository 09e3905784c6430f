"""`--prefer RULE`: what is legal fires though it would not pay, and is right; what cannot fire says why."""

from __future__ import annotations

import pytest
import torch
from command_line import Command

import dplc

MATMUL = "torch.randn(64, 64) @ torch.randn(64, 64)"


def test_a_rule_that_would_not_pay_fires_and_is_right(ok: Command) -> None:
    on = ("--target", "h200", "-c", MATMUL)
    before, after = ok("compile", *on).out, ok("compile", *on, "--prefer", "tma_copy")
    assert "tma_copy" not in before and "tma_copy" in after.out.split("// grid")[0] and after.err == ""
    assert "against float64" in ok("run", *on, "--prefer", "tma_copy", "--device", "emulator").out
    assert "races" not in ok("run", "--check", *on, "--prefer", "tma_copy").err


def test_with_a_parameter(ok: Command) -> None:
    given = ("--target", "h200", "-c", MATMUL, "--set", "split_matmul_k.S=2")
    refused = ok("compile", *given)
    assert 'not preferred: matched, but "the sum is short"' in refused.err and "split_matmul_k" not in refused.out
    done = ok("run", *given, "--prefer", "split_matmul_k", "--device", "emulator")
    assert "kernel matmul_partial: " in done.out and done.err == ""


def test_where_no_value_would_pay_the_first_legal_one_is_taken(ok: Command) -> None:
    """By default a value outside of the domain says `not here`: it must not keep away what somebody asks for."""
    assert "split_matmul_k" not in ok("compile", "-c", MATMUL).out
    done = ok("run", "--prefer", "split_matmul_k", "-c", MATMUL, "--device", "emulator")
    assert "kernel matmul_partial: grid 2 x" in done.out and ": ok" in done.out and done.err == ""


def test_of_several_ways_the_one_that_is_asked_for(ok: Command) -> None:
    """The ring is peeled, though a predicated one comes first by default."""
    on = ("--target", "sm_80", "-c", MATMUL)
    assert "pipeline_predicated" in ok("compile", *on).out
    out = ok("compile", *on, "--prefer", "pipeline_k_outer").out
    assert "pipeline_k_outer" in out and "pipeline_predicated" not in out
    assert ": ok" in ok("run", *on, "--prefer", "pipeline_k_outer", "--device", "emulator").out


def test_what_is_not_legal_says_why(ok: Command, dplc: Command) -> None:
    done = ok("compile", "--prefer", "coarsen_rows", "-c", "torch.randn(5, 7, 640) + torch.randn(7, 640)")
    assert "warning: --prefer coarsen_rows: rule `coarsen_rows` fires nowhere" in done.err
    assert '"the rows do not divide" [N % R == 0; N=5, R=2' in done.err
    done = ok("compile", "--prefer", "pad_smem", "-c", "torch.randn(8) + 1")
    assert "warning: --prefer pad_smem: rule `pad_smem` fires nowhere" in done.err
    done = dplc("compile", "--prefer", "tma_cpoy", "-c", MATMUL)
    assert done.code == 2 and "--prefer tma_cpoy: there is no rule `tma_cpoy`" in done.err and "tma_copy" in done.err


def test_tracing(ok: Command) -> None:
    given = ("rewrite", "--trace", "--only", "tma_copy", "--target", "h200", "-c", MATMUL)
    assert "not preferred" in ok(*given).out
    assert "via=TMA" in ok(*given, "--prefer", "tma_copy").out


def test_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"tma_copy": {"prefer": False}}
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    compiled = dplc.compile(torch.matmul, (x, y), target="h200", settings=settings, device="emulator")
    assert "via=TMA" in compiled.ir("tile")
    torch.testing.assert_close(compiled(x, y), x @ y, rtol=1e-5, atol=1e-4)


def test_recomputation_beyond_the_bound_is_a_matter_of_profit(ok: Command) -> None:
    """What a rule of fusion says of costs is `prefer`: one kernel, whose every block adds the row up again, is right."""
    rows = ("-c", "torch.randn(4, 64).sum(-1, keepdim=True) * torch.randn(4, 4096)")
    assert ok("compile", *rows, "--ir", "loop").out.count("\nkernel ") == 2
    assert ok("compile", *rows, "--ir", "loop", "--prefer", "fuse_epilogue").out.count("\nkernel ") == 1
    assert ": ok" in ok("run", *rows, "--prefer", "fuse_epilogue", "--device", "emulator").out
    why = ok("rules", "why", "fuse_epilogue", *rows).out
    assert (
        'not preferred: matched, but "recomputation exceeds the bound"' in why and "recompute(v, y, columns)=32" in why
    )
