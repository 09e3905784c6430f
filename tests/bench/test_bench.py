"""`dplc bench` of suites and expressions: tables, records, pages; rules left out; and what measures without a GPU to measure."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from command_line import Command

from dplc.codegen.build import Assembly
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.bench import bench as measuring
from dplc.engine.bench.bench import RUNS, WARM_UP, CompiledCase, assembler, compile_all, describe, measure, rows, timing
from dplc.engine.bench.cases import ablate, read_suite, subject_of, variants
from dplc.engine.bench.records import MISSING, CaseRecord, _result
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.cost.predict import RESOURCES
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import UsageError

SPLIT = "torch.relu(torch.randn(64, 2048) @ torch.randn(2048, 64))"
TWICE = "m = nn.Softmax(-1)\nm(torch.randn(8, 64)), m(torch.randn(8, 64)), torch.randn(4, 4).sum()"
PLAIN = compiler_with(target("h200"))


def of_suite(path: Path, name: str) -> CompiledCase:
    suite = read_suite(path)
    subjects = [subject_of(suite, case) for case in suite.select(name)]
    _, (one,), _ = compile_all(subjects, lambda: compiler_with(target("sm_90a")), lambda text: None)
    return one


def of_text(text: str) -> CompiledCase:
    record = CaseRecord(name="", operation="", sizes={}, dtype="")
    one = CompiledCase(compiler_with(target("sm_90a")).compile(capture_text(text)), record)
    describe(one)
    return one


# ---- suites


def test_suite_from_end_to_end(dplc: Command, tiny: Path) -> None:
    record = dplc("bench tiny.json --target sm_90a --no-assemble --json --markdown page.md").json
    first, _, norm = record["cases"]
    assert " ".join(record) == (
        "suite about command date machine target arch dram_bytes_per_second versions totals published cases"
    )
    assert " ".join(first) == (
        "name operation sizes dtype compile_ms stages kernels compulsory_bytes hbm_ratio predicted_us times_limit least_us "
        "run measured published error"
    )
    assert " ".join(first["kernels"][0]) == (
        "name grid block smem hbm_bytes predicted_us predicted_bound waves resident dram_bytes busy_us busiest_us fixed_us "
        "occupancy held_by registers spill_bytes instructions has_loop ffma_share widths sector_efficiency wavefront_ratio"
    )
    totals = record["totals"]
    assert (totals["cases"], totals["failed"], totals["wrong"]) == (3, 0, 0)
    for case in record["cases"]:
        assert case["run"]["ok"] and case["run"]["extent"] == "whole" and case["measured"] is None, case
        assert case["predicted_us"] > 2 and case["times_limit"] >= 1
        assert 0 < case["kernels"][0]["sector_efficiency"] <= 1
    assert (norm["hbm_ratio"], norm["compulsory_bytes"]) == (1.0, (2 * 16 * 256 + 256) * 4)
    page = Path("page.md").read_text()
    assert "| norm.small |" in page and "measured us" not in page


def test_what_cannot_be_compiled_does_not_stop_the_others(dplc: Command, tiny: Path) -> None:
    data = json.loads(tiny.read_text())
    data["operations"]["broken"] = {"expression": "torch.linalg.svd(x).S", "inputs": {"x": "rows in"}}
    data["cases"][:2] = [{"name": "broken", "operation": "broken", "sizes": {"rows": 4, "in": 4}}]
    tiny.write_text(json.dumps(data))
    dplc("bench tiny.json --no-run --no-assemble", code=1).shows(
        "not compiled", "norm.small", "1 of 2 cases did not compile"
    )


def test_a_wrong_kernel_is_seen(tiny: Path) -> None:
    one = of_suite(tiny, "norm")
    (kernel,) = one.compilation.program.kernels
    broken = replace(kernel, text=kernel.text.replace("rsqrt_approx(", "1.001f * rsqrt_approx("))
    one.compilation.program = replace(one.compilation.program, kernels=(broken,))
    measuring.run_case(one)
    assert one.record.run is not None and not one.record.run.ok and "wrong" in one.record.run.finding


@pytest.mark.skipif(not assembler(), reason="neither NVRTC nor nvcc is here")
@pytest.mark.usefixtures("tiny")
def test_the_assembler_is_asked_and_must_report_on_every_kernel(
    dplc: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = "bench tiny.json --only norm --no-run --json"
    (kernel,) = dplc(line).json["cases"][0]["kernels"]
    assert 8 <= kernel["registers"] <= 255 and kernel["spill_bytes"] == 0
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(measuring, "assemble", lambda text, arch: Assembly(b"", {}))
    done = dplc(line, code=1)
    (case,) = done.json["cases"]
    assert "1 of 1 cases did not compile" in done.err
    assert "reported nothing on `" in case["error"] and case["kernels"][0]["registers"] is None


def run(**changed: Any) -> Any:
    return SimpleNamespace(**{"ok": True, "relative_error": 3e-7, "extent": "whole", **changed})


@pytest.mark.parametrize(
    ("error", "of", "column"),
    [
        ("", run(), "3e-07"),
        ("", run(extent="rows"), "3e-07 *"),  # it was looked at in part
        ("", run(ok=False), "WRONG"),
        ("", None, MISSING),
        ("too many threads", None, "not compiled"),
    ],
)
def test_the_column_of_errors(error: str, of: Any, column: str) -> None:
    assert _result(SimpleNamespace(error=error, run=of)) == column  # type: ignore[arg-type]


# ---- expressions: one row for each kernel, the whole, what is busy

OPTIONS = "--no-assemble --no-run --target h200"


def test_expression_has_a_record(dplc: Command) -> None:
    record = dplc(f"bench --target h200 --no-assemble --json --markdown page.md -c '{SPLIT}'").json
    first, second, whole = record["cases"]
    assert (first["name"], second["name"], whole["name"]) == ("matmul_relu_partial", "matmul_relu", "end to end")
    assert whole["predicted_us"] == pytest.approx(first["predicted_us"] + second["predicted_us"])
    assert whole["run"]["ok"] and whole["run"]["extent"] == "whole" and whole["measured"] is None
    assert second["times_limit"] is not None and first["times_limit"] is None
    (kernel,) = first["kernels"]
    assert kernel["busy_us"].keys() == {*RESOURCES} and max(kernel["busy_us"].values()) <= kernel["predicted_us"]
    assert 0 < kernel["occupancy"] <= 1 and kernel["held_by"] in ("grid", "blocks", "threads", "shared", "registers")
    page = Path("page.md").read_text()
    assert "| matmul_relu_partial | 1 |" in page and "off float64 on the emulator (whole)" in page


@pytest.mark.parametrize(
    "text",
    [  # programs whose kernels fill a part of a wave, one wave, and several, and a product on tensor cores
        "torch.softmax(torch.randn(64, 512), -1)",
        "torch.relu(torch.randn(4096, 1024) + 1)",
        SPLIT,
        "torch.randn(256, 256, dtype=torch.bfloat16) @ torch.randn(256, 256, dtype=torch.bfloat16)",
    ],
)
def test_what_a_profile_prints_adds_up_to_the_prediction(dplc: Command, text: str) -> None:
    line = f"bench {OPTIONS} --profile --markdown page.md"
    kernels = [kernel for case in dplc(f"{line} --json -c '{text}'").json["cases"] for kernel in case["kernels"]]
    assert "no profiler was asked" in Path("page.md").read_text()
    shown = dplc(f"{line} -c '{text}'").out
    title, *lines = [re.split(r"  +", line.strip()) for line in shown.splitlines() if line.strip()]
    assert kernels and len(kernels) < len(lines) and {"occupancy", "held by"} <= {*title}
    for kernel, cells in zip(kernels, lines, strict=False):
        busy, busiest = kernel["busy_us"], kernel["busiest_us"]
        total = kernel["fixed_us"] + busiest + 0.02 * (sum(busy.values()) - busiest)
        assert total == pytest.approx(kernel["predicted_us"]) and max(busy.values()) <= busiest * (1 + 1e-9)
        shares = {name: float(value.rstrip("%")) for name, value in zip(title, cells, strict=True) if "%" in value}
        six = sum(shares[name] for name in busy)
        added = shares["fixed"] + shares["busiest"] + 0.02 * (six - shares["busiest"])
        assert added == pytest.approx(100, abs=0.2), cells


def test_names_and_bounds_begin_in_one_column(dplc: Command) -> None:
    """Numbers end in one column; what is read as words begins in one."""
    title, *kernels = dplc(f"bench {OPTIONS} -c '{SPLIT}'").out.splitlines()[:3]
    at = title.index("bound")
    assert len({len(line.split()[0]) for line in kernels}) == 2
    assert all(line[0] != " " and line[at - 1] == " " != line[at] for line in kernels)


def test_launches_of_one_kernel_are_one_row(dplc: Command) -> None:
    first, second = rows(of_text(TWICE).record.kernels)
    assert (first.sizes, second.sizes) == ({"launches": 2}, {"launches": 1})
    assert first.predicted_us == 2 * first.kernels[0].predicted_us
    assert first.compulsory_bytes == 2 * 2 * 8 * 64 * 4
    sums = (f"torch.randn(dim({name}, 1..9, hint=4), 33).sum(-1)" for name in "st")  # sizes of one number have one each
    one, other, _ = dplc(f"bench {OPTIONS} --json -c", ", ".join(sums)).json["cases"]
    assert one["times_limit"] == other["times_limit"] >= 1


def test_run_with_a_bench(dplc: Command) -> None:
    text = "torch.softmax(torch.randn(8, 64), -1)"
    dplc(f"run --bench --device emulator -c '{text}'").shows("against float64", "predicted us", "end to end")
    record = dplc(f"run --bench --profile --json -c '{text}'").json
    assert record["ok"] and record["bench"]["cases"][-1]["name"] == "end to end"


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
    one = of_text(text)
    function, given = one.eager(one.tensors())
    torch.testing.assert_close(list(function(*given)), list(one.compilation.captured.reference), rtol=None, atol=None)


def test_masks_of_an_expression_are_on_the_device_of_its_inputs(tmp_path: Path) -> None:
    operation = {"expression": "F.cross_entropy(x, torch.arange(x.shape[0])) + x", "inputs": {"x": "n n"}}
    case = {"name": "masked", "operation": "masked", "sizes": {"n": 8}}
    (tmp_path / "masked.json").write_text(json.dumps({"operations": {"masked": operation}, "cases": [case]}))
    one = of_suite(tmp_path / "masked.json", "masked")
    function, given = one.eager(one.tensors("meta"))
    assert function(*given).device.type == "meta"


# ---- measuring, with a clock of our own


class FakeClock:
    """Every run takes 3 microseconds, or the given numbers of them."""

    def __init__(self, graphs: bool = False, times: Iterator[float] | None = None) -> None:
        self.graphs, self.times = graphs, times or itertools.repeat(3.0)

    def seconds(self, run: Callable[[], Any]) -> float:
        run()
        return next(self.times) * 1e-6

    def graph(self, run: Callable[[], Any]) -> Callable[[], Any] | None:
        return run if self.graphs else None


def test_runs_that_warm_up_do_not_count() -> None:
    ran: list[int] = []
    record = timing(lambda: ran.append(1), FakeClock(graphs=True, times=itertools.count(1 - WARM_UP)))
    assert (record.low_us, record.median_us, record.high_us) == pytest.approx(
        (8.25, 15.5, 22.75)
    )  # quartiles of 1 .. 30
    assert (record.runs, record.launched, len(ran)) == (RUNS, "CUDA graph", WARM_UP + RUNS)
    assert timing(lambda: None, FakeClock()).launched == "one by one"


def test_the_whole_and_each_kernel_are_timed_where_it_is_right(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "compiled_by_torch", lambda *_: None)
    fault = Mock(side_effect=RuntimeError("CUDA error: an illegal memory access was encountered\nmore"))
    for one in (of_suite(tiny, "norm"), of_text(TWICE)):
        callee = Compiled(one.compilation, "emulator")
        right = callee.run
        for run, said in (
            (right, ""),
            (lambda inputs: [0 * value for value in right(inputs)], "the result is wrong: not timed"),  # noqa: B023
            (fault, "the GPU stopped: CUDA error: an illegal memory access was encountered"),
        ):
            monkeypatch.setattr(callee, "run", run)
            kernels: list[Any] = rows(one.record.kernels)
            measure(one, kernels, callee, FakeClock())
            found: Any = one.record.measured
            assert (found.device, found.wrong, one.record.problem) == ("no GPU", said, said)
            assert bool(found.dplc) == bool(found.eager) == (not said)
            times = [case.measured and case.measured.dplc.median_us for case in kernels]
            assert times == [None if said else pytest.approx(3.0 * case.sizes["launches"]) for case in kernels]


def test_the_gpu_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert measuring.device_name() == "a GPU"


# ---- --without and --number: predicted times without a rule, or with another number


def test_a_rule_left_out_costs_as_much_as_a_file_without_it(tiny: Path, tmp_path: Path) -> None:
    record = ablate(tiny, None, PLAIN, variants(["register_row", "xor_smem"], [], toolchain()), None, print)
    mine = tmp_path / "mine.rw"
    mine.write_text("without register_row\n")
    left_out = ablate(tiny, None, Compiler(toolchain([mine]), PLAIN.target), [], None, print).predicted_us
    changed = {name: us for name, us in left_out.items() if us != record.predicted_us[name]}
    assert record.effects == {"register_row": changed, "xor_smem": {}} and changed
    assert [row[0] for row in record.rows()] == ["register_row", "xor_smem"]


def test_each_leaves_out_every_rule_of_the_schedule_and_moves_every_number_both_ways() -> None:
    names = {variant.name for variant in variants(["each"], ["each"], toolchain())}
    assert {"tileify", "drop_guard", "mark_unroll", "most_unrolled=16", "most_unrolled=48"} <= names
    assert "inline" not in names
    for asked, said in (
        ((["xor_smems"], []), "there is no rule `xor_smems`"),
        (([], ["most_thread=3"]), "there is no number `most_thread`"),
    ):
        with pytest.raises(UsageError, match=said):
            variants(*asked, toolchain())


@pytest.mark.usefixtures("tiny")
def test_a_run_goes_on_with_the_effects_that_a_file_holds(dplc: Command) -> None:
    kept = Path("kept.json")
    line = "bench tiny.json --only norm.* --number most_unrolled=16 --without xor_smem -o kept.json --target"
    assert list(dplc(f"{line} h200 --json").json["effects"]) == ["xor_smem", "most_unrolled=16"]
    data = json.loads(kept.read_text())
    data["effects"]["xor_smem"] = {"norm.small": "kept"}
    kept.write_text(json.dumps(data))
    assert dplc(f"{line} h200 --json").json["effects"]["xor_smem"] == {"norm.small": "kept"}
    dplc(f"{line} a100", code=2).shows("another suite, other rules or another target")
    kept.write_text("mine")
    dplc(f"{line} h200", code=1).shows("kept.json holds no results")
    assert kept.read_text() == "mine"
    dplc(f"{line} h200".replace("kept", "absent/kept"), code=1).shows("cannot write")
