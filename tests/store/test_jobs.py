"""Many kernels: suites and grids become distinct jobs; processes that fail or die take no other job with them."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from carried_out import tune_one
from entries import key, tuned

from dplc.engine.bench.cases import read_suite
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.ruleset import toolchain
from dplc.engine.store.store import digests_of
from dplc.engine.tune.search import Budget, SearchOptions
from dplc.engine.tune.tuning import Job, JobOutcome, carry_out, distinct, of_suite, points, summary, tune_job
from dplc.ir.diagnostic import UsageError
from dplc.ir.program import Kernel
from tests.tune.subjects import MACHINE, MATMUL, kernels

COMPILER = compiler_with(MACHINE)


def carried_out(count: int, *where: Any, **options: Any) -> dict[str, JobOutcome]:
    """The outcomes of as many jobs by their names. options: see `carried_out.tune_one`."""
    given = [
        Job(Kernel(f"f{n}", (), (), ()), (f"case{n}",), COMPILER, options, Path("here"))  # type: ignore[arg-type]
        for n in range(count)
    ]
    return {job.names[0]: outcome for job, outcome in carry_out(given, tune_one, *where)}


@pytest.fixture
def path_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes must find this folder."""
    known = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *known, *sys.path[1:]]))


# ---- what there is to tune


def test_points_of_a_grid() -> None:
    assert list(points(["M=1,8,1", "N = 64, 32"])) == [
        {"M": 1, "N": 64}, {"M": 1, "N": 32}, {"M": 8, "N": 64}, {"M": 8, "N": 32},
    ]  # fmt: skip
    assert list(points([])) == [{}]


@pytest.mark.parametrize("grid", ["M", "M=", "M=a", "M=1,", "2=1", "M=-1"])
def test_a_text_that_is_no_grid_is_refused(grid: str) -> None:
    with pytest.raises(UsageError, match=f"--grid {grid}: write NAME=1,8,64"):
        list(points([grid]))


def test_a_grid_of_too_many_points_is_refused() -> None:
    with pytest.raises(UsageError, match="--grid has more than 10000 points"):
        list(points([f"{name}=" + ",".join(map(str, range(101))) for name in "AB"]))


def test_a_case_is_tuned_under_its_own_rules(tmp_path: Path) -> None:
    mine, path = tmp_path / "mine.rw", tmp_path / "suite.json"
    mine.write_text("override number largest_constant = 17\n")
    path.write_text(
        '{"operations": {"f": {"expression": "torch.relu(x)", "inputs": {"x": "n 4"}}}, "cases": ['
        '{"name": "plain", "operation": "f", "sizes": {"n": 8}},'
        '{"name": "own", "operation": "f", "sizes": {"n": 8}, "rules": ["mine.rw"]},'
        '{"name": "again", "operation": "f", "sizes": {"n": 8}}]}'
    )
    suite = read_suite(path)
    options = SearchOptions(budget=Budget(tries=2), check=False)
    found = distinct(of_suite(suite, suite.cases, COMPILER), options, tmp_path / "store")
    assert [job.names for job in found] == [("plain:relu_kernel", "again:relu_kernel"), ("own:relu_kernel",)]
    digests = [toolchain().rules.digest, toolchain([mine]).rules.digest]
    assert [job.compiler.tools.rules.digest for job in found] == digests
    assert [outcome.key and outcome.key.rules for outcome in map(tune_job, found)] == digests


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


@pytest.mark.usefixtures("path_of_tests")
def test_jobs_fail_and_die_alone_in_other_processes() -> None:
    found = carried_out(7, 2, case0="dies", case1="dies", case2="fails", seconds=0.2)
    failed = {name: one.failed for name, one in found.items() if one.failed}
    assert failed == {"case0": "its process died", "case1": "its process died", "case2": "no schedule is legal"}
    processes = {one.line.split()[0] for one in found.values() if one.line}
    assert len(found) == 7 and len(processes) == 2 and str(os.getpid()) not in processes


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="needs Ray"):
        carried_out(1, 1, "ray")


@pytest.mark.ray
@pytest.mark.usefixtures("path_of_tests")
def test_jobs_fail_and_die_alone_on_a_local_ray() -> None:
    """Real Ray, started here: `make test-ray`."""
    pytest.importorskip("ray")
    found = carried_out(5, 2, "ray", case1="fails", case3="dies")
    assert {name for name, one in found.items() if one.failed} == {"case1", "case3"}
    assert len(found) == 5 and found["case3"].failed.startswith("Ray: ")
    lines = [one.line for one in found.values() if one.line]
    assert all(line.endswith(" None") for line in lines)  # what is found comes back
    assert str(os.getpid()) not in {line.split()[0] for line in lines}


def test_the_summary_keeps_measured_and_predicted_apart() -> None:
    found = [JobOutcome(key(), tuned(1e-5)), JobOutcome(key(), tuned(5e-6, "measured")), JobOutcome(failed="no")]
    said = "3 kernels, 1 failed; 1 measured: 4.00x of the default order; 1 predicted: 2.00x of the default order"
    assert summary(found) == said
