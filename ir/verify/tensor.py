"""Invariants of a Tensor IR program.

Axes and extents agree, operands have the dtypes that their functions accept, and indices stay in bounds if their ranges
are known.
"""

from __future__ import annotations

from typing import Any

from ..diagnostic import InternalError
from ..dtypes import FLOATS, INTEGERS
from ..expr import Axis, Binary, only_sizes, subtract
from ..facts.index import LARGE, greatest, interval
from ..functions import ARITHMETIC, BITS, CAST, COMPARE, FLOAT, FUNCTIONS, LOGICAL, SELECT
from ..monoid_texts import PARTS
from ..monoids import of_part
from ..node import Node, walk
from ..sizes import lowest
from ..tensor import (
    Case,
    Elementwise,
    Fold,
    Index,
    Input,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    is_condition,
    postorder,
)
from ..text.print_statements import print_expr


def verify(graph: TensorGraph) -> None:
    """Raise InternalError at the first broken invariant."""
    problems = check(graph)
    if problems:
        raise InternalError(f"graph `{graph.name}` is not well formed", notes=problems)


def check(graph: TensorGraph) -> list[str]:
    """Return the errors of a program, a line each."""
    terms = postorder(out.value for out in graph.outs)
    problems = _names(graph, terms)
    for term in terms:
        problems += _term(term)
    shielded = _under_a_case(terms)
    for term in terms:
        if isinstance(term, Remap) and term not in shielded:
            problems += _bounds(term)
    for out in graph.outs:
        missing = [a.name for a in axes(out.value) if a not in out.axes]
        problems += [f"`{out.name}` leaves out axis {name}" for name in missing]
    return problems


def _names(graph: TensorGraph, terms: list[Term]) -> list[str]:
    problems: list[str] = []
    seen: dict[str, Axis] = {}
    for term in (*graph.ins, *terms):
        for axis in (*axes(term), *(term.over if isinstance(term, Reduce | Fold) else ())):
            if seen.setdefault(axis.name, axis) is not axis:
                problems.append(
                    f"axis {axis.name} has extents {print_expr(seen[axis.name].extent)} and {print_expr(axis.extent)}"
                )
            if not only_sizes(axis.extent) or lowest(axis.extent) < 0:
                problems.append(f"axis {axis.name} has extent {print_expr(axis.extent)}")
    values = [x.name for x in graph.ins] + [o.name for o in graph.outs] + [n.name for n in graph.names]
    problems += [f"`{name}` names two values" for name in sorted({n for n in values if values.count(n) > 1})]
    problems += [f"`{name}` names a value and an axis" for name in sorted(set(values) & seen.keys())]
    undeclared = {t for t in terms if isinstance(t, Input)} - set(graph.ins)
    return problems + [f"input `{x.name}` is not declared" for x in sorted(undeclared, key=lambda x: x.name)]


def _term(term: Any) -> list[str]:
    """Return the errors of one term. An axis of extent 1 may be missing: at a size of 1, an index over it is 0."""
    if isinstance(term, Elementwise):
        return _operands(term)
    if isinstance(term, Reduce):
        known = term.fn in FUNCTIONS and FUNCTIONS[term.fn].identity is not None
        lacking = [a.name for a in term.over if a not in axes(term.x) and a.extent != 1]
        return ([] if known else [f"`{term.fn}` cannot reduce"]) + [
            f"Reduce over {name}, which its operand lacks" for name in lacking
        ]
    if isinstance(term, Fold):
        return _fold(term)
    if isinstance(term, Case):
        problems = [] if is_condition(term.cond) else ["the condition of a Case is a number"]
        same = dtype(term.a) == dtype(term.b)
        return problems + ([] if same else [f"a Case of {dtype(term.a)} and {dtype(term.b)}"]) + _conditions(term.cond)
    if isinstance(term, Remap):
        own = axes(term.x)
        lacking = [a.name for a, _ in term.map if a not in own and a.extent != 1]
        return [f"an index map of axis {name}, which its operand lacks" for name in lacking]
    return _conditions(term.expr) if isinstance(term, Index) else []


def _fold(term: Fold) -> list[str]:
    if term.part not in PARTS:
        return [f"there is no `{term.part}` to fold"]
    monoid, _ = of_part(term.part)
    if len(term.args) != len(monoid.operands):
        return [f"`{term.part}` of {len(term.args)} operands"]
    found = [dtype(x) for x in term.args]
    problems = [] if len(set(found)) == 1 and found[0] in ("f32", "f64") else [f"`{term.part}` of {', '.join(found)}"]
    lacking = [a.name for a in term.over if a not in axes(term.args[0])]
    return problems + [f"Fold over {name}, which its first operand lacks" for name in lacking]


def _operands(term: Elementwise) -> list[str]:
    function = FUNCTIONS.get(term.fn)
    if function is None or len(term.args) != function.arity:
        return [f"`{term.fn}` of {len(term.args)} operands"]
    found = [dtype(x) for x in term.args]
    shown = f"{term.fn}({', '.join(found)})"
    if function.kind == CAST:
        return []
    if function.kind == SELECT:
        return [] if found[0] == "b8" and found[1] == found[2] else [shown]
    if function.kind == LOGICAL:
        return [] if set(found) == {"b8"} else [shown]
    if function.kind == BITS:
        return [] if len(set(found)) == 1 and found[0] in INTEGERS else [shown]
    fits = len(set(found)) == 1 and (function.kind != FLOAT or found[0] in FLOATS)
    assert function.kind in (FLOAT, ARITHMETIC, COMPARE)
    return [] if fits else [shown]


def _conditions(e: Any) -> list[str]:
    """Return the problems of conditions: arithmetic on truth values, and indices that are not whole numbers."""
    binaries = [x for x in walk(e) if x.__class__ is Binary]
    arithmetic = (x for x in binaries if x.op not in ("and", "or", "==", "!="))
    loose = (x for x in binaries if float in (x.a.__class__, x.b.__class__))
    return [f"`{x.op}` of a condition" for x in arithmetic if is_condition(x.a) or is_condition(x.b)] + [
        f"`{print_expr(x)}` is about places, which are whole numbers" for x in loose
    ]


def _bounds(term: Remap) -> list[str]:
    problems = []
    for axis, e in term.map:
        low, high = interval(e)
        unknown = high >= LARGE or any(isinstance(x, Term) for x in walk(e) if isinstance(x, Node))
        if not unknown and not ((low >= 0 or _negative(subtract(-1, e))) and _below(e, axis.extent)):
            problems.append(f"an index in {low}..{high + 1} reads axis {axis.name}:{print_expr(axis.extent)}")
    return problems


def _below(e: Any, extent: Any) -> bool:
    """Return whether an index is below an extent for all values of the sizes."""
    return interval(e)[1] < interval(extent)[0] or _negative(subtract(e, extent))


def _negative(e: Any) -> bool:
    """Return whether an expression is below zero for all values of its axes."""
    return greatest(e) < 0


def _under_a_case(terms: list[Term]) -> set[Term]:
    """Return terms below a side of a Case. They may be read out of bounds where the Case selects the other side."""
    return set(postorder(side for term in terms if isinstance(term, Case) for side in (term.a, term.b)))
