"""Many kernels: suites and grids are distinct jobs, which fail alone, in one process or several; `dplc tune` of them."""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import Command
from entries import key, tuned

from dplc.engine.cli.programs import combinations, numbers_by_name
from dplc.engine.cli.tune import LARGEST_GRID
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.ruleset import toolchain
from dplc.engine.store.store import SqliteStore, digests_of
from dplc.engine.tune.search import Observer, unheard
from dplc.engine.tune.tuning import Job, JobOutcome, carry_out, summary
from dplc.ir.diagnostic import DplcError, UsageError
from dplc.ir.program import Kernel
from tests.tune.subjects import MACHINE, MATMUL, kernels


def tune_one(job: Job, observe: Observer = unheard) -> JobOutcome:
    """Stands in for a search. Says in which process it ran; fails, breaks or dies as the job's options say."""
    options: Any = job.options
    fate = options.get(job.names[0], "")
    if fate == "fails":
        raise DplcError("no schedule is legal")
    if fate == "breaks":
        raise ZeroDivisionError("a defect")
    if fate == "dies":
        os._exit(9)
    time.sleep(float(options.get("seconds", 0.0)))
    return JobOutcome(line=f"{os.getpid()} kernel {job.kernel.name} {job.db}")


def carried_out(count: int, at_once: int = 1, **options: Any) -> dict[str, JobOutcome]:
    """The outcomes of as many jobs by their names. options: see `tune_one`."""
    compiler = compiler_with(MACHINE)
    given = [
        Job(Kernel(f"f{n}", (), (), ()), (f"case{n}",), compiler, options, Path("here"))  # type: ignore[arg-type]
        for n in range(count)
    ]
    return {job.names[0]: outcome for job, outcome in carry_out(given, tune_one, at_once)}


# ---- what there is to tune


def points(*grid: str) -> list[dict[str, int]]:
    return combinations("--grid", numbers_by_name("--grid", grid), LARGEST_GRID)


def test_points_of_a_grid() -> None:
    assert points("M=1,8,1", "N = 64, 32") == [
        {"M": 1, "N": 64}, {"M": 1, "N": 32}, {"M": 8, "N": 64}, {"M": 8, "N": 32},
    ]  # fmt: skip
    assert points() == [{}]
    for grid in ("M", "M=", "M=a", "M=1,", "2=1", "M=-1"):
        with pytest.raises(UsageError, match=f"--grid {grid}: write NAME=7 or NAME=1,7,100"):
            points(grid)
    with pytest.raises(UsageError, match="--grid: more than 10000 combinations"):
        points(*(f"{name}=" + ",".join(map(str, range(101))) for name in "AB"))


# ---- carrying them out


def test_a_job_that_is_sent_has_the_same_kernel_rules_settings_and_target(tmp_path: Path) -> None:
    (kernel,) = kernels(MATMUL)
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    mine = tmp_path / "mine.rw"
    mine.write_text("override number largest_constant = 17\n")
    name = next(rule.name for rule in toolchain().rules.at("tile") if rule.parameters)
    for exact in (False, True):
        sent = Compiler(toolchain([mine], {name: {"prefer": False}}, exact), MACHINE)
        got = pickle.loads(pickle.dumps(sent))
        assert (got.tools.rules.digest, got.tools.settings) == (sent.tools.rules.digest, sent.tools.settings)
        assert got.target == sent.target != MACHINE
        assert digests_of(got.tools.rules).own == digests_of(sent.tools.rules).own


def test_jobs_fail_alone_in_this_process() -> None:
    found = carried_out(4, case1="fails", case2="breaks")
    failed = ["", "no schedule is legal", "internal error: ZeroDivisionError: a defect", ""]
    assert [one.failed for one in found.values()] == failed
    assert [found[name].line for name in ("case0", "case3")] == [f"{os.getpid()} kernel f{n} here" for n in (0, 3)]


