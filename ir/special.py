"""The numpy meaning of functions that neither numpy nor Python has: inverses and a scaling of the error function,
Bessel's functions, recurrences of three terms, shares of the gamma function."""

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


def _gamma_shares(a: float, x: float) -> tuple[float, float]:
    """What of the gamma function's integral, of t ** (a - 1) * exp(-t), lies below x, and what above, as shares of all.

    A series for small x, else a continued fraction; of a large a Temme's expansion. DLMF 8.7.1, 8.9.2, 8.12.
    """
    if not (a >= 0 and x >= 0) or a == x in (0, math.inf):
        return math.nan, math.nan
    if a == 0 or x == math.inf:
        return 1.0, 0.0
    if x == 0 or a == math.inf:
        return 0.0, 1.0
    if a > _LARGE:
        return _gamma_shares_of_large(a, x)
    if x < a + 1:
        term = total = 1.0
        for k in range(1, _MOST_TERMS):
            term *= x / (a + k)
            total += term
            if term < 1e-17 * total:
                break
        below = min(1.0, _gamma_weight(a, x) * total)
        return below, 1 - below
    step = x + 1 - a
    before, now = math.inf, 1 / step
    fraction = now
    for k in range(1, _MOST_TERMS):
        step += 2
        now = 1 / (step - k * (k - a) * now)
        before = step - k * (k - a) / before
        fraction *= now * before
        if abs(now * before - 1) < 1e-16:
            break
    above = min(1.0, _gamma_weight(a, x) * a * fraction)
    return 1 - above, above


def _gamma_weight(a: float, x: float) -> float:
    """x ** a * exp(-x) / gamma(a + 1); of a larger a by Stirling's series, so that no large numbers cancel."""
    if a < 20:
        return math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    over, square = (x - a) / a, a * a
    rest = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / a
    power = a * (math.log1p(over) - over) if over > -1 else -math.inf
    return math.exp(power - rest) / math.sqrt(2 * math.pi * a)


def _gamma_shares_of_large(a: float, x: float) -> tuple[float, float]:
    """Two terms of Temme's expansion. DLMF 8.12.3, 8.12.4, 8.12.7."""
    over = (x - a) / a
    if abs(over) < 0.01:
        half = sum((-over) ** k / k for k in range(9, 1, -1))
    else:
        half = over - math.log1p(over) if over > -1 else math.inf
    eta = math.copysign(math.sqrt(2 * half), over)
    near = max(-1.0, min(1.0, eta))
    first, second = (sum(c * near**k for k, c in enumerate(row)) for row in _TEMME)
    rest = math.exp(-a * half) / math.sqrt(2 * math.pi * a) * (first + second / a)
    place = eta * math.sqrt(a / 2)
    return math.erfc(-place) / 2 - rest, math.erfc(place) / 2 + rest


_LARGE, _MOST_TERMS = 20000.0, 2000
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860),
)


def _share_of_gamma(which: int, a: Any, x: Any) -> Any:
    """Element by element."""
    arrays = np.broadcast_arrays(np.asarray(a, float), np.asarray(x, float))
    of_one = np.vectorize(lambda a, x: _gamma_shares(a, x)[which], otypes=[np.float64])
    return of_one(*arrays) if arrays[0].size else arrays[0]


def _of_order(of_one: Callable[[int, float], float], order: int) -> Callable[[Any], Any]:
    return elementwise(functools.partial(of_one, order))


erfinv, erfcinv, erfcx = map(elementwise, (_erfinv, _erfcinv, _erfcx))
bessel_j0, bessel_j1, bessel_y0, bessel_y1 = (
    _of_order(kind, order) for kind in (_first_kind, _second_kind) for order in (0, 1)
)
gammainc, gammaincc = (functools.partial(_share_of_gamma, which) for which in (0, 1))
