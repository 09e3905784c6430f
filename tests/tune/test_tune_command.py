"""`dplc tune`, as a user calls it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Command
from wrong_rules import EVERYWHERE, overflowing

import dplc as package
from dplc.engine.cli.tune import changes
from dplc.engine.store.store import Decision
from dplc.engine.tune.search import SearchRun
from tests.tune.subjects import TINY

ONE_TRY = "tune --target sm_90a --tries 1"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A file with a rule that is wrong at every element."""
    path = tmp_path / "wrong.rw"
    path.write_text(EVERYWHERE)
    return path


def suite_of(folder: Path, expression: str) -> Path:
    """A suite of one case, with two matrices."""
    operation = {"expression": expression, "inputs": {"x": "rows in", "w": "in out"}}
    case = {"name": "small", "operation": "it", "sizes": {"rows": 32, "in": 64, "out": 48}}
    suite = folder / "suite.json"
    suite.write_text(json.dumps({"about": "a case", "operations": {"it": operation}, "cases": [case]}))
    return suite


def test_exact_holds_for_the_jobs_of_a_suite(tmp_path: Path, dplc: Command) -> None:
    suite = suite_of(tmp_path, "F.relu(x @ w)")
    plain, exact = (dplc(f"{ONE_TRY} --no-db{option}", suite).out.splitlines()[0] for option in ("", " --exact"))
    assert plain != exact  # a product that may not be reordered takes longer


def test_programs_of_a_suite_are_checked_on_drawn_values(
    tmp_path: Path, dplc: Command, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are captured on memory as it is, of which nothing can be judged where it is not a number."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **kind: empty(*shape, **kind).fill_(torch.nan))
    suite = suite_of(tmp_path, "torch.log(torch.exp(x)) + w.sum()")
    err = dplc(f"{ONE_TRY} --no-db --rules", wrong, suite, code=1).err
    assert "wrong in every way" in err


@pytest.mark.usefixtures("captured_once")
def test_a_model_is_tuned_with_its_candidates_and_compiles_take_what_was_found(
    tmp_path: Path, dplc: Command, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("egglog")
    model, store = tmp_path / "tiny.json", tmp_path / "store.sqlite"
    model.write_text(json.dumps(TINY))
    found = dplc(f"{ONE_TRY} --seq-len 4 --top 2 --json --db", store, model).json
    (choice,) = found["programs"]
    assert choice["way"] == 1 and choice["seconds"] < choice["rules"]
    assert choice["checked"] == "emulator, the program whole" and choice["kept"] and not choice["wrong"]
    caplog.set_level("INFO", "dplc")
    plain, tuned = (
        package.compile_model(model, seq_len=4, target="sm_90a", device="emulator", db=db) for db in (False, store)
    )
    assert plain.remembered == () and tuned.figures.launches < plain.figures.launches
    first, *others = tuned.remembered
    assert first.startswith("candidate of fusion from the store") and "from the store" in caplog.text
    assert all(line.startswith("schedule of `") for line in others) and len(others) > 4


def test_an_interrupted_search_of_many_keeps_what_it_found_and_ends(
    tmp_path: Path, dplc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = SearchRun._round

    def interrupted(self: SearchRun, *given: Any) -> bool:
        if self.tries > 1:
            raise KeyboardInterrupt
        return turns(self, *given)

    monkeypatch.setattr(SearchRun, "_round", interrupted)
    store = str(tmp_path / "store.sqlite")
    out = dplc("tune --target sm_90a --grid M=4,8,16 --db", store, "-c", "torch.randn(M, 512).sum(-1)", code=130).out
    assert out.startswith("M=4:") and "M=8" not in out
    (line,) = package.compile(lambda x: x.sum(-1), (torch.randn(4, 512),), target="sm_90a", db=store).remembered
    assert line.startswith("schedule of `") and "from the store, predicted for NVIDIA H200" in line


@pytest.mark.parametrize(("options", "size"), [("--top 1", 100), ("--top 4 --grid m=60,100", "m")])
def test_a_program_that_a_rule_makes_wrong_is_no_success(options: str, size: Any, wrong: Path, dplc: Command) -> None:
    """Where the rules themselves are wrong no schedule makes it right, though eager overflows at one element."""
    asked = (f"{ONE_TRY} --no-db {options} -c", overflowing(size))
    err = dplc(*asked, "--rules", wrong, code=1).err
    assert "wrong in every way" in err and "of its largest value from float64" in err
    assert "dplc check" in err
    err = dplc(*asked).err
    assert "wrong" not in err


def test_candidates_are_told_with_what_changed(dplc: Command) -> None:
    def tuned_with(options: str) -> tuple[str, list[str]]:
        line = f"tune --tries 14 --target h200 --no-db --top 1 --predict {options} -c"
        out, err = dplc(line, "torch.randn(100, 260) @ torch.randn(260, 44)")
        return out, re.split(r"^(?=try )", err, flags=re.MULTILINE)[1:]

    out, every = tuned_with("-vv --json")
    assert len(every) == json.loads(out)["tries"] == 14 and every[0].startswith("try 1: ") and "by default" in every[0]
    assert all(re.match(r"try \d+: ([\d.]+ us.*, predicted|refused: .+)\n", one) for one in every)
    assert any(re.search(r" from \S+ to |: with |without ", one) for one in every)
    _, better = tuned_with("-v")
    assert better == [one for one in every if one in better] and 1 < len(better) < len(every)
    times = [float(found[1]) if (found := re.match(r"try \d+: ([\d.]+) us", one)) else math.inf for one in every]
    assert min(times) == float(better[-1].split()[2])


def test_changes_of_a_schedule_are_rules_and_parameters() -> None:
    def decided(step: str, rule: str, site: str, **values: Any) -> Decision:
        return Decision(step, rule, site, values)

    same, moved = decided("c", "same", "0"), decided("c", "same", "1")
    before = (decided("a", "tile", "0", M=4, N=8), decided("b", "xor_smem", "0/1"), same)
    after = (decided("a", "tile", "0", M=4, N=[1, 2]), moved, decided("d", "pad", "0", P=1))
    assert changes(before, after) == ["tile N from 8 to (1, 2)", "without xor_smem", "with pad(P=1)"]
    assert changes((same,), (moved,)) == ["same at 1"] and changes(before, before) == []
