"""Facts about Tensor IR values, about numbers and lists, and about fusing prefix sums.

They hold for every spelling of a value, so algebra rules and egglog can use them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from ...codegen.target import Target
from ...ir import compose, sizes
from ...ir.expr import Axis, Call, Undecided, Var, add, multiple_of
from ...ir.facts.dataflow import Dataflow, common_key, places_of_fold
from ...ir.functions import DTYPES
from ...ir.sizes import at_hint, hinted, known_at_launch, lowest
from ...ir.tensor import (
    Const,
    Elementwise,
    Fold,
    Input,
    Reduce,
    Remap,
    Term,
    axes,
    decide_below,
    dtype,
    from_below,
    index_axes,
    operands,
    reduced_below,
)
from ..language.evaluate import (
    AxisList,
    Expression,
    ExpressionList,
    Number,
    NumberList,
    Value,
    ValueList,
    every_fact,
    fact,
    tensor_fact,
)
from ..rewrite.terms.rewriter import TermSite


@fact("axes(term) -> [axis]", levels="tensor")
def axes_of(x: Term) -> tuple[Axis, ...]:
    """Return the axes that a value varies along."""
    return axes(x)


HALF = 0.5  # what `frexp` gives for a power of two
EXPONENTS = 100  # of f32, well inside its range: the reciprocal of such a power of two is exact
_DTYPES = {name: Var(name) for name in DTYPES}


class ProgramSite(Protocol):
    """A program on tensor as a flow, and the device."""

    flow: Dataflow
    target: Target


class FusionSite(ProgramSite, Protocol):
    """A program whose kernels are being decided. kept: the values that are stored; in_tf32: of operators in TF32."""

    kept: set[Any]
    in_tf32: Collection[Any]

    def parts(self, value: Term, ends: tuple[Term, ...] = ()) -> tuple[list[Any], list[Any]]:
        """Return the operations that make a value from what is in memory or at the ends, and what they read there."""


class OperationSite(FusionSite, Protocol):
    """The operation that may absorb a value, and what its kernel would hold. Axes are bit masks of the flow.

    reader: the operation. top: the value that a climbing store has reached. seen: the open values below it, with the
    axes that it sees them under. open: the same for each value before it. space: the axes that it runs over; folded:
    those that reductions of its kernel fold. owners: the kernels that compute each value, a bit each.
    """

    reader: Any
    top: Any
    seen: dict[Any, int]
    open: dict[Any, dict[Any, int]]
    space: int
    folded: int
    owners: dict[Any, int]
    evaluations: dict[Any, int]
    result_axes: dict[Any, tuple[Axis, ...]]

    @property
    def places(self) -> ReadIndices:
        """The elements of each value that the kernel computes for one result."""


class ReadIndices(Protocol):
    """Counts of the elements of values that one element of a result reads, and of the nodes of their longest index."""

    count: dict[Any, int]
    nodes: dict[Any, int]


@tensor_fact
def beyond(x: Term, y: Term) -> tuple[Axis, ...]:
    """Return the axes of x that y lacks."""
    own = axes(y)
    return tuple(axis for axis in axes(x) if axis not in own)


@fact("dtype(term) -> dtype", levels="tensor")
def dtype_of(x: Term) -> Var:
    """Return the dtype of a value."""
    return _DTYPES[dtype(x)]


@tensor_fact
def extent(axis: Axis) -> int:
    """Return the number of indices of an axis."""
    return axis.extent  # type: ignore[no-any-return]


@tensor_fact
def number(x: Value) -> Any:
    """Return the value of a function of numbers; None for another term, or if the value is not a number."""
    if x.__class__ is not Elementwise or any(arg.__class__ is not Const for arg in x.args):
        return None
    return literal(compose.elementwise(x.fn, *x.args))


@tensor_fact
def literal(x: Value) -> Any:
    """Return the number that a constant is; none for any other value."""
    return x.value if x.__class__ is Const else None


@tensor_fact
def contains_reduction(x: Term) -> bool:
    """Return whether computing a value means folding something."""
    return _folds(x)


@from_below
def _folds(x: Any) -> bool:
    return x.__class__ in (Reduce, Fold) or any(map(_folds, operands(x)))


@tensor_fact
def folded_below(x: Term, along: AxisList) -> tuple[Axis, ...]:
    """Return the axes of a list that reductions below a value fold."""
    folded, _ = reduced_below(x)
    return tuple(axis for axis in along if axis in folded)


@tensor_fact
def exact_reciprocal(x: Value) -> Any:
    """Return 1 / x for a number that is a power of two (dividing is multiplying, bit for bit); else none."""
    if x.__class__ is not Const or not isinstance(x.value, float):
        return None
    mantissa, exponent = math.frexp(x.value)
    return 1.0 / x.value if abs(mantissa) == HALF and abs(exponent) < EXPONENTS else None


@tensor_fact
def known(site: TermSite, x: Term) -> bool:
    """Return whether a value is known when the program is loaded: it reads weights only, and at least one."""

    def inputs(term: Any) -> bool | None:  # whether all are weights; None without inputs
        if term.__class__ is Input:
            return term.name in site.weights
        found = {site.known[below] for below in operands(term)} - {None}
        return all(found) if found else None

    return decide_below(x, site.known, inputs) is True


@tensor_fact
def disjoint(some: AxisList, others: AxisList) -> bool:
    """Return whether two lists of axes have none in common."""
    return not set(some) & set(others)


@tensor_fact
def within(some: AxisList, others: AxisList) -> bool:
    """Return whether all axes of a list are in another."""
    return set(some) <= set(others)


@tensor_fact
def common(some: AxisList, others: AxisList) -> tuple[Axis, ...]:
    """Return the axes that two lists have in common."""
    return tuple(axis for axis in some if axis in others)


@tensor_fact
def source_axes(places: Any) -> tuple[Axis, ...]:
    """Return the axes that an index map replaces: `j` in `x[j := i + 1]`."""
    return tuple(axis for axis, _ in places)


@tensor_fact
def image_axes(places: Any) -> tuple[Axis, ...]:
    """Return the axes that an index map reads its operand under: `i` in `x[j := i + 1]`."""
    return tuple(dict.fromkeys(axis for _, e in places for axis in index_axes(e)))


@tensor_fact
def packed(site: TermSite, w: Term, over: AxisList) -> Any:
    """Return the weight that holds w together with its siblings, or None.

    Siblings are summed over the same axes against the same value.
    """
    found = site.packs.get((w, frozenset(over)))
    return found and found.whole


@tensor_fact
def packed_places(site: TermSite, w: Term, over: AxisList) -> Any:
    """Return the index map that reads w's part of what the packed weight gives; none for a weight without siblings."""
    found = site.packs.get((w, frozenset(over)))
    return found and found.places


