"""The numpy meaning of functions that neither numpy nor Python has, against torch and against what defines them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import dplc
from dplc.ir.functions import FUNCTIONS

functions = SimpleNamespace(**{name: function.numpy for name, function in FUNCTIONS.items()})


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_bessel_functions_are_torch_s_to_the_digits_that_it_has(name: str) -> None:
    x = np.concatenate([np.geomspace(1e-6, 24.9, 60), np.geomspace(25, 1e6, 40)])
    want = getattr(torch.special, name)(torch.from_numpy(x)).numpy()
    assert np.max(np.abs(getattr(functions, name)(x) - want) / np.maximum(1, np.abs(want))) < 5e-7


def test_bessel_functions_have_their_wronskian() -> None:
    """J1 Y0 - J0 Y1 is 2 / (pi x): to more digits than torch has, near and far."""
    x = np.array([1e-3, 0.5, 3.0, 11.0, 24.9, 25.0, 80.0])
    j0, j1, y0, y1 = (getattr(functions, f"bessel_{name}")(x) for name in ("j0", "j1", "y0", "y1"))
    np.testing.assert_allclose(j1 * y0 - j0 * y1, 2 / (math.pi * x), rtol=1e-13)


def test_bessel_functions_at_the_ends() -> None:
    assert functions.bessel_j0(0.0) == 1 and functions.bessel_j1(-2.0) == -functions.bessel_j1(2.0)
    assert functions.bessel_y0(0.0) == -math.inf and math.isnan(functions.bessel_y1(-1.0))
    assert math.isnan(functions.bessel_j0(math.nan)) and functions.bessel_y1(math.inf) == 0
    assert functions.bessel_j0(math.inf) == functions.bessel_j1(math.inf) == functions.bessel_j1(-math.inf) == 0
    assert functions.bessel_j0(np.zeros((0, 3))).shape == (0, 3)


def test_zeta_is_right_to_the_last_digits() -> None:
    """Also large powers, where what nine terms leave is less than one of them."""
    s, q = np.meshgrid([1.01, 2.0, 3.5, 12.0, 40.0, 80.0], [0.25, 1.0, 9.01, 9.5, 12.0, 30.0])
    with mpmath.workdps(60):
        want = np.vectorize(mpmath.zeta, otypes=[float])(s, q)
    np.testing.assert_allclose(functions.zeta(s, q), want, rtol=1e-13)
    kernels_are(torch.special.zeta, want, 1e-13, s, q)


def test_small_values_of_kernels_are_right() -> None:
    x = np.geomspace(1e-30, 40, 50)
    kernels_are(torch.special.i1, torch.special.i1(torch.from_numpy(x)).numpy(), 2e-13, x)
    a, x = np.full(3, 30.0), np.array([1e-8, 0.3, 12.0])
    with mpmath.workdps(30):
        want = np.array([float(mpmath.gammainc(30, 0, one, regularized=True)) for one in x])
    kernels_are(torch.special.gammainc, want, 1e-12, a, x)


def kernels_are(function: Any, want: np.ndarray[Any, Any], relative: float, *arrays: np.ndarray[Any, Any]) -> None:
    given = tuple(map(torch.from_numpy, arrays))
    np.testing.assert_allclose(dplc.compile(function, given, device="emulator")(*given), want, rtol=relative)


def test_a_recurrence_of_three_terms() -> None:
    """Legendre's polynomials, and the first two of any."""
    degrees = np.arange(6.0)
    want = torch.special.legendre_polynomial_p(
        torch.tensor(0.3, dtype=torch.float64), torch.from_numpy(degrees)
    ).numpy()
    np.testing.assert_allclose(functions.three_terms(degrees, 0.3, 0.3, 0.6, 0, 1, 1), want, rtol=1e-14)
    assert list(functions.three_terms(np.array([-4.0, 0.0, 1.0, math.nan, math.inf]), 7, 0, 0, 0, 0, 0)) == [
        1,
        1,
        7,
        1,
        7,
    ]


@pytest.mark.parametrize("ratio", [1e-6, 0.3, 0.97, 0.9999, 1.0, 1.004, 1.2, 5.0])
def test_shares_of_the_gamma_function(ratio: float) -> None:
    """Where the series, the fraction and Temme's expansion serve. Torch has nine digits of them."""
    orders = np.array([1e-3, 0.7, 5.0, 19.9, 20.1, 800.0, 2e4, 20001.0, 3e5])
    below, above = functions.gammainc(orders, orders * ratio), functions.gammaincc(orders, orders * ratio)
    # a hundred deviations from the mean nothing is left, which mpmath's series does not reach
    far = orders * (ratio - 1) ** 2 > 1e4
    known = [
        ratio > 1 if ends else mpmath.gammainc(order, 0, order * ratio, regularized=True)
        for order, ends in zip(orders, far)
    ]
    want = np.array(known, float)
    np.testing.assert_allclose(below, want, rtol=0, atol=2e-13)
    np.testing.assert_allclose(below + above, 1, rtol=1e-15)


def test_shares_of_the_gamma_function_at_the_ends() -> None:
    a = np.array([0, 0, 1, np.inf, 1, np.inf, -1, 1, np.nan, 1e300, 1])
    x = np.array([0, 1, 0, 1, np.inf, np.inf, 1, -1, 1, 1, 1e300])
    want = torch.special.gammaincc(torch.from_numpy(a), torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(functions.gammaincc(a, x), want)
    assert functions.gammainc(np.zeros((0, 3)), 1.0).shape == (0, 3)
