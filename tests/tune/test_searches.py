"""Searches: budgets, determinism, what they find on a space that is known whole; ways of fusing."""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from unittest import mock

import pytest

from dplc.codegen.build import Assembly, Resources
from dplc.engine.bench.records import geomean
from dplc.engine.schedule.space import FusionVariant, ProgramSpace, ScheduleCandidate, Space
from dplc.engine.store.store import Basis, Score
from dplc.engine.tune.evaluators import AssemblingEvaluator, PredictingEvaluator
from dplc.engine.tune.search import (
    SEARCHES,
    Budget,
    SearchRun,
    random_token,
    reward,
)
from dplc.ir.diagnostic import DplcError
from dplc.ir.node import replace
from dplc.ir.program import Kernel
from tests.tune.subjects import MACHINE, MATMUL, SHIPPED, SUM, kernels, search, space


class Known(dict[str, Score]):
    """Scores by the model, each program once."""

    basis: Basis = "predicted"

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        if candidate.key not in self:
            self[candidate.key] = PredictingEvaluator()(candidate)
        return self[candidate.key]


Small = tuple[Space, Known, SearchRun]


@pytest.fixture(scope="module")
def small() -> Small:
    """A space, its scores, and what exhaustive search found."""
    found, known = space(MATMUL, "blockify_launch"), Known()
    return found, known, search(found, known, "exhaustive", 0, Budget())


def test_exhaustive_search_scores_every_program_once_that_can_be_launched(small: Small) -> None:
    _, known, run = small
    assert run.programs == run.tries - run.repeated and run.refused
    assert run.best is not None and run.best == min(score.seconds for score in known.values() if score.seconds)
    assert len(known) == run.programs - run.refused > 200


@pytest.mark.parametrize("name", SHIPPED)
def test_every_search_is_repeatable_and_never_loses(name: str, small: Small) -> None:
    """Also where several threads evaluate its candidates."""
    found, known, whole = small
    threads = name == "hill"
    one, other = (search(found, known, name, 7, Budget(tries=40), assemble=threads) for _ in range(2))
    assert one.curve == other.curve and one.tries == 40
    assert one.best is not None and whole.best is not None and one.default.seconds is not None
    assert whole.best <= one.best <= one.default.seconds


