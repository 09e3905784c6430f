"""The numpy meaning of functions that neither numpy nor Python has: inverses and a scaling of the error function."""

from __future__ import annotations

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


erfinv, erfcinv, erfcx = map(elementwise, (_erfinv, _erfcinv, _erfcx))
