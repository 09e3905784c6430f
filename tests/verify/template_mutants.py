"""Mutants of rules: a guard left out, or a piece of the template left out or changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dplc.engine.language import core as s
from dplc.engine.language.core import children
from dplc.engine.language.rule import Rule
from dplc.engine.language.spelling import expression
from dplc.engine.rewrite.trace import written_head
from dplc.engine.verify.mutants import without_guards


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yield rules without a guard, statement, field, substitution or arm, or with another sign or number."""
    yield from without_guards(rule)
    for what, rewrite in _changed(rule.rewrite):
        yield what, replace(rule, rewrite=rewrite)


Changed = Iterator[tuple[str, Any]]


def _changed(node: object) -> Changed:
    """Yield each possible change of a template, with its description."""
    if isinstance(node, s.Syntax):
        yield from _own(node)
        for what, fields in _changed(tuple(children(node))):
            yield what, type(node)(node.span, *fields)
    elif isinstance(node, tuple):
        for n, item in enumerate(node):
            before, after = node[:n], node[n + 1 :]
            if len(node) > 1 and isinstance(item, DROPPABLE):
                yield f"without `{written_head(item)}`", before + after
            yield from ((what, (*before, other, *after)) for what, other in _changed(item))


DROPPABLE = (
    s.Statement, s.IfBlock, s.EachBlock, s.RunStatement, s.ForLoop, s.Keyword, s.Substitution, s.Arm, s.UseRule,
)  # fmt: skip


def _own(node: Any) -> Changed:
    """Yield changes of a node itself."""
    match node:
        case s.IfBlock():
            yield f"`{written_head(node)}` always", replace(node, condition=s.NameOf(node.span, "true"))
        case s.RunStatement(changes=(_,)):
            yield f"without the changes of `{written_head(node)}`", replace(node, changes=())
        case s.Number(value=value) if type(value) in (int, float):
            yield f"{value + 1} for {value} at line {node.span.line}", replace(node, value=value + 1)
        case s.Operation(op=old) | s.Apply(fn=old) if old in OTHER:
            changes: dict[str, Any] = {"fn" if isinstance(node, s.Apply) else "op": OTHER[old]}
            yield f"`{OTHER[old]}` for `{old}` in `{expression(node)}`", replace(node, **changes)
    if isinstance(node, s.Apply) and node.fn in ORDERED and len(node.items) == 2:
        yield f"operands of `{expression(node)}` exchanged", replace(node, items=node.items[::-1])


_OTHER = """
    + -, - +, * +, // %, % //, < <=, <= <, > >=, >= >, add subtract, subtract add, multiply add, maximum minimum,
    minimum maximum, exp expm1, sqrt rsqrt, less less_equal, greater greater_equal, logical_and logical_or
"""
OTHER = dict(pair.split() for pair in _OTHER.split(","))
ORDERED = ("subtract", "divide", "less", "greater", "pow", "floor_divide", "remainder")