def is_one_over(value: float, count: int) -> bool:
    """Return whether a number is the float that is nearest to one over another."""
    return count > 0 and value == 1 / count


@tensor_fact
def first_along(over: AxisList) -> Any:
    """Return the index map that reads the first element along axes, wherever it is read."""
    return tuple((axis, 0) for axis in over)


@tensor_fact
def one_over(c: Term, over: AxisList) -> bool:
    """Return whether a number is one over the number of elements along axes: a sum times it is a mean."""
    return c.__class__ is Const and is_one_over(c.value, element_count(over))


@tensor_fact
def element_count(over: AxisList) -> int:
    """Return the number of elements along axes, each axis counted once."""
    return math.prod(int(axis.extent) for axis in dict.fromkeys(over))


# ---- Facts about numbers and lists.


MOST = 1 << 20
SUBSETS = 1 << 16  # all of a list of 16


@every_fact
def size(items: ValueList) -> int:
    """Return the number of elements of a list."""
    return len(items)


@fact("max(any*) -> any")
def greatest(*values: Any) -> Any:
    """Return the greatest of some numbers, or of a list; 0 for an empty list, which no domain contains."""
    return _extreme(max, values)


@fact("min(any*) -> any")
def least(*values: Any) -> Any:
    """Return the least of some numbers, or of a list; 0 for an empty list."""
    return _extreme(min, values)


def _extreme(pick: Any, values: Any) -> Any:
    listed = values[0] if len(values) == 1 and values[0].__class__ is tuple else values
    try:
        return pick(listed, default=0)
    except Undecided:
        return pick(listed, key=hinted)


@every_fact
def total(xs: ExpressionList) -> Expression:
    """Return the sum of a list of numbers, or of index expressions."""
    return functools.reduce(add, xs, 0)


