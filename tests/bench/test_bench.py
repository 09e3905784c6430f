"""`dplc bench` of suites and expressions: files, tables, records, pages; rules left out; and what measures without a GPU."""

from __future__ import annotations

import copy
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
from dplc.engine.bench.cases import BenchSubject, Suite, read_suite, subject_of
from dplc.engine.bench.records import MISSING, CaseRecord, _result
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.cost.predict import RESOURCES
from dplc.ir.diagnostic import DplcError

SPLIT = "torch.relu(torch.randn(64, 2048) @ torch.randn(2048, 64))"
TWICE = "m = nn.Softmax(-1)\nm(torch.randn(8, 64)), m(torch.randn(8, 64)), torch.randn(4, 4).sum()"
PLAIN = compiler_with(target("h200"))


def compiled(path: Path, only: str | None = None) -> tuple[list[CaseRecord], list[CompiledCase]]:
    """The records of a suite, and the cases that compile."""
    suite = read_suite(path)
    subjects = [subject_of(suite, case) for case in suite.select(only)]
    return compile_all(subjects, lambda: PLAIN, lambda text: None)[:2]


def of_text(text: str) -> CompiledCase:
    one = CompiledCase(PLAIN.compile(capture_text(text)), CaseRecord(name="", operation="", sizes={}, dtype=""))
    describe(one)
    return one


# ---- suite files: what is read, and what is said about wrong ones

SHAPE = {"name": "a", "operation": "f", "sizes": {"n": 4}}
GOOD: dict[str, Any] = {"operations": {"f": {"expression": "torch.relu(x)", "inputs": {"x": "n 3"}}}, "cases": [SHAPE]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "suite.json"


def read(path: Path, place: str = "", value: Any = None) -> Suite:
    """The good suite with one value that differs: that at `cases.0.sizes`."""
    data = copy.deepcopy(GOOD)
    inner: Any = data
    *keys, last = (int(key) if key.isdigit() else key for key in place.split("."))
    for key in keys:
        inner = inner[key]
    if place:
        inner[last] = value
    path.write_text(json.dumps(data))
    return read_suite(path)


def first_of(suite: Suite) -> BenchSubject:
    return subject_of(suite, suite.cases[0])


def test_sizes_become_shapes_and_weights_are_as_large_as_their_fan_in_lets_them_be(path: Path) -> None:
    plain, scaled = first_of(read(path)), first_of(read(path, "operations.f.fan_in", {"x": "n"}))
    assert plain.shapes == {"x": (4, 3)}
    assert (plain.inputs()["x"] * 0.5 == scaled.inputs()["x"]).all()


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("cases.0.sizes.n", "4", "Expected `int`, got `str` - at `$.cases[0].sizes[...]`"),
        ("cases.0.colour", "red", "unknown field `colour` - at `$.cases[0]`"),
        ("cases.0.operation", "g", "case `a`: there is no operation `g`"),
        ("cases.0.sizes", {}, "case `a` does not say how large `n` is"),
        ("cases.0.sizes.m", 2, "case `a`: no input of `f` has a dimension `m`"),
        ("cases.0.sizes.n", 0, "case `a`: `n` is 0"),
        ("cases.0.dtype", "float8", "Invalid enum value 'float8' - at `$.cases[0].dtype`"),
        ("cases", [SHAPE, SHAPE], "two cases are named `a`"),
        ("cases", [], "Expected `array` of length >= 1 - at `$.cases`"),
        ("operations.f.inputs", {"lambda": "n"}, "an input cannot be named `lambda`"),
        ("operations.f.inputs", {"x": "n -1"}, "`-1` of input `x` is neither a number nor a name of a size"),
        ("operations.f.inputs", {}, "operation `f` has no inputs"),
        ("operations.f.fan_in", {"w": "n"}, "`fan_in` names no input: `w`"),
        ("operations.f.fan_in", {"x": "m"}, "`m` of `fan_in` is not a dimension of its inputs"),
        # several mistakes are said at once
        ("cases.0.sizes", {"m": 0}, "`n` is\nno input of `f` has a dimension `m`\n`m` is 0"),
        ("operations.f.expression", "torch.rely(x)", "rely\ncase `a`: torch.rely(x)"),
    ],
)
def test_what_is_wrong_is_said(path: Path, place: str, value: Any, said: str) -> None:
    with pytest.raises(DplcError) as wrong:
        first_of(read(path, place, value)).capture()
    message = wrong.value.render()
    assert all(line in message for line in said.split("\n"))
    assert "suite.json" in message or "expression" in place


