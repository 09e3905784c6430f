"""Searches: budgets, determinism, what they find on a space that is known whole; ways of fusing; tree search in small."""

from __future__ import annotations

import functools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from dplc.codegen.build import Assembly, Resources
from dplc.engine.bench.records import geomean
from dplc.engine.schedule.space import DEFAULT, FusionVariant, ProgramSpace, ScheduleCandidate, Space
from dplc.engine.store.store import Basis, Score
from dplc.engine.tune.evaluators import AssemblingEvaluator, PredictingEvaluator
from dplc.engine.tune.search import (
    DEEPEST,
    SEARCHES,
    WIDEST,
    Budget,
    CandidateTimes,
    SearchRun,
    SharedPrefix,
    TreeNode,
    TreeSearch,
    random_token,
    reward,
)
from dplc.ir.diagnostic import DplcError
from dplc.ir.node import replace
from dplc.ir.program import Kernel
from tests.tune.subjects import MACHINE, MATMUL, SHIPPED, SUM, alone, kernels, search, space


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
    threads = name == "mcts"
    one, other = (search(found, known, name, 7, Budget(tries=40), assemble=threads) for _ in range(2))
    assert one.curve == other.curve and one.tries == 40
    assert one.best is not None and whole.best is not None and one.default.seconds is not None
    assert whole.best <= one.best <= one.default.seconds


