"""The bench of an expression: one row for each kernel, the whole, what is busy; and eager as torch.fx has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from test_bench import FakeClock, bench

from dplc.codegen.target import target
from dplc.engine.api import Compiled as Callee
from dplc.engine.bench.bench import CompiledCase, describe, measure, rows
from dplc.engine.bench.records import CaseRecord
from dplc.engine.capture.capture import capture_text
from dplc.engine.cli.app import main
from dplc.engine.compiler import compiler_with

SPLIT = "torch.relu(torch.randn(64, 2048) @ torch.randn(2048, 64))"
TWICE = "m = nn.Softmax(-1)\nm(torch.randn(8, 64)), m(torch.randn(8, 64)), torch.randn(4, 4).sum()"


def compiled(text: str, name: str = "sm_90a") -> CompiledCase:
    compilation = compiler_with(target(name)).compile(capture_text(text))
    record = CaseRecord(name="", operation="", sizes={}, dtype="")
    one = CompiledCase(compilation, record)
    describe(one)
    return one


def test_the_record(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    markdown = tmp_path / "page.md"
    given = ("--target", "h200", "--no-assemble", "--json", "--markdown", str(markdown))
    code, out, err = bench(capsys, "-c", SPLIT, *given)
    assert code == 0, err
    record = json.loads(out)
    first, second, whole = record["cases"]
    assert (first["name"], second["name"], whole["name"]) == ("matmul_relu_partial", "matmul_relu", "end to end")
    assert whole["predicted_us"] == pytest.approx(first["predicted_us"] + second["predicted_us"])
    assert whole["run"]["ok"] and whole["run"]["extent"] == "whole" and whole["measured"] is None
    assert second["times_limit"] is not None and first["times_limit"] is None
    (kernel,) = first["kernels"]
    assert set(kernel["busy_us"]) == {"DRAM", "L2", "shared", "issue", "latency", "tensor"}
    assert 0 < kernel["occupancy"] <= 1 and kernel["held_by"] in ("grid", "blocks", "threads", "shared", "registers")
    assert max(kernel["busy_us"].values()) <= kernel["predicted_us"]
    assert "| matmul_relu_partial | 1 |" in markdown.read_text()
    assert "off float64 on the emulator (whole)" in markdown.read_text()


def test_a_profile_says_what_is_busy_and_by_what_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    given = ("--no-assemble", "--no-run", "--target", "h200", "--profile", "--markdown", str(page))
    code, out, err = bench(capsys, "-c", SPLIT, *given)
    assert code == 0, err
    for title in ("DRAM", "L2", "shared", "issue", "occupancy", "held by"):
        assert title in out.splitlines()[0]
    assert "no profiler was asked" in page.read_text()


ADDED = (  # programs whose kernels fill a part of a wave, one wave, and several, and a product on tensor cores
    "torch.softmax(torch.randn(64, 512), -1)",
    "torch.relu(torch.randn(4096, 1024) + 1)",
    SPLIT,
    "torch.randn(256, 256, dtype=torch.bfloat16) @ torch.randn(256, 256, dtype=torch.bfloat16)",
)


@pytest.mark.parametrize("text", ADDED)
def test_what_a_profile_prints_adds_up_to_the_prediction(capsys: pytest.CaptureFixture[str], text: str) -> None:
    given = ("-c", text, "--no-assemble", "--no-run", "--target", "h200", "--profile")
    _, out, _ = bench(capsys, *given, "--json")
    kernels = [kernel for case in json.loads(out)["cases"] for kernel in case["kernels"]]
    _, shown, _ = bench(capsys, *given)
    title, *lines = [re.split(r"  +", line.strip()) for line in shown.splitlines() if line.strip()]
    assert kernels and len(kernels) < len(lines)
    for kernel, line in zip(kernels, lines, strict=False):
        busy, busiest = kernel["busy_us"], kernel["busiest_us"]
        total = kernel["fixed_us"] + busiest + 0.02 * (sum(busy.values()) - busiest)
        assert total == pytest.approx(kernel["predicted_us"]) and max(busy.values()) <= busiest * (1 + 1e-9)
        shares = {name: float(value.rstrip("%")) for name, value in zip(title, line, strict=True) if "%" in value}
        six = sum(shares[name] for name in busy)
        added = shares["fixed"] + shares["busiest"] + 0.02 * (six - shares["busiest"])
        assert added == pytest.approx(100, abs=0.2), line


def test_names_and_bounds_begin_in_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers end in one column; what is read as words begins in one."""
    _, out, _ = bench(capsys, "-c", SPLIT, "--target", "h200", "--no-run", "--no-assemble")
    title, *rows = [line for line in out.splitlines() if line.strip()][:4]
    kernels = [row for row in rows if "matmul" in row or "relu" in row]
    assert len(kernels) == 2 and len({len(row.split()[0]) for row in kernels}) == 2
    assert all(row.startswith(f"{row.split()[0]} ") for row in kernels)
    at = title.index("bound")
    assert all(row[at - 1] == " " != row[at] for row in kernels)


