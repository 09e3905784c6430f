"""`dplc bench FOLDER`: files by a convention, each compiled at full size and run with smaller extents in a process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Command

from dplc.codegen.target import target
from dplc.engine.bench import folders
from dplc.engine.bench.folders import ProblemWorker, each_record, problem, problems_of, smaller
from dplc.engine.bench.records import CaseRecord, RunRecord, fast_shares
from dplc.engine.cli import bench
from dplc.engine.compiler import compiler_with

WORKER = ProblemWorker(compiler_with(target("h100")), measure=False, small=True)
FILE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width, groups=1):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width // groups))
        self.groups = groups

    def forward(self, x):
        return torch.relu(x).sum(1) * self.weight.repeat(self.groups)

batch_size = 1024
rows, width = 4096, 64 * 2

def get_inputs():
    return [torch.randn(batch_size, rows, width)]

def get_init_inputs():
    return [width]
"""
EDITS = {
    "1_plain": ("", ""),
    "2_constructor_reads_a_value": ("torch.ones(", "torch.full((1,), 2.0).item() * torch.ones("),
    "10_three_groups": ("64 * 2\n", "120\n", "[width]", "[width, 15]"),
    "11_batch_is_the_width": ("64 * 2", "1024", ".sum(1)", ".sum(1).T"),
    "12_fixed_dtype": (".sum(1)", ".sum(1) @ torch.eye(x.shape[2], dtype=torch.float32, device=x.device)"),
}
WRONG = {
    "no_inputs": ("def get_inputs", "def inputs", "has no attribute 'get_inputs'"),
    "raises": ("super()", "raise ValueError('too wide'); super()", "ValueError: too wide"),
    "does_not_fit": ("torch.relu(x)", "torch.relu(x) @ x", "a and b must have same reduction dim"),
}


def written(folder: Path, name: str, *edits: str) -> Path:
    text = FILE
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        text = text.replace(old, new)
    path = folder / "level1" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_problems_of_a_folder_are_ordered_by_numbers(tmp_path: Path) -> None:
    for name, edits in reversed(EDITS.items()):
        written(tmp_path, name, *edits)
    (tmp_path / "helper.py").write_text("import torch\n")
    assert list(problems_of(tmp_path)) == [f"level1/{name}" for name in EDITS]
    assert list(problems_of(tmp_path / "level1" / "1_plain.py")) == ["1_plain"]


@pytest.mark.parametrize(("value", "divisor", "kept", "found"), [
    (16, 32, 16, 16), (4096, 32, 16, 128), (65536, 32, 16, 128), (1000, 32, 16, 24), (240, 32, 16, 16), (8205, 16, 32, 256),
    (240, 8, 0, 30), (241, 8, 0, 241), (12, 2, 0, 12),
])  # fmt: skip
def test_smaller_extents_keep_factors(value: int, divisor: int, kept: int, found: int) -> None:
    assert smaller(value, divisor, kept) == found


@pytest.mark.parametrize("name", EDITS)
def test_problem_compiles_at_full_size_and_runs_smaller(tmp_path: Path, name: str) -> None:
    record = WORKER.record(written(tmp_path, name, *EDITS[name]))
    assert record.problem == "" and record.run is not None and record.run.ok
    assert record.compulsory_bytes > 4 * 1024 * 4096 * 120 and record.run.extent.startswith("smaller extents")


def test_time_of_a_problem_with_calls_of_torch_is_unknown(tmp_path: Path) -> None:
    record = WORKER.record(written(tmp_path, "calls", "torch.relu(x)", "torch.linalg.svdvals(x)[:, None]"))
    assert record.problem == "" and record.run is not None and record.run.ok
    assert record.kernels and record.predicted_us is None


