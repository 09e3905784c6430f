"""Facts of level torch about windows: places of convolutions and pools.

A window along a dimension is p*stride + k*dilation - padding for the p-th window and its k-th place. Settings are lists
with an element for each dimension, or with one element for all of them.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import add, both, compare, floordiv, modulo, multiply, subtract
from ...ir.node import Expr
from ...ir.sizes import decide_sizes
from ..rewrite.torch_rules.firing import TorchSite
from ..rewrite.torch_rules.values import View
from .torch_shapes import Axes, torch_fact

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
