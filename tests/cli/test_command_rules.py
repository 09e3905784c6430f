"""`dplc rules` and `dplc doctor`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from command_line import Command

from dplc.engine.language.rule import BUILT_IN

HALVES = "rule halves on tensor\nmatch\n    y = divide(x, 2.0)\nrewrite\n    y = multiply(x, 0.5)\n"


def test_list_is_the_order_with_reasons_and_places(ok: Command) -> None:
    out = ok("rules list").out
    heads = [line for line in out.splitlines() if line.startswith("pipeline ")]
    assert (
        heads == ["pipeline torch", "pipeline tensor", "pipeline fusion", "pipeline tile"] or "pipeline kernel" in heads
    )
    (line,) = [x for x in out.splitlines() if x.split()[:1] == ["xor_smem"]]
    assert "rules/pipeline.rw:" in line
    assert line.endswith("all copies of a shared-memory tile need one layout")


def test_list_shows_where_a_users_pass_comes_in(ok: Command, mine: Path) -> None:
    mine.write_text(HALVES)
    assert f"{mine}:1" in ok(f"rules list --rules {mine}").out
    record = json.loads(ok(f"rules list --rules {mine} --json").out)
    assert record["tensor"][-1]["rules"] == ["halves"]


def test_list_shows_what_a_file_replaces_and_takes_out(ok: Command, mine: Path) -> None:
    halves = HALVES.replace("rule halves", "override rule double_negation")
    mine.write_text(
        f'{halves}\nwithout drop_guard\n\npipeline tile\n    without xor_smem because "registers are reused"\n'
    )
    out = ok(f"rules list --rules {mine}").out
    assert re.search(rf"^ +override rule double_negation +{mine}:1  in the place", out, re.MULTILINE)
    assert re.search(rf"^ +- without xor_smem +{mine}:10 +registers are reused$", out, re.MULTILINE)
    assert re.search(rf"^ +- without drop_guard +{mine}:7$", out, re.MULTILINE)
    record = json.loads(ok(f"rules list --rules {mine} --json").out)
    (exact,) = [step for step in record["tensor"] if step["pass"] == "exact"]
    assert exact["overrides"] == {"double_negation": f"{mine}:1"}
    (out_,) = record["without"]
    assert (out_["name"], out_["pipeline"], out_["because"]) == ("xor_smem", "tile", "registers are reused")


def test_show_one_rule_a_pass_and_a_family(ok: Command) -> None:
    one = ok("rules show stage_inputs").out
    assert one.startswith("# rules/tile/memory/stage_inputs.rw:")
    assert "rule stage_inputs(" in one
    assert "example" in one
    assert ok("rules show tileify").out.count("\nrule ") >= 1
    assert ok("rules show reuse").out.count("\nrule ") >= 2
    assert ok("rules show unary").out.count("\nrule ") > 10


def test_the_generated_matcher_is_shown_with_its_constants(ok: Command, dplc: Command) -> None:
    statement = ok("rules show mark_unroll --python").out
    assert "# c0 = For\n" in statement and "if x2.__class__ is not c0" in statement
    assert "def attempt(t, site):" in ok("rules show inline --python").out
    assert "closures compare patterns on torch" in dplc("rules show unary_relu --python").err
    assert "it only has guards, on two stored values" in dplc("rules show siblings --python").err
    assert "`most_unrolled` is not a rule" in dplc("rules show most_unrolled --python").err


def test_a_rule_is_shown_before_a_fact_of_its_name(ok: Command, mine: Path) -> None:
    assert "fact grade_of_split(" in ok("rules show grade_of_split").out
    mine.write_text("rule grade_of_split on tensor\nmatch\n    y = negative(negative(x))\nrewrite\n    y = x\n")
    assert "rule grade_of_split on tensor" in ok(f"rules show grade_of_split --rules {mine}").out


def test_test_runs_the_examples_of_a_file(dplc: Command, ok: Command, mine: Path) -> None:
    example = (
        'example "half"\n    graph g(x: f32[4]) -> y: f32[4]:\n        y[i:4] = divide(x[i], 2.0)\n'
        "gives\n    graph g(x: f32[4]) -> y: f32[4]:\n        y[i:4] = multiply(x[i], {})\n"
    )
    mine.write_text(HALVES + example.format("0.5"))
    assert ok(f"rules test {mine}").out == "1 rules, 1 examples, 0 failed, 0 errors, 0 warnings\n"
    mine.write_text(HALVES + example.format("0.25"))
    done = dplc(f"rules test {mine}")
    assert done.code == 1
    assert "1 rules, 1 examples, 1 failed" in done.out
    assert "half" in done.err


def test_test_takes_a_built_in_file_itself_and_an_edited_copy(dplc: Command, ok: Command, tmp_path: Path) -> None:
    own = BUILT_IN / "tile" / "axes" / "tileify.rw"
    counted = ok(f"rules test {own}").out
    assert counted.startswith("2 rules, 4 examples, 0 failed")
    copy = tmp_path / "edited.rw"
    copy.write_text(own.read_text())
    done = dplc(f"rules test {copy}")
    assert (done.code, done.out) == (0, counted)
    assert "tested in the place of rules/tile/axes/tileify.rw" in done.err
    copy.write_text(own.read_text().replace("rewrite", "rewrites", 1))
    assert dplc(f"rules test {copy}").code == 1


def test_test_reads_pipelines(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "order.rw"
    path.write_text("pipeline tile\n    pass nonsense after tileify\n")
    done = dplc(f"rules test {path}")
    assert done.code == 1
    assert f"{path}:2:10: error: pipeline `tile`: there is no pass or rule `nonsense`" in done.err


def test_a_copy_of_a_built_in_file_is_no_rule_file_of_a_compile(dplc: Command, tmp_path: Path) -> None:
    """There its rules must say that they replace others."""
    copy = tmp_path / "edited.rw"
    copy.write_text((BUILT_IN / "tile" / "axes" / "tileify.rw").read_text())
    done = dplc(f"compile -c torch.sin(torch.randn(3)) --rules {copy}")
    assert done.code == 1 and "rule `tileify` is declared twice" in done.err


def test_doctor(ok: Command) -> None:
    out = ok("doctor").out
    for what in ("python", "torch", "host compiler", "emulator", "CUDA compiler", "GPU", "PyCUDA", "rules", "cache"):
        assert any(line.startswith(what) for line in out.splitlines()), what
    record = json.loads(ok("doctor --json").out)
    assert {finding["state"] for finding in record} <= {"ok", "missing", "broken"}


def test_show_prints_a_number_for_each_device(ok: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.rw").write_text("override number most_unrolled = 5 for h200\n")
    shown = ok(f"rules show most_unrolled --rules {tmp_path / 'mine.rw'}").out
    assert "number most_unrolled = 32" in shown and "override number most_unrolled = 5 for h200" in shown


def test_test_runs_examples_of_a_rule_for_one_device_there(dplc: Command, mine: Path) -> None:
    own = (BUILT_IN.parent / "examples/overrides/copies_by_tma.rw").read_text().replace("on tile", "on tile for h200")
    example = """\
example "a single buffer"
    for k in 0..4 serial:
        s = Stage(a, origin=(k), box=(i:16), depth=1)
        Sync()
        y = load s[0]
        t <- add(t, y)
        Sync()
gives no "{}"
"""
    mine.write_text(own + example.format("single-buffered"))
    assert "1 rules, 1 examples, 0 failed, 0 errors" in dplc(f"rules test {mine}").out
    assert re.search(r"override rule tma_copy for h200 .*mine.rw:\d+", dplc(f"rules list --rules {mine}").out)
    mine.write_text(own + example.format("no such reason"))
    assert dplc(f"rules test {mine}").code == 1