def test_the_shipped_search_finds_a_schedule_near_the_best(small: Small) -> None:
    found, known, whole = small
    assert whole.best is not None
    runs = (search(found, known, "hill", seed, Budget(tries=whole.programs // 5)) for seed in range(5))
    assert sorted(run.best / whole.best for run in runs if run.best)[2] <= 1.05


def test_hill_climbing_finds_more_than_chance() -> None:
    """Gains over the default with 30 tries: medians of seven seeds."""
    passes = "chunk_matmul_k", "slice_matmul_k", "register_tile"
    found, known = space("torch.randn(64, 256) @ torch.randn(48, 256).t()", *passes), Known()

    def median(name: str) -> float:
        runs = (search(found, known, name, seed, Budget(tries=30)) for seed in range(7))
        return sorted(run.default.seconds - run.best for run in runs if run.best and run.default.seconds)[3]

    assert median("hill") > 1.5 * median("random") > 0


def test_budgets_end_a_search(small: Small) -> None:
    found, known, _ = small
    run = search(found, known, "random", 0, Budget(programs=10))
    assert run.programs == 10 <= run.tries
    run = search(found, known, "random", 0, Budget(tries=500, patience=8))
    assert run.since >= 8 and run.tries < 500
    assert search(found, known, "hill", 0, Budget(tries=100, seconds=0.0)).tries == 1


def test_rewards_lie_between_nothing_and_all() -> None:
    rewards = [reward(Score(seconds, "predicted"), 1.0) for seconds in (None, 1e9, 1.0, 1e-9)]
    assert rewards == [0.0, 0.0, 0.5, 1.0]


def test_rewards_tell_candidates_apart_where_the_default_cannot_be_launched(small: Small) -> None:
    found, known, _ = small
    default = found.default().key

    class Without(Known):
        def __call__(self, candidate: ScheduleCandidate) -> Score:
            return Score(None, "predicted", "failed") if candidate.key == default else known(candidate)

    run = search(found, Without(), "hill", 0, Budget(tries=30))
    assert run.default.seconds is None and run.best is not None and run.best < run.curve[0][2]
    assert run.search.best_reward == reward(Score(run.best, "predicted"), run.curve[0][2]) > 0.5


def test_candidates_that_spill_registers_are_refused(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    assemble = mock.Mock(return_value=Assembly(b"", defaultdict(lambda: Resources(64, 8, 8, 16, 0))))
    monkeypatch.setattr("dplc.engine.tune.evaluators.assemble", assemble)
    # of seed 4 no two programs have one text, which would be assembled once
    run = search(small[0], AssemblingEvaluator(), "random", 4, Budget(tries=20))
    assert run.best is None and run.refused == run.programs == assemble.call_count


# ---- ways of fusing


def ways(*kernels_of: Callable[[], Sequence[Kernel]], free: frozenset[str] | None = None) -> ProgramSpace:
    found = [FusionVariant(f"way {number}", kernels) for number, kernels in enumerate(kernels_of)]
    return ProgramSpace(space(SUM).tools, found, MACHINE, free)


@pytest.mark.parametrize("name", [*SHIPPED, "exhaustive"])
def test_several_ways_of_fusing_are_the_first_decision(name: str) -> None:
    """Two ways for one result: the second one's kernel is the one that is worth it. Equal kernels are one space."""
    (slow,), fast = kernels(MATMUL), kernels(SUM)
    both = ways(lambda: (slow, replace(slow, name="another")), lambda: fast, free=frozenset({"no_pass"}))
    assert [(space.loops[0], count) for space, count in both.spaces(0)] == [(slow, 2)]
    run = search(both, Known(), name, 0, Budget(tries=30))
    assert run.best is not None and run.search.best_way == 1
    once = PredictingEvaluator()(space(MATMUL, "no_pass").default()).seconds
    assert once is not None and run.default.seconds == pytest.approx(2 * once)


def test_a_way_is_not_built_before_a_search_walks_it() -> None:
    def made() -> ProgramSpace:
        return ways(*(functools.partial(kernels, text) for text in (SUM, MATMUL, SUM)))

    found = made()
    assert found.default(1).parts[0][0].loops == kernels(MATMUL) and found.built.keys() == {1}
    assert found.spaces(0) == found.spaces(2)  # equal kernels: one space
    for name in SHIPPED:
        assert search(made(), Known(), name, 0, Budget(tries=1)).space.built.keys() == {0}


def test_a_way_that_cannot_be_built_is_refused_and_the_search_goes_on() -> None:
    def broken() -> Sequence[Kernel]:
        raise DplcError("no such thing")

    found = ways(lambda: kernels(SUM), broken)
    for name in SHIPPED:
        run = search(found, Known(), name, 0, Budget(tries=12))
        assert run.best is not None and run.search.best_way == 0 and run.refused >= 1
    assert found.problems == {1: "no such thing"}


def test_a_schedule_that_was_found_for_a_kernel_is_known_in_every_way() -> None:
    """The second way launches the first one's kernel, too: it is tried there first under the best schedule so far."""
    one, other = kernels(MATMUL), kernels(SUM)
    found, dice = ways(lambda: one, lambda: (*other, *one)), random.Random(0)
    tuned = found.walk(lambda inner, state, slot: random_token(inner, state, dice), 0)
    hill = SEARCHES["hill"](found, random.Random(0))
    hill.observe(tuned, 0.9)
    proposal = hill.propose()
    assert proposal is not None and proposal.way == 1
    assert proposal.parts[1][0].key == tuned.parts[0][0].key


def test_means_of_times_are_geometric() -> None:
    assert geomean([2.0, 8.0]) == pytest.approx(4.0) and geomean([]) is None
