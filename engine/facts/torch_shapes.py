"""Facts of level torch: shapes, dtypes, lists and dimensions, axes, equations of einsum, steps of a loop, windows.

Dimensions count from the front, or from the back if negative, as in torch.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from math import gcd, inf, prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ...ir.compose import remap
from ...ir.dtypes import INTEGERS
from ...ir.expr import Axis, Binary, Call, Var, add, both, compare, floordiv, linear, modulo, multiply, subtract
from ...ir.functions import identity
from ...ir.node import Expr
from ...ir.schemas import PARTS
from ...ir.sizes import at_hint, decide_sizes, known_at_launch
from ...ir.stacked import stacked, steps
from ...ir.tensor import Term, axes, dtype
from ..language.evaluate import (
    AxisIndex,
    AxisList,
    Dtype,
    Expression,
    ExpressionList,
    Number,
    NumberList,
    Tensor,
    Tensors,
    ValueList,
    fact,
    torch_fact,
)
from ..rewrite.torch_rules.pattern import Exactly, NotApplicable, TorchSite, View

torch_named = functools.partial(fact, levels="torch")
Axes = tuple[Any, ...]  # unnamed axes and index expressions over them


# ---- values


@torch_fact
def given(x: Any) -> bool:
    """Return whether an optional field has a value."""
    return x is not None


@torch_fact
def is_tensor(x: Any) -> bool:
    """Return whether a field is a tensor, not a number."""
    return isinstance(x, View)


@torch_fact
def is_list(x: Any) -> bool:
    """Return whether a field is a list."""
    return isinstance(x, tuple)


@torch_named("dtype(value) -> dtype")
def fact_dtype(x: View | float) -> Var:
    """Return the dtype of a tensor's elements; of a number as torch reads it."""
    if isinstance(x, View):
        return Var(x.dtype)
    return Var("b8" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f32")


@torch_fact
def part_of(kind: Dtype) -> Dtype:
    """Return the dtype of the real and imaginary parts of complex numbers; any other dtype itself."""
    return Var(PARTS.get(kind.name, kind.name))


@torch_fact
def is_complex(x: Tensor) -> bool:
    """Return whether a tensor holds complex numbers."""
    return isinstance(x, View) and x.dtype in PARTS


@torch_fact
def shape(x: Tensor) -> NumberList:
    """Return the extents of a tensor's dimensions; none for a number."""
    return x.shape if isinstance(x, View) else ()


@torch_fact
def rank(x: Tensor) -> int:
    """Return the number of dimensions."""
    return len(shape(x))


# ---- numbers and lists


@torch_fact
def joined(xs: Tensors, d: int) -> NumberList:
    """Return the shape of tensors concatenated along a dimension."""
    return put(xs[0].shape, d, sum(x.shape[d] for x in xs))


def _with_ones(site: TorchSite, x: View, *places: int) -> View:
    """Insert dimensions of size 1 at some indices of the result's shape, the first of them first."""
    site.lowering.own(x)
    shape, dims = list(x.shape), list(x.dims)
    for place in places:
        shape.insert(place, 1)
        dims.insert(place, None)
    return View(x.name, x.dtype, tuple(shape), x.term, tuple(dims))


@torch_fact
def unsqueezed(site: TorchSite, xs: Tensors, d: int) -> Tensors:
    """Return the tensors with a dimension of size 1 more."""
    return tuple(_with_ones(site, x, d) for x in xs)


_AT_LEAST = {1: ((0,),), 2: ((0, 1), (0,)), 3: ((0, 1, 2), (0, 2), (2,))}  # by dimensions wanted, then by those there


@torch_fact
def at_least(site: TorchSite, xs: Tensors, n: int) -> Tensors:
    """Return the tensors as `torch.atleast_1d`, `2d` or `3d` has them, each by itself."""
    return tuple(_with_ones(site, x, *_AT_LEAST[n][len(x.shape)]) if len(x.shape) < n else x for x in xs)


@torch_fact
def columns(site: TorchSite, xs: Tensors) -> Tensors:
    """Return the tensors, vectors and numbers among them as matrices of one column."""
    return tuple(x if len(x.shape) > 1 else _with_ones(site, x, *range(len(x.shape), 2)) for x in xs)


@torch_fact
def element(x: Number, to: Var) -> Number:
    """Return a number as an element of a dtype: integers lose the fraction."""
    return bool(x) if to.name == "b8" else int(x) if to.name in INTEGERS else x


@torch_fact
def neutral(fold: str, of: Var) -> Number:
    """Return the neutral element of a reduction of torch (`sum`, `prod`, `mean`, `amax`, `amin`) in a dtype."""
    fn = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}[fold]
    return identity(fn, of.name)


