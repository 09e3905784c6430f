"""Names of values for people: unique, deterministic, never the name of an axis."""

from __future__ import annotations

from collections.abc import Mapping, Set

from ....ir.names import unused
from ....ir.tensor import Case, Elementwise, Fold, Mat, Named, Output, Reduce, Term, postorder

# What a value is called that no rule gave a name.
_REDUCED = {
    "add": "sum",
    "maximum": "top",
    "minimum": "least",
    "multiply": "product",
    "logical_and": "every",
    "logical_or": "some",
}
_COMPUTED = {
    "add": "added", "subtract": "difference", "multiply": "product", "divide": "ratio", "maximum": "larger",
    "minimum": "smaller",     "negative": "negated", "where": "chosen", "copy": "kept",
}  # fmt: skip


def complete_names(outs: tuple[Output, ...], hints: Mapping[Term, str], fixed: Set[str]) -> tuple[Named, ...]:
    """A name for every line between inputs and outputs. fixed: names that are taken."""
    taken = {*fixed, *(out.name for out in outs)}
    stored = {out.value for out in outs}
    named = []
    for term in postorder(out.value for out in outs):
        if term.__class__ in (Elementwise, Reduce, Fold, Case, Mat) and term not in stored:
            name = _free(hints.get(term) or _plain_name(term), taken)
            taken.add(name)
            named.append(Named(name, term))
    return tuple(named)


def _plain_name(term: Term) -> str:
    if isinstance(term, Reduce):
        return _REDUCED.get(term.fn, "folded")
    if isinstance(term, Fold):
        return "folded"
    if isinstance(term, Elementwise):
        return _COMPUTED.get(term.fn, f"{term.fn}_")
    return "stored" if isinstance(term, Mat) else "picked"


def _free(name: str, taken: Set[str]) -> str:
    return unused(name, taken, (name,)) if name.endswith("_") else unused(name, taken, first=2)
