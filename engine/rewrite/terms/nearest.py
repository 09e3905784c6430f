"""Where a rule on tensor nearly matched: the value that its pattern follows furthest, and where the two part.

The pattern's own matcher tells, in the variant that reports near misses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ....ir.tensor import Const, Index, Input, Remap, Term, postorder
from ...language import core as c
from ...language.rule import Rule
from .pattern import ValueMatcher, begins_at

LEAVES = (Input, Const, Index)


@dataclass(frozen=True)
class NearMiss:
    """followed: operations of the pattern that are there; expected: what the pattern has next, None if it is all there;
    found: what stands there; root: where the pattern was held against the program.
    """

    rule: Rule
    followed: int
    expected: c.Syntax | None
    found: Any
    root: Term


def nearest_miss(rule: Rule, roots: Iterable[Term]) -> NearMiss | None:
    """The furthest that a pattern comes in a program; None where no value is made by its last operation."""
    match = _reporting(rule)
    best: NearMiss | None = None
    for term in postorder(tuple(roots)):
        if not begins_at(rule, term):
            continue
        told: list[tuple[int, c.Syntax, Any]] = []
        if match(term, lambda *miss, told=told: told.append(miss)):
            return NearMiss(rule, best.followed if best is not None else 1, None, term, term)
        followed, expected, found = max(told, key=lambda miss: (miss[0], _tells(miss[2])))
        if best is None or followed > best.followed:
            best = NearMiss(rule, followed, expected, found, term)
    return best


def _tells(found: Any) -> bool:
    """An operation tells more than an input, wherever that is read."""
    return not isinstance(found.x if isinstance(found, Remap) else found, LEAVES)


@functools.lru_cache(maxsize=512)
def _reporting(rule: Rule) -> Callable[..., bool | None]:
    """The matcher of a pattern that tells near misses."""
    maker = ValueMatcher(rule, told="parts")
    maker.open("def match(t, near):")
    maker.root()
    maker.put("return True")
    maker.close()
    return maker.compile("match", rule.name)  # type: ignore[no-any-return]