@torch_fact
def recip(x: Number) -> Number:
    """Return 1 / x; infinite for 0, as torch divides."""
    if known_at_launch(x):
        return Call("reciprocal", (x,))
    return 1.0 / x if x else inf


@torch_fact
def root(x: Number) -> Number:
    """Return the square root."""
    return Call("sqrt", (x,)) if known_at_launch(x) else sqrt(x)


@torch_fact
def power(x: Number, n: Number) -> Number:
    """Return x to the power of n."""
    return float(x**n)


@torch_fact
def least(a: int, b: int) -> int:
    """Return the smaller of two numbers."""
    return min(a, b)


@torch_fact
def greatest(a: int, b: int) -> int:
    """Return the larger of two numbers."""
    return max(a, b)


@torch_fact
def whole(x: Number) -> bool:
    """Return whether a number is an integer."""
    return not isinstance(x, bool) and float(x).is_integer()


@torch_fact
def integer(x: Number) -> int:
    """Return a whole number as an integer."""
    return int(x)


@torch_fact
def head(xs: ValueList, n: int) -> Any:
    """Return the first n of a list; all but the last -n."""
    return xs[:n]


@torch_fact
def tail(xs: ValueList, n: int) -> Any:
    """Return the last n of a list."""
    return xs[len(xs) - n :]


@torch_fact
def at(xs: ValueList, d: Any) -> Any:
    """Return the element at a dimension, or the elements at a list of dimensions.

    Raises NotApplicable, so that the rule does not apply, if the list has no such dimension.
    """
    try:
        return tuple(xs[n] for n in d) if isinstance(d, tuple) else xs[d]
    except IndexError:
        raise NotApplicable(f"there is no dimension {d} of {len(xs)}") from None


@torch_fact
def inserted(places: NumberList, n: int, whole: int) -> NumberList:
    """Return the order of n dimensions of index tensors, followed by the dimensions that x[..] takes whole.

    The n dimensions replace the first indexed dimension, or come first if others lie between the indexed ones.
    """
    start = places[0] if places[-1] - places[0] < len(places) else 0
    behind = range(n, n + whole)
    return (*behind[:start], *range(n), *behind[start:])


@torch_fact
def inverse_order(order: NumberList) -> NumberList:
    """Return the order of dimensions that undoes another."""
    return tuple(order.index(k) for k in range(len(order)))


@torch_fact
def dims(d: Any, n: int) -> NumberList:
    """Return a field that names one dimension, several, or all, of n as non-negative numbers.

    None and an empty list name all dimensions.
    """
    if not n or d in (None, ()):
        return tuple(range(n))
    return tuple(sorted(k % n for k in _listed(d)))


def _listed(d: Any) -> Axes:
    return d if isinstance(d, tuple) else (d,)


@torch_fact
def wrapped(index: int, n: int) -> int:
    """Return an index that counts from the back if negative."""
    return index + n if index < 0 else index


@torch_fact
def clipped(index: Any, n: int, default: int) -> int:
    """Return a bound of a slice: from the back if negative, cut to 0..n."""
    place = default if index is None else wrapped(index, n)
    place = place if place <= n else n
    return place if place >= 0 else 0


