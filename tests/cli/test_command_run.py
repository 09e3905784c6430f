"""`dplc run`: the exact record, outputs that anyone can recompute, devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import MATMUL, SOFTMAX, Command
from wrong_rules import EVERYWHERE, overflowing

import dplc
from dplc.engine.api import Compiled


def test_the_record_has_exactly_these_keys(ok: Command) -> None:
    record = json.loads(ok("run --device emulator --json -c", SOFTMAX).out)
    assert list(record) == ["dplc", "ok", "device", "kernels", "max_abs_err", "max_rel_err"]
    assert record["ok"] is True
    assert record["device"] == "emulator"
    assert [list(kernel) for kernel in record["kernels"]] == [["name", "grid", "block", "smem"]]
    assert 0 < record["max_rel_err"] <= 1e-5
    assert 0 < record["max_abs_err"] < 1


@pytest.mark.parametrize(
    "text", [MATMUL, "nn.Linear(33, 17)(torch.randn(5, 33))", "(torch.randn(3), torch.randint(0, 9, (2, 1)))"]
)
def test_the_seed_makes_the_inputs(ok: Command, tmp_path: Path, text: str) -> None:
    """torch.manual_seed(seed), then the text: that is the reference, for anyone."""
    out = tmp_path / "out.npz"
    ok(f"run --device emulator --seed 7 --out {out} -c", text)
    torch.manual_seed(7)
    with torch.no_grad():
        expected = eval(text, {"torch": torch, "nn": torch.nn})
    expected = expected if isinstance(expected, tuple) else (expected,)
    saved = np.load(out)
    assert list(saved) == [f"out{place}" for place in range(len(expected))]
    for name, value in zip(saved, expected, strict=True):
        assert saved[name].dtype == value.numpy().dtype
        assert saved[name].shape == tuple(value.shape)
        np.testing.assert_allclose(saved[name], value.numpy(), rtol=1e-5, atol=1e-5)


def test_for_people(ok: Command) -> None:
    out = ok("run --device emulator -c", SOFTMAX).out
    assert "kernel softmax: grid 64 x 1 x 1, 32 threads, 0 bytes of shared memory\n" in out
    assert "out0: float32[64, 512]\n" in out
    assert "against float64: max|error| " in out
    assert out.endswith(": ok\n")


def test_the_reference_runs_no_kernel(ok: Command) -> None:
    record = json.loads(ok("run --device reference --json -c", SOFTMAX).out)
    assert record.pop("dplc") == dplc.__version__
    assert record == {"ok": True, "device": "reference", "kernels": [], "max_abs_err": 0.0, "max_rel_err": 0.0}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_gpu(dplc: Command) -> None:
    done = dplc("run --device cuda -c", SOFTMAX)
    assert done.code == 1
    assert done.err == "error: torch finds no CUDA device here\n  help: run with --device emulator\n"


def test_a_wrong_result_is_an_error(dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Compiled.run

    def off(self: Compiled, inputs: Any) -> list[Any]:
        return [value * 1.001 for value in real(self, inputs)]

    monkeypatch.setattr(Compiled, "run", off)
    done = dplc("run --device emulator --json -c", SOFTMAX)
    assert done.code == 1
    assert json.loads(done.out)["ok"] is False
    assert "error: the result is off by 1.00e-03 of the largest value" in done.err


def test_out_cannot_be_written(dplc: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out.npz"
    done = dplc("run --out", out, "-c", "torch.randn(3) + 1")
    assert done.code == 1
    assert f"error: cannot write {out}: " in done.err


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("float16", torch.float16)])
def test_floats_are_of_the_dtype_asked_for(ok: Command, tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    """What the text names stays; bf16, which numpy lacks, is saved as f32."""
    out = tmp_path / "out.npz"
    text = "(torch.randn(5, 8) + 1, torch.ones(3, dtype=torch.float32) * 2)"
    printed = ok(f"run --device emulator --dtype {name} --out", out, "-c", text).out
    assert f"out0: {str(dtype).removeprefix('torch.')}[5, 8]" in printed
    assert "out1: float32[3]" in printed
    torch.manual_seed(0)
    saved = np.load(out)
    assert saved["out0"].dtype == (np.float16 if dtype is torch.float16 else np.float32)
    assert torch.equal(torch.from_numpy(saved["out0"]).to(dtype), torch.randn(5, 8, dtype=dtype) + 1)
    assert torch.get_default_dtype() is torch.float32


def test_where_eager_overflows_the_others_are_judged_still(ok: Command, dplc: Command, tmp_path: Path) -> None:
    text = overflowing(1000)
    out = ok("run -c", text).out
    assert "inf" not in out and out.rstrip().endswith("ok")
    rules = tmp_path / "wrong.rw"
    rules.write_text(EVERYWHERE)
    done = dplc(f"run --rules {rules} -c", text)
    assert done.code == 1 and "WRONG at 1,000 of 1,001 elements" in done.out
    rules.write_text(EVERYWHERE.replace("add(x, 1000.0)", "minimum(x, 88.0)").replace("everywhere", "there"))
    done = dplc(f"run --rules {rules} -c", text)
    assert done.code == 0 and "note: 1 of 1,001 elements were not judged: eager overflows there" in done.out + done.err
