"""`dplc check` on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from broken import BROKEN

from dplc.engine.cli import check as command
from dplc.engine.cli.app import main
from dplc.engine.language.rule import BUILT_IN

SIGN = next(broken for broken in BROKEN if broken.what == "sign error")
GOOD = """
rule halve_by_multiplying on tensor
match
    y = divide(x, 2.0)
rewrite
    y = multiply(x, 0.5)
"""


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["check", *arguments])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_a_good_rule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "good.rw"
    file.write_text(GOOD)
    code, out, _ = call(capsys, str(file), "--examples", "15")
    assert code == 0
    assert "1 rules: 1 ok" in out


OF_ONE_DEVICE = """
rule unrolled on loop
match
    for i in 0..N reduce unroll=1:
        body..
require {} else "another device"
require compiled(N) and N > 1 else "short"
rewrite
    for i in 0..N reduce unroll=2:
        body..
"""


def test_a_rule_for_one_device_is_checked_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.rw"
    monkeypatch.setattr("dplc.engine.verify.run.BORROWED", 4)
    monkeypatch.setattr("dplc.engine.verify.run.ENOUGH", 2)
    monkeypatch.setattr("dplc.engine.verify.outcome.ENOUGH", 2)
    for text in (
        OF_ONE_DEVICE.format('target.name == "NVIDIA GeForce RTX 4090"'),
        OF_ONE_DEVICE.format("true")
        + "override"
        + OF_ONE_DEVICE.format("true").replace("loop", "loop for orin").replace("\n", " ", 1),
    ):
        file.write_text(text)
        code, out, err = call(capsys, str(file), "--examples", "6", "--allow-thin")
        rules = text.count("rule unrolled")
        assert code == 0 and f"{rules} rules: 0 ok, 0 wrong" not in out and f"{rules} rules: " in out, (out, err)
        assert not re.search(r"^unrolled +loop +\d+ +0 ", out, re.MULTILINE), out


def test_a_wrong_rule_and_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.rw"
    file.write_text(SIGN.text)
    code, out, err = call(capsys, str(file), "--examples", "15", "--out", str(tmp_path / "found"))
    assert code == 1
    assert "`minus_minus` is wrong" in out
    assert "Traceback" not in err
    again = next(line for line in out.splitlines() if "again: dplc check" in line).split("dplc check ")[1].split()
    assert Path(again[-1]).read_text().startswith("## level: tensor\n")
    code, _, err = call(capsys, *again)
    assert code == 1
    assert "minus_minus" in err
    file.write_text(SIGN.text.replace("y = subtract(x, z)", "y = add(x, z)"))
    assert call(capsys, *again)[0] == 0


def test_a_wrong_override_for_one_device_fails_beside_a_right_rule(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "here.rw"
    here = GOOD.replace("rule", "override rule").replace("tensor", "tensor for h200").replace("0.5", "0.25")
    file.write_text(GOOD + here)
    code, out, _ = call(capsys, str(file), "--examples", "10", "--out", str(tmp_path))
    assert code == 1 and "here.rw:8: rule `halve_by_multiplying` is wrong" in out


def test_static_mistakes_of_our_own_files_are_told_where_these_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever edits a file of ours asks for it by name: what no program need show is told before programs are drawn."""
    ours = Path(BUILT_IN) / "tile/pipelines/rings.rw"
    asked: list[set[str]] = []
    monkeypatch.setattr(command, "require", lambda rules, only: asked.append(only) or ())
    monkeypatch.setattr(command, "check_rules", lambda *_: [])
    call(capsys, str(ours))
    call(capsys, "--rule", "subtract_zero")
    assert [len(files) for files in asked] == [1, 0] and asked[0].pop().endswith("rings.rw")


