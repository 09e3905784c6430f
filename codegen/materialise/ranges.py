"""What is known of an index: its range, and what the ranges of the names in scope make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...ir.expr import Binary, Call, is_int, rebuild
from ...ir.facts.layout import tidy
from ...ir.node import Expr, Node, contents, memoised, nodes
from ...ir.ranges import Interval, interval
from .lowering import Lowering
from .widths import INT_LIMIT, fits


def tidied(low: Lowering, e: Expr) -> Expr:
    """e simplified by the ranges of the names in scope."""
    if not isinstance(e, Node) or not (e._contents or contents(e)) & Binary.mark:
        return e  # a sum of names: nothing to divide
    known = low.tidied.get(e)
    if known is None:
        known = low.tidied[e] = rounded_down(low, tidy(e, low.ranges))
    return known


def rounded_down(low: Lowering, e: Expr) -> Expr:
    """C rounds to zero: a quotient whose dividend may be negative is a call, but for shifts and masks."""
    if not isinstance(e, Node) or all(least(low, division.a) >= 0 for division in divisions(e)):
        return e
    e = rebuild(e, lambda part: rounded_down(low, part))
    if e not in divisions(e) or least(low, e.a) >= 0:
        return e
    return Call("floor_divide" if e.op == "//" else "remainder", (e.a, e.b))


@contextmanager
def ranging(low: Lowering, ranges: Mapping[str, Interval]) -> Iterator[None]:
    """Within: these names have these ranges. What was simplified is kept by ranges: copies of two slabs take turns, and
    each finds again what it knew.
    """
    before = {name: low.ranges.get(name) for name in ranges}
    low.ranges.update(ranges)
    if any(before[name] != ranges[name] for name in ranges):
        low.tidied, low.cells = low.simplified.setdefault(frozenset(low.ranges.items()), ({}, {}))
    yield
    # a name stays known after its loop: nothing reads it there, and a loop of the same shape finds its answers


def least(low: Lowering, e: Expr) -> int:
    """The least value of an index."""
    return interval(e, low.ranges)[0]


def greatest(low: Lowering, e: Expr) -> int:
    """The greatest value of an index."""
    return interval(e, low.ranges)[1]


def counter_dtype(low: Lowering, start: Expr, stop: Expr, step: Expr) -> str:
    """The dtype of a loop's variable, which must hold the value that ends the loop too."""
    last = greatest(low, stop) - 1 + (step if is_int(step) else greatest(low, step))
    return "i32" if fits(start, low.ranges) and fits(stop, low.ranges) and last < INT_LIMIT else "i64"


@memoised
def divisions(e: Any) -> tuple[Any, ...]:
    """The quotients and remainders in an expression that are not shifts and masks."""
    found = (part for part in nodes(e, Binary) if part.op in ("//", "%"))
    return tuple(part for part in found if not (is_int(part.b) and part.b > 0 and part.b & (part.b - 1) == 0))
