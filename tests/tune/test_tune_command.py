"""`dplc tune`, as a user calls it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from wrong_rules import EVERYWHERE, overflowing

import dplc
from dplc.engine.cli.app import main
from dplc.engine.cli.tune import changes
from dplc.engine.store.store import Decision
from dplc.engine.tune.search import SearchRun
from dplc.engine.tune.tuning import Programmed
from tests.tune.subjects import SUM, TINY

COMMON = ["tune", "-c", SUM, "--target", "sm_90a"]


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([*COMMON, *arguments])
    seen = capsys.readouterr()
    return int(stop.value.code or 0), seen.out, seen.err


def test_tune_remembers_and_compile_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store.sqlite"
    code, out, _ = called(capsys, "--tries", "20", "--json", "--db", str(store))
    (kernel,) = json.loads(out)["kernels"]
    assert code == 0 and kernel["basis"] == "predicted" and kernel["tuned_us"] <= kernel["default_us"]
    assert kernel["checked"].startswith("emulator") and kernel["kept"] and store.exists()
    with pytest.raises(SystemExit) as stop:
        main(["compile", "-c", SUM, "--target", "sm_90a", "--db", str(store), "-v", "--ir", "tile"])
    seen = capsys.readouterr()
    assert stop.value.code in (0, None) and "from the store" in seen.out + seen.err


def test_free_takes_a_pass_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "--free", "010_double_buffer", "--tries", "2", "--no-db")
    assert code == 0 and "tuned" in out


def test_wrong_names_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "--search", "hil")
    assert code == 2 and "hill" in err
    code, _, err = called(capsys, "--free", "register_rows")
    assert code == 2 and "register_row" in err


def test_a_grid_tunes_each_distinct_kernel_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store.sqlite"
    text = ["tune", "-c", "torch.randn(M, 512).sum(-1)", "--grid", "M=4,8", "--target", "sm_90a"]
    with pytest.raises(SystemExit) as stop:
        main([*text, "--tries", "4", "--db", str(store)])
    lines = capsys.readouterr().out.splitlines()
    assert stop.value.code in (0, None) and store.exists()
    assert [line.split(":")[0] for line in lines[:2]] == ["M=4", "M=8"] and "predicted" in lines[0]


def test_a_suite_or_an_expression(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "--target", "sm_90a"])
    assert stop.value.code == 2 and "-c EXPR" in capsys.readouterr().err


def suite_of(folder: Path, expression: str, **inputs: str) -> str:
    """A suite of one case."""
    operation = {"expression": expression, "inputs": inputs}
    case = {"name": "small", "operation": "it", "sizes": {"rows": 32, "in": 64, "out": 48}}
    suite = folder / "suite.json"
    suite.write_text(json.dumps({"about": "a case", "operations": {"it": operation}, "cases": [case]}))
    return str(suite)


def test_exact_holds_for_the_jobs_of_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, lines = suite_of(tmp_path, "F.relu(x @ w)", x="rows in", w="in out"), []
    for exact in ((), ("--exact",)):
        with pytest.raises(SystemExit) as stop:
            main(["tune", suite, "--tries", "1", "--no-db", "--target", "sm_90a", *exact])
        assert stop.value.code in (0, None)
        lines.append(capsys.readouterr().out.splitlines()[0])
    assert lines[0] != lines[1]  # a product that may not be reordered takes longer


def test_programs_of_a_suite_are_checked_on_drawn_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are captured on memory as it is, of which nothing can be judged where it is not a number."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **kind: empty(*shape, **kind).fill_(torch.nan))
    rules = tmp_path / "wrong.rw"
    rules.write_text(EVERYWHERE)
    suite = suite_of(tmp_path, "torch.log(torch.exp(x)) + w.sum()", x="rows in", w="in out")
    with pytest.raises(SystemExit) as stop:
        main(["tune", suite, "--tries", "1", "--no-db", "--target", "sm_90a", "--rules", str(rules)])
    assert stop.value.code == 1
    assert "wrong in every way" in capsys.readouterr().err


@pytest.mark.usefixtures("captured_once")
def test_a_model_is_tuned_with_its_candidates_and_compiles_take_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("egglog")
    model, store = tmp_path / "tiny.json", tmp_path / "store.sqlite"
    model.write_text(json.dumps(TINY))
    asked = ["tune", str(model), "--seq-len", "4", "--tries", "1", "--top", "2", "--db", str(store), "--json"]
    with pytest.raises(SystemExit) as stop:
        main([*asked, "--target", "sm_90a"])
    found = json.loads(capsys.readouterr().out)
    (choice,) = found["programs"]
    assert stop.value.code in (0, None) and not any(kernel["failed"] for kernel in found["kernels"])
    assert choice["way"] == 1 and choice["seconds"] < choice["rules"]
    assert choice["checked"] == "emulator, the program whole" and choice["kept"] and not choice["wrong"]
    caplog.set_level("INFO", "dplc")
    plain, tuned = (
        dplc.compile_model(model, seq_len=4, target="sm_90a", device="emulator", db=db) for db in (False, store)
    )
    assert plain.remembered == () and tuned.figures.launches < plain.figures.launches
    assert tuned.remembered[0].startswith("candidate of fusion from the store") and "from the store" in caplog.text
    assert all(line.startswith("schedule of `") for line in tuned.remembered[1:]) and len(tuned.remembered) > 5


def test_an_interrupted_search_of_many_keeps_what_it_found_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = SearchRun._round

    def interrupted(self: SearchRun, *given: Any) -> bool:
        if self.tries > 1:
            raise KeyboardInterrupt
        return turns(self, *given)

    monkeypatch.setattr(SearchRun, "_round", interrupted)
    store = tmp_path / "store.sqlite"
    text = ["tune", "-c", "torch.randn(M, 512).sum(-1)", "--grid", "M=4,8,16", "--target", "sm_90a"]
    with pytest.raises(SystemExit) as stop:
        main([*text, "--tries", "50", "--db", str(store)])
    lines = capsys.readouterr().out.splitlines()
    assert stop.value.code == 130 and lines[0].startswith("M=4:") and not any("M=8" in line for line in lines)
    compiled = dplc.compile(lambda x: x.sum(-1), (torch.randn(4, 512),), target="sm_90a", db=store)
    (line,) = compiled.remembered
    assert line.startswith("schedule of `") and "from the store, predicted for NVIDIA H200" in line


def test_a_way_that_could_not_be_built_says_why() -> None:
    """Beside one whose results are wrong, and one that was not tried."""
    space: Any = SimpleNamespace(ways=("a", "b", "c"), built=set(), problems={1: "2048 threads per block"})
    nothing: Any = None
    found = Programmed(
        run=nothing, fusing=nothing, space=space, kernels=[], default_seconds=None, seconds=None, wrong={0: "off by 3"}
    ).candidates()
    assert [one["problem"] for one in found] == ["off by 3", "2048 threads per block", None]
    assert not any(one["tried"] for one in found)


@pytest.mark.parametrize("top", ["1", "4"])
@pytest.mark.parametrize("sizes", [(), ("--grid", "m=60,100")], ids=["one", "many"])
@pytest.mark.sampled(2)
def test_a_program_that_a_rule_makes_wrong_is_no_success(
    top: str, sizes: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the rules themselves are wrong no schedule makes it right, though eager overflows at one element."""
    rules = tmp_path / "wrong.rw"
    rules.write_text(EVERYWHERE)
    text = overflowing("m" if sizes else 100)
    words = ("-c", text, *sizes, "--tries", "2", "--top", top, "--no-db")
    code, _, told = called(capsys, *words, "--rules", str(rules))
    assert code == 1 and "wrong in every way" in told and "of its largest value from float64" in told
    assert "dplc check" in told
    code, _, told = called(capsys, *words)
    assert code == 0 and "wrong" not in told