def test_jobs_fail_and_die_alone_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # other processes must find this file
    found = carried_out(7, 2, case0="dies", case1="dies", case2="fails", seconds=0.2)
    assert found["case2"].failed == "no schedule is legal"
    assert all(found[name].failed == "its process died" for name in ("case0", "case1"))
    lines = [one.line.split() for one in found.values() if not one.failed]
    assert len(lines) == 4 and {line[-1] for line in lines} == {"here"}
    processes = {line[0] for line in lines}
    assert len(processes) >= 2 and str(os.getpid()) not in processes


def test_the_summary_keeps_measured_and_predicted_apart() -> None:
    found = [JobOutcome(key(), tuned(1e-5)), JobOutcome(key(), tuned(5e-6, "measured")), JobOutcome(failed="no")]
    said = "3 kernels, 1 failed; 1 measured: 4.00x of the default order; 1 predicted: 2.00x of the default order"
    assert summary(found) == said


# ---- the command


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_grid_is_tuned_and_replayed(dplc: Command, path: Path, jobs: int) -> None:
    """Kernels, and the fusion of every point, for the device that is asked for, not for another of its architecture."""
    pytest.importorskip("egglog")
    text = "torch.relu(torch.randn({}, 32) @ torch.randn(32, 48)) @ torch.randn(48, 16)"
    stored = ("--target", "h100", "--db", path)
    out = dplc(f"tune --predict --tries 3 --jobs {jobs} --grid M=16,64 -c", text.format("M"), *stored).out
    *lines, last = out.splitlines()
    chosen = [line for line in lines if " us as the rules fuse it, " in line]
    assert [line.split(":")[0] for line in chosen] == ["M=16", "M=64"]
    assert all("us as candidate " in line and "emulator, the program whole" in line for line in chosen), out
    kernels = [line for line in lines if line not in chosen]
    assert {line.split(":")[0] for line in kernels} == {"M=16", "M=64"} and "predicted" in kernels[0]
    assert last.startswith(f"NVIDIA H100: {len(kernels)} kernels; {len(kernels)} predicted: ")
    with SqliteStore(path) as store:
        checks = [entry.tuned.checked for entry in store.select()]
    assert len(checks) == len(kernels) + 2 and all(check.startswith("emulator") for check in checks)
    for rows in (16, 64):
        out, err = dplc("run --device emulator -c", text.format(rows), *stored)
        assert ": ok" in out and out.count("kernel ") == 1 and "note: candidate of fusion from the store: " in err
        assert "note: schedule of `" in err and "from the store, predicted for NVIDIA H100" in err


def test_a_suite_is_tuned_under_the_rules_of_each_case(dplc: Command, path: Path, tmp_path: Path) -> None:
    """A kernel that two cases share is tuned once."""
    mine, suite = tmp_path / "mine.rw", tmp_path / "suite.json"
    mine.write_text("without register_row\n")
    suite.write_text(
        '{"operations": {"f": {"expression": "torch.softmax(x, -1)", "inputs": {"x": "n 32"}},'
        ' "g": {"expression": "F.softmax(y, 1)", "inputs": {"y": "n 32"}}}, "cases": ['
        '{"name": "a", "operation": "f", "sizes": {"n": 8}}, {"name": "b", "operation": "g", "sizes": {"n": 8}},'
        '{"name": "ab", "operation": "f", "sizes": {"n": 8}, "rules": ["mine.rw"]},'
        '{"name": "other", "operation": "f", "sizes": {"n": 8}}]}'
    )
    found = dplc("tune --only [ab]* --top 1 --json --target sm_90a --predict --tries 2 --db", path, suite).json
    assert found["programs"] == []
    assert [one["names"] for one in found["kernels"]] == [["a:softmax", "b:softmax"], ["ab:softmax"]]
    with SqliteStore(path) as store:
        digests = [entry.key.rules for entry in store.select()]
    assert digests == [toolchain(files).rules.digest for files in ([], [mine])]


GRID = ("-c", "torch.softmax(torch.randn(M, 64), -1)", "--grid", "M=4,8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*GRID, "--grid", "M=2"), "has its numbers already"),
        ((*GRID, "--free", "stage_input"), "did you mean `stage_inputs`?"),
    ],
)
def test_wrong_uses_are_told(dplc: Command, arguments: tuple[str, ...], said: str) -> None:
    err = dplc("tune", *arguments, code=2).err
    assert said in err, err