def test_check_of_file_without_rules_reports_unused_fact(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "good.rw").write_text(GOOD)
    (tmp_path / "words.rw").write_text("fact half_of(n: int) -> int = n // 2\n")
    code, _, err = call(capsys, str(tmp_path), "--examples", "1")
    assert code == 1 and "fact `half_of` is never asked" in err


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = call(capsys, "--rule", "subtract_zero", "--json", "--examples", "10", "--out", str(tmp_path))
    record = json.loads(out)
    assert code == 0
    assert record["rules"][0]["result"] == "ok"
    assert record["rules"][0]["firings"] > 5


NEEDLESS = """
@approx
rule factor_out on tensor
match
    p = multiply(x, c)
    y = Reduce(add, ks.., p)
require disjoint(ks, axes(c))                    else "the factor varies"
require within(ks, axes(x))                      else "nothing to sum"
{more}rewrite
    t = Reduce(add, ks.., x)
    y = multiply(t, c)
example "one product"
    graph g(x: f32[i:4, k:8], c: f32[i:4]) -> y: f32[4]:
        p[i:4, k:8] = multiply(x[i, k], c[i])
        y[i] = Reduce(add, k, p)
gives
    graph g(x: f32[i:4, k:8], c: f32[i:4]) -> y: f32[4]:
        t[i:4] = Reduce(add, k:8, x[i, k])
        y[i] = multiply(t, c[i])
example "a weighted sum"
    graph g(x: f32[i:4, k:8], c: f32[k:8]) -> y: f32[4]:
        p[i:4, k:8] = multiply(x[i, k], c[k])
        y[i] = Reduce(add, k, p)
gives no "the factor varies"
"""


def test_guards_are_dropped_one_by_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.rw"
    file.write_text(NEEDLESS.format(more='require element_count(axes(x)) > 0 else "a number"\n'))
    code, out, _ = call(capsys, str(file), "--guards", "--examples", "25")
    assert code == 0
    assert "survives: without `require element_count(axes(x)) > 0`" in out
    assert "survives: without `where disjoint" not in out
    assert re.search(r"\d of 3 mutants caught: \d wrong", out)


def test_a_template_that_needs_its_guard_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--rule", "roll", "--guards", "--seed", "1", "--examples", "5")
    assert code == 0 and "1 of 1 mutants caught: 1 refused" in out


SHARED = """
guards one_axis(ks, c):
    require disjoint(ks, axes(c))                    else "the factor varies"
    require size(ks) == 1                            else "several axes are summed"

@approx
rule factor_out on tensor
match
    p = multiply(x, c)
    y = Reduce(add, ks.., p)
guards one_axis(ks, c)
rewrite
    t = Reduce(add, ks.., x)
    y = multiply(t, c)
example "two axes"
    graph g(x: f32[i:4, k:8, l:2], c: f32[i:4]) -> y: f32[4]:
        p[i:4, k:8, l:2] = multiply(x[i, k, l], c[i])
        y[i] = Reduce(add, k, l, p)
gives no "several axes are summed"

@approx
rule divisor_out on tensor
match
    p = divide(x, c)
    y = Reduce(add, ks.., p)
guards one_axis(ks, c)
rewrite
    t = Reduce(add, ks.., x)
    y = divide(t, c)
"""


def test_a_guard_of_a_group_is_dropped_for_all_its_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The example of one rule then fires, whichever rule the mutant is of."""
    file = tmp_path / "mine.rw"
    file.write_text(SHARED)
    code, out, _ = call(capsys, str(file), "--guards", "--examples", "25")
    assert code == 0 and "4 of 4 mutants caught: 2 wrong, 2 by an example alone" in out


def test_a_part_of_the_rules(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[list[str]] = []
    monkeypatch.setattr(command, "require", lambda rules, only: ())
    monkeypatch.setattr(command, "check_rules", lambda _, chosen, *__: names.append([r.name for r in chosen]) or [])
    for k in (1, 2):
        call(capsys, str(BUILT_IN / "kernel"), "--part", f"{k}/2", "--examples", "0")
    assert names == [["base_from_base", "same_guard"], ["guard_in_guard"]]
    assert call(capsys, "--part", "3/2")[0] == 2


def test_an_unknown_rule_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "--rule", "add_zeros")
    assert code == 2
    assert "add_zero" in err