def test_launches_of_one_kernel_are_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    cases = rows(compiled(TWICE).record.kernels)
    assert [case.sizes["launches"] for case in cases] == [2, 1]
    assert cases[0].predicted_us == 2 * cases[0].kernels[0].predicted_us
    assert cases[0].compulsory_bytes == 2 * 2 * 8 * 64 * 4


def test_two_sizes_of_one_number_have_a_kernel_each(capsys: pytest.CaptureFixture[str]) -> None:
    sums = (f"torch.randn(dim({name}, 1..9, hint=4), 33).sum(-1)" for name in "st")
    code, out, err = bench(capsys, "-c", ", ".join(sums), "--target", "h200", "--no-run", "--no-assemble", "--json")
    assert code == 0, err
    first, second, _ = json.loads(out)["cases"]
    assert first["times_limit"] == second["times_limit"] >= 1


def test_run_with_a_bench(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["run", *arguments])
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    code, out, err = run("-c", "torch.softmax(torch.randn(8, 64), -1)", "--bench", "--device", "emulator")
    assert code == 0 and "against float64" in out and "predicted us" in out and "end to end" in out, err
    code, out, err = run("-c", "torch.softmax(torch.randn(8, 64), -1)", "--bench", "--profile", "--json")
    record = json.loads(out)
    assert code == 0 and record["ok"] and record["bench"]["cases"][-1]["name"] == "end to end"
    for arguments, said in (
        (("-c", "torch.randn(8) + 1", "--profile"), "`--profile` goes with `--bench`"),
        (("-c", "torch.randn(8) + 1", "--bench", "--check"), "`--bench` does not go with `--check`"),
        (("somewhere", "--bench"), "`--bench` does not apply to an artefact"),
    ):
        code, _, err = run(*arguments)
        assert code == 2 and said in err, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a program is needed"),
        (("suite.json", "-c", "torch.randn(8)"), "`dplc bench` takes one program"),
        (("-c", "torch.randn(8) + 1", "--only", "x"), "`--only` does not apply to an expression"),
        (("-c", "torch.randn(8) + 1", "--layers", "2"), "`--layers` does not apply to an expression"),
        (("suite.json", "--profile"), "`--profile` does not apply to a suite"),
        (("suite.json", "--explore"), "`--explore` does not apply to a suite"),
    ],
)
def test_options_that_do_not_go_together(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = bench(capsys, *arguments)
    assert code == 2 and said in err, err


def test_the_whole_and_each_kernel_are_timed_where_it_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.bench.bench.compiled_by_torch", lambda *_: None)
    one = compiled(TWICE)
    kernels, callee = rows(one.record.kernels), Callee(one.compilation, "emulator")
    measure(one, kernels, callee, FakeClock(graphs=False))
    found = one.record.measured
    assert found is not None and found.dplc is not None and found.eager is not None and not found.wrong
    for case in kernels:
        assert case.measured is not None and case.measured.dplc is not None
        assert case.measured.dplc.median_us == pytest.approx(3.0 * case.sizes["launches"])
    kernels = rows(one.record.kernels)
    monkeypatch.setattr(callee, "run", lambda inputs: [torch.zeros_like(x) for x in one.compilation.captured.reference])
    measure(one, kernels, callee, FakeClock(graphs=False))
    assert one.record.measured is not None and one.record.measured.wrong and kernels[0].measured is None


@pytest.mark.parametrize(
    "text",
    [
        "nn.Linear(33, 17)(torch.randn(5, 33))",
        "torch.randn(4, 6).chunk(2, -1)",
        "torch.cat([torch.randn(2, 3), torch.arange(6).reshape(2, 3)], 1)",
        "F.scaled_dot_product_attention(torch.randn(1, 2, 8, 4), torch.randn(1, 2, 8, 4), torch.randn(1, 2, 8, 4), is_causal=True)",
        "torch.randn(4, dtype=torch.bfloat16) * 3",
    ],
)
def test_eager_is_what_the_text_gave(text: str) -> None:
    one = compiled(text)
    function, given = one.eager(one.tensors())
    results, captured = function(*given), one.compilation.captured
    assert captured.reference is not None
    for result, reference in zip(results, captured.reference, strict=True):
        assert result.dtype is reference.dtype
        torch.testing.assert_close(result, reference)