def test_results_are_compared_with_those_of_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of capture shows: what the captured program means is not the reference."""
    other = folders.capture(lambda x: x.sum(1), [torch.randn(2, 128, 16)])
    seen = folders.shrunk

    def shrunk(path: Path) -> Any:
        monkeypatch.setattr(folders, "capture", lambda *given, **named: other)
        return seen(path)

    monkeypatch.setattr(folders, "shrunk", shrunk)
    assert "the result is wrong" in WORKER.record(written(tmp_path, "it")).problem


@pytest.mark.parametrize("name", WRONG)
def test_error_of_a_problem_is_in_its_record(tmp_path: Path, name: str) -> None:
    *edits, said = WRONG[name]
    found = WORKER.record(written(tmp_path, name, *edits)).error
    assert said in found, found


def test_each_problem_has_a_process_and_a_time_limit(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, "ends", "super()", "import os; os._exit(3); super()"),
        written(tmp_path, "right", "super()", "print('not for standard output'); super()"),
        written(tmp_path, "hangs", "super()", "exec('while True: pass'); super()"),
    ]
    worker = ProblemWorker(WORKER.compiler, False, False)
    ended, right = each_record(worker, paths[:2], 3600.0)
    (hung,) = each_record(worker, paths[2:], 5.0)
    assert ended.error == "its process ended with 3" and hung.error.startswith("no result after 5 seconds")
    assert right.problem == "" and right.kernels


# ---- published times


def case(predicted: float | None, published: float | None, right: bool = True) -> CaseRecord:
    made = problem("" if predicted else "not compiled")
    made.predicted_us, made.published = predicted, {} if published is None else {"theirs": published}
    made.run = RunRecord(extent="", ok=right, relative_error=0.0, finding="" if right else "wrong")
    return made


def test_fast_p_counts_right_problems_that_are_more_than_p_times_as_fast() -> None:
    cases = [case(10, 10), case(10, 21), case(10, 100, right=False), case(None, 10), case(10, None)]
    assert fast_shares(cases) == {"theirs": {"0.0": 0.5, "0.5": 0.5, "0.8": 0.5, "1.0": 0.25, "1.5": 0.25, "2.0": 0.25}}
    assert fast_shares([]) == {}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder `problems` with published times, benchmarked without processes; the names that were."""
    done, stopped = list[str](), list[Path]()

    def each(worker: ProblemWorker, paths: list[Path], limit: float) -> Iterator[CaseRecord]:
        for path in paths:
            if path.stem == "stop" and not stopped:
                stopped.append(path)
                raise KeyboardInterrupt
            done.append(path.stem)
            yield case(10.0, None)

    monkeypatch.setattr(bench, "each_record", each)
    return done


def test_interrupted_bench_continues_and_shows_published_times(dplc: Command, folder: list[str]) -> None:
    for name in ("1_go", "stop"):
        written(Path("problems"), name)
    Path("theirs.json").write_text(json.dumps({"level1": {"1_go.py": {"mean": 0.015}}, "level2": {}}))
    line = "bench problems --target h100 --published theirs.json -o out.json"
    dplc(line, code=130).shows("level1/1_go", "1 cases")
    assert folder == ["1_go"]
    printed = dplc(line).out
    assert folder == ["1_go", "stop"] and re.search(r"theirs us +theirs / dplc", printed)
    assert "theirs / dplc: geometric mean 1.5; share above p 0.0: 1.0, 0.5: 1.0" in printed
    record = dplc(f"{line} --json").json
    assert folder == ["1_go", "stop"] and record["fast"]["theirs"]["1.5"] == 0.0
    record["cases"].pop(0)  # a problem is taken up again by its name
    Path("out.json").write_text(json.dumps({"suite": record["suite"], **record}, separators=(",", ":")))
    dplc(line)
    assert folder == ["1_go", "stop", "1_go"]
    record["versions"]["rules"] = "others"
    Path("out.json").write_text(json.dumps({"suite": record.pop("suite"), **record}, separators=(",", ":")))
    dplc(line)
    assert folder[3:] == ["1_go", "stop"]


@pytest.mark.parametrize(("line", "said"), [
    ("bench empty", "holds no problem: no Python file in it defines a class `Model`"),
    ("bench empty/helper.py", "helper.py holds no problem"),
    ("bench problems --only nothing", "--only nothing: no case has such a name"),
    ("bench problems --published other.json", "other.json: it has no time of any of these problems"),
    ("bench problems --published bad.json", "bad.json holds no published times"),
    ("bench problems --pack a.dplc", "`--pack` does not apply to a folder of problems"),
    ("bench problems --seed 1", "`--seed` does not apply to a folder of problems"),
    ("bench -c torch.ones(3)+1 --shrink", "`--shrink` does not apply to an expression"),
    ("bench problems problems", "takes one program, and 2 were given"),
])  # fmt: skip
def test_mistakes_with_folders_are_said(dplc: Command, folder: list[str], line: str, said: str) -> None:
    written(Path("problems"), "1_go")
    Path("empty").mkdir()
    Path("empty/helper.py").write_text("import torch\n")
    Path("other.json").write_text('{"level2": {"1_go.py": {"mean": 1}}}')
    Path("bad.json").write_text('{"level1": {"1_go.py": 1}}')
    dplc(line, code=1 if "bad" in line else 2).shows(said)
