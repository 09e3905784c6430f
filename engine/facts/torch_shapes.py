"""Facts of level torch: shapes, dtypes, lists and dimensions, axes, equations of einsum, steps of a loop, windows.

Dimensions count from the front, or from the back if negative, as in torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...ir.compose import remap
from ...ir.dtypes import INTEGERS
from ...ir.expr import Axis, Call, Var, add, both, compare, floordiv, modulo, multiply, subtract
from ...ir.functions import identity
from ...ir.node import Expr
from ...ir.schemas import PARTS
from ...ir.sizes import decide_sizes, known_at_launch
from ...ir.stacked import stacked, steps
from ...ir.tensor import Term, axes, dtype
from ..language.evaluate import fact
from ..rewrite.torch_rules.pattern import Exactly, NotApplicable, View
from ..rewrite.torch_rules.template import TorchSite

Axes = tuple[Any, ...]  # unnamed axes and index expressions over them
torch_fact = functools.partial(fact, levels="torch")


# ---- values


@torch_fact("given(any) -> bool")
def given(site: TorchSite, x: Any) -> bool:
    """Whether an optional field has a value."""
    return x is not None


@torch_fact("is_tensor(any) -> bool")
def is_tensor(site: TorchSite, x: Any) -> bool:
    """Whether a field is a tensor, not a number."""
    return isinstance(x, View)


@torch_fact("is_list(any) -> bool")
def is_list(site: TorchSite, x: Any) -> bool:
    """Whether a field is a list."""
    return isinstance(x, tuple)


@torch_fact("dtype(value) -> dtype")
def fact_dtype(site: TorchSite, x: View | float) -> Var:
    """The dtype of a tensor's elements; of a number as torch reads it."""
    if isinstance(x, View):
        return Var(x.dtype)
    return Var("b8" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f32")


@torch_fact("part_of(dtype) -> dtype")
def part_of(site: TorchSite, kind: Var) -> Var:
    """The dtype of the real and imaginary parts of complex numbers; any other dtype itself."""
    return Var(PARTS.get(kind.name, kind.name))


@torch_fact("is_complex(value) -> bool")
def is_complex(site: TorchSite, x: View | float) -> bool:
    """Whether a tensor holds complex numbers."""
    return isinstance(x, View) and x.dtype in PARTS


@torch_fact("shape(value) -> [int]")
def shape(site: TorchSite, x: View | float) -> tuple[int, ...]:
    """The extents of a tensor's dimensions; none for a number."""
    return x.shape if isinstance(x, View) else ()


@torch_fact("rank(value) -> int")
def rank(site: TorchSite, x: View | float) -> int:
    """The number of dimensions."""
    return len(shape(site, x))


# ---- numbers and lists


@torch_fact("total([int]) -> int")
def total(site: TorchSite, xs: tuple[int, ...]) -> int:
    """The sum of a list of numbers."""
    return sum(xs)


@torch_fact("ones(int) -> [int]")
def ones(site: TorchSite, n: int) -> tuple[int, ...]:
    """The extents of n dimensions of size 1."""
    return (1,) * n


@torch_fact("filled([value]) -> [value]")
def filled(site: TorchSite, xs: tuple[View, ...]) -> tuple[View, ...]:
    """The tensors that have elements."""
    return tuple(x for x in xs if 0 not in x.shape)


@torch_fact("joined([value], int) -> [int]")
def joined(site: TorchSite, xs: tuple[View, ...], d: int) -> tuple[int, ...]:
    """The shape of tensors one behind the other along a dimension."""
    d %= len(xs[0].shape)
    return (*xs[0].shape[:d], sum(x.shape[d] for x in xs), *xs[0].shape[d + 1 :])


def _with_ones(site: TorchSite, x: View, *places: int) -> View:
    """A tensor with dimensions of size 1 at some places of its result, the first of them first."""
    if x.term is None:
        site.lowering.own(x)
    shape, dims = list(x.shape), list(x.dims)
    for place in places:
        shape.insert(place, 1)
        dims.insert(place, None)
    return View(x.name, x.dtype, tuple(shape), x.term, tuple(dims))


@torch_fact("unsqueezed([value], int) -> [value]")
def unsqueezed(site: TorchSite, xs: tuple[View, ...], d: int) -> tuple[View, ...]:
    """The tensors with a dimension of size 1 more."""
    return tuple(_with_ones(site, x, d) for x in xs)


_AT_LEAST = {1: ((0,),), 2: ((0, 1), (0,)), 3: ((0, 1, 2), (0, 2), (2,))}  # by dimensions wanted, then by those there


@torch_fact("at_least([value], int) -> [value]")
def at_least(site: TorchSite, xs: tuple[View, ...], n: int) -> tuple[View, ...]:
    """The tensors as `torch.atleast_1d`, `2d` or `3d` has them, each by itself."""
    return tuple(_with_ones(site, x, *_AT_LEAST[n][len(x.shape)]) if len(x.shape) < n else x for x in xs)


@torch_fact("columns([value]) -> [value]")
def columns(site: TorchSite, xs: tuple[View, ...]) -> tuple[View, ...]:
    """The tensors, vectors and numbers among them as matrices of one column."""
    return tuple(x if len(x.shape) > 1 else _with_ones(site, x, *range(len(x.shape), 2)) for x in xs)


@torch_fact("element(num, name) -> num")
def element(site: TorchSite, x: float, to: Var) -> float:
    """A number as an element of a dtype: integers lose what stands behind the point."""
    return bool(x) if to.name == "b8" else int(x) if to.name in INTEGERS else x


@torch_fact("neutral(text, name) -> num")
def neutral(site: TorchSite, fold: str, of: Var) -> float:
    """What a fold of torch's (`sum`, `prod`, `mean`, `amax`, `amin`) starts from, as an element of a dtype."""
    fn = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}[fold]
    return identity(fn, of.name)  # type: ignore[no-any-return]