def test_candidates_are_told_with_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "tune",
        "-c",
        "torch.randn(129, 256) @ torch.randn(256, 777)",
        "--tries",
        "14",
        "--target",
        "h200",
        "--no-db",
    )

    def told(*options: str) -> tuple[str, list[str]]:
        with pytest.raises(SystemExit) as stop:
            main([*line, "--top", "1", "--predict", *options])
        assert not stop.value.code
        printed = capsys.readouterr()
        return printed.out, re.split(r"^(?=try )", printed.err, flags=re.MULTILINE)[1:]

    out, every = told("-vv", "--json")
    assert len(every) == json.loads(out)["tries"] == 14 and every[0].startswith("try 1: ") and "by default" in every[0]
    assert all(re.match(r"try \d+: ([\d.]+ us.*, predicted|refused: .+)\n", one) for one in every)
    assert any(re.search(r" from \S+ to |: with |without ", one) for one in every)
    times = [float(found[1]) if (found := re.match(r"try \d+: ([\d.]+) us", one)) else math.inf for one in every]
    _, better = told("-v")
    assert better == [one for one in every if one in better] and 1 < len(better) < len(every)
    assert min(times) == float(better[-1].split()[2])


def test_changes_of_a_schedule_are_rules_and_parameters() -> None:
    before = (
        Decision("a", "tile", "0", {"M": 4, "N": 8}),
        Decision("b", "xor_smem", "0/1"),
        Decision("c", "same", "0"),
    )
    after = (
        Decision("a", "tile", "0", {"M": 4, "N": [1, 2]}),
        Decision("c", "same", "1"),
        Decision("d", "pad", "0", {"P": 1}),
    )
    assert changes(before, after) == ["tile N from 8 to (1, 2)", "without xor_smem", "with pad(P=1)"]
    assert changes(before[2:], after[1:2]) == ["same at 1"] and changes(before, before) == []
