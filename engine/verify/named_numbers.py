"""The numbers that the text of a rule names: what its guards compare with is where it may be wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..language import core as s
from ..language.positions import walk
from ..language.rule import Rule


def named_numbers(rule: Rule) -> tuple[int | float, ...]:
    """Every number of the pattern, the guards and the domains; beside a whole one its neighbours and its double."""
    found: dict[int | float, None] = {}
    for value in _numbers((rule.match, rule.clauses, rule.parameters)):
        near = (value, value + 1, value - 1, 2 * value) if type(value) is int else (value,)
        found |= dict.fromkeys(near)
    return tuple(found)


def _numbers(node: Any) -> Iterator[int | float]:
    nodes = list(walk(node))
    negative = {id(one.a) for one in nodes if isinstance(one, s.Prefix) and one.op == "-"}
    for one in nodes:
        if isinstance(one, s.Number) and type(one.value) in (int, float) and math.isfinite(one.value):
            yield -one.value if id(one) in negative else one.value