@torch_fact("longer([int], [int]) -> [int]")
def longer(site: TorchSite, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The extents that dimensions broadcast to, in pairs."""
    return tuple(map(max, one, other))


@torch_fact("recip(num) -> num")
def recip(site: TorchSite, x: float) -> float | Call:
    """1 / x; infinite for 0, as torch divides."""
    if known_at_launch(x):
        return Call("reciprocal", (x,))
    return 1.0 / x if x else math.inf


@torch_fact("root(num) -> num")
def root(site: TorchSite, x: float) -> float | Call:
    """The square root."""
    return Call("sqrt", (x,)) if known_at_launch(x) else math.sqrt(x)


@torch_fact("power(num, num) -> num")
def power(site: TorchSite, x: float, n: float) -> float:
    """x to the n"""
    return float(x**n)


@torch_fact("ratio(num, num) -> num")
def ratio(site: TorchSite, a: float, b: float) -> float | Call:
    """The quotient a / b."""
    if known_at_launch(a) or known_at_launch(b):
        return Call("divide", (a, b))
    return a / b


@torch_fact("logarithm(num) -> num")
def logarithm(site: TorchSite, x: float) -> float:
    """The natural logarithm."""
    return math.log(x)


@torch_fact("least(int, int) -> int")
def least(site: TorchSite, a: int, b: int) -> int:
    """The smaller of two numbers."""
    return min(a, b)


@torch_fact("greatest(int, int) -> int")
def greatest(site: TorchSite, a: int, b: int) -> int:
    """The larger of two numbers."""
    return max(a, b)


@torch_fact("whole(num) -> bool")
def whole(site: TorchSite, x: float) -> bool:
    """Whether a number is an integer."""
    return not isinstance(x, bool) and float(x).is_integer()


@torch_fact("integer(num) -> int")
def integer(site: TorchSite, x: float) -> int:
    """A whole number as an integer."""
    return int(x)


@torch_fact("head([any], int) -> any")
def head(site: TorchSite, xs: Axes, n: int) -> Axes:
    """The first n of a list; all but the last -n."""
    return xs[:n]


@torch_fact("tail([any], int) -> any")
def tail(site: TorchSite, xs: Axes, n: int) -> Axes:
    """The last n of a list."""
    return xs[len(xs) - n :]


@torch_fact("at([any], any) -> any")
def at(site: TorchSite, xs: Axes, d: int | tuple[int, ...]) -> Any:
    """The element at a dimension; a list of them for a list. A rule that asks for one that is not there refuses."""
    try:
        return tuple(xs[n] for n in d) if isinstance(d, tuple) else xs[d]
    except IndexError:
        raise NotApplicable(f"there is no dimension {d} of {len(xs)}") from None


@torch_fact("indexed([any]) -> [int]")
def indexed(site: TorchSite, xs: tuple[Any, ...]) -> tuple[int, ...]:
    """The places of a list that hold something."""
    return tuple(n for n, x in enumerate(xs) if x is not None)


@torch_fact("others([int], int) -> [int]")
def others(site: TorchSite, places: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The numbers below n that a list does not hold."""
    return tuple(k for k in range(n) if k not in places)


@torch_fact("inserted([int], int, int) -> [int]")
def inserted(site: TorchSite, places: tuple[int, ...], n: int, whole: int) -> tuple[int, ...]:
    """The order of n dimensions that tensors gave and, behind them, of some that are taken whole, as x[..] has it.

    Those that tensors gave stand where the first was taken out, or first of all if others lie between.
    """
    start = places[0] if places[-1] - places[0] < len(places) else 0
    behind = range(n, n + whole)
    return (*behind[:start], *range(n), *behind[start:])


@torch_fact("turned_back([int]) -> [int]")
def turned_back(site: TorchSite, order: tuple[int, ...]) -> tuple[int, ...]:
    """The order of dimensions that undoes another."""
    return tuple(order.index(k) for k in range(len(order)))


@torch_fact("dims(any, int) -> [int]")
def dims(site: TorchSite, d: int | tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """A field that names one dimension, several, or all (none, or an empty list), of n: as non-negative numbers."""
    if d is None or d == ():
        return tuple(range(n))
    return tuple(sorted(k % n if n else 0 for k in (d if isinstance(d, tuple) else (d,))))[: n or 0]


@torch_fact("wrapped(int, int) -> int")
def wrapped(site: TorchSite, index: int, n: int) -> int:
    """An index that counts from the back if negative."""
    return index + n if index < 0 else index


@torch_fact("clipped(any, int, int) -> int")
def clipped(site: TorchSite, index: int | None, n: int, default: int) -> int:
    """A bound of a slice: from the back if negative, cut to 0..n."""
    place = default if index is None else wrapped(site, index, n)
    place = place if place <= n else n
    return place if place >= 0 else 0


# ---- Facts of level torch about axes: which index stands at which dimension.
#
# `axes(x)` makes one unnamed axis per dimension of x; the others rearrange such lists, which stand in brackets as
# `os..`.


@torch_fact("axes(value) -> [axis]")
def fact_axes(site: TorchSite, x: View | float) -> Axes:
    """One new axis per dimension of x."""
    return tuple(site.axis(n) for n in shape(site, x))


@torch_fact("axis(int) -> axis")
def axis(site: TorchSite, extent: int) -> Any:
    """A new axis."""
    return site.axis(extent)


@torch_fact("axes_of([int]) -> [axis]")
def axes_of(site: TorchSite, extents: tuple[int, ...]) -> Axes:
    """One new axis per extent."""
    return tuple(site.axis(n) for n in extents)


@torch_fact("unit() -> axis")
def unit(site: TorchSite) -> Any:
    """A dimension of size 1."""
    return site.axis(1)


@torch_fact("broadcast(value*) -> [axis]")
def broadcast(site: TorchSite, *values: View | float) -> Axes:
    """One new axis per dimension of what tensors broadcast to."""
    shapes = [shape(site, x) for x in values]
    longest = max(map(len, shapes))
    columns = zip(*((1,) * (longest - len(s)) + tuple(s) for s in shapes), strict=True)
    return tuple(site.axis(next((n for n in column if n != 1), 1)) for column in columns)


@torch_fact("reduced([axis], [int], bool) -> [axis]")
def reduced(site: TorchSite, os: Axes, ds: tuple[int, ...], keep: bool) -> Axes:
    """The axes that a reduction over dimensions leaves."""
    gone = {d % len(os) for d in ds} if os else set()
    return tuple(site.axis(1) if d in gone else o for d, o in enumerate(os) if keep or d not in gone)


@torch_fact("swap([any], int, int) -> [any]")
def swap(site: TorchSite, os: Axes, a: int, b: int) -> Axes:
    """Two elements exchanged; a list shorter than two as it is."""
    out = list(os)
    if out:
        out[a], out[b] = out[b], out[a]
    return tuple(out)


@torch_fact("insert([any], int, any) -> [any]")
def insert(site: TorchSite, os: Axes, d: int, x: Any) -> Axes:
    """x put before dimension d."""
    d %= len(os) + 1
    return (*os[:d], x, *os[d:])


@torch_fact("put([any], int, any) -> [any]")
def put(site: TorchSite, os: Axes, d: int, x: Any) -> Axes:
    """x in the place of the element at dimension d. An axis put there may be shorter than the dimension."""
    if not os:
        return os
    d %= len(os)
    return (*os[:d], _exactly(x), *os[d + 1 :])


def _exactly(x: Any) -> Any:
    return Exactly(x) if x.__class__ is Axis else x


@torch_fact("starts([any]) -> [any]")
def starts(site: TorchSite, os: Axes) -> Axes:
    """Axes that may be shorter than the dimensions they stand at."""
    return tuple(map(_exactly, os))


@torch_fact("put_all([any], [int], [any]) -> [any]")
def put_all(site: TorchSite, os: Axes, ds: tuple[int, ...], xs: Axes) -> Axes:
    """The elements at some dimensions replaced, in order."""
    for d, x in zip(ds, xs, strict=True):
        os = put(site, os, d, x)
    return os


@torch_fact("without([any], int) -> [any]")
def without(site: TorchSite, os: Axes, d: int) -> Axes:
    """The element at a dimension left out."""
    d %= len(os) or 1
    return (*os[:d], *os[d + 1 :])


@torch_fact("left_over([any], [int]) -> [any]")
def left_over(site: TorchSite, os: Axes, ds: tuple[int, ...]) -> Axes:
    """The elements but those at some dimensions."""
    gone = {d % len(os) for d in ds}
    return tuple(o for d, o in enumerate(os) if d not in gone)


@torch_fact("squeezed([axis], [int]) -> [axis]")
def squeezed(site: TorchSite, os: Axes, ds: tuple[int, ...]) -> Axes:
    """The axes but those of extent 1 among some dimensions."""
    return tuple(o for d, o in enumerate(os) if d not in ds or site.extent(o) != 1)


@torch_fact("firsts([axis], [axis]) -> [expr]")
def firsts(site: TorchSite, os: Axes, ks: Axes) -> Axes:
    """The first place along some of the axes."""
    return tuple(0 if o in ks else o for o in os)


@torch_fact("position([axis]) -> expr")
def position(site: TorchSite, os: Axes) -> Expr:
    """The place of an element in memory order."""
    flat: Expr = 0
    for o in os:
        flat = add(multiply(flat, site.extent(o)), o)
    return flat


@torch_fact("flat_place([expr], [int]) -> expr")
def flat_place(site: TorchSite, places: Axes, sizes: tuple[int, ...]) -> Expr:
    """The place in memory order of an element at some places of dimensions of some sizes."""
    flat: Expr = 0
    for place, n in zip(places, sizes, strict=True):
        flat = add(multiply(flat, n), place)
    return flat


@torch_fact("strided([axis], [int]) -> expr")
def strided(site: TorchSite, os: Axes, strides: tuple[int, ...]) -> Expr:
    """How far an element is from the first, by the strides of its dimensions."""
    place: Expr = 0
    for o, stride in zip(os, strides, strict=True):
        place = add(place, multiply(o, stride))
    return place


@torch_fact("covered([axis], [int], int) -> expr")
def covered(site: TorchSite, os: Axes, sizes: tuple[int, ...], d: int) -> Expr:
    """Whether a place is in a tensor of these sizes, which may be smaller, along all dimensions but one."""
    condition: Expr = True
    for e, (o, n) in enumerate(zip(os, sizes, strict=True)):
        if e != d % len(os) and n < site.extent(o):
            condition = both(condition, compare("<", o, n))
    return condition


@torch_fact("mirrored([axis], [int]) -> [expr]")
def mirrored(site: TorchSite, os: Axes, ds: tuple[int, ...]) -> Axes:
    """Some dimensions read from the back."""
    return tuple(subtract(site.extent(o) - 1, o) if d in ds else o for d, o in enumerate(os))


@torch_fact("rolled([axis], [int], [int]) -> [expr]")
def rolled(site: TorchSite, os: Axes, shifts: tuple[int, ...], ds: tuple[int, ...]) -> Axes:
    """Some dimensions read around the end."""
    out = list(os)
    for shift, d in zip(shifts, ds, strict=True):
        n = site.extent(os[d])
        out[d] = modulo(add(out[d], n - shift % n), n)
    return tuple(out)


@torch_fact("turned([axis], int, int, int) -> [expr]")
def turned(site: TorchSite, os: Axes, quarters: int, a: int, b: int) -> Axes:
    """Two dimensions turned by quarters, from the first towards the second."""
    out = list(os)
    x, y = os[a], os[b]
    back_x, back_y = subtract(site.extent(x) - 1, x), subtract(site.extent(y) - 1, y)
    out[a], out[b] = ((x, y), (y, back_x), (back_x, back_y), (back_y, x))[quarters]
    return tuple(out)


@torch_fact("moved([axis], any, any) -> [axis]")
def moved(site: TorchSite, os: Axes, source: int | tuple[int, ...], target: int | tuple[int, ...]) -> Axes:
    """Axes at some dimensions put at others; the rest keep their order. A number has none to move."""
    if not os:
        return os
    sources = source if isinstance(source, tuple) else (source,)
    targets = target if isinstance(target, tuple) else (target,)
    n = len(os)
    placed = {b % n: os[a % n] for a, b in zip(sources, targets, strict=True)}
    rest = iter(o for d, o in enumerate(os) if d not in {a % n for a in sources})
    return tuple(placed[d] if d in placed else next(rest) for d in range(n))


@torch_fact("mirror([any]) -> [any]")
def mirror(site: TorchSite, os: Axes) -> Axes:
    """A list from the back."""
    return os[::-1]


@torch_fact("extents([axis]) -> [int]")
def extents(site: TorchSite, os: Axes) -> tuple[int, ...]:
    """The extents of axes."""
    return tuple(map(site.extent, os))


@torch_fact("crossed([axis], int, int, expr, expr) -> [expr]")
def crossed(site: TorchSite, rest: Axes, a: int, b: int, at_a: Expr, at_b: Expr) -> Axes:
    """The other dimensions' axes with two index expressions put in at dimensions a and b."""
    n = len(rest) + 2
    places = {a % n: _exactly(at_a), b % n: _exactly(at_b)}
    others = iter(rest)
    return tuple(places[d] if d in places else next(others) for d in range(n))


@torch_fact("tiled([axis], value) -> [expr]")
def tiled(site: TorchSite, os: Axes, x: View) -> Axes:
    """The axes of copies side by side, as those of the original."""
    own = os[len(os) - len(x.shape) :]
    return tuple(o if site.extent(o) == n else modulo(o, n) for o, n in zip(own, x.shape, strict=True))


@torch_fact("heads([axis], int) -> [expr]")
def heads(site: TorchSite, bs: Axes, group: int) -> Axes:
    """Grouped heads: the last batch axis divided by the size of a group."""
    return bs if group == 1 else (*bs[:-1], floordiv(bs[-1], group))


# ---- padding: torch names the last dimension first, (before, after) a dimension


@torch_fact("inside([axis], value, [int]) -> expr")
def inside(site: TorchSite, os: Axes, x: View, pads: tuple[int, ...]) -> Expr:
    """Whether a place of a padded tensor is in the original."""
    condition: Expr = True
    for n in range(len(pads) // 2):
        d = len(os) - 1 - n
        low, high = pads[2 * n], pads[2 * n] + x.shape[d]
        if low > 0:
            condition = both(condition, compare(">=", os[d], low))
        if high < site.extent(os[d]):
            condition = both(condition, compare("<", os[d], high))
    return condition


@torch_fact("shifted([axis], [int]) -> [expr]")
def shifted(site: TorchSite, os: Axes, pads: tuple[int, ...]) -> Axes:
    """The place in the original that a place of a padded tensor is."""
    last = len(os) - 1
    return tuple(
        _exactly(subtract(o, pads[2 * (last - d)])) if 2 * (last - d) < len(pads) else o for d, o in enumerate(os)
    )


# ---- reshape


@torch_fact("regroup(value, [axis]) -> [expr]")
def regroup(site: TorchSite, x: View, os: Axes) -> Axes:
    """The index of every dimension of x by the axes of a reshape of it.

    Equal groups of dimensions keep their axis, a split gives a*B + b, a merge gives // and %.
    """
    out: list[Expr] = []
    i = j = 0
    extents = tuple(map(site.extent, os))
    if 0 in x.shape:
        raise NotApplicable("a tensor without elements")
    while i < len(x.shape) or j < len(os):
        i2, j2 = _group(x.shape, extents, i, j)
        out += _regroup(x.shape[i:i2], [(o, n) for o, n in zip(os[j:j2], extents[j:j2], strict=True) if n != 1])
        i, j = i2, j2
    return tuple(out)


def _group(source: tuple[int, ...], target: tuple[int, ...], i: int, j: int) -> tuple[int, int]:
    """The ends of the shortest runs of dimensions, from i and j, that hold equally many elements; of what sizes leave
    open, all that is left.
    """
    p, i = (source[i], i + 1) if i < len(source) else (1, i)
    q, j = (target[j], j + 1) if j < len(target) else (1, j)
    while p != q:
        if i < len(source) and decide_sizes("<=", p, q):
            p, i = p * source[i], i + 1
        elif j < len(target) and decide_sizes("<=", q, p):
            q, j = q * target[j], j + 1
        else:
            return len(source), len(target)
    return i, j


def _regroup(source: tuple[int, ...], target: list[tuple[Any, int]]) -> list[Expr]:
    if len(target) == 1 and sum(n != 1 for n in source) == 1:
        return [target[0][0] if n != 1 else 0 for n in source]
    flat: Expr = 0
    for o, n in target:
        flat = add(multiply(flat, n), o)
    out: list[Expr] = []
    rest = math.prod(source)
    for n in source:
        rest //= n
        out.append(modulo(floordiv(flat, rest), n) if n != 1 else 0)
    return out


# ---- Facts of level torch about the equations of einsum.


@torch_fact("letters(text, [value]) -> any")
def letters(site: TorchSite, equation: str, operands: tuple[View, ...]) -> dict[str, Axes]:
    """The axes of every letter of an equation, and of its `...`."""
    terms, _ = _equation(equation)
    found: dict[str, Axes] = {}
    for term, x in zip(terms, operands, strict=True):
        names = _split_letters(term)
        spare = len(x.shape) - (len(names) - ("..." in names))
        at_ = 0
        for name in names:
            width = spare if name == "..." else 1
            extents = x.shape[at_ : at_ + width]
            have = found.get(name, ())
            fresh = tuple(site.axis(n) for n in extents[: len(extents) - len(have)]) + have
            for o, n in zip(reversed(fresh), reversed(extents), strict=False):
                site.slots[o].extent = max(site.extent(o), n)
            found[name] = fresh
            at_ += width
    return found


@torch_fact("subscript(text, int, any) -> [axis]")
def subscript(site: TorchSite, equation: str, n: int, found: dict[str, Axes]) -> Axes:
    """The axes of the n-th operand; of the result for -1."""
    terms, result = _equation(equation)
    names = _split_letters(result if n == -1 else terms[n])
    return tuple(o for name in names for o in found.get(name, ()))


@torch_fact("summed(text, any) -> [axis]")
def summed(site: TorchSite, equation: str, found: dict[str, Axes]) -> Axes:
    """The axes of the letters that the result lacks."""
    kept = _split_letters(_equation(equation)[1])
    return tuple(o for name, run in found.items() if name not in kept for o in run)


def _equation(equation: str) -> tuple[list[str], str]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:  # torch's implicit output: letters that occur once, in alphabetical order
        plain = left.replace("...", "").replace(",", "")
        once = "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
        right = ("..." if "..." in left else "") + once
    return left.split(","), right


def _split_letters(term: str) -> list[str]:
    head_, dots, rest = term.partition("...")
    return [*head_, *([dots] if dots else []), *rest]


# ---- Facts of level torch about lists of tensors that were computed one after the other: the steps of a loop.


class RecurrenceParts(NamedTuple):
    """What each tensor but the first is made of: the one before it times a factor, plus a summand."""

    factors: tuple[View, ...]
    summands: tuple[View, ...]


@torch_fact("alike([value]) -> bool")
def alike(site: TorchSite, xs: tuple[View, ...]) -> bool:
    """Whether tensors of one shape are computed by one formula of their number in the list, but for operands that are
    the steps of a recurrence."""
    terms = _along_the_first(xs)
    return len(terms) > 1 and stacked(Axis("number", len(terms)), terms, lambda others: others[0]) is not None


@torch_fact("recurrence([value]) -> record")
def recurrence(site: TorchSite, xs: tuple[View, ...]) -> RecurrenceParts:
    """`.factors` and `.summands`: how each tensor but the first is made of the one before. Empty where one is not."""
    found = steps(_along_the_first(xs))
    factors = tuple(_part(xs[0], step.factor) for step in found)
    return RecurrenceParts(factors, tuple(_part(xs[0], step.summand) for step in found))


@torch_fact("turned_round([value]) -> [value]")
def turned_round(site: TorchSite, xs: tuple[View, ...]) -> tuple[View, ...]:
    """A list of tensors from its end."""
    return xs[::-1]


def _along_the_first(xs: Iterable[View]) -> tuple[Term, ...]:
    """The values of tensors along the axes of the first; nothing where one has no axes yet, or other dimensions."""
    found: list[Term] = []
    first: View | None = None
    for view in xs:
        first = first or view
        if view.term is None or view.shape != first.shape or view.dtype != first.dtype:
            return ()
        pairs = zip(view.dims, first.dims, strict=True)
        found.append(remap(view.term, {own: other for own, other in pairs if own is not None and other is not None}))
    return tuple(found)


def _part(view: View, term: Term) -> View:
    """An operand along the axes of a tensor, with its dimensions; of size 1 where the operand does not vary."""
    own = axes(term)
    dims = tuple(dim if dim in own else None for dim in view.dims)
    shape = tuple(1 if dim is None else dim.extent for dim in dims)
    return View(view.name, dtype(term), shape, term, dims)


# ---- Facts of level torch about windows: places of convolutions and pools.
#
# A window along a dimension is p*stride + k*dilation - padding for the p-th window and its k-th place. Settings are
# lists with an element for each dimension, or with one element for all of them.


Settings = tuple[int, ...]


@torch_fact("each([int], int) -> [int]")
def each(site: TorchSite, setting: Settings, n: int) -> Settings:
    """A setting for each of n dimensions."""
    return setting if len(setting) == n else setting * n


@torch_fact("padded(any, [axis], [int]) -> [int]")
def padded(site: TorchSite, padding: Settings | str, ks: Axes, dilation: Settings) -> Settings:
    """How many places stand before the input: given, or as `same` and `valid` say of windows over ks."""
    if isinstance(padding, str):
        return tuple(
            (site.extent(k) - 1) * d // 2 if padding == "same" else 0 for k, d in zip(ks, dilation, strict=True)
        )
    return padding if len(padding) == len(ks) else padding * len(ks)


@torch_fact("places_of_windows([int], [int], [int], [int], [int]) -> [int]")
def places_of_windows(
    site: TorchSite, sizes: Settings, kernel: Settings, dilation: Settings, padding: Settings, stride: Settings
) -> Settings:
    """How many windows lie along each dimension."""
    each_dimension = zip(sizes, kernel, dilation, padding, stride, strict=True)
    return tuple((n + 2 * a - d * (k - 1) - 1) // s + 1 for n, k, d, a, s in each_dimension)


@torch_fact("windows([axis], [axis], [int], [int], [int]) -> [expr]")
def windows(site: TorchSite, ps: Axes, ks: Axes, stride: Settings, dilation: Settings, padding: Settings) -> Axes:
    """The place in the input of each place of each window; outside of it where it is padded."""
    each_dimension = zip(ps, ks, stride, dilation, padding, strict=True)
    return tuple(subtract(add(multiply(p, s), multiply(k, d)), a) for p, k, s, d, a in each_dimension)


@torch_fact("spread([axis], [axis], [int], [int], [int]) -> [expr]")
def spread(site: TorchSite, ps: Axes, ks: Axes, stride: Settings, dilation: Settings, padding: Settings) -> Axes:
    """Where in the input the window begins that covers a place of the output k places on."""
    each_dimension = zip(ps, ks, stride, dilation, padding, strict=True)
    return tuple(floordiv(subtract(add(p, a), multiply(k, d)), s) for p, k, s, d, a in each_dimension)


@torch_fact("met([axis], [axis], [int], [int], [int], value) -> expr")
def met(site: TorchSite, ps: Axes, ks: Axes, stride: Settings, dilation: Settings, padding: Settings, x: View) -> Expr:
    """Whether some window that begins at an element of x covers a place of the output with its k-th place."""
    condition: Expr = True
    extents = x.shape[len(x.shape) - len(ps) :]
    for p, k, s, d, a, n in zip(ps, ks, stride, dilation, padding, extents, strict=True):
        ahead = subtract(add(p, a), multiply(k, d))
        condition = both(condition, both(compare(">=", ahead, 0), compare("<", ahead, n * s)))
        if s > 1:
            condition = both(condition, compare("==", modulo(ahead, s), 0))
    return condition


@torch_fact("within([axis], [axis], [int], [int], [int], value, int) -> expr")
def within(
    site: TorchSite, ps: Axes, ks: Axes, stride: Settings, dilation: Settings, padding: Settings, x: View, more: int
) -> Expr:
    """Whether a place of a window is in x. more: 1 to count what x is padded with, too."""
    condition: Expr = True
    extents = x.shape[len(x.shape) - len(ps) :]
    for p, k, s, d, a, n in zip(ps, ks, stride, dilation, padding, extents, strict=True):
        place = subtract(add(multiply(p, s), multiply(k, d)), a)
        low, high = -a * more, n + a * more
        if a > -low:
            condition = both(condition, compare(">=", place, low))
        last = (site.extent(p) - 1) * s + (site.extent(k) - 1) * d - a
        if decide_sizes("<", last, high) is not True:  # a test that some length needs is right for all
            condition = both(condition, compare("<", place, high))
    return condition


# ---- adaptive pools: part p of n places cut into m is p*n // m .. ceil((p + 1)*n / m)


@torch_fact("part_axes([axis], value) -> [axis]")
def part_axes(site: TorchSite, ps: Axes, x: View) -> Axes:
    """An axis as long as the longest part, for each dimension; of a size as long as a part can be."""
    sizes = x.shape[len(x.shape) - len(ps) :]
    return tuple(site.axis(_longest_part(n, site.extent(p))) for p, n in zip(ps, sizes, strict=True))


@torch_fact("part([axis], [axis], value) -> [expr]")
def part(site: TorchSite, ps: Axes, ks: Axes, x: View) -> Axes:
    """The place in the input of each place of each part."""
    sizes = x.shape[len(x.shape) - len(ps) :]
    return tuple(add(floordiv(multiply(p, n), site.extent(p)), k) for p, k, n in zip(ps, ks, sizes, strict=True))


@torch_fact("in_part([axis], [axis], value) -> expr")
def in_part(site: TorchSite, ps: Axes, ks: Axes, x: View) -> Expr:
    """Whether a part has so many places."""
    condition: Expr = True
    for p, k, n in zip(ps, ks, x.shape[len(x.shape) - len(ps) :], strict=True):
        m = site.extent(p)
        if not _of_one_length(n, m):
            end = floordiv(add(multiply(add(p, 1), n), m - 1), m)
            condition = both(condition, compare("<", add(floordiv(multiply(p, n), m), k), end))
    return condition


def _of_one_length(n: Any, m: Any) -> bool:
    """Whether all parts are known to be equally long."""
    if isinstance(m, int) and m == 1:
        return True
    return isinstance(n, int) and isinstance(m, int) and len({b - a for a, b in _parts(n, m)}) == 1


def _longest_part(n: Any, m: Any) -> Any:
    if isinstance(n, int) and isinstance(m, int):
        return max(b - a for a, b in _parts(n, m))
    return n if _of_one_length(n, m) else floordiv(n + 2 * m - 1, m)  # parts overlap


def _parts(n: int, m: int) -> list[tuple[int, int]]:
    return [(p * n // m, ((p + 1) * n + m - 1) // m) for p in range(m)]
