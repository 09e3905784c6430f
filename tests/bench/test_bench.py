"""`dplc bench`: from a file to a table, a record, a page; and what measures without a GPU to measure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_suite import TINY

from dplc.codegen.build import Assembly
from dplc.codegen.target import target
from dplc.engine.api import Compiled as Callee
from dplc.engine.bench.bench import RUNS, WARM_UP, CompiledCase, assembler, compile_all, device_name, measured, timing
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.cli.app import main
from dplc.engine.compiler import compiler_with


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_from_end_to_end(capsys: pytest.CaptureFixture[str], tiny: Path, tmp_path: Path) -> None:
    markdown = tmp_path / "page.md"
    given = ("--target", "sm_90a", "--no-assemble", "--json", "--markdown", str(markdown))
    code, out, err = bench(capsys, str(tiny), *given)
    assert code == 0, err
    record = json.loads(out)
    assert list(record) == [
        "suite", "about", "command", "date", "machine", "target", "arch", "dram_bytes_per_second", "versions", "totals",
        "published", "cases",
    ]  # fmt: skip
    assert list(record["cases"][0]) == [
        "name", "operation", "sizes", "dtype", "compile_ms", "stages", "kernels", "compulsory_bytes", "hbm_ratio",
        "predicted_us", "times_limit", "least_us", "run", "measured", "published", "error",
    ]  # fmt: skip
    assert list(record["cases"][0]["kernels"][0]) == [
        "name", "grid", "block", "smem", "hbm_bytes", "predicted_us", "predicted_bound", "waves", "resident", "dram_bytes",
        "busy_us", "busiest_us", "fixed_us", "occupancy", "held_by", "registers", "spill_bytes", "instructions", "has_loop", "ffma_share", "widths", "sector_efficiency", "wavefront_ratio",
    ]  # fmt: skip
    assert record["totals"]["cases"] == 3
    assert record["totals"]["failed"] == record["totals"]["wrong"] == 0
    for case in record["cases"]:
        assert case["run"]["ok"] and case["run"]["extent"] == "whole", case
        assert case["measured"] is None
        assert case["predicted_us"] > 2
        assert case["times_limit"] >= 1
        assert 0 < case["kernels"][0]["sector_efficiency"] <= 1
    assert record["cases"][2]["hbm_ratio"] == 1.0
    assert record["cases"][2]["compulsory_bytes"] == (2 * 16 * 256 + 256) * 4
    assert "| norm.small |" in markdown.read_text()
    assert "measured us" not in markdown.read_text()


def test_what_cannot_be_compiled_does_not_stop_the_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    broken = {"expression": "torch.linalg.svd(x).S", "inputs": {"x": "rows in"}}
    case = {"name": "broken", "operation": "broken", "sizes": {"rows": 4, "in": 4}}
    operations = {**TINY["operations"], "broken": broken}
    path.write_text(json.dumps({**TINY, "operations": operations, "cases": [case, TINY["cases"][2]]}))
    code, out, err = bench(capsys, str(path), "--no-run", "--no-assemble")
    assert code == 1
    assert "not compiled" in out and "norm.small" in out
    assert "1 of 2 cases did not compile" in err


def test_a_wrong_kernel_is_seen(tiny: Path) -> None:
    from dplc.engine.bench.bench import run_case

    (one,) = compiled(tiny, "norm")
    (kernel,) = one.compilation.program.kernels
    broken = replace(kernel, text=kernel.text.replace("rsqrt_approx(", "1.001f * rsqrt_approx("))
    one.compilation.program = replace(one.compilation.program, kernels=(broken,))
    run_case(one)
    run = one.record.run
    assert run is not None and not run.ok
    assert "wrong" in run.finding


@pytest.mark.skipif(not assembler(), reason="neither NVRTC nor nvcc is here")
def test_the_assembler_is_asked(capsys: pytest.CaptureFixture[str], tiny: Path) -> None:
    code, out, err = bench(capsys, str(tiny), "--only", "norm", "--no-run", "--json")
    assert code == 0, err
    (kernel,) = json.loads(out)["cases"][0]["kernels"]
    assert 8 <= kernel["registers"] <= 255
    assert kernel["spill_bytes"] == 0


# ---- measuring, with a clock of our own


class FakeClock:
    """Runs take 9, 8, 7, .. microseconds at first, then always 3."""

    def __init__(self, graphs: bool) -> None:
        self.graphs = graphs
        self.times = itertools.chain([9e-6, 8e-6, 7e-6], itertools.repeat(3e-6))

    def seconds(self, run: Callable[[], Any]) -> float:
        run()
        return next(self.times)

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
        return run if self.graphs else None


def compiled(path: Path, name: str) -> list[CompiledCase]:
    suite = read_suite(path)
    subjects = [subject_of(suite, case) for case in suite.select(name)]
    return compile_all(subjects, lambda: compiler_with(target("sm_90a")), lambda text: None)[1]


def test_runs_that_warm_up_do_not_count() -> None:
    clock, ran = FakeClock(graphs=True), []
    record = timing(lambda: ran.append(1), clock)
    assert (record.median_us, record.low_us, record.high_us) == pytest.approx((3.0, 3.0, 3.0))
    assert (record.runs, record.launched, len(ran)) == (RUNS, "CUDA graph", WARM_UP + RUNS)
    assert timing(lambda: None, FakeClock(graphs=False)).launched == "one by one"


def test_right_is_timed_and_wrong_is_not(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.bench.bench.compiled_by_torch", lambda *_: None)
    (one,) = compiled(tiny, "norm")
    callee = Callee(one.compilation, "emulator")
    record = measured(one, callee, FakeClock(graphs=False))
    assert record.dplc is not None and record.eager is not None and not record.wrong
    assert record.device == "no GPU"
    monkeypatch.setattr(callee, "run", lambda inputs: [torch.zeros(16, 256)])
    record = measured(one, callee, FakeClock(graphs=False))
    assert record.dplc is None and record.wrong == "the result is wrong: not timed"


def test_masks_of_an_expression_are_on_the_device_of_its_inputs(tmp_path: Path) -> None:
    path = tmp_path / "masked.json"
    operation = {"expression": "F.cross_entropy(x, torch.arange(x.shape[0])) + x", "inputs": {"x": "n n"}}
    case = {"name": "masked", "operation": "masked", "sizes": {"n": 8}}
    path.write_text(json.dumps({"operations": {"masked": operation}, "cases": [case]}))
    (one,) = compiled(path, "masked")
    function, given = one.eager(one.tensors("meta"))
    assert function(*given).device.type == "meta"


def test_what_stops_the_gpu_is_a_finding(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = compiled(tiny, "norm")
    callee = Callee(one.compilation, "emulator")

    def fault(inputs: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(callee, "run", fault)
    assert not one.record.problem
    one.record.measured = measured(one, callee, FakeClock(graphs=False))
    assert one.record.measured.wrong == "the GPU stopped: CUDA error: an illegal memory access was encountered"
    assert one.record.problem == one.record.measured.wrong


def test_the_gpu_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert device_name() == "a GPU"


@pytest.mark.skipif(not assembler(), reason="neither NVRTC nor nvcc is here")
def test_a_kernel_that_the_assembler_does_not_report_on_is_an_error_of_its_case(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: Path
) -> None:
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("dplc.engine.bench.bench.assemble", lambda text, arch: Assembly(b"", {}))
    code, out, err = bench(capsys, str(tiny), "--only", "norm", "--no-run", "--json")
    (case,) = json.loads(out)["cases"]
    assert code == 1 and "1 of 1 cases did not compile" in err
    assert "reported nothing on `" in case["error"] and case["kernels"][0]["registers"] is None