def test_a_file_without_a_suite_and_an_unknown_case_are_errors(path: Path) -> None:
    with pytest.raises(DplcError, match="no case has such a name"):
        read(path).select("nothing")
    path.write_text("{")
    with pytest.raises(DplcError, match="holds no suite: Input data was truncated"):
        read_suite(path)


def test_rule_files_of_a_case_are_laid_over_the_rules(dplc: Command, path: Path) -> None:
    """Their paths are relative to the suite. Other cases do not see them, and compile where one does not."""
    path.with_name("single.rw").write_text("override number asynchronous_mma = 0\n")
    plain = {"operation": "f", "sizes": {"n": 2048}, "dtype": "bfloat16"}
    files = {"a": [], "single": ["single.rw"], "no": ["no.rw"]}
    cases = [{**plain, "name": name, "rules": rules} for name, rules in files.items()]
    product = {"f": {"expression": "x @ w", "inputs": {"x": "n n", "w": "n n"}}}
    path.write_text(json.dumps({"operations": product, "cases": cases}))
    records, (own, single) = compiled(path)
    assert "wgmma" in own.compilation.cuda and "wgmma" not in single.compilation.cuda
    assert f"no such rule file: {path.with_name('no.rw')}" in records[2].error
    done = dplc("bench suite.json --target h200 --no-run --no-assemble", code=1)
    done.shows("not compiled", "1 of 3 cases did not compile")


# ---- suites

TINY: dict[str, Any] = {
    "about": "three small cases",
    "operations": {
        "linear": {"expression": "F.relu(x @ w)", "inputs": {"x": "1 rows in", "w": "in out"}},
        "norm": {"expression": "F.rms_norm(x, (x.shape[-1],), w, 1e-6)", "inputs": {"x": "rows in", "w": "in"}},
    },
    "cases": [
        {"name": "linear.small", "operation": "linear", "sizes": {"rows": 32, "in": 64, "out": 48}},
        {"name": "linear.ragged", "operation": "linear", "sizes": {"rows": 9, "in": 33, "out": 17}},
        {"name": "norm.small", "operation": "norm", "sizes": {"rows": 16, "in": 256}, "published": {"eager_us": 3.0}},
    ],
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return path


def test_suite_from_end_to_end(dplc: Command, tiny: Path) -> None:
    record = dplc("bench tiny.json --target sm_90a --no-assemble --json --markdown page.md").json
    first, _, norm = record["cases"]
    assert " ".join(record) == (
        "suite about command date machine target arch dram_bytes_per_second versions totals published cases fast"
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


def test_a_wrong_kernel_is_seen(tiny: Path) -> None:
    _, (one,) = compiled(tiny, "norm")
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


RIGHT = {"ok": True, "relative_error": 3e-7, "extent": "whole"}


@pytest.mark.parametrize(
    ("error", "run", "column"),
    [
        ("", RIGHT, "3e-07"),
        ("", RIGHT | {"extent": "rows"}, "3e-07 *"),  # it was looked at in part
        ("", RIGHT | {"ok": False}, "WRONG"),
        ("", None, MISSING),
        ("too many threads", None, "not compiled"),
    ],
)
def test_the_column_of_errors(error: str, run: Any, column: str) -> None:
    case: Any = SimpleNamespace(error=error, run=run and SimpleNamespace(**run))
    assert _result(case) == column


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


def test_masks_of_an_expression_are_on_the_device_of_its_inputs(path: Path) -> None:
    expression = "F.cross_entropy(x, torch.arange(x.shape[0])) + x"
    read(path, "operations.f", {"expression": expression, "inputs": {"x": "n n"}})
    _, (one,) = compiled(path)
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
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    fault = Mock(side_effect=RuntimeError("CUDA error: an illegal memory access was encountered\nmore"))
    for one in (*compiled(tiny, "norm")[1], of_text(TWICE)):
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
            assert (found.device, found.wrong, one.record.problem) == ("a GPU", said, said)
            assert bool(found.dplc) == bool(found.eager) == (not said)
            times = [case.measured and case.measured.dplc.median_us for case in kernels]
            assert times == [None if said else pytest.approx(3.0 * case.sizes["launches"]) for case in kernels]
