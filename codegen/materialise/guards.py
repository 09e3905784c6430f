"""Conditions at vector granularity, and what a condition tells about ranges."""

from __future__ import annotations

from ...ir.expr import Binary, Var, binary, both, floordiv, free_names, linear, multiple_of, only_sizes, subtract
from ...ir.facts.layout import is_vector
from ...ir.node import Expr, Node, contents
from ...ir.ranges import Interval, decide
from ...ir.substitute import substitute
from .lowering import Lowering
from .ranges import tidied
from .registers import varies


def weaken(low: Lowering, condition: Expr) -> Expr:
    """The condition without the positions inside vectors on which it does not depend.

    `e < N` holds for all of a vector or none of it, if e counts aligned neighbours and N is a multiple of the width.
    That is why a ragged row of 2000 keeps its vector stores and one of 2003 does not.
    """
    if condition.__class__ is not Binary:
        return condition
    if condition.op in ("and", "or"):
        return binary(condition.op, weaken(low, condition.a), weaken(low, condition.b))
    names = free_names(condition)
    for axis, width in low.vectors.items():
        edge = condition.op in ("<", ">=") and on_edge(condition.b, width)
        if (
            edge
            and axis in names
            and is_vector(tidied(low, condition.a), axis, width)
            and not varies(low, condition, axis)
        ):
            condition = binary(condition.op, substitute(condition.a, {axis: 0}), condition.b)
            if condition.__class__ is not Binary:
                break
    return condition


def on_edge(limit: Expr, width: int) -> bool:
    """Whether no vector of a width has a limit inside."""
    return only_sizes(limit) and multiple_of(limit) % width == 0


def simplify_condition(low: Lowering, condition: Expr) -> Expr:
    """The condition simplified, with the parts that ranges decide taken out."""
    condition = tidied(low, condition)
    decided = decide(condition, low.ranges)
    if decided is not None:
        return decided
    if condition.__class__ is Binary and condition.op in ("and", "or"):
        return binary(condition.op, simplify_condition(low, condition.a), simplify_condition(low, condition.b))
    return condition


def narrowed(low: Lowering, condition: Expr) -> dict[str, Interval]:
    """The ranges of names where the condition `name + c < limit` holds."""
    ranges = dict(low.ranges)
    if condition.__class__ is Binary and condition.op == "and":
        first, second = narrowed(low, condition.a), narrowed(low, condition.b)
        return {name: (max(r[0], second[name][0]), min(r[1], second[name][1])) for name, r in first.items()}
    if condition.__class__ is not Binary or condition.op not in ("<", "<="):
        return ranges
    terms, spare = linear(subtract(condition.b, condition.a))
    if len(terms) == 1:
        ((name, factor),) = terms.items()
        if name.__class__ is Var and factor == -1 and name.name in ranges:
            bottom, top = ranges[name.name]
            ranges[name.name] = (bottom, min(top, spare - (condition.op == "<")))
    return ranges


def in_chunks(low: Lowering, place: Expr, limit: Expr) -> Expr:
    """`place < limit`, said of whole chunks where no chunk is cut by the limit: no thread asks for a place of its own.

    `chunk*16 + i < 2048` of i below 16 is `chunk < 128`, and the same for a whole block.
    """
    terms, _ = linear(place)
    for size in sorted({n for n in terms.values() if n > 1 and on_edge(limit, n)}, reverse=True):
        chunk = tidied(low, floordiv(place, size))
        divided = isinstance(chunk, Node) and contents(chunk) & Binary.mark
        if not divided and free_names(chunk) < free_names(place):
            return binary("<", chunk, floordiv(limit, size))
    return binary("<", place, limit)


def conjunction(conditions: list[Expr]) -> Expr:
    result: Expr = True
    for condition in conditions:
        result = both(result, condition)
    return result
