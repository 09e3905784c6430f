"""Facts about Tensor IR values. True of every spelling of a value, hence safe for algebra rules (and for egglog)."""

from __future__ import annotations

import math
from typing import Any

from ...ir import compose
from ...ir.expr import Axis, Var
from ...ir.functions import DTYPES
from ...ir.tensor import Const, Elementwise, Fold, Input, Reduce, Term, axes, dtype, index_axes, postorder
from ..language.facts import fact


@fact("axes(term) -> [axis]", levels="tensor")
def axes_of(site: Any, x: Term) -> tuple[Axis, ...]:
    """The axes that a value varies along."""
    return axes(x)


HALF = 0.5  # what `frexp` gives for a power of two
EXPONENTS = 100  # of f32, well inside its range: the reciprocal of such a power of two is exact
_DTYPES = {name: Var(name) for name in DTYPES}


@fact("beyond(term, term) -> [axis]", levels="tensor")
def beyond(site: Any, x: Term, y: Term) -> tuple[Axis, ...]:
    """The axes of x that y lacks."""
    own = axes(y)
    return tuple(axis for axis in axes(x) if axis not in own)


@fact("dtype(term) -> dtype", levels="tensor")
def dtype_of(site: Any, x: Term) -> Var:
    """The dtype of a value."""
    return _DTYPES[dtype(x)]


@fact("extent(axis) -> int", levels="tensor")
def extent(site: Any, axis: Axis) -> Any:
    """How many places an axis has."""
    return axis.extent


@fact("number(term) -> any", levels="tensor")
def number(site: Any, x: Any) -> Any:
    """The number that a function of numbers is; none if it is not a function of numbers, or its value is no number."""
    if x.__class__ is not Elementwise:
        return None
    for arg in x.args:
        if arg.__class__ is not Const:
            return None
    value = compose.elementwise(x.fn, *x.args)
    return value.value if value.__class__ is Const else None  # type: ignore[attr-defined]


@fact("literal(term) -> any", levels="tensor")
def literal(site: Any, x: Any) -> Any:
    """The number that a constant is; none for any other value."""
    return x.value if x.__class__ is Const else None


@fact("contains_reduction(term) -> bool", levels="tensor")
def contains_reduction(site: Any, x: Term) -> bool:
    """Whether computing a value means folding something."""
    return any(below.__class__ in (Reduce, Fold) for below in postorder((x,)))


@fact("folded_below(term, [axis]) -> [axis]", levels="tensor")
def folded_below(site: Any, x: Term, along: Any) -> tuple[Axis, ...]:
    """Those of some axes that reductions fold which a value is computed from."""
    folds = [axis for below in postorder((x,)) if below.__class__ in (Reduce, Fold) for axis in below.over]
    return tuple(axis for axis in along if axis in folds)


@fact("exact_reciprocal(term) -> any", levels="tensor")
def exact_reciprocal(site: Any, x: Any) -> Any:
    """1 / x for a number that is a power of two (dividing is multiplying, bit for bit); else none."""
    if x.__class__ is not Const or not isinstance(x.value, float) or not math.isfinite(x.value):
        return None
    mantissa, exponent = math.frexp(x.value)
    return 1.0 / x.value if abs(mantissa) == HALF and abs(exponent) < EXPONENTS else None


@fact("known(term) -> bool", levels="tensor")
def known(site: Any, x: Term) -> bool:
    """Whether a value is known when the program is loaded: it reads weights only, and at least one."""
    inputs = [term for term in postorder((x,)) if term.__class__ is Input]
    return bool(inputs) and all(term.name in site.weights for term in inputs)  # type: ignore[attr-defined]


@fact("disjoint([axis], [axis]) -> bool", levels="tensor")
def disjoint(site: Any, some: Any, others: Any) -> bool:
    """Whether two lists of axes have none in common."""
    return not set(some) & set(others)


@fact("within([axis], [axis]) -> bool", levels="tensor")
def within(site: Any, some: Any, others: Any) -> bool:
    """Whether all axes of a list are in another."""
    return set(some) <= set(others)


@fact("common([axis], [axis]) -> [axis]", levels="tensor")
def common(site: Any, some: Any, others: Any) -> tuple[Axis, ...]:
    """The axes that two lists have in common."""
    return tuple(axis for axis in some if axis in others)


@fact("source_axes(any) -> [axis]", levels="tensor")
def source_axes(site: Any, places: Any) -> tuple[Axis, ...]:
    """The axes that an index map replaces: `j` in `x[j := i + 1]`."""
    return tuple(axis for axis, _ in places)


@fact("image_axes(any) -> [axis]", levels="tensor")
def image_axes(site: Any, places: Any) -> tuple[Axis, ...]:
    """The axes that an index map reads its operand under: `i` in `x[j := i + 1]`."""
    return tuple(dict.fromkeys(axis for _, e in places for axis in index_axes(e)))


@fact("packed(term, [axis]) -> any", levels="tensor")
def packed(site: Any, w: Term, over: Any) -> Any:
    """The weight that holds w beside its siblings, which are summed over the same axes against the same value; else
    none.
    """
    found = site.packs.get((w, frozenset(over)))
    return None if found is None else found.whole


@fact("packed_places(term, [axis]) -> any", levels="tensor")
def packed_places(site: Any, w: Term, over: Any) -> Any:
    """The index map that reads w's part of what the packed weight gives; none for a weight without siblings."""
    found = site.packs.get((w, frozenset(over)))
    return None if found is None else found.places


def is_one_over(value: float, count: int) -> bool:
    """Whether a number is, rounded to a float, one over another."""
    return value > 0 and round(1 / value) == count


@fact("first_along([axis]) -> any", levels="tensor")
def first_along(site: Any, over: Any) -> Any:
    """The index map that reads the first element along axes, wherever it is read."""
    return tuple((axis, 0) for axis in over)


@fact("one_over(term, [axis]) -> bool", levels="tensor")
def one_over(site: Any, c: Term, over: Any) -> bool:
    """Whether a number is one over how many places axes have together: a sum times it is a mean."""
    return c.__class__ is Const and is_one_over(c.value, places(site, over))


@fact("places([axis]) -> int", levels="tensor")
def places(site: Any, over: Any) -> int:
    """How many places axes have together, each counted once."""
    return math.prod(int(axis.extent) for axis in dict.fromkeys(over))