def test_the_shipped_search_finds_a_schedule_near_the_best(small: Small) -> None:
    found, known, whole = small
    assert whole.best is not None
    runs = (search(found, known, "hill", seed, Budget(tries=whole.programs // 5)) for seed in range(5))
    assert sorted(run.best / whole.best for run in runs if run.best)[2] <= 1.05


def test_tree_search_finds_more_than_chance() -> None:
    """Gains over the default with 30 tries: medians of seven seeds."""
    passes = "chunk_matmul_k", "slice_matmul_k", "register_tile"
    found, known = space("torch.randn(64, 256) @ torch.randn(48, 256).t()", *passes), Known()

    def median(name: str) -> float:
        runs = (search(found, known, name, seed, Budget(tries=30)) for seed in range(7))
        return sorted(run.default.seconds - run.best for run in runs if run.best and run.default.seconds)[3]

    assert median("mcts") > 1.5 * median("random") > 0


def test_budgets_end_a_search(small: Small) -> None:
    found, known, _ = small
    run = search(found, known, "random", 0, Budget(programs=10))
    assert run.programs == 10 <= run.tries
    run = search(found, known, "random", 0, Budget(tries=500, patience=8))
    assert run.since >= 8 and run.tries < 500
    assert search(found, known, "hill", 0, Budget(tries=100, seconds=0.0)).tries == 1


def test_tree_search_exhausts_a_tiny_space_and_says_so() -> None:
    found = space(SUM, "register_row")
    run = search(found, Known(), "mcts", 0, Budget(tries=200))
    assert run.programs == search(found, Known(), "exhaustive", 0, Budget()).programs and run.tries < 200


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


# ---- tree search in small: what passes upwards, what a child is worth, which children there are


@pytest.fixture
def tree() -> Any:
    return TreeSearch(alone(space(SUM, "register_row")), random.Random(0))


def visited(*rewards: float, visits: int | None = None, closed: bool = False, **children: TreeNode) -> TreeNode:
    """A node after some rewards."""
    node = TreeNode()
    node.visits = len(rewards) if visits is None else visits
    node.total, node.squares, node.best = sum(rewards), sum(r * r for r in rewards), max(rewards, default=0.0)
    node.closed, node.children = closed, dict(children)
    return node


def test_a_visit_is_counted_when_it_is_proposed_and_its_reward_passes_up(tree: Any) -> None:
    candidate = tree.propose()
    (path,) = tree.paths
    assert path[0] is tree.root and all(node.visits == 1 for node in path)
    for found in (0.5, 0.2, 0.4):
        tree.observe(candidate, found)
        tree.paths.append(path)
    for node in path:
        assert (node.best, node.total, node.squares) == pytest.approx((0.5, 1.1, 0.45))


def test_a_value_that_a_guard_refuses_ends_a_way_for_good(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is not fired, and the node of the value is closed."""
    monkeypatch.setattr(Space, "ordered", lambda *_: [1, 2])
    site: Any = SimpleNamespace(rule="r", where="0", open=SimpleNamespace(name="N"), choose=lambda value: None)
    tree._path, tree._inside = [tree.root], True
    assert tree._values(space(SUM), "slot", site) is DEFAULT
    assert tree._path[-1] is not tree.root and tree._path[-1].closed and not tree._inside


def test_worth_is_the_best_reward_the_unknown_and_the_spread(tree: Any) -> None:
    explore = 0.3 * math.sqrt(math.log(16) / 4)
    spread = math.sqrt((0.04 + 0.36 + 0.16 + 0.16) / 4 - 0.16 + 0.02 / 4)
    assert tree.worth(visited(visits=16), visited(0.2, 0.6, 0.4, 0.4)) == pytest.approx(0.6 + explore + spread)
    unvisited = 0.3 * math.sqrt(math.log(100)) + math.sqrt(0.02)
    assert tree.worth(visited(visits=100), TreeNode()) == pytest.approx(unvisited)


@pytest.mark.parametrize(("closed", "taken"), [("", "b"), ("b", "c"), ("abc", "b")])
def test_the_most_promising_open_child_is_taken(tree: Any, closed: str, taken: str) -> None:
    rewards = {"a": 0.3, "b": 0.9, "c": 0.6}
    children = {name: visited(best, best, closed=name in closed) for name, best in rewards.items()}
    assert tree._promising(visited(visits=20, **children)) == taken


@pytest.mark.parametrize(("visits", "children"), [(0, 2), (1, 3), (8, 6), (100, 10)])
def test_a_tree_widens_with_its_visits(tree: Any, visits: int, children: int) -> None:
    """2*sqrt(visits + 1) children, best guesses first, and no more than there are options."""
    node = visited(visits=visits)
    node.options = list(range(10))
    made = []
    while (key := tree._new(node)) is not None:
        made.append(key)
        node.children[key] = TreeNode()
    assert made == list(range(children))
    if children < 10:
        for child in node.children.values():
            child.closed = True
        assert tree._new(node) == children  # what is exhausted makes room


def test_a_node_closes_when_all_its_options_are_exhausted(tree: Any) -> None:
    last = TreeNode()
    middle = visited(x=last)
    top = visited(a=middle)
    top.options, middle.options = ["a"], ["x", "y"]
    tree._path = [top, middle, last]
    tree._close()
    assert last.closed and not middle.closed and not top.closed  # `y` was never tried
    middle.children["y"] = TreeNode()
    tree._close()
    assert not middle.closed and not top.closed
    middle.children["y"].closed = True
    tree._close()
    assert middle.closed and top.closed


# ---- the log


def test_the_tree_that_is_shown_ends_somewhere() -> None:
    """Two children at every place, the right one with nothing below: so many levels and no more."""

    def depth(shown: dict[str, Any]) -> int:
        return 1 + max(map(depth, shown["below"]), default=-1)

    chain = [SharedPrefix(1, 1.0)]
    for level in range(40):
        chain.append(SharedPrefix(level + 2, 1.0, children={"left": chain[-1], "right": SharedPrefix(1, 2.0)}))
    assert [depth(chain[levels].record(1.0)) for levels in (5, 40)] == [5, DEEPEST]
    wide = SharedPrefix(children={n: SharedPrefix(1, 1.0, label=str(n)) for n in range(40)})
    assert len(wide.record(1.0)["below"]) == WIDEST


def test_means_of_times_are_geometric() -> None:
    times = CandidateTimes()
    assert times.mean == math.inf
    for seconds in (1.0, 4.0, None, 16.0):
        times.add(seconds)
    assert (times.count, times.without, times.best, times.mean) == (3, 1, 1.0, pytest.approx(4.0))
    assert geomean([2.0, 8.0]) == pytest.approx(4.0) and geomean([]) is None
