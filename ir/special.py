"""The numpy meaning of functions that neither numpy nor Python has: inverses and a scaling of the error function,
Bessel's functions, recurrences of three terms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np


def elementwise(of_one: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of one number as one of arrays."""

    def of_all(x: Any) -> Any:
        return np.vectorize(of_one, otypes=[np.float64])(x) if np.size(x) else np.asarray(x, float)

    return of_all


def _erfcinv(y: float) -> float:
    """x with erfc(x) == y: Winitzki's approximation, then Halley's steps."""
    if not 0 <= y <= 2:
        return math.nan
    if y in (0, 2):
        return math.inf if y == 0 else -math.inf
    if y > 1:
        return -_erfcinv(2 - y)
    log = math.log(y * (2 - y))
    middle = 2 / (math.pi * 0.147) + log / 2
    x = math.sqrt(max(0.0, math.sqrt(middle * middle - log / 0.147) - middle))
    for _ in range(4):
        x = _step(x, math.erfc(x) - y)
    return x


def _erfinv(y: float) -> float:
    if abs(y) > 0.5 or y != y:
        return math.copysign(_erfcinv(1 - abs(y)), y)
    x = y * math.sqrt(math.pi) / 2
    for _ in range(6):
        x = _step(x, y - math.erf(x))
    return x


def _step(x: float, over: float) -> float:
    """Halley's step towards where nothing is over. `over` falls with the slope of erfc."""
    newton = over / (2 / math.sqrt(math.pi) * math.exp(-x * x))
    return x + newton / (1 - x * newton) if abs(x * newton) < 0.5 else x + newton


def _erfcx(x: float) -> float:
    """exp(x * x) * erfc(x); far from 0 by its asymptotic series."""
    if x < 10:
        return math.inf if x < -26.7 else math.exp(x * x) * math.erfc(x)
    term = total = 1.0
    for k in range(1, 12):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


def _bessel_j(order: int, x: float) -> float:
    """Bessel's integral, a mean of cosines over a turn, which so many places give exactly for such x."""
    turns = (2 * math.pi * place / _PLACES for place in range(_PLACES))
    return sum(math.cos(order * turn - x * math.sin(turn)) for turn in turns) / _PLACES


def _bessel_y(order: int, x: float) -> float:
    """Neumann's series of J's beside the logarithm. Abramowitz and Stegun, 9.1.88 and 9.1.89."""
    total, sign = 0.0, 1.0
    for k in range(1, _PLACES // 4):
        sign = -sign
        weight = (order + 2 * k) / (k * (order + k))
        total += sign * weight * _bessel_j(2 * k + order, x)
    log = math.log(x / 2) + _EULER - order
    return 2 / math.pi * (log * _bessel_j(order, x) - total - (_bessel_j(0, x) / x if order else 0.0))


def _bessel_far(order: int, x: float) -> tuple[float, float]:
    """J and Y by Hankel's expansion. DLMF 10.17.3 and 10.17.4."""
    parts, term = [1.0, 0.0], 1.0
    for k in range(1, 17):
        term *= (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        parts[k % 2] += term if k % 4 < 2 else -term
    angle, size = x - (2 * order + 1) * math.pi / 4, math.sqrt(2 / (math.pi * x))
    sine, cosine = math.sin(angle), math.cos(angle)
    return size * (parts[0] * cosine - parts[1] * sine), size * (parts[0] * sine + parts[1] * cosine)


def _first_kind(order: int, x: float) -> float:
    if math.isnan(x):
        return x
    size = math.copysign(1.0, x) if order else 1.0
    if math.isinf(x):
        return 0.0 * size
    return size * (_bessel_j(order, abs(x)) if abs(x) < _NEAR else _bessel_far(order, abs(x))[0])


def _second_kind(order: int, x: float) -> float:
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return 0.0 if x else -math.inf
    return _bessel_y(order, x) if x < _NEAR else _bessel_far(order, x)[1]


_PLACES, _NEAR, _EULER = 128, 25.0, 0.5772156649015329


def _three_terms(n: float, first: float, a: float, b: float, c: float, d: float, e: float) -> float:
    before, now = 1.0, first
    if not n >= 1:
        return before
    for k in range(1, int(n) if n < 2.0**63 else 0):
        if now != now:
            break
        before, now = now, ((a + b * k) * now - (c + d * k) * before) / (1 + e * k)
    return now


def three_terms(*operands: Any) -> Any:
    """p_n, where p_0 = 1, p_1 = first and (1 + e k) p_(k+1) = (a + b k) p_k - (c + d k) p_(k-1). operands: n to e."""
    arrays = np.broadcast_arrays(*(np.asarray(operand, float) for operand in operands))
    return np.vectorize(_three_terms, otypes=[np.float64])(*arrays) if arrays[0].size else arrays[0]


def _of_order(of_one: Callable[[int, float], float], order: int) -> Callable[[Any], Any]:
    return elementwise(functools.partial(of_one, order))


erfinv, erfcinv, erfcx = map(elementwise, (_erfinv, _erfcinv, _erfcx))
bessel_j0, bessel_j1, bessel_y0, bessel_y1 = (
    _of_order(kind, order) for kind in (_first_kind, _second_kind) for order in (0, 1)
)
