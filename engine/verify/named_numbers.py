"""The numbers that the text of a rule names: what its guards compare with is where it may be wrong."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from ..language import core as s
from ..language.rule import Rule


def named_numbers(rule: Rule) -> tuple[int | float, ...]:
    """Every number of the pattern, the guards and the domains; beside a whole one its neighbours and its double."""
    found: dict[int | float, None] = {}
    for value in _numbers((rule.match, rule.clauses, rule.parameters)):
        near = (value, value + 1, value - 1, 2 * value) if type(value) is int else (value,)
        found |= dict.fromkeys(near)
    return tuple(found)


def _numbers(node: Any) -> Iterator[int | float]:
    if isinstance(node, tuple):
        for item in node:
            yield from _numbers(item)
    elif isinstance(node, s.Prefix) and node.op == "-" and isinstance(node.a, s.Number):
        yield -node.a.value
    elif isinstance(node, s.Number):
        if type(node.value) in (int, float) and math.isfinite(node.value):
            yield node.value
    elif isinstance(node, s.Syntax):
        for field in dataclasses.fields(node):
            if field.name != "span":
                yield from _numbers(getattr(node, field.name))
