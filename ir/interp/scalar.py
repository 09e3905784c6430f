"""The numpy meaning of scalar and index expressions: floats are float64, integers int64, truth values bool.

Casts between float dtypes do nothing here: the meaning of a program is free of rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..diagnostic import InternalError
from ..expr import Binary, Call, Not, Sum, Var
from ..functions import FUNCTIONS, identity
from ..program import Kernel, Param

KINDS: dict[str, Any] = {
    "f32": np.float64, "f16": np.float64, "bf16": np.float64, "i32": np.int64, "i64": np.int64, "b8": np.bool_,
}  # fmt: skip
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "*": np.multiply, "//": np.floor_divide, "%": np.remainder, "^": np.bitwise_xor,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


class ScheduleError(InternalError):
    """A program that means nothing, or not always the same: a race, an access out of bounds, a missing barrier."""


def evaluate(e: Any, env: Mapping[str, Any]) -> Any:
    """The value of an expression; names may stand for arrays."""
    kind = e.__class__
    if kind is Var:
        try:
            return env[e.name]
        except KeyError:
            raise ScheduleError(f"undefined name `{e.name}`") from None
    if kind is Sum:
        result = e.constant
        for atom, factor in e.terms:
            result = result + evaluate(atom, env) * factor
        return result
    if kind is Call:
        args = [evaluate(a, env) for a in e.args]
        return np.asarray(args[0]).astype(KINDS[e.fn]) if e.fn in KINDS else FUNCTIONS[e.fn].numpy(*args)
    if kind is Binary:
        return _OPERATORS[e.op](evaluate(e.a, env), evaluate(e.b, env))
    if kind is Not:
        return np.logical_not(evaluate(e.a, env))
    return e


def fold(fn: str) -> Any:
    """The ufunc of a reduction."""
    return FUNCTIONS[fn].numpy


def start_value(fn: str, dtype: str) -> Any:
    """What an accumulator holds before anything is added."""
    wide = {"i32": "i64"}.get(dtype, dtype)
    return KINDS[dtype](identity(fn, wide))


def memory_of(kernels: tuple[Kernel, ...], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The buffers before the first kernel: the inputs in the kinds and shapes that the kernels declare."""
    made = {param.name for kernel in kernels for param in kernel.outs}
    declared = {p.name: p for kernel in kernels for p in kernel.ins if p.name not in made}
    missing = sorted(set(declared) - set(inputs))
    if missing:
        raise ScheduleError(f"no input for {', '.join(missing)}")
    return {name: _as_declared(np.asarray(inputs[name]), param) for name, param in declared.items()}


def _as_declared(value: np.ndarray, param: Param) -> np.ndarray:
    return value.astype(KINDS[param.dtype]).reshape(param.shape)


def seen_by(kernel: Kernel, memory: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The buffers as a kernel declares them: it may see one that others know under other dimensions, element by element
    in the same order."""
    shapes = {param.name: param.shape for param in (*kernel.ins, *kernel.outs)}
    return {name: array.reshape(shapes.get(name, array.shape)) for name, array in memory.items()}


def empty(param: Param) -> tuple[np.ndarray, np.ndarray]:
    """An output before its kernel runs, and the count of stores to each element."""
    poison = np.nan if KINDS[param.dtype] is np.float64 else 0
    return np.full(param.shape, poison, KINDS[param.dtype]), np.zeros(param.shape, np.int64)


def check_stores(counts: Mapping[str, np.ndarray], kernel: Kernel) -> None:
    """Every output element is stored exactly once."""
    for name, count in counts.items():
        if (count != 1).any():
            never, often = int((count == 0).sum()), int((count > 1).sum())
            what = f"{name}: {never} elements never stored, {often} stored more than once"
            raise ScheduleError(what, notes=(f"in kernel `{kernel.name}`",))


def in_bounds(idx: list[Any], shape: tuple[int, ...]) -> Any:
    """Where an index lies inside of a shape."""
    inside: Any = True
    for position, extent in zip(idx, shape, strict=True):
        inside = inside & (np.asarray(position) >= 0) & (np.asarray(position) < extent)
    return inside


def clipped(idx: list[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(np.clip(position, 0, extent - 1) for position, extent in zip(idx, shape, strict=True))
