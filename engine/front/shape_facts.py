"""Facts of level torch: shapes, dimensions, and which index stands where. They answer with numbers and unnamed axes only.

`axes(x)` makes one unnamed axis per dimension of x; the others rearrange such lists. A list stands in brackets as `os..`.
Dimensions count from the front, or from the back if negative, as in torch.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.expr import Axis, Var, add, compare, floordiv, modulo, multiply, subtract
from ...ir.expr import both as both_hold
from ...ir.node import Expr
from ..rw.facts import fact
from .torch_rules.firing import Firing
from .torch_rules.values import Exactly, Refusal, View

Axes = tuple[Any, ...]  # unnamed axes and index expressions over them


def torch_fact(signature: str) -> Any:
    """A fact that torch rules may ask."""
    return fact(signature, levels="torch")


# ---- values


@torch_fact("given(any) -> bool")
def given(site: Firing, x: Any) -> bool:
    """Whether an optional field has a value."""
    return x is not None


@torch_fact("is_tensor(any) -> bool")
def is_tensor(site: Firing, x: Any) -> bool:
    """Whether a field is a tensor, not a number."""
    return isinstance(x, View)


@torch_fact("is_list(any) -> bool")
def is_list(site: Firing, x: Any) -> bool:
    """Whether a field is a list."""
    return isinstance(x, tuple)


@torch_fact("dtype(value) -> name")
def dtype(site: Firing, x: View | float) -> Var:
    """The dtype of a tensor's elements; of a number as torch reads it."""
    if isinstance(x, View):
        return Var(x.dtype)
    return Var("b8" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f32")


@torch_fact("is_float(value) -> bool")
def is_float(site: Firing, x: View | float) -> bool:
    """Whether elements are floating point numbers."""
    return dtype(site, x).name in ("f16", "bf16", "f32")


@torch_fact("is_bool(value) -> bool")
def is_bool(site: Firing, x: View | float) -> bool:
    """Whether elements are truth values."""
    return dtype(site, x).name == "b8"


@torch_fact("shape(value) -> [int]")
def shape(site: Firing, x: View | float) -> tuple[int, ...]:
    """The extents of a tensor's dimensions; none for a number."""
    return x.shape if isinstance(x, View) else ()


@torch_fact("rank(value) -> int")
def rank(site: Firing, x: View | float) -> int:
    """The number of dimensions."""
    return len(shape(site, x))


# ---- numbers and lists


@torch_fact("size([any]) -> int")
def size(site: Firing, xs: Axes) -> int:
    """The length of a list."""
    return len(xs)


@torch_fact("product([int]) -> int")
def product(site: Firing, xs: tuple[int, ...]) -> int:
    """The product of a list of numbers."""
    return math.prod(xs)


@torch_fact("total([int]) -> int")
def total(site: Firing, xs: tuple[int, ...]) -> int:
    """The sum of a list of numbers."""
    return sum(xs)


@torch_fact("joined([value], int) -> [int]")
def joined(site: Firing, xs: tuple[View, ...], d: int) -> tuple[int, ...]:
    """The shape of tensors one behind the other along a dimension."""
    d %= len(xs[0].shape)
    return (*xs[0].shape[:d], sum(x.shape[d] for x in xs), *xs[0].shape[d + 1 :])


@torch_fact("unsqueezed([value], int) -> [value]")
def unsqueezed(site: Firing, xs: tuple[View, ...], d: int) -> tuple[View, ...]:
    """The tensors with a dimension of size 1 more."""
    for x in xs:
        if x.term is None:
            site.lowering.own(x)
    return tuple(
        View(x.name, x.dtype, (*x.shape[:d], 1, *x.shape[d:]), x.term, (*x.dims[:d], None, *x.dims[d:])) for x in xs
    )


@torch_fact("recip(num) -> num")
def recip(site: Firing, x: float) -> float:
    """1 / x; infinite for 0, as torch divides."""
    return 1.0 / x if x else math.inf


@torch_fact("root(num) -> num")
def root(site: Firing, x: float) -> float:
    """The square root."""
    return math.sqrt(x)


@torch_fact("ratio(num, num) -> num")
def ratio(site: Firing, a: float, b: float) -> float:
    """a / b"""
    return a / b


@torch_fact("logarithm(num) -> num")
def logarithm(site: Firing, x: float) -> float:
    """The natural logarithm."""
    return math.log(x)


@torch_fact("least(int, int) -> int")
def least(site: Firing, a: int, b: int) -> int:
    """The smaller of two numbers."""
    return min(a, b)


@torch_fact("greatest(int, int) -> int")
def greatest(site: Firing, a: int, b: int) -> int:
    """The larger of two numbers."""
    return max(a, b)


@torch_fact("whole(num) -> bool")
def whole(site: Firing, x: float) -> bool:
    """Whether a number is an integer."""
    return not isinstance(x, bool) and float(x).is_integer()


@torch_fact("integer(num) -> int")
def integer(site: Firing, x: float) -> int:
    """A whole number as an integer."""
    return int(x)


@torch_fact("head([any], int) -> any")
def head(site: Firing, xs: Axes, n: int) -> Axes:
    """The first n of a list; all but the last -n."""
    return xs[:n]


@torch_fact("tail([any], int) -> any")
def tail(site: Firing, xs: Axes, n: int) -> Axes:
    """The last n of a list."""
    return xs[len(xs) - n :]


@torch_fact("at([any], any) -> any")
def at(site: Firing, xs: Axes, d: int | tuple[int, ...]) -> Any:
    """The element at a dimension; a list of them for a list."""
    return tuple(xs[n] for n in d) if isinstance(d, tuple) else xs[d]


@torch_fact("dims(any, int) -> [int]")
def dims(site: Firing, d: int | tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """A field that names one dimension, several, or all (none, or an empty list), of n: as non-negative numbers."""
    if d is None or d == ():
        return tuple(range(n))
    return tuple(sorted(k % n if n else 0 for k in (d if isinstance(d, tuple) else (d,))))[: n or 0]


@torch_fact("wrapped(int, int) -> int")
def wrapped(site: Firing, index: int, n: int) -> int:
    """An index that counts from the back if negative."""
    return index + n if index < 0 else index


@torch_fact("clipped(any, int, int) -> int")
def clipped(site: Firing, index: int | None, n: int, default: int) -> int:
    """A bound of a slice: from the back if negative, cut to 0..n."""
    return max(0, min(default if index is None else wrapped(site, index, n), n))


@torch_fact("covers([int], [int], [int], int) -> bool")
def covers(site: Firing, whole_: tuple[int, ...], index: tuple[int, ...], source: tuple[int, ...], d: int) -> bool:
    """Whether an index and what it places have the extents of the whole, but for one dimension, where they agree."""
    d %= len(whole_)
    return index[d] == source[d] and all(w == i == s for k, (w, i, s) in enumerate(zip(whole_, index, source, strict=True)) if k != d)


# ---- axes


@torch_fact("axes(value) -> [axis]")
def axes(site: Firing, x: View | float) -> Axes:
    """One new axis per dimension of x."""
    return tuple(site.axis(n) for n in shape(site, x))


@torch_fact("axis(int) -> axis")
def axis(site: Firing, extent: int) -> Any:
    """A new axis."""
    return site.axis(extent)


@torch_fact("axes_of([int]) -> [axis]")
def axes_of(site: Firing, extents: tuple[int, ...]) -> Axes:
    """One new axis per extent."""
    return tuple(site.axis(n) for n in extents)


@torch_fact("unit() -> axis")
def unit(site: Firing) -> Any:
    """A dimension of size 1."""
    return site.axis(1)


@torch_fact("broadcast(value*) -> [axis]")
def broadcast(site: Firing, *values: View | float) -> Axes:
    """One new axis per dimension of what tensors broadcast to."""
    shapes = [shape(site, x) for x in values]
    longest = max(map(len, shapes))
    columns = zip(*((1,) * (longest - len(s)) + tuple(s) for s in shapes), strict=True)
    return tuple(site.axis(next((n for n in column if n != 1), 1)) for column in columns)


@torch_fact("reduced([axis], [int], bool) -> [axis]")
def reduced(site: Firing, os: Axes, ds: tuple[int, ...], keep: bool) -> Axes:
    """The axes that a reduction over dimensions leaves."""
    gone = {d % len(os) for d in ds} if os else set()
    return tuple(site.axis(1) if d in gone else o for d, o in enumerate(os) if keep or d not in gone)


@torch_fact("swap([any], int, int) -> [any]")
def swap(site: Firing, os: Axes, a: int, b: int) -> Axes:
    """Two elements exchanged; a list shorter than two as it is."""
    out = list(os)
    if out:
        out[a], out[b] = out[b], out[a]
    return tuple(out)


@torch_fact("insert([any], int, any) -> [any]")
def insert(site: Firing, os: Axes, d: int, x: Any) -> Axes:
    """x put before dimension d."""
    d %= len(os) + 1
    return (*os[:d], x, *os[d:])


@torch_fact("put([any], int, any) -> [any]")
def put(site: Firing, os: Axes, d: int, x: Any) -> Axes:
    """x in the place of the element at dimension d. An axis put there may be shorter than the dimension."""
    if not os:
        return os
    d %= len(os)
    return (*os[:d], _exactly(x), *os[d + 1 :])


def _exactly(x: Any) -> Any:
    return Exactly(x) if x.__class__ is Axis else x


@torch_fact("starts([any]) -> [any]")
def starts(site: Firing, os: Axes) -> Axes:
    """Axes that may be shorter than the dimensions they stand at."""
    return tuple(map(_exactly, os))


@torch_fact("put_all([any], [int], [any]) -> [any]")
def put_all(site: Firing, os: Axes, ds: tuple[int, ...], xs: Axes) -> Axes:
    """The elements at some dimensions replaced, in order."""
    for d, x in zip(ds, xs, strict=True):
        os = put(site, os, d, x)
    return os


@torch_fact("without([any], int) -> [any]")
def without(site: Firing, os: Axes, d: int) -> Axes:
    """The element at a dimension left out."""
    d %= len(os) or 1
    return (*os[:d], *os[d + 1 :])


@torch_fact("squeezed([axis], [int]) -> [axis]")
def squeezed(site: Firing, os: Axes, ds: tuple[int, ...]) -> Axes:
    """The axes but those of extent 1 among some dimensions."""
    return tuple(o for d, o in enumerate(os) if d not in ds or site.extent(o) != 1)


@torch_fact("position([axis]) -> expr")
def position(site: Firing, os: Axes) -> Expr:
    """The place of an element in memory order."""
    flat: Expr = 0
    for o in os:
        flat = add(multiply(flat, site.extent(o)), o)
    return flat


@torch_fact("mirrored([axis], [int]) -> [expr]")
def mirrored(site: Firing, os: Axes, ds: tuple[int, ...]) -> Axes:
    """Some dimensions read from the back."""
    return tuple(subtract(site.extent(o) - 1, o) if d in ds else o for d, o in enumerate(os))


@torch_fact("rolled([axis], [int], [int]) -> [expr]")
def rolled(site: Firing, os: Axes, shifts: tuple[int, ...], ds: tuple[int, ...]) -> Axes:
    """Some dimensions read around the end."""
    out = list(os)
    for shift, d in zip(shifts, ds, strict=True):
        n = site.extent(os[d])
        out[d] = modulo(add(out[d], n - shift % n), n)
    return tuple(out)


@torch_fact("turned([axis], int, int, int) -> [expr]")
def turned(site: Firing, os: Axes, quarters: int, a: int, b: int) -> Axes:
    """Two dimensions turned by quarters, from the first towards the second."""
    out = list(os)
    x, y = os[a], os[b]
    back_x, back_y = subtract(site.extent(x) - 1, x), subtract(site.extent(y) - 1, y)
    out[a], out[b] = ((x, y), (y, back_x), (back_x, back_y), (back_y, x))[quarters]
    return tuple(out)


@torch_fact("moved([axis], any, any) -> [axis]")
def moved(site: Firing, os: Axes, source: int | tuple[int, ...], target: int | tuple[int, ...]) -> Axes:
    """Axes at some dimensions put at others; the rest keep their order."""
    sources = source if isinstance(source, tuple) else (source,)
    targets = target if isinstance(target, tuple) else (target,)
    n = len(os)
    placed = {b % n: os[a % n] for a, b in zip(sources, targets, strict=True)}
    rest = iter(o for d, o in enumerate(os) if d not in {a % n for a in sources})
    return tuple(placed[d] if d in placed else next(rest) for d in range(n))


@torch_fact("mirror([any]) -> [any]")
def mirror(site: Firing, os: Axes) -> Axes:
    """A list from the back."""
    return os[::-1]


@torch_fact("extents([axis]) -> [int]")
def extents(site: Firing, os: Axes) -> tuple[int, ...]:
    """The extents of axes."""
    return tuple(map(site.extent, os))


@torch_fact("crossed([axis], int, int, expr, expr) -> [expr]")
def crossed(site: Firing, rest: Axes, a: int, b: int, at_a: Expr, at_b: Expr) -> Axes:
    """The other dimensions' axes with two index expressions put in at dimensions a and b."""
    n = len(rest) + 2
    places = {a % n: _exactly(at_a), b % n: _exactly(at_b)}
    others = iter(rest)
    return tuple(places[d] if d in places else next(others) for d in range(n))


@torch_fact("tiled([axis], value) -> [expr]")
def tiled(site: Firing, os: Axes, x: View) -> Axes:
    """The axes of copies side by side, as those of the original."""
    own = os[len(os) - len(x.shape) :]
    return tuple(o if site.extent(o) == n else modulo(o, n) for o, n in zip(own, x.shape, strict=True))


@torch_fact("heads([axis], int) -> [expr]")
def heads(site: Firing, bs: Axes, group: int) -> Axes:
    """Grouped heads: the last batch axis divided by the size of a group."""
    return bs if group == 1 else (*bs[:-1], floordiv(bs[-1], group))


# ---- padding: torch names the last dimension first, (before, after) a dimension


@torch_fact("inside([axis], value, [int]) -> expr")
def inside(site: Firing, os: Axes, x: View, pads: tuple[int, ...]) -> Expr:
    """Whether a place of a padded tensor is in the original."""
    condition: Expr = True
    for n in range(len(pads) // 2):
        d = len(os) - 1 - n
        low, high = pads[2 * n], pads[2 * n] + x.shape[d]
        if low > 0:
            condition = both_hold(condition, compare(">=", os[d], low))
        if high < site.extent(os[d]):
            condition = both_hold(condition, compare("<", os[d], high))
    return condition


@torch_fact("shifted([axis], [int]) -> [expr]")
def shifted(site: Firing, os: Axes, pads: tuple[int, ...]) -> Axes:
    """The place in the original that a place of a padded tensor is."""
    last = len(os) - 1
    return tuple(_exactly(subtract(o, pads[2 * (last - d)])) if 2 * (last - d) < len(pads) else o for d, o in enumerate(os))


# ---- reshape


@torch_fact("regroup(value, [axis]) -> [expr]")
def regroup(site: Firing, x: View, os: Axes) -> Axes:
    """The index of every dimension of x by the axes of a reshape of it: equal groups of dimensions keep their axis, a split
    gives a*B + b, a merge gives // and %."""
    out: list[Expr] = []
    i = j = 0
    extents = tuple(map(site.extent, os))
    if 0 in x.shape:
        raise Refusal("a tensor without elements")
    while i < len(x.shape) or j < len(os):
        i2, j2 = _group(x.shape, extents, i, j)
        out += _regroup(x.shape[i:i2], [(o, n) for o, n in zip(os[j:j2], extents[j:j2], strict=True) if n != 1])
        i, j = i2, j2
    return tuple(out)


def _group(source: tuple[int, ...], target: tuple[int, ...], i: int, j: int) -> tuple[int, int]:
    """The ends of the shortest runs of dimensions, from i and j, that hold equally many elements."""
    p, i = (source[i], i + 1) if i < len(source) else (1, i)
    q, j = (target[j], j + 1) if j < len(target) else (1, j)
    while p != q:
        if p < q:
            p, i = p * source[i], i + 1
        else:
            q, j = q * target[j], j + 1
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


# ---- einsum


@torch_fact("letters(text, [value]) -> any")
def letters(site: Firing, equation: str, operands: tuple[View, ...]) -> dict[str, Axes]:
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
def subscript(site: Firing, equation: str, n: int, found: dict[str, Axes]) -> Axes:
    """The axes of the n-th operand; of the result for -1."""
    terms, result = _equation(equation)
    names = _split_letters(result if n == -1 else terms[n])
    return tuple(o for name in names for o in found.get(name, ()))


@torch_fact("summed(text, any) -> [axis]")
def summed(site: Firing, equation: str, found: dict[str, Axes]) -> Axes:
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
