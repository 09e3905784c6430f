"""Facts of level torch about values: shapes, dtypes, numbers, lists, dimensions.

Dimensions count from the front, or from the back if negative, as in torch.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from ...ir.dtypes import INTEGERS
from ...ir.expr import Call, Var
from ...ir.functions import identity
from ...ir.schemas import PARTS
from ...ir.sizes import known_at_launch
from ..language.facts import fact
from ..rewrite.torch_rules.firing import TorchSite
from ..rewrite.torch_rules.values import NotApplicable, View

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
def dtype(site: TorchSite, x: View | float) -> Var:
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