# ---- Facts of level torch about axes: which index is at which dimension.
#
# `axes(x)` makes one unnamed axis per dimension of x; the others rearrange such lists, which are in brackets as
# `os..`.


@torch_named("axes(value) -> [axis]")
def fact_axes(site: TorchSite, x: View | float) -> Axes:
    """Return one new axis per dimension of x."""
    return tuple(map(site.axis, shape(x)))


@torch_fact
def axis(site: TorchSite, extent: int) -> AxisIndex:
    """Return a new axis."""
    return site.axis(extent)


@torch_fact
def broadcast(site: TorchSite, *values: Tensor) -> AxisList:
    """Return one new axis per dimension of what tensors broadcast to."""
    columns = itertools.zip_longest(*(reversed(shape(x)) for x in values), fillvalue=1)
    return tuple(site.axis(next((n for n in column if n != 1), 1)) for column in reversed(list(columns)))


@torch_fact
def put(os: ValueList, d: int, x: Any) -> ValueList:
    """Replace the element at dimension d by x. An axis x may be shorter than the dimension."""
    if not os:
        return os
    d %= len(os)
    return (*os[:d], _exactly(x), *os[d + 1 :])


def _exactly(x: Any) -> Any:
    return Exactly(x) if x.__class__ is Axis else x


@torch_fact
def starts(os: ValueList) -> ValueList:
    """Return axes that may be shorter than their dimensions."""
    return tuple(map(_exactly, os))


@torch_fact
def put_all(os: ValueList, ds: NumberList, xs: ValueList) -> ValueList:
    """Return the elements at some dimensions replaced, in order."""
    for d, x in zip(ds, xs, strict=True):
        os = put(os, d, x)
    return os


@torch_fact
def within(site: TorchSite, places: ExpressionList, first: NumberList, end: NumberList) -> Expression:
    """Return the condition that indices are at least `first` and below `end`; what their axes imply is not tested."""
    condition: Expr = True
    for place, low, high in zip(places, first, end, strict=True):
        terms, constant = linear(place)
        spans = [times * (_extent(site, atom) - 1) for atom, times in terms.items()]
        if constant + sum(min(0, span) for span in spans) < low:
            condition = both(condition, compare(">=", place, low))
        if decide_sizes("<", constant + sum(spans), high) is not True:
            condition = both(condition, compare("<", place, high))  # a test that some length needs is right for all
    return condition


def _extent(site: TorchSite, atom: Any) -> int:
    """Return the extent of an axis, or of a digit of one."""
    return int(atom.b) if atom.__class__ is Binary and atom.op == "%" else site.extent(atom)


@torch_fact
def squeezed(site: TorchSite, os: AxisList, ds: NumberList) -> AxisList:
    """Return the axes but those of extent 1 among some dimensions."""
    return tuple(o for d, o in enumerate(os) if d not in ds or site.extent(o) != 1)


@torch_fact
def flat_place(places: ExpressionList, sizes: NumberList) -> Expression:
    """Return the offset in memory order of an element, given its indices and the sizes of the dimensions."""
    flat: Expr = 0
    for place, n in zip(places, sizes, strict=True):
        flat = add(multiply(flat, n), place)
    return flat


@torch_fact
def rolled(site: TorchSite, os: AxisList, shifts: NumberList, ds: NumberList) -> ExpressionList:
    """Return some dimensions read around the end."""
    out = list(os)
    for shift, d in zip(shifts, ds, strict=True):
        n = site.extent(os[d])
        out[d] = modulo(add(out[d], n - shift % n), n)
    return tuple(out)


@torch_fact
def rotated(site: TorchSite, os: AxisList, quarters: int, a: int, b: int) -> ExpressionList:
    """Return two dimensions rotated by quarters, from the first towards the second."""
    out = list(os)
    for axis in (os[a], os[b], os[a])[:quarters]:
        out[a], out[b] = out[b], subtract(site.extent(axis) - 1, out[a])
    return tuple(out)


