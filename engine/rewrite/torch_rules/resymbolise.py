"""Folded constants that are a formula: splats, affine ramps, triangles and steps become index arithmetic, not buffers.

A transformer's whole attention mask (arange, cumsum, compare, and) folds to one tensor and comes back as `j <= i`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ....ir import compose
from ....ir.expr import COMPARISONS, Axis, add, total
from ....ir.facts.index import operate
from ....ir.tensor import Term
from .pattern import View

Array = np.ndarray[Any, Any]
Over = Callable[[], list[Axis]]  # the axes of an array, which are named when a formula needs them
EXACT = 1 << 24  # integers that f32 holds exactly
LARGEST = 1 << 63  # what index arithmetic cannot reach


def resymbolise(view: View, array: Array, fresh: Callable[[int], Axis], few: int) -> None:
    """Make the value of a constant a formula over its axes, if a known formula describes it.

    few: the largest number of values that are selected one by one rather than stored.
    """
    varying = [d for d, n in enumerate(array.shape) if n > 1 and not np.all(_same(array, np.take(array, [0], axis=d)))]
    small = array[tuple(slice(None) if d in varying else 0 for d in range(array.ndim))]
    over = cache(lambda: list(map(fresh, small.shape)))
    if not small.ndim:
        value = small.item()
        found: Term | None = compose.const(value, view.dtype) if value == value else None  # not for nan
    elif view.dtype == "b8":
        found = _condition(small, over)
    else:
        found = _affine(small, view.dtype, over) or _two_values(small, view.dtype, over)
    view.term = found or _few(small, view.dtype, over, few)
    if view.term is not None:
        view.dims = tuple(map(dict(zip(varying, over(), strict=True)).get, range(array.ndim)))


def _same(a: Array, b: Any) -> Any:
    """Return whether elements are equal to the bit: zeros have signs; nan is equal to nothing."""
    return (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b


def _affine(array: Array, dtype: str, over: Over) -> Term | None:
    """Return `origin + sum of step * axis`, computed in integers, or None."""
    if array.dtype.kind == "f" and not np.all((np.abs(array) < EXACT) & (array == np.round(array))):
        return None
    origin = int(array.flat[0])
    steps = [int(np.take(array, 1, axis=d).flat[0]) - origin for d in range(array.ndim)]
    if abs(origin) + sum(abs(step) * n for step, n in zip(steps, array.shape, strict=True)) >= LARGEST:
        return None
    ramp = sum(map(np.multiply, steps, np.ix_(*map(np.arange, array.shape))), np.int64(origin))
    if not np.array_equal(ramp, array):
        return None
    return compose.cast(compose.index(add(origin, total(over(), steps))), dtype)


def _condition(array: Array, over: Over) -> Term | None:
    """Return a step along one axis, or a triangle or diagonal over two."""
    edges: list[tuple[str, Any]] = []
    if array.ndim == 1:
        gap = np.arange(array.size)
        edges = [("<" if array[0] else ">=", np.argmax(array != array[0]))]
    elif array.ndim == 2:
        gap = -np.subtract.outer(*map(np.arange, array.shape))
        true, false = gap[array], gap[~array]
        # `<=` up to the largest gap that is true, and so on
        edges = [("<=", true.max()), (">", false.max()), ("==", true.flat[0]), ("!=", false.flat[0])]
    for op, edge in edges:
        if np.array_equal(COMPARISONS[op](gap, edge), array):
            *start, axis = over()
            return compose.index(operate(op, axis, total((*start, int(edge)))))
    return None


def _where(condition: Term, value: Any, otherwise: Term, dtype: str) -> Term:
    return compose.as_term(compose.elementwise("where", condition, compose.const(value.item(), dtype), otherwise))


def _few(array: Array, dtype: str, over: Over, few: int) -> Term | None:
    """Return a chain of selections for at most `few` values along one axis, or None."""
    if array.ndim != 1 or array.size > few:
        return None
    chain: Term = compose.const(array[-1].item(), dtype)
    for n in reversed(range(array.size - 1)):
        chain = _where(compose.index(operate("<", over()[0], n + 1)), array[n], chain, dtype)
    return chain


def _two_values(array: Array, dtype: str, over: Over) -> Term | None:
    """Return `where(condition, a, b)` for an array that holds two values, or None."""
    low, high = array.min(), array.max()
    if not np.all(_same(array, low) | _same(array, high)):
        return None
    condition = _condition(_same(array, high), over)
    return None if condition is None else _where(condition, high, compose.const(low.item(), dtype), dtype)
