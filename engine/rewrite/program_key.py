"""The structural key of a program of values: equal for programs that differ in names only."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from ...ir.expr import Axis
from ...ir.node import Node
from ...ir.tensor import Input, TensorGraph, Term, postorder


def program_key(graph: TensorGraph, known: Collection[str]) -> str:
    """A hash of a program: its terms in order, sizes and dtypes, and which inputs are known when it is loaded."""
    places: dict[Term, int] = {}
    axes: dict[Axis, int] = {}
    written: list[str] = []
    for term in (*graph.ins, *postorder(out.value for out in graph.outs)):
        if term in places:
            continue
        if term.__class__ is Input:
            sizes = _spelled(term.axes, places, axes)  # type: ignore[attr-defined]
            written.append(f"{term.name in known} {term.dtype} {sizes}")  # type: ignore[attr-defined]
        else:
            fields = (_spelled(getattr(term, field.name), places, axes) for field in type(term).fields)
            written.append(f"{type(term).__name__} {' '.join(fields)}")
        places[term] = len(places)
    written += [f"out {places[out.value]} {_spelled(out.axes, places, axes)}" for out in graph.outs]
    return hashlib.sha256("\n".join(written).encode()).hexdigest()[:16]


def _spelled(value: Any, places: dict[Term, int], axes: dict[Axis, int]) -> str:
    """A field. Axes are numbered where they are first met; a term that was met is its place."""
    if value.__class__ is Axis:
        return f"axis{axes.setdefault(value, len(axes))}:{value.extent}"
    if isinstance(value, Term) and value in places:
        return f"%{places[value]}"
    if isinstance(value, tuple):
        return f"({' '.join(_spelled(item, places, axes) for item in value)})"
    if isinstance(value, Node):
        fields = (_spelled(getattr(value, field.name), places, axes) for field in type(value).fields)
        return f"{type(value).__name__}({' '.join(fields)})"
    return f"{value.__class__.__name__}:{value!r}"
