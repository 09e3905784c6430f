"""Tree search in small: what passes upwards, what a child is worth, which children there are; and means of times."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from dplc.engine.bench.records import geomean
from dplc.engine.cost.predict import MeasuredVariant, agreement
from dplc.engine.schedule.space import DEFAULT, Space
from dplc.engine.tune.search import DEEPEST, WIDEST, CandidateTimes, SharedPrefix, TreeNode, TreeSearch
from tests.tune.subjects import SUM, alone, space


def tree() -> Any:
    return TreeSearch(alone(space(SUM, "register_row")), random.Random(0))


def visited(*rewards: float, visits: int | None = None) -> TreeNode:
    """A node after some rewards."""
    node = TreeNode()
    node.visits = len(rewards) if visits is None else visits
    node.total, node.squares, node.best = sum(rewards), sum(r * r for r in rewards), max(rewards)
    return node


def test_a_reward_passes_up_its_whole_path_and_nowhere_else() -> None:
    search = tree()
    path, other = (TreeNode(), TreeNode(), TreeNode()), TreeNode()
    candidate = search.space.default()
    for reward in (0.5, 0.2, 0.4):
        search.paths.append(path)
        search.observe(candidate, reward)
    for node in path:
        assert node.best == 0.5 and node.total == pytest.approx(1.1) and node.squares == pytest.approx(0.45)
    assert (other.best, other.total, other.squares) == (0.0, 0.0, 0.0)


def test_a_value_that_a_guard_refuses_ends_a_way_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is not fired, and the node of the value is closed."""
    search = tree()
    monkeypatch.setattr(Space, "ordered", lambda *_: [1, 2])
    site: Any = SimpleNamespace(rule="r", where="0", open=SimpleNamespace(name="N"), choose=lambda value: None)
    search._path, search._guide, search._inside = [search.root], {}, True
    assert search._values(space(SUM), "slot", site) is DEFAULT
    assert search._path[-1] is not search.root and search._path[-1].closed and not search._inside


def test_a_visit_is_counted_when_it_is_proposed() -> None:
    search = tree()
    assert search.propose() is not None
    assert search.paths[0][0] is search.root and all(n.visits == 1 for n in search.paths[0])


def test_worth_is_the_best_reward_the_unknown_and_the_spread() -> None:
    search, node = tree(), visited(0.0, visits=16)
    child = visited(0.2, 0.6, 0.4, 0.4)
    explore = 0.3 * math.sqrt(math.log(16) / 4)
    spread = math.sqrt((0.04 + 0.36 + 0.16 + 0.16) / 4 - 0.16 + 0.02 / 4)
    assert search.worth(node, child) == pytest.approx(0.6 + explore + spread)


def test_of_equal_rewards_the_wider_spread_and_the_less_visited_are_worth_more() -> None:
    search, node = tree(), visited(0.0, visits=100)
    narrow, wide = visited(0.5, 0.5, 0.5, 0.5), visited(0.5, 0.1, 0.5, 0.1)
    assert search.worth(node, wide) > search.worth(node, narrow)
    often, seldom = visited(*[0.5] * 40), visited(*[0.5] * 4)
    assert search.worth(node, seldom) > search.worth(node, often)
    assert search.worth(node, TreeNode()) == pytest.approx(0.3 * math.sqrt(math.log(100)) + math.sqrt(0.02))


def test_the_most_promising_open_child_is_taken() -> None:
    search, node = tree(), visited(0.0, visits=20)
    node.children = {"a": visited(0.3, 0.3), "b": visited(0.9, 0.9), "c": visited(0.6, 0.6)}
    assert search._promising(node) == "b"
    node.children["b"].closed = True
    assert search._promising(node) == "c"
    for child in node.children.values():
        child.closed = True
    assert search._promising(node) == "b"


@pytest.mark.parametrize(("visits", "children"), [(0, 2), (1, 3), (3, 4), (8, 6), (24, 10), (100, 10)])
def test_a_tree_widens_with_its_visits(visits: int, children: int) -> None:
    """2*sqrt(visits + 1) children, best guesses first, and no more than there are options."""
    search, node = tree(), visited(0.0, visits=visits)
    node.options = list(range(10))
    made = []
    while (key := search._new(node)) is not None:
        made.append(key)
        node.children[key] = TreeNode()
    assert made == list(range(children))
    if children < 10:
        for child in node.children.values():
            child.closed = True
        assert search._new(node) == children  # what is exhausted makes room


def test_a_node_closes_when_all_its_options_are_exhausted() -> None:
    search = tree()
    top, middle, last = TreeNode(), TreeNode(), TreeNode()
    top.options, top.children = ["a"], {"a": middle}
    middle.options, middle.children = ["x", "y"], {"x": last}
    search._path = [top, middle, last]
    last.closed = True
    search._close()
    assert not middle.closed and not top.closed  # `y` was never tried
    middle.children["y"] = TreeNode()
    search._close()
    assert not middle.closed and not top.closed
    middle.children["y"].closed = True
    search._close()
    assert middle.closed and top.closed


def test_the_tree_that_is_shown_ends_somewhere() -> None:
    """Two children at every place, the right one with nothing below: so many levels and no more."""

    def grown(levels: int) -> SharedPrefix:
        node = SharedPrefix(levels + 1, 1.0, label=f"level: {levels}")
        if levels:
            node.children = {"left": grown(levels - 1), "right": SharedPrefix(1, 2.0, label="end")}
        return node

    def depth(node: dict[str, Any]) -> int:
        return 1 + max(map(depth, node["below"])) if node["below"] else 0

    assert depth(grown(40).record(1.0)) == DEEPEST and depth(grown(5).record(1.0)) == 5
    wide = SharedPrefix(children={n: SharedPrefix(1, 1.0, label=str(n)) for n in range(40)})
    assert len(wide.record(1.0)["below"]) == WIDEST


def test_means_of_times_are_geometric() -> None:
    times = CandidateTimes()
    assert times.mean == math.inf
    for seconds in (1.0, 4.0, None, 16.0):
        times.add(seconds)
    assert (times.count, times.without, times.best) == (3, 1, 1.0) and times.mean == pytest.approx(4.0)
    assert geomean([2.0, 8.0]) == pytest.approx(4.0) and geomean([]) is None


def test_the_whole_of_an_agreement_is_the_mean_of_its_kernels() -> None:
    """tau: of one kernel 1, of the other -1; loss: nothing, and fourfold."""
    good = [MeasuredVariant("a", 1.0, 1.0), MeasuredVariant("a", 2.0, 2.0)]
    bad = [MeasuredVariant("b", 1.0, 2.0), MeasuredVariant("b", 4.0, 1.0)]
    a, b, both = agreement(good), agreement(bad), agreement([*good, *bad])
    assert (a.tau, b.tau, both.tau) == (1.0, -1.0, 0.0)
    assert (a.loss, b.loss) == (1.0, 4.0) and both.loss == pytest.approx(2.0)
    assert a.error == 0.0 and b.ratio == pytest.approx((2.0 + 0.25) / 2)