@every_fact
def ceildiv(a: int, b: int) -> int:
    """Divide a by b and round up."""
    return -(-a // b)


@every_fact
def ratio(a: Number, b: Number) -> Number:
    """Return the quotient a / b."""
    if known_at_launch(a) or known_at_launch(b):
        return Call("divide", (a, b))
    return a / b


@every_fact
def lcm(a: int, b: int) -> int:
    """Return the least common multiple of two numbers."""
    return math.lcm(a, b)


@every_fact
def highest(n: int) -> int:
    """Return the greatest number that a size can be; a number as it is."""
    return sizes.highest(n)  # type: ignore[no-any-return]


@fact("at_hint(int) -> int")
def fact_at_hint(n: int) -> int:
    """Return a size at its hint; a number as it is. For what is weighed, never for what is legal."""
    return hinted(n)  # type: ignore[no-any-return]


@every_fact
def compiled(n: int) -> bool:
    """Return whether a number is known when the kernel is compiled; a size is known at its launch."""
    return n.__class__ is int


@every_fact
def divisors(n: int) -> tuple[int, ...]:
    """Return the divisors of n, ascending; of a size those that divide all it can be."""
    n = n if n.__class__ is int else multiple_of(n)
    small = [d for d in range(1, math.isqrt(max(n, 0)) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


@every_fact
def pow2(low: int, high: int) -> tuple[int, ...]:
    """Return the powers of two from low to high, both included; of sizes those that are, whatever they are."""
    low, high = sizes.highest(low), lowest(high)
    return tuple(1 << n for n in range(MOST.bit_length()) if low <= 1 << n <= high)


@every_fact
def pow2floor(n: int) -> int:
    """Return the greatest power of two that is at most n."""
    return 1 << max(hinted(n), 1).bit_length() - 1  # type: ignore[no-any-return]


@every_fact
def pow2ceil(n: int) -> int:
    """Return the least power of two that is at least n."""
    return 1 << (max(hinted(n), 1) - 1).bit_length()  # type: ignore[no-any-return]


@every_fact
def product(values: NumberList) -> int:
    """Return the product of a list."""
    return math.prod(values)


@every_fact
def subsets(items: ValueList) -> tuple[Any, ...]:
    """Return the non-empty subsets of a list, the largest first; of a long list the first SUBSETS of them."""
    found = (c for n in range(len(items), 0, -1) for c in itertools.combinations(items, n))
    return tuple(itertools.islice(found, SUBSETS))


# ---- Facts about fusing folds of the elements up to each index, such as running sums: `v` and `y` as in `fusion.py`.


@tensor_fact
def runs(site: OperationSite, v: Value, places: int) -> bool:
    """Return whether computing a value contains an inclusive scan of at least a given length."""
    return bool(_scans((v, *site.open.get(v, ())), places))


def _scans(values: Iterable[Any], places: int) -> list[Any]:
    """Return the inclusive scans among some values that have at least a given length."""
    return [one for one in values if places_of_fold(one) is not None and at_hint(one.over[0].extent) >= places]


@tensor_fact
def sum_before_scan(site: OperationSite, y: Value, places: int) -> bool:
    """Return whether y's kernel contains an inclusive scan along its rows and a reduction that a row shares.

    Neither may be longer than a given length.
    """
    below = y.x if y.__class__ is Remap else y
    seen = site.seen if below is y else site.open.get(below, {})
    folds = [one for one in {below, *seen} if one.__class__ in (Reduce, Fold)]
    if y is not site.reader or [one.__class__ for one in folds] != [Reduce, Reduce]:
        return False
    scan, shared = sorted(folds, key=lambda one: places_of_fold(one) is None)
    place = places_of_fold(scan)
    return (
        place is not None
        and places_of_fold(shared) is None
        and _side_by_side(site, below, place)
        and not site.flow.bit(place) & seen.get(shared, 0)
        and len(shared.over) == 1
        and max(at_hint(axis.extent) for axis in (*scan.over, *shared.over)) <= places
    )


@tensor_fact
def beside_scan(site: OperationSite, v: Value, y: Value, places: int) -> bool:
    """Return whether y would bring a value and an inclusive scan in another loop into one kernel.

    Only scans of at least a given length count.
    """
    decided = {one for x in operands(y) if v in site.open.get(x, ()) for one in site.open[x]}
    return any(_loop(scan) != _loop(v) for scan in _scans({y, *site.seen} - decided, places))


def _loop(one: Any) -> Any:
    """Return the key of the loop of a fold: parts of a tuple share one."""
    return common_key(one) if one.__class__ is Fold else one


def _side_by_side(site: OperationSite, y: Any, axis: Axis) -> bool:
    """Return whether elements along an axis of y are neighbours in its only stored result.

    They are not if y has several consumers, or if its elements are stored repeatedly.
    """
    term, along = y, {axis}
    while term not in site.kept:
        if len(site.flow.readers[term]) != 1:
            return False
        (term,) = site.flow.readers[term]
        if term.__class__ is Remap:
            mapping = dict(term.map)
            along = {to for own in along for to in index_axes(mapping.get(own, own))}
    order = site.result_axes.get(term, axes(term))
    stored_once = site.flow.elements(site.flow.mask_of_axes(order)) <= site.flow.size(y)
    return stored_once and not along.isdisjoint(order[-1:])
