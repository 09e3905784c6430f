"""What is stored where views are: a view owns no kernel, so what it looks at is stored, when the view itself is visited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dplc.engine.explore.solution import Extraction, Permissions

# 0 reads a view (1) of a view (2) of a value (3) of an input (4): (op, .., operands), one spelling each
CLASSES = {
    0: [("Elementwise", None, (1,))],
    1: [("Map", None, (2,))],
    2: [("Map", None, (3,))],
    3: [("Elementwise", None, (4,))],
}
EVERYTHING = Permissions(frozenset(("Elementwise", "Map")), plain=True)
NOTHING = Permissions(frozenset(), plain=False)


def kept(cls: int, stores: set[int], roots: tuple[int, ...] = (), allowed: Permissions = EVERYTHING) -> set[int]:
    graph = SimpleNamespace(classes=CLASSES)
    extraction: Any = SimpleNamespace(graph=graph, leaves={4}, roots=roots, permissions=allowed)
    found: set[int] = set()
    Extraction._decide_stores(extraction, cls, stores, dict.fromkeys(CLASSES, 0), dict.fromkeys(CLASSES, False), found)
    return found


@pytest.mark.parametrize(
    ("cls", "stores", "wanted"),
    [
        (0, {0, 3}, set()),  # it reads a view
        (0, {1}, set()),  # the view says so itself
        (1, {1}, set()),  # the view below says so
        (1, {1, 2}, set()),
        (2, {2}, {3}),
        (2, {3}, {3}),
        (2, set(), set()),
        (3, {3}, set()),  # an input is there
    ],
)
def test_who_stores_what_a_view_looks_at(cls: int, stores: set[int], wanted: set[int]) -> None:
    assert kept(cls, stores) == wanted


def test_a_view_that_is_a_root_stores_nothing_for_its_readers() -> None:
    assert kept(2, {2}, roots=(2,)) == set()


def test_what_cannot_be_inlined_is_stored() -> None:
    assert kept(2, set(), allowed=NOTHING) == {3} == kept(1, set(), allowed=NOTHING)