@torch_fact
def moved(os: AxisList, source: Any, target: Any) -> AxisList:
    """Return axes at some dimensions put at others; the rest keep their order. A number has none to move."""
    if not os:
        return os
    n = len(os)
    sources, targets = ([d % n for d in _listed(named)] for named in (source, target))
    rest = [o for d, o in enumerate(os) if d not in sources]
    return _interleaved({to: os[d] for d, to in zip(sources, targets, strict=True)}, rest)


def _interleaved(placed: dict[int, Any], rest: Sequence[Any]) -> Axes:
    """Return a list with elements put at some positions, and the rest in order at the others."""
    others = iter(rest)
    return tuple(placed[d] if d in placed else next(others) for d in range(len(placed) + len(rest)))


@torch_fact
def mirror(os: ValueList) -> ValueList:
    """Return a list from the back."""
    return os[::-1]


@torch_fact
def extents(site: TorchSite, os: AxisList) -> NumberList:
    """Return the extents of axes."""
    return tuple(map(site.extent, os))


@torch_fact
def crossed(rest: AxisList, a: int, b: int, at_a: Expression, at_b: Expression) -> ExpressionList:
    """Return the other dimensions' axes with two index expressions put in at dimensions a and b."""
    n = len(rest) + 2
    return _interleaved({a % n: _exactly(at_a), b % n: _exactly(at_b)}, rest)


@torch_fact
def tiled(site: TorchSite, os: AxisList, x: Tensor) -> ExpressionList:
    """Return the axes of copies side by side, as those of the original."""
    own = tail(os, len(x.shape))
    return tuple(o if site.extent(o) == n else modulo(o, n) for o, n in zip(own, x.shape, strict=True))


@torch_fact
def heads(bs: AxisList, group: int) -> ExpressionList:
    """Return grouped heads: the last batch axis divided by the size of a group."""
    return bs if group == 1 else (*bs[:-1], floordiv(bs[-1], group))


# ---- padding: torch names the last dimension first, (before, after) a dimension


@torch_fact
def shifted(os: AxisList, pads: NumberList) -> ExpressionList:
    """Return the index in the original for an index of a padded tensor."""
    before = pads[::2]
    whole = len(os) - len(before)
    return (*os[:whole], *(_exactly(subtract(o, n)) for o, n in zip(os[whole:], reversed(before), strict=True)))


# ---- reshape


@torch_fact
def regroup(site: TorchSite, x: Tensor, os: AxisList) -> ExpressionList:
    """Return the index of every dimension of x by the axes of a reshape of it.

    Equal groups of dimensions keep their axis, a split gives a*B + b, a merge gives // and %.
    """
    if 0 in x.shape:
        raise NotApplicable("a tensor without elements")
    os = [o for o in os if site.extent(o) != 1]
    sizes = extents(site, os)
    out: list[Expr] = []
    i = j = 0
    while i < len(x.shape) or j < len(os):
        i2, j2 = _group(x.shape, sizes, i, j)
        out += _regroup(x.shape[i:i2], os[j:j2], sizes[j:j2])
        i, j = i2, j2
    return tuple(out)


def _group(source: tuple[int, ...], target: tuple[int, ...], i: int, j: int) -> tuple[int, int]:
    """Return the ends of the shortest runs of dimensions, from i and j, that hold equally many elements.

    If the sizes leave this open, the runs contain all remaining dimensions.
    """
    first, start = i, j
    i, j = min(i + 1, len(source)), min(j + 1, len(target))
    while (p := prod(source[first:i])) != (q := prod(target[start:j])):
        if i < len(source) and decide_sizes("<=", p, q):
            i += 1
        elif j < len(target) and decide_sizes("<=", q, p):
            j += 1
        else:
            return len(source), len(target)
    return i, j


