"""Facts of level torch about axes: which index stands at which dimension.

`axes(x)` makes one unnamed axis per dimension of x; the others rearrange such lists, which stand in brackets as `os..`.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.expr import Axis, add, both, compare, floordiv, modulo, multiply, subtract
from ...ir.node import Expr
from ...ir.sizes import decide_sizes
from ..rewrite.torch_rules.firing import TorchSite
from ..rewrite.torch_rules.values import Exactly, NotApplicable, View
from .torch_shapes import Axes, shape, torch_fact


@torch_fact("axes(value) -> [axis]")
def axes(site: TorchSite, x: View | float) -> Axes:
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
