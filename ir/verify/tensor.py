"""Invariants of a Tensor IR program.

Axes and extents agree, operands have the dtypes that their functions accept, and indices stay in bounds if their ranges
are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..diagnostic import InternalError
from ..dtypes import FLOATS, INTEGERS
from ..expr import Axis, Binary, only_sizes, subtract
from ..facts.index import greatest, interval
from ..functions import BITS, CAST, FLOAT, FUNCTIONS, LOGICAL, SELECT
from ..monoid_texts import PARTS
from ..monoids import of_part
from ..node import contains, distinct
from ..sizes import LARGE, lowest
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
from ..text.print_statements import print_head


def verify(graph: TensorGraph) -> None:
    """Raise InternalError at the first broken invariant."""
    problems = check(graph)
    if problems:
        raise InternalError(f"graph `{graph.name}` is not well formed", notes=problems)


def check(graph: TensorGraph) -> list[str]:
    """Return the errors of a program, a line each."""
    return list(_problems(graph))


def _problems(graph: TensorGraph) -> Iterator[str]:
    terms = postorder(graph.roots)
    yield from _names(graph, terms)
    for term in terms:
        yield from _term(term)
    # what is below a side of a Case may be read out of bounds where the Case selects the other side
    shielded = set(postorder(side for term in terms if isinstance(term, Case) for side in (term.a, term.b)))
    for term in terms:
        if isinstance(term, Remap) and term not in shielded:
            yield from _bounds(term)
    for out in graph.outs:
        for axis in axes(out.value):
            if axis not in out.axes:
                yield f"`{out.name}` leaves out axis {axis.name}"


def _names(graph: TensorGraph, terms: list[Term]) -> Iterator[str]:
    seen: dict[str, Axis] = {}
    for term in (*graph.ins, *terms):
        for axis in (*axes(term), *(term.over if isinstance(term, Reduce | Fold) else ())):
            if (first := seen.setdefault(axis.name, axis)) is not axis:
                yield f"axis {axis.name} has extents {print_head(first.extent)} and {print_head(axis.extent)}"
            if not only_sizes(axis.extent) or lowest(axis.extent) < 0:
                yield f"axis {axis.name} has extent {print_head(axis.extent)}"
    named: tuple[Any, ...] = (*graph.ins, *graph.outs, *graph.names)
    values = Counter(one.name for one in named)
    for name in sorted(values):
        if values[name] > 1:
            yield f"`{name}` names two values"
    for name in sorted(values.keys() & seen.keys()):
        yield f"`{name}` names a value and an axis"
    for name in sorted(term.name for term in terms if isinstance(term, Input) and term not in graph.ins):
        yield f"input `{name}` is not declared"


def _term(term: Any) -> Iterator[str]:
    """Yield the errors of one term. An axis of extent 1 may be missing: at a size of 1, an index over it is 0."""
    match term:
        case Elementwise():
            found = [dtype(x) for x in term.args]
            if term.fn not in FUNCTIONS or len(found) != FUNCTIONS[term.fn].arity:
                yield f"`{term.fn}` of {len(found)} operands"
            elif not fit(FUNCTIONS[term.fn].kind, found):
                yield f"{term.fn}({', '.join(found)})"
        case Reduce(over=over, x=x):
            if term.fn not in FUNCTIONS or FUNCTIONS[term.fn].identity is None:
                yield f"`{term.fn}` cannot reduce"
            for axis in over:
                if axis not in axes(x) and axis.extent != 1:
                    yield f"Reduce over {axis.name}, which its operand lacks"
        case Fold():
            yield from _fold(term)
        case Case(cond=cond, a=a, b=b):
            if not is_condition(cond):
                yield "the condition of a Case is a number"
            if dtype(a) != dtype(b):
                yield f"a Case of {dtype(a)} and {dtype(b)}"
            yield from _conditions(cond)
        case Remap(x=x):
            for axis, _ in term.map:
                if axis not in axes(x) and axis.extent != 1:
                    yield f"an index map of axis {axis.name}, which its operand lacks"
        case Index(expr=expr):
            yield from _conditions(expr)


def _fold(term: Fold) -> Iterator[str]:
    if term.part not in PARTS:
        yield f"there is no `{term.part}` to fold"
    elif len(term.args) != len(of_part(term.part)[0].operands):
        yield f"`{term.part}` of {len(term.args)} operands"
    else:
        found = [dtype(x) for x in term.args]
        if len(set(found)) != 1 or found[0] not in ("f32", "f64"):
            yield f"`{term.part}` of {', '.join(found)}"
        for axis in term.over:
            if axis not in axes(term.args[0]):
                yield f"Fold over {axis.name}, which its first operand lacks"


def fit(kind: str, dtypes: list[str]) -> bool:
    """Return whether a function of a kind takes operands of these dtypes."""
    first, alike = dtypes[0], len(set(dtypes)) == 1
    if kind == SELECT:
        return first == "b8" and dtypes[1] == dtypes[2]
    of_kind = {LOGICAL: ("b8",), BITS: INTEGERS, FLOAT: FLOATS}
    return kind == CAST or (alike and first in of_kind.get(kind, dtypes))


def _conditions(e: Any) -> Iterator[str]:
    """Yield the problems of conditions: arithmetic on truth values, and indices that are not whole numbers."""
    binaries = list(distinct(e, Binary))
    for x in binaries:
        if x.op not in ("and", "or", "==", "!=") and (is_condition(x.a) or is_condition(x.b)):
            yield f"`{x.op}` of a condition"
    for x in binaries:
        if float in (x.a.__class__, x.b.__class__):
            yield f"`{print_head(x)}` is about places, which are whole numbers"


def _bounds(term: Remap) -> Iterator[str]:
    for axis, e in term.map:
        low, high = interval(e)
        unknown = high >= LARGE or contains(e, Term)
        if not unknown and not ((low >= 0 or _negative(subtract(-1, e))) and _below(e, axis.extent)):
            yield f"an index in {low}..{high + 1} reads axis {axis.name}:{print_head(axis.extent)}"


def _below(e: Any, extent: Any) -> bool:
    """Return whether an index is below an extent for all values of the sizes."""
    return interval(e)[1] < interval(extent)[0] or _negative(subtract(e, extent))


def _negative(e: Any) -> bool:
    """Return whether an expression is below zero for all values of its axes."""
    return greatest(e) < 0