def _regroup(source: NumberList, places: ExpressionList, sizes: NumberList) -> list[Expr]:
    if len(places) == 1 and sum(n != 1 for n in source) == 1:
        return [places[0] if n != 1 else 0 for n in source]
    flat = flat_place(places, sizes)
    out: list[Expr] = []
    rest = prod(source)
    for n in source:
        rest //= n
        out.append(modulo(floordiv(flat, rest), n) if n != 1 else 0)
    return out


# ---- Facts of level torch about the equations of einsum.


@torch_fact
def letters(site: TorchSite, equation: str, operands: Tensors) -> Any:
    """Return the axes of every letter of an equation and of its `...`, and of every operand by its number."""
    terms, _ = _equation(equation)
    found: dict[str | int, Axes] = {}
    for number, (term, x) in enumerate(zip(terms, operands, strict=True)):
        spare = len(x.shape) - sum(name != "..." for name in term)
        sizes, own = iter(x.shape), Axes()
        for name in term:
            extents = list(itertools.islice(sizes, spare if name == "..." else 1))
            have = found.get(name, ())
            found[name] = run = (*map(site.axis, extents[: max(0, len(extents) - len(have))]), *have)
            own += run[len(run) - len(extents) :]  # `...` of an operand may have fewer dimensions than that of another
            for o, n in zip(reversed(run), reversed(extents)):
                site.slots[o].extent = max(site.extent(o), n)
        found[number] = own
    return found


@torch_fact
def subscript(equation: str, n: int, found: Any) -> AxisList:
    """Return the axes of the n-th operand; of the result for -1."""
    return found[n] if n >= 0 else tuple(o for name in _equation(equation)[1] for o in found.get(name, ()))


@torch_fact
def summed(equation: str, found: Any) -> AxisList:
    """Return the axes of the letters that the result lacks."""
    terms, kept = _equation(equation)
    return tuple(o for name in dict.fromkeys(itertools.chain(*terms)) if name not in kept for o in found[name])


@torch_fact
def cheapest_pair(equation: str, operands: Tensors) -> NumberList:
    """Return which two operands are contracted first on the path with the fewest operations (NumPy's `einsum_path`).

    Of more than five operands, the path is the one that is cheapest at each step.
    """
    terms, kept = _equation(equation)
    said = ",".join(map("".join, terms)) + "->" + "".join(kept)
    values = (np.broadcast_to(np.float32(0), tuple(map(at_hint, x.shape))) for x in operands)
    path, _ = np.einsum_path(said, *values, optimize="optimal" if len(operands) <= 5 else "greedy")
    return tuple(path[1][:2])  # there are more where all at once are as cheap


@torch_fact
def contraction(equation: str, ds: NumberList) -> str:
    """Return the equation of some operands alone: their result keeps the letters that are read afterwards."""
    terms, kept = _equation(equation)
    own = [terms[d] for d in ds]
    needed = {*kept, *itertools.chain(*(term for d, term in enumerate(terms) if d not in ds))}
    left = [name for name in dict.fromkeys(itertools.chain(*own)) if name in needed]
    return ",".join(map("".join, own)) + "->" + "".join(left)


@torch_fact
def contracted(equation: str, ds: NumberList) -> str:
    """Return the equation with the result of a `contraction` of some operands in their place, as the first operand."""
    terms, kept = _equation(equation)
    others = ("".join(term) for d, term in enumerate(terms) if d not in ds)
    return ",".join((contraction(equation, ds).partition("->")[2], *others)) + "->" + "".join(kept)


