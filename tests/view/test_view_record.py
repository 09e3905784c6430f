"""What a page says is what `--json -vv` says."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Command
from view_programs import ATTENTION, PRODUCT, PROGRAMS, RMSNORM, SEARCHED, compiled, record_of, suite

from dplc.codegen.compiler import BuildError
from dplc.codegen.target import target
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.explore.saturate import available
from dplc.engine.schedule.scheduling import predictions
from dplc.engine.view import records
from dplc.engine.view.records import (
    REST,
    access_counts,
    compile_record,
    fired_in,
    predicted_effects,
    view_record,
)
from dplc.engine.view.server import embedded, page
from dplc.ir.diagnostic import INTERNAL, DplcError

SQUARE = "torch.randn(256, 256) @ torch.randn(256, 256)"


def written(dplc: Command, text: str, options: str = "") -> Any:
    """The data of the page that `dplc view -o` writes for a text."""
    dplc(f"view -o page.html {options} -c", text)
    return json.loads(Path("page.html").read_text().split('id="data">')[1].split("</script>")[0])


def test_the_trace_of_a_page_is_that_of_json(dplc: Command) -> None:
    said, data = dplc("compile -vv --json -c", ATTENTION).json, written(dplc, ATTENTION)
    assert data["trace"] == said["trace"]
    assert [kernel["name"] for kernel in data["kernels"]] == [kernel["name"] for kernel in said["kernels"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            RMSNORM,
            {
                "rms_norm": {"x": "x", "s": "(2048)"},  # of torch
                "inline": {"v": "product", "MOST": "32"},
                "fuse_epilogue": {"y": "product2", "f": "multiply", "before": "()", "after": "(0.00048828125)"},
                "cooperative_reduce": {"axes": "(i:32=THREAD)", "K": "2048", "T": None},  # a parameter stands by itself
                "vector_axis": {"pre": "(i:32=BLOCK, t:256=THREAD, q:2=REG)"},
            },
        ),
        (PROGRAMS["one pass"][0], {"online_attention": {"y": "scaled_dot_product_attention", "v": "v", "n": "o:128"}}),
        (
            "x = torch.randn(64, 512)\n(x.sum(-1), x.amax(-1))",
            {"siblings": {"a": "sum", "v": "sum", "b": "amax", "w": "amax"}},
        ),
    ],
)
def test_a_firing_says_what_its_pattern_bound(text: str, expected: dict[str, dict[str, str | None]]) -> None:
    bound: dict[str, dict[str, str]] = {}
    for event in compiled(text).trace.firings:
        bound.setdefault(event.rule, event.record()["bound"])
    assert all(bound.values())
    assert {rule: {name: bound[rule].get(name) for name in names} for rule, names in expected.items()} == expected


# ---- Predicted effects of firings.


@pytest.mark.parametrize("text", [RMSNORM, PRODUCT])
def test_the_last_firings_cost_what_the_kernel_costs(text: str) -> None:
    compilation, record = compiled(text), record_of(text)
    (kernel,), (prediction,) = record["kernels"], predictions(compilation.kernels, compilation.target)
    effects = {int(number): effect for number, effect in record["effects"].items()}
    first, last = min(effects), max(effects)
    assert kernel["predicted_us"] == pytest.approx(prediction.seconds * 1e6)
    assert effects[first][0]["us"] > effects[last][1]["us"] == pytest.approx(prediction.seconds * 1e6)
    lowered = [side for number, effect in effects.items() if record["trace"][number]["level"] == "k" for side in effect]
    assert bool(lowered) == (text == PRODUCT)
    for side in (effects[last][1], *lowered):
        assert (side["shared"], side["registers"]) == (kernel["smem"], kernel["predicted_registers"])


def test_a_firing_on_loop_nests_is_told_last_of_the_kernels_that_they_become() -> None:
    compilation = compiled(ATTENTION)
    effects = [(compilation.events[number], effect) for number, effect in predicted_effects(compilation)]
    levels = "".join("r" if REST in effect else event.prefix for event, effect in effects)
    assert re.fullmatch("[tk]+lr+", levels)  # a schedule is priced behind all others, the rest of the order at the end
    ((event, (before, after)),) = [one for one in effects if one[0].prefix == "l"]
    kernels = compile_record(compilation, "")["kernels"]
    made = [kernel for kernel in kernels if kernel["name"].startswith(event.record()["unit"])]
    assert len(made) == 2  # the rows, and what is done with them
    assert after["us"] == pytest.approx(sum(kernel["predicted_us"] for kernel in made))
    assert after["shared"] == max(kernel["smem"] for kernel in made)
    assert after["registers"] == max(kernel["predicted_registers"] for kernel in made)
    assert (before["us"], before["shared"]) != (after["us"], after["shared"])


def test_a_kernel_half_way_is_priced_by_what_the_rest_of_the_order_makes_of_it() -> None:
    record = record_of(SQUARE)
    fired = [(n, event["rule"]) for n, event in enumerate(record["trace"]) if event["event"] == "fired"]
    effects = {rule: record["effects"][str(n)] for n, rule in fired if record["trace"][n]["level"] == "t"}
    assert all(None not in effect and len(effect) in (2, 3) for effect in effects.values())
    before, after, rest = effects["chunk_matmul_k"]
    whole = sum(kernel["predicted_us"] * kernel["launches"] for kernel in record["kernels"])
    assert rest == REST and after["us"] == pytest.approx(whole, rel=0.01) and before["us"] > after["us"]
    without_time = view_record(compiled(SQUARE), "", seconds=0.0)["effects"]
    assert without_time and not any(REST in effect for effect in without_time.values())


def test_what_the_rest_of_the_order_cannot_make_has_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Compiler.passes

    def refused(*given: Any, steps: Any = ()) -> Any:
        if steps:
            raise DplcError("no launch")
        return passes(*given) if given[1] == "kernel" else given[2]

    monkeypatch.setattr(Compiler, "passes", refused)
    effects = [effect for _, effect in predicted_effects(compiled(SQUARE))]
    assert any(None in effect for effect in effects) and not any(REST in effect for effect in effects)


# ---- Firings in a suite.


def test_gains_of_a_suite_are_those_of_its_firings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "CASE_SECONDS", math.inf)  # a busy machine would price fewer firings
    file, compiler = suite(tmp_path), compiler_with(target())
    found, plain = (fired_in(file, compiler, lambda *_: None, priced) for priced in (True, False))
    assert [name for name, *_ in found["stage_inputs"]] == ["staged"]
    assert [name for name, *_ in found["blockify_launch"]] == ["staged", "plain"]
    assert "matmul_matmul" in found  # a rule on torch
    assert max(gain for fired in found.values() for *_, gain in fired) > 2
    assert {gain for fired in plain.values() for *_, gain in fired} == {1.0}


# ---- Kernels, buffers and counts.


def test_fusion_graph_holds_every_buffer_between_launches() -> None:
    compilation = compiled(ATTENTION)
    edges = compile_record(compilation, "")["fusion"]["edges"]
    between = {edge["buffer"]: edge["reason"] for edge in edges if edge["from"] >= 0 and edge["to"] >= 0}
    assert between.keys() == {param.name for param in compilation.plan.temporaries} and all(between.values())


def test_a_page_of_a_kernel_without_a_tile_predicts_no_registers(dplc: Command, tmp_path: Any) -> None:
    (tmp_path / "my.rw").write_text("without tileify\n")
    data = written(dplc, "torch.exp(torch.randn(8))", f"--rules {tmp_path / 'my.rw'}")
    assert [kernel["predicted_registers"] for kernel in data["kernels"]] == [0]
    assert all(data["columns"][-1]["up"][:-1])


MEASURED = SimpleNamespace(registers=42, spill_bytes=8)


@pytest.mark.parametrize(("by", "found"), [("nvrtc", MEASURED), ("nvrtc", None), ("", MEASURED)])
def test_a_written_page_says_what_the_assembler_measured(
    by: str, found: Any, dplc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def assembled(kernel: Any, arch: str) -> Any:
        assert kernel.name == "rms_norm_cos" and arch.startswith("sm_")
        if found is None:
            raise BuildError("refused", "", "", INTERNAL)
        return found

    monkeypatch.setattr(records, "assembler", lambda: by)
    monkeypatch.setattr(records, "assembled", assembled)
    (kernel,) = written(dplc, RMSNORM)["kernels"]
    measured = {"registers": 42, "spill_bytes": 8, "by": by} if by and found else None
    assert kernel.get("assembled") == measured and kernel["predicted_registers"] > 0


def test_counts_of_a_checked_run_stand_at_their_lines(dplc: Command) -> None:
    text = "torch.exp(torch.randn(64, 64))"
    said, found = dplc("run --check --json -c", text).json, access_counts(compiled(text))
    assert found["findings"] == said["findings"] == []
    cuda = compiled(text).cuda.splitlines()
    (kernel,) = said["kernels"]
    for site in kernel["sites"]:
        (access,) = [one for one in found["lines"][str(site["line"] - 1)] if one["access"] == site["access"]]
        assert access == {key: site[key] for key in access}
        assert cuda[site["line"] - 1].strip() == site["text"]
    assert sum(map(len, found["lines"].values())) == len(kernel["sites"])


# ---- The e-graph is what the search of fusion says itself.


@pytest.mark.skipif(not available(), reason="egglog is not installed: pip install 'dplc[explore]'")
def test_the_e_graph_is_that_of_the_candidates(dplc: Command) -> None:
    graph = written(dplc, SEARCHED, "--target sm_80 --no-db --explore")["egraph"]
    said = dplc("fuse --explore --target sm_80 --json -c", SEARCHED).json["candidates"]
    assert [one["kernels"] for one in graph["candidates"]] == [one["kernels"] for one in said]
    (region,) = graph["regions"]
    titles = [one["title"] for one in region["classes"]]
    assert len(titles) == len(set(titles)) and {"matmul", "softmax"} <= set(titles)
    spellings = [one["spellings"] for one in region["classes"]]
    for one, own in zip(region["classes"], spellings, strict=True):
        assert sum(spelling["chosen"] for spelling in own) == one["needed"], one["title"]
    assert sum(map(len, spellings)) == region["enodes"] > len(spellings)
    assert graph["left_out"] == 0


# ---- The text of a page.

MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028"


def test_nothing_of_a_record_can_end_the_script_that_holds_it() -> None:
    record: dict[str, Any] = {"title": MARKUP, "trace": [{"rule": MARKUP}], "value": math.inf}
    text = embedded(record)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == record | {"value": None}
    written = page(record)
    assert "<img" not in written and written.count("<script") == 2


def test_a_page_loads_nothing() -> None:
    before, after = html.unescape(page(view_record(compiled(RMSNORM), ""))).split('<script type="application/json"')
    addresses = re.findall(r"http\S*", before + after.split("</script>", 1)[1])
    assert {address.split('"')[0] for address in addresses} == {"http-equiv=", "http://www.w3.org/2000/svg"}  # a name
    assert "default-src 'none'" in before and "connect-src 'none'" in before
