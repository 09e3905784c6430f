"""Many kernels: suites and grids become distinct jobs; processes that fail or die take no other job with them."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from carried_out import tune_one
from entries import key, tuned
from schedules import H200

from dplc.engine.bench.cases import Suite, read_suite
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.ruleset import toolchain
from dplc.engine.store.store import digests_of
from dplc.engine.tune.search import Budget, SearchOptions
from dplc.engine.tune.tuning import Job, JobOutcome, carry_out, distinct, of_grid, of_suite, points, summary, tune_job
from dplc.ir.diagnostic import UsageError
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program, read_program

HERE = str(Path(__file__).parent)
COMPILER = compiler_with(H200)


def jobs(count: int, **wishes: object) -> list[Job]:
    options: Any = dict(wishes)
    kernels = [Kernel(f"f{n}", (), (), ()) for n in range(count)]
    return [Job(kernel, (f"case{n}",), COMPILER, options, Path("here")) for n, kernel in enumerate(kernels)]


@pytest.fixture
def path_of_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other processes must find this folder."""
    found = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")]), *sys.path[1:]])
    monkeypatch.setenv("PYTHONPATH", found)
    yield


# ---- what there is to tune


def test_points() -> None:
    assert list(points(["M=1,8", "N = 64, 32"])) == [
        {"M": 1, "N": 64}, {"M": 1, "N": 32}, {"M": 8, "N": 64}, {"M": 8, "N": 32},
    ]  # fmt: skip
    assert list(points([])) == [{}]
    assert list(points(["M=8,8"])) == [{"M": 8}]


@pytest.mark.parametrize("grid", [["M"], ["M="], ["M=a"], ["M=1,"], ["2=1"], ["M=1", "M=2"], ["M=-1"]])
def test_what_is_no_grid(grid: list[str]) -> None:
    with pytest.raises(UsageError, match="--grid"):
        list(points(grid))
    with pytest.raises(UsageError, match="more than"):
        list(points([f"{name}=" + ",".join(map(str, range(101))) for name in "AB"]))


def test_a_grid_is_one_job_for_each_distinct_kernel() -> None:
    """Two matmuls of one structure at every point; and a point that is there twice under another name."""
    text = "(lambda x, w, v: (torch.relu(x @ w), torch.relu((x + 1) @ v)))(torch.randn(M, 32), *(torch.randn(32, N) for _ in '12'))"
    programs = list(of_grid(text, ["M=4,8", "N=16"], COMPILER))
    found = distinct(programs, SearchOptions())
    assert all(job.compiler is COMPILER for job in found)
    assert len({job.kernel for job in found}) == len(found)
    for job in found:
        level, _ = read_program(print_program((job.kernel,), "loop"))
        assert level == "loop" and pickle.loads(pickle.dumps(job.kernel)) is job.kernel
    everything = [name for job in found for name in job.names]
    assert {name.split(":")[0] for name in everything} == {"M=4,N=16", "M=8,N=16"}
    assert [job.kernel for job in distinct([*programs, *programs], SearchOptions())] == [job.kernel for job in found]


def test_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text(
        '{"operations": {"f": {"expression": "torch.relu(x)", "inputs": {"x": "n 4"}},'
        ' "g": {"expression": "torch.relu(y)", "inputs": {"y": "n 4"}}},'
        ' "cases": [{"name": "a", "operation": "f", "sizes": {"n": 8}}, {"name": "b", "operation": "g", "sizes": {"n": 8}},'
        ' {"name": "c", "operation": "f", "sizes": {"n": 16}}]}'
    )
    suite: Suite = read_suite(path)
    found = distinct(of_suite(suite, suite.cases, COMPILER), SearchOptions())
    assert [[name.split(":")[0] for name in job.names] for job in found] == [["a", "b"], ["c"]]