def _equation(equation: str) -> tuple[list[list[str]], list[str]]:
    """Return the letters of each operand and of the result; `...` is one of them."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [re.findall(r"\.{3}|.", term) for term in left.split(",")]
    if arrow:
        return terms, re.findall(r"\.{3}|.", right)
    times = Counter(itertools.chain(*terms))  # torch's implicit output: letters that occur once, in alphabetical order
    return terms, sorted(name for name in times if name == "..." or times[name] == 1)


# ---- Facts of level torch about lists of tensors that were computed one after the other: the steps of a loop.


class RecurrenceParts(NamedTuple):
    """The recurrence of a list of tensors: each but the first is the preceding one times a factor, plus a summand."""

    factors: tuple[View, ...]
    summands: tuple[View, ...]


@torch_fact
def alike(site: TorchSite, xs: Tensors) -> bool:
    """Return whether tensors of one shape are computed by one formula of their number in the list.

    Operands that are the steps of a recurrence may differ.
    """
    first = xs[0].dims if xs else ()
    dims = [dim and Axis(f"dimension{n}", dim.extent) for n, dim in enumerate(first)]  # the same for all steps
    terms, known = _along(dims, xs), site.lowering.alike.setdefault(len(xs), {})
    return len(terms) > 1 and stacked(Axis("number", len(terms)), terms, lambda others: others[0], known) is not None


@torch_fact
def recurrence(xs: Tensors) -> RecurrenceParts:
    """Return the `.factors` and `.summands` that compute each tensor but the first from the preceding one.

    They are empty if a tensor is not computed in this way.
    """
    found = steps(_along(xs[0].dims, xs))
    factors = tuple(_part(xs[0], step.factor) for step in found)
    return RecurrenceParts(factors, tuple(_part(xs[0], step.summand) for step in found))


def _along(dims: Sequence[Axis | None], xs: Sequence[View]) -> tuple[Term, ...]:
    """Return the values of tensors along the axes of dimensions.

    The result is empty if one has no axes yet, or other dimensions.
    """
    found = []
    for view in xs:
        if view.term is None or view.shape != xs[0].shape or view.dtype != xs[0].dtype:
            return ()
        pairs = zip(view.dims, dims, strict=True)
        found.append(remap(view.term, {own: other for own, other in pairs if own is not None and other is not None}))
    return tuple(found)


def _part(view: View, term: Term) -> View:
    """Return an operand along the axes of a tensor, with its dimensions; of size 1 where the operand does not vary."""
    own = axes(term)
    dims = tuple(dim if dim in own else None for dim in view.dims)
    return View(view.name, dtype(term), tuple(1 if dim is None else dim.extent for dim in dims), term, dims)


# ---- Facts of level torch about windows: indices of convolutions and pools.
#
# A window along a dimension is p*stride + k*dilation - padding for the p-th window and its k-th element. Settings are
# lists with an element for each dimension, or with one element for all of them.


@torch_fact
def each(setting: NumberList, n: int) -> NumberList:
    """Return a setting for each of n dimensions."""
    return setting if len(setting) == n else setting * n


class Taps(NamedTuple):
    """The elements of windows that cover an output index, without those that the stride skips.

    axes: their number for each dimension, and the channels; or one axis with all of them as digits, the channel last.
    channel: its index. phases: an axis for each dimension in which the elements depend on the remainder of the output
    index by the stride; at: this remainder. places: the element of the window; inside: whether there is one, for these
    phases. starts: where in the input the window begins; met: the condition that there are such an element and window.
    """

    axes: tuple[AxisIndex, ...]
    channel: Expr
    phases: tuple[AxisIndex, ...]
    at: tuple[Expr, ...]
    places: tuple[Expr, ...]
    inside: Expr
    starts: tuple[Expr, ...]
    met: Expr


@torch_fact
def taps(
    site: TorchSite,
    ps: AxisList,
    window: NumberList,
    stride: NumberList,
    dilation: NumberList,
    padding: NumberList,
    extents: NumberList,
    channels: int,
    together: bool,
) -> Taps:
    """Return the windows over an input of some extents that cover the output index `ps`, for each element that can.

    Element k of the window at input index n is at n*stride + k*dilation - padding. So k is one of every few: of those
    with the first of them, which depends on the remainder of the output index alone (its phase).
    together: one axis for channels and elements, and axes of phases.
    """
    places, starts, phases, remainders, met, inside = [], [], [], [], True, True
    steps = [s // gcd(s, d) for s, d in zip(stride, dilation, strict=True)]
    counts = [-(-size // step) for size, step in zip(window, steps, strict=True)]
    found, channel, digits = _digits(site, (*counts, channels), together)
    for p, tap, size, step, s, d, a, n in zip(
        ps, digits, window, steps, stride, dilation, padding, extents, strict=True
    ):
        shared = s // step  # step 1: all elements cover the same indices, or none does
        inverse = pow(d // shared, -1, step) if step > 1 else 0

        def first(phase: Expr, s: int = s, d: int = d, shared: int = shared, inverse: int = inverse) -> Expr:
            return phase if d == 1 else modulo(multiply(floordiv(phase, shared), inverse), s // shared)

        own = phase = modulo(add(p, a), s)
        if step > 1 and together:
            own = site.axis(s)
            phases.append(own)
            remainders.append(phase)
        place, of_filter = (add(first(x), multiply(tap, step)) if step > 1 else tap for x in (phase, own))
        start = add(floordiv(add(p, a), s), floordiv(subtract(phase, multiply(first(phase), d)), s))
        start = subtract(start, multiply(tap, d // shared))
        if step == 1:
            start = floordiv(subtract(add(p, a), multiply(tap, d)), s)
        if size % step:  # past the last element, the window is beyond the input: both operands are zero
            start = add(start, multiply(floordiv(place, size), add(n, d * size)))
        if size % step or own is not phase:
            inside = both(inside, compare("<", of_filter, size))
        met = both(met, both(compare(">=", start, 0), compare("<", start, n)))
        if shared > 1:
            met = both(met, compare("==", modulo(phase, shared), 0))
        places.append(of_filter)
        starts.append(start)
    return Taps(found, channel, tuple(phases), tuple(remainders), tuple(places), inside, tuple(starts), met)


def _digits(site: TorchSite, counts: Sequence[int], together: bool) -> tuple[tuple[AxisIndex, ...], Expr, list[Expr]]:
    """Return axes of some extents, or one axis with all as digits, the last digit, and the others."""
    if not together:
        *own, last = (site.axis(n) for n in counts)
        return (*own, last), last, list(own)
    rest: Any = site.axis(prod(counts))
    found, digits = (rest,), list[Expr]()
    for n in reversed(counts):
        digits.append(modulo(rest, n))
        rest = floordiv(rest, n)
    last, *others = digits
    return found, last, others[::-1]


# ---- adaptive pools: part p of n elements cut into m is p*n // m .. ceil((p + 1)*n / m)


@torch_fact
def part_axes(site: TorchSite, ps: AxisList, x: Tensor) -> AxisList:
    """Return an axis as long as the longest part, for each dimension; of a size as long as a part can be."""
    return tuple(
        site.axis(_longest_part(n, site.extent(p))[0]) for p, n in zip(ps, tail(x.shape, len(ps)), strict=True)
    )


@torch_fact
def in_part(site: TorchSite, ps: AxisList, ks: AxisList, x: Tensor) -> Expression:
    """Return the condition that an index is below the length of its part."""
    condition: Expr = True
    for p, k, n in zip(ps, ks, tail(x.shape, len(ps)), strict=True):
        m = site.extent(p)
        if not _longest_part(n, m)[1]:
            end = floordiv(add(multiply(add(p, 1), n), m - 1), m)
            condition = both(condition, compare("<", add(floordiv(multiply(p, n), m), k), end))
    return condition


def _longest_part(n: Any, m: Any) -> tuple[Any, bool]:
    """Return the length of the longest of m parts of n elements, and whether all are known to be as long."""
    if not isinstance(m, int) or not (m == 1 or isinstance(n, int)):
        return floordiv(n + 2 * m - 1, m), False  # parts overlap
    lengths = {-(-(p + 1) * n // m) - p * n // m for p in range(m)}
    return max(lengths), len(lengths) == 1
