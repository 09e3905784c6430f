"""Searches: budgets, determinism, what they find on a space that is known whole."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from dplc.codegen.build import Assembly, Resources
from dplc.engine.schedule.scheduling import refusal
from dplc.engine.schedule.space import FusionVariant, ProgramCandidate, ProgramSpace, ScheduleCandidate, Space
from dplc.engine.store.store import Basis, CollectingStore, Score
from dplc.engine.tune.evaluators import AssemblingEvaluator, PredictingEvaluator
from dplc.engine.tune.search import SEARCHES, Budget, Search, SearchOptions, SearchRun, Tried, random_token, reward
from dplc.ir.diagnostic import DplcError
from tests.tune.subjects import MACHINE, MATMUL, SHIPPED, SUM, alone, kernels, search, space

FREE = ("blockify_launch",)


class Known:
    """Scores by the model, each program once."""

    basis: Basis = "predicted"

    def __init__(self) -> None:
        self.scores: dict[str, Score] = {}
        self.asked = 0

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        self.asked += 1
        if candidate.key not in self.scores:
            self.scores[candidate.key] = PredictingEvaluator()(candidate)
        return self.scores[candidate.key]


@pytest.fixture(scope="module")
def small() -> tuple[Space, Known, SearchRun]:
    """A space, its scores, and what exhaustive search found."""
    found, known = space(MATMUL, *FREE), Known()
    return found, known, search(found, known, "exhaustive", 0, Budget())


def test_exhaustive_search_scores_every_program_once(small: tuple[Space, Known, SearchRun]) -> None:
    _, known, run = small
    assert run.programs == run.tries - run.repeated and run.programs > 200
    assert run.best is not None and run.best == min(s.seconds for s in known.scores.values() if s.seconds)
    assert len(known.scores) == run.programs - run.refused + (run.failed == -1)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.sampled(2)
def test_every_search_is_repeatable_and_never_loses(name: str, small: tuple[Space, Known, SearchRun]) -> None:
    found, known, whole = small
    runs = [search(found, known, name, 7, Budget(tries=40)) for _ in range(2)]
    assert runs[0].curve == runs[1].curve and runs[0].tries == 40
    assert runs[0].best is not None and whole.best is not None
    assert whole.best <= runs[0].best <= (runs[0].default.seconds or 0)


def test_the_shipped_search_finds_what_is_good(small: tuple[Space, Known, SearchRun]) -> None:
    found, known, whole = small
    assert whole.best is not None
    ends = sorted(
        run.best / whole.best
        for seed in range(5)
        if (run := search(found, known, "hill", seed, Budget(tries=whole.programs // 5))).best
    )
    assert ends[2] <= 1.05


def test_tree_search_finds_more_than_chance() -> None:
    """On a space of 1,243 programs, 30 tries: medians of seven seeds."""
    found, known = space("torch.randn(128, 256) @ torch.randn(256, 512)", "blockify_launch", "double_buffer"), Known()

    def median(name: str) -> float:
        runs = (search(found, known, name, seed, Budget(tries=30)) for seed in range(7))
        return sorted(run.best for run in runs if run.best is not None)[3]

    assert median("mcts") < 0.9 * median("random")


def test_budgets(small: tuple[Space, Known, SearchRun]) -> None:
    found, known, _ = small
    run = search(found, known, "random", 0, Budget(programs=10))
    assert run.programs == 10 <= run.tries
    run = search(found, known, "random", 0, Budget(tries=500, patience=8))
    assert run.since >= 8 and run.tries < 500
    assert search(found, known, "hill", 0, Budget(tries=100, seconds=0.0)).tries == 1


def test_tree_search_exhausts_a_tiny_space_and_says_so() -> None:
    found = space(SUM, "register_row")
    whole = search(found, Known(), "exhaustive", 0, Budget())
    run = search(found, Known(), "mcts", 0, Budget(tries=200))
    assert run.programs == whole.programs and run.tries < 200


def test_an_interrupt_keeps_what_was_found(small: tuple[Space, Known, SearchRun]) -> None:
    found, known, _ = small
    store = CollectingStore()

    def observe(run: SearchRun, tried: Tried) -> None:
        if run.tries == 12:
            raise KeyboardInterrupt

    run = search(found, known, "hill", 0, Budget(tries=100), observe=observe, store=store)
    assert run.interrupted and run.tries == 12 and run.best is not None
    assert len(store.attempts) == run.programs and store.attempts[0].number == 1


def test_what_cannot_be_launched_is_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    found, known = space(MATMUL, "blockify_launch", "register_tile"), Known()
    run = search(found, known, "random", 3, Budget(tries=40))
    assert run.refused > 0 and known.asked == run.programs - run.refused


def test_limits_name_what_is_too_much() -> None:
    found = space(MATMUL, "blockify_launch", "register_tile", "fit_block")
    wide = found.walk(_forced({"blockify_launch": (("BM", 64), ("BN", 64))}, skip=("register_tile", "fit_block")))
    assert "4096 threads" in (refusal(wide.tile, MACHINE) or "")
    fat = found.walk(_forced({"blockify_launch": (("BM", 64), ("BN", 64)), "register_tile": (("FM", 32), ("FN", 32))}))
    assert "registers" in (refusal(fat.tile, MACHINE) or "")
    assert refusal(found.default().tile, MACHINE) is None


def _forced(values: dict[str, tuple[tuple[str, int], ...]], skip: tuple[str, ...] = ()) -> Callable[..., object]:
    from dplc.engine.schedule.space import DEFAULT, SKIP, Fire

    def policy(space: object, state: object, slot: object) -> object:
        step = slot.step  # type: ignore[attr-defined]
        return Fire(step, "0/0", values[step]) if step in values else SKIP if step in skip else DEFAULT

    return policy


def test_rewards_lie_between_nothing_and_all() -> None:
    assert reward(Score(None, "predicted", "refused"), 1.0) == 0.0
    assert reward(Score(1.0, "predicted"), 1.0) == 0.5
    assert reward(Score(1e-9, "predicted"), 1.0) == 1.0


def test_rewards_tell_candidates_apart_where_the_default_cannot_be_launched(
    small: tuple[Space, Known, SearchRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, known, _ = small
    default = found.default().key

    class Without(Known):
        def __call__(self, candidate: ScheduleCandidate) -> Score:
            return Score(None, "predicted", "failed") if candidate.key == default else known(candidate)

    rewards, observe = list[float](), Search.observe

    def heard(self: Search, candidate: ProgramCandidate, reward: float) -> None:
        rewards.append(reward)
        observe(self, candidate, reward)

    monkeypatch.setattr(Search, "observe", heard)
    run = search(found, Without(), "hill", 0, Budget(tries=30))
    assert run.default.seconds is None and len({r for r in rewards if r > 0}) > 3
    assert run.best is not None and run.best < run.curve[0][2]


def test_candidates_may_be_evaluated_by_several_threads(small: tuple[Space, Known, SearchRun]) -> None:
    found, known, _ = small
    options = SearchOptions("mcts", 1, Budget(tries=30), assemble=True)
    runs = [SearchRun(alone(found), known, options).run() for _ in range(2)]
    assert runs[0].curve == runs[1].curve and runs[0].tries == 30


def test_only_what_may_win_is_assembled(small: tuple[Space, Known, SearchRun], monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, _ = small
    asked: list[str] = []

    def spills(text: str, arch: str) -> Assembly:
        asked.append(text)
        return Assembly(b"", defaultdict(lambda: Resources(64, 8, 8, 16, 0)))

    monkeypatch.setattr("dplc.engine.tune.evaluators.assemble", spills)
    # of seed 4 no two programs have one text, which would be assembled once
    run = search(found, AssemblingEvaluator(), "random", 4, Budget(tries=20))
    assert run.best is None and run.refused == run.programs == len(asked)  # all of them spill


@pytest.mark.parametrize("name", [*SHIPPED, "exhaustive"])
def test_several_ways_of_fusing_are_the_first_decision(name: str) -> None:
    """Two ways for one result: the second one's kernel is the one that is worth it."""
    (slow,), (fast,) = kernels(MATMUL), kernels(SUM)
    ways = FusionVariant("twice", lambda: (slow, slow)), FusionVariant("once", lambda: (fast,))
    both = ProgramSpace(space(MATMUL).tools, ways, MACHINE, frozenset({"no_pass"}))
    run = search(both, Known(), name, 0, Budget(tries=30))
    assert run.best is not None and both.ways[run.search.best_way] == "once"
    assert run.default.seconds == pytest.approx(
        2 * (PredictingEvaluator()(space(MATMUL, "no_pass").default()).seconds or 0)
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_a_way_is_not_built_before_somebody_walks_it(name: str) -> None:
    built: list[str] = []

    def way(label: str, text: str) -> FusionVariant:
        def make() -> tuple[Any, ...]:
            built.append(label)
            return kernels(text)

        return FusionVariant(label, make)

    found = ProgramSpace(space(SUM).tools, (way("a", SUM), way("b", MATMUL), way("c", SUM)), MACHINE)
    assert built == []
    whole = found.default(1)
    assert built == ["b"] and whole.parts[0][0].loops == kernels(MATMUL)
    found.default(0), found.default(2)
    assert built == ["b", "a", "c"] and found.spaces(0) == found.spaces(2)  # equal kernels: one space
    built.clear()
    search(ProgramSpace(found.tools, found.candidates, MACHINE), Known(), name, 0, Budget(tries=1))
    assert built == ["a"]


def test_a_way_that_cannot_be_built_is_refused_and_the_search_goes_on() -> None:
    def broken() -> tuple[Any, ...]:
        raise DplcError("no such thing")

    found = ProgramSpace(
        space(SUM).tools, (FusionVariant("a", lambda: kernels(SUM)), FusionVariant("b", broken)), MACHINE
    )
    for name in SHIPPED:
        run = search(found, Known(), name, 0, Budget(tries=12))
        assert run.best is not None and run.search.best_way == 0 and run.refused >= 1
    assert found.problems == {1: "no such thing"}


def test_what_is_found_for_a_kernel_is_known_in_every_way() -> None:
    """The second way launches the first one's kernel, too: it is tried there first under the best schedule so far."""
    (one,), (other,) = kernels(MATMUL), kernels(SUM)
    ways = FusionVariant("one", lambda: (one,)), FusionVariant("both", lambda: (other, one))
    found = ProgramSpace(space(MATMUL).tools, ways, MACHINE)
    first = random.Random(0)
    tuned = found.walk(lambda inner, state, slot: random_token(inner, state, first), 0)
    hill = SEARCHES["hill"](found, random.Random(0))
    hill.observe(tuned, 0.9)
    proposal = hill.propose()
    assert proposal is not None and proposal.way == 1
    (_, (again, _)) = proposal.parts
    assert again.key == tuned.parts[0][0].key
