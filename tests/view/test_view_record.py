"""What a page says is what `--json -vv` says."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from view_programs import PROGRAMS, command, written_page

from dplc.codegen.compiler import BuildError
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.target import target
from dplc.engine.bench.bench import assembled, assembler
from dplc.engine.bench.cases import BenchCase, read_suite, subject_of
from dplc.engine.capture.capture import capture_text
from dplc.engine.cli.programs import compile_record
from dplc.engine.compiler import Compilation, Compiler, compiler_with
from dplc.engine.rewrite.trace import Trace
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.scheduling import predictions
from dplc.engine.view import records as page_record
from dplc.engine.view.records import REST, access_counts, predicted_effects, view_record
from dplc.engine.view.server import embedded, page
from dplc.ir.diagnostic import INTERNAL, DplcError

Compile = Callable[[str], Compilation]
SUITE = Path(__file__).resolve().parents[2] / "examples" / "suites" / "kernels_84.json"


@pytest.mark.parametrize("name", ["rmsnorm", "attention"])
def test_the_trace_of_a_page_is_that_of_json(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PROGRAMS[name][0]
    said = json.loads(command(capsys, "compile", "-c", text, "-vv", "--json"))
    data = written_page(tmp_path, capsys, text)
    assert data["trace"] == said["trace"]
    assert [kernel["name"] for kernel in data["kernels"]] == [kernel["name"] for kernel in said["kernels"]]
    cuda = "\n".join(data["columns"][-1]["lines"])
    assert cuda.strip() == "\n".join(kernel["text"] for kernel in said["kernels"]).strip()


@pytest.mark.parametrize("case", read_suite(SUITE).cases, ids=lambda case: case.name)
@pytest.mark.sampled(2)
def test_the_trace_of_cases_of_the_suite_is_that_of_json(case: BenchCase) -> None:
    tools, machine = toolchain(), target()
    compilation = Compiler(tools, machine, Trace()).compile(subject_of(read_suite(SUITE), case).capture())
    record = json.loads(json.dumps(view_record(compilation, case.name, seconds=0.0)))
    assert record["trace"] == json.loads(json.dumps(compile_record(compilation, None)["trace"]))


def test_a_firing_says_what_its_pattern_bound(compiled: Compile) -> None:
    trace = view_record(compiled(PROGRAMS["rmsnorm"][0]), "rmsnorm", seconds=0.0)["trace"]
    fired = {event["rule"]: event["bound"] for event in trace if event["event"] == "fired"}
    assert fired["rms_norm"]["x"] == "x" and fired["rms_norm"]["s"] == "(2048)"  # of torch
    tiled = fired["cooperative_reduce"]
    assert (tiled["axes"], tiled["K"]) == ("(i:32=THREAD)", "2048")
    assert tiled["body"].startswith("(for ") and "T" not in tiled  # a parameter stands by itself


def test_algebra_says_what_its_pattern_bound(tmp_path: Path) -> None:
    rules = tmp_path / "my.rw"
    rules.write_text(
        "@approx\nrule sums on tensor\nmatch\n    y = multiply(exp(a), exp(b))\nrewrite\n    y = exp(add(a, b))\n"
    )
    tools = toolchain([rules])
    text = "x = torch.randn(8, 8)\ntorch.exp(x) * torch.exp(torch.tanh(x))"
    made = Compiler(tools, target(), Trace()).compile(capture_text(text))
    (fired,) = [event.record() for event in made.trace.firings if event.prefix == "a"]
    assert fired["bound"] == {"y": "mul", "a": "x", "b": "tanh_1"}


def test_fusion_says_what_its_pattern_bound() -> None:
    product = "x = torch.randn(64, 256)\ntorch.relu(x @ torch.randn(256, 128) + torch.randn(128))"
    twice = "x = torch.randn(64, 512)\n(x.sum(-1), x.amax(-1))"
    rotated = "x = torch.randn(4096, 64)\ns = torch.exp(x).cumsum(-1)\n(s @ torch.randn(64, 8), s.sin())"
    found: dict[str, list[dict[str, str]]] = {}
    for text in (product, twice, rotated):
        made = compiler_with(target(), trace=Trace()).compile(capture_text(text))
        for event in made.trace.firings:
            if event.prefix == "f":
                found.setdefault(event.rule, []).append(event.record()["bound"])
    assert all(bound for bounds in found.values() for bound in bounds)
    bound = found["fuse_epilogue"][0]
    assert (bound["y"], bound["v"], bound["f"], bound["TILE"]) == ("add_1", "matmul", "add", "128")
    assert bound["before"] == "()" and bound["after"].startswith("(")
    assert found["inline"][0]["v"] == "product"
    assert found["siblings"] == [{"a": "sum", "v": "sum", "b": "amax", "w": "amax"}]


def test_the_last_firing_costs_what_the_kernel_costs(compiled: Compile) -> None:
    compilation = compiled(PROGRAMS["rmsnorm"][0])
    record = view_record(compilation, "rmsnorm", seconds=math.inf)
    (prediction,) = predictions(compilation.kernels, compilation.target)
    last = max(int(number) for number in record["effects"])
    assert record["effects"][str(last)][1]["us"] == pytest.approx(prediction.seconds * 1e6)
    assert record["kernels"][0]["predicted_us"] == pytest.approx(prediction.seconds * 1e6)
    first = min(int(number) for number in record["effects"])
    assert record["effects"][str(first)][0]["us"] > record["effects"][str(last)][1]["us"]


def fired(record: dict[str, Any], level: str) -> list[int]:
    """The places of the firings of a level."""
    trace = record["trace"]
    return [n for n, event in enumerate(trace) if event["event"] == "fired" and event["level"] == level]


def test_a_firing_on_loop_nests_is_told_of_the_kernels_that_they_become(compiled: Compile) -> None:
    record = view_record(compiled(PROGRAMS["attention"][0]), "attention", seconds=math.inf)
    (number,) = fired(record, "l")
    made = [kernel for kernel in record["kernels"] if kernel["name"].startswith(record["trace"][number]["unit"])]
    before, after = record["effects"][str(number)]
    assert len(made) == 2  # the rows, and what is done with them
    assert after["us"] == pytest.approx(sum(kernel["predicted_us"] for kernel in made))
    assert after["shared"] == max(kernel["smem"] for kernel in made)
    assert after["registers"] == max(kernel["predicted_registers"] for kernel in made)
    assert (before["us"], before["shared"]) != (after["us"], after["shared"])


def test_a_firing_on_kernel_ir_says_time_shared_memory_and_registers(compiled: Compile) -> None:
    record = view_record(compiled(PROGRAMS["product"][0]), "product", seconds=math.inf)
    numbers = fired(record, "k")
    assert numbers
    for number in numbers:
        for side in record["effects"][str(number)]:
            assert side["us"] > 0 and side["shared"] == record["kernels"][0]["smem"]
            assert side["registers"] == record["kernels"][0]["predicted_registers"]


def test_what_needs_a_schedule_is_priced_last(compiled: Compile) -> None:
    compilation = compiled(PROGRAMS["attention"][0])
    events = compilation.events
    effects = list(predicted_effects(compilation))
    told = [events[number].prefix for number, effect in effects if REST not in effect]
    assert told[-1] == "l" and "l" not in told[:-1]
    last = [REST in effect for _, effect in effects]
    assert last == sorted(last) and any(last)  # what needs the rest of the order comes behind all others


def test_a_kernel_half_way_is_priced_by_what_the_rest_of_the_order_makes_of_it(compiled: Compile) -> None:
    compilation = compiled("torch.randn(256, 256) @ torch.randn(256, 256)")
    record = view_record(compilation, "product", seconds=math.inf)
    effects = {record["trace"][number]["rule"]: record["effects"].get(str(number)) for number in fired(record, "t")}
    assert all(effect is not None and len(effect) in (2, 3) for effect in effects.values())
    assert all(side is not None for effect in effects.values() for side in effect)  # not one is left without its gain
    before, after, rest = effects["chunk_matmul_k"]
    whole = sum(kernel["predicted_us"] * kernel["launches"] for kernel in record["kernels"])
    assert rest == REST and after["us"] == pytest.approx(whole, rel=0.01) and before["us"] > after["us"]


def test_time_that_is_over_leaves_kernels_half_way_as_they_are(compiled: Compile) -> None:
    effects = view_record(compiled(PROGRAMS["product"][0]), "product", seconds=0.0)["effects"]
    assert not any(REST in effect for effect in effects.values())


def test_what_the_rest_of_the_order_cannot_make_has_no_price(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilation = compiled("torch.randn(256, 256) @ torch.randn(256, 256)")

    passes = Compiler.passes

    def refused(*given: Any, steps: Any = ()) -> Any:
        if steps:
            raise DplcError("no launch")
        return passes(*given) if given[1] == "kernel" else given[2]

    monkeypatch.setattr(Compiler, "passes", refused)
    told = list(predicted_effects(compilation))
    assert any(None in effect for _, effect in told) and not any(REST in effect for _, effect in told)


def test_fusion_graph_holds_every_buffer_between_launches(compiled: Compile) -> None:
    compilation = compiled(PROGRAMS["attention"][0])
    graph = view_record(compilation, "attention", seconds=0.0)["fusion"]
    between = {edge["buffer"] for edge in graph["edges"] if edge["from"] >= 0 and edge["to"] >= 0}
    assert between == {param.name for param in compilation.plan.temporaries}
    assert all(edge["reason"] for edge in graph["edges"] if edge["buffer"] in between)


def test_a_page_of_a_kernel_without_a_tile_predicts_no_registers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.rw").write_text("without tileify\n")
    data = written_page(tmp_path, capsys, "torch.exp(torch.randn(8))", "--rules", str(tmp_path / "my.rw"))
    assert [kernel["predicted_registers"] for kernel in data["kernels"]] == [0] and all(data["columns"][-1]["up"][:-1])


MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028"


def test_nothing_of_a_record_can_end_the_script_that_holds_it() -> None:
    record: dict[str, Any] = {"title": MARKUP, "trace": [{"rule": MARKUP}], "value": float("inf")}
    text = embedded(record)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"title": MARKUP, "trace": [{"rule": MARKUP}], "value": None}
    written = page(record)
    assert "<img" not in written and written.count("<script") == 2


@pytest.mark.skipif(not assembler(), reason="neither NVRTC nor nvcc is here")
def test_a_written_page_says_what_the_assembler_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compiled: Compile
) -> None:
    compilation = compiled(PROGRAMS["rmsnorm"][0])
    (kernel,) = written_page(tmp_path, capsys)["kernels"]
    measured = assembled(compilation.cuda_kernels[0], compilation.target.arch)
    assert kernel["assembled"] == {
        "registers": measured.registers, "spill_bytes": measured.spill_bytes, "by": assembler()
    }  # fmt: skip


def test_a_written_page_without_an_assembler_says_what_is_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_record, "assembler", lambda: "")
    (kernel,) = written_page(tmp_path, capsys)["kernels"]
    assert "assembled" not in kernel and kernel["predicted_registers"] > 0


def test_a_kernel_that_the_assembler_refuses_says_nothing(monkeypatch: pytest.MonkeyPatch, compiled: Compile) -> None:
    def refused(kernel: CudaKernel, arch: str) -> None:
        raise BuildError("refused", "", "", INTERNAL)

    monkeypatch.setattr(page_record, "assembler", lambda: "an assembler")
    monkeypatch.setattr(page_record, "assembled", refused)
    assert not list(page_record.measured_registers(compiled(PROGRAMS["rmsnorm"][0])))


def test_a_page_loads_nothing(compiled: Compile) -> None:
    written = page(view_record(compiled(PROGRAMS["rmsnorm"][0]), "rmsnorm"))
    before, after = html.unescape(written).split('<script type="application/json"')
    assert "http://www.w3.org/2000/svg" in after  # a name, which nothing fetches
    assert "http" not in (before + after.split("</script>", 1)[1]).replace("http-equiv", "").replace(
        "http://www.w3.org", ""
    )
    assert "default-src 'none'" in before and "connect-src 'none'" in before


def test_counts_of_a_checked_run_stand_at_their_lines(compiled: Compile, capsys: pytest.CaptureFixture[str]) -> None:
    text = "torch.exp(torch.randn(64, 64))"
    compilation = compiled(text)
    found = access_counts(compilation)
    said = json.loads(command(capsys, "run", "--check", "-c", text, "--json"))
    cuda = compilation.cuda.splitlines()
    (kernel,) = said["kernels"]
    assert found["findings"] == said["findings"] == []
    for site in kernel["sites"]:
        (told,) = [one for one in found["lines"][str(site["line"] - 1)] if one["access"] == site["access"]]
        assert told == {key: site[key] for key in told}
        assert cuda[site["line"] - 1].strip() == site["text"]
    assert sum(map(len, found["lines"].values())) == len(kernel["sites"])