def test_a_case_is_tuned_under_its_own_rules(tmp_path: Path) -> None:
    (tmp_path / "mine.rw").write_text("override number largest_constant = 17\n")
    path = tmp_path / "suite.json"
    path.write_text(
        '{"operations": {"f": {"expression": "torch.relu(x)", "inputs": {"x": "n 4"}}}, "cases": ['
        '{"name": "plain", "operation": "f", "sizes": {"n": 8}},'
        '{"name": "own", "operation": "f", "sizes": {"n": 8}, "rules": ["mine.rw"]},'
        '{"name": "again", "operation": "f", "sizes": {"n": 8}}]}'
    )
    suite = read_suite(path)
    options = SearchOptions(budget=Budget(tries=2), check=False)
    found = distinct(of_suite(suite, suite.cases, COMPILER), options, tmp_path / "store")
    assert [[name.split(":")[0] for name in job.names] for job in found] == [["plain", "again"], ["own"]]
    digests = [job.compiler.tools.rules.digest for job in found]
    assert digests == [toolchain().rules.digest, toolchain([tmp_path / "mine.rw"]).rules.digest]
    outcomes = [tune_job(job) for job in found]
    assert [outcome.key.rules for outcome in outcomes if outcome.key] == digests


# ---- carrying them out


def test_a_compiler_that_is_sent_has_the_same_rules_settings_and_target(tmp_path: Path) -> None:
    mine = tmp_path / "mine.rw"
    mine.write_text("override number largest_constant = 17\n")
    name = next(rule.name for rule in toolchain().rules.at("tile") if rule.parameters)
    for exact in (False, True):
        sent = Compiler(toolchain([mine], {name: {"prefer": False}}, exact), H200)
        got = pickle.loads(pickle.dumps(sent))
        assert (got.tools.rules.digest, got.tools.settings) == (sent.tools.rules.digest, sent.tools.settings)
        assert got.target == sent.target and got.target != H200
        assert digests_of(got.tools.rules).own == digests_of(sent.tools.rules).own


def test_in_this_process() -> None:
    wishes = {"case1": "fails", "case2": "breaks"}
    outcomes = [outcome for _, outcome in carry_out(jobs(4, **wishes), tune_one)]
    assert outcomes[0].line.startswith(f"{os.getpid()} kernel f0 here")
    assert outcomes[1].failed == "no schedule is legal"
    assert outcomes[2].failed == "internal error: ZeroDivisionError: a defect"
    assert outcomes[3].line


def test_in_processes_that_may_die(path_of_tests: None) -> None:
    given = jobs(9, case0="dies", case1="dies", case2="fails", seconds=0.2)
    found = {job.names[0]: outcome for job, outcome in carry_out(given, tune_one, 2)}
    assert {name for name, one in found.items() if one.failed} == {"case0", "case1", "case2"}
    assert found["case0"].failed == found["case1"].failed == "its process died"
    processes = {one.line.split()[0] for one in found.values() if one.line}
    assert str(os.getpid()) not in processes and len(processes) >= 2


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="needs Ray"):
        list(carry_out(jobs(1), tune_one, 1, "ray"))


def test_the_summary_keeps_measured_and_predicted_apart() -> None:
    found = [JobOutcome(key(), tuned(1e-5)), JobOutcome(key(), tuned(5e-6, "measured")), JobOutcome(failed="no")]
    said = "3 kernels, 1 failed; 1 measured: 4.00x of the default order; 1 predicted: 2.00x of the default order"
    assert summary(found) == said


@pytest.mark.ray
def test_on_a_local_ray(path_of_tests: None) -> None:
    """Real Ray, started here: `make test-ray`."""
    pytest.importorskip("ray")
    given = jobs(5, case1="fails", case3="dies")
    found = {job.names[0]: outcome for job, outcome in carry_out(given, tune_one, 2, "ray")}
    assert len(found) == 5
    assert {name for name, one in found.items() if one.failed} == {"case1", "case3"}
    assert found["case3"].failed.startswith("Ray: ")
    assert all(one.line.endswith(" None") for one in found.values() if one.line)  # what is found comes back
    assert str(os.getpid()) not in {one.line.split()[0] for one in found.values() if one.line}
