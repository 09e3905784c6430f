"""The registers of the threads of some blocks, and the meaning of expressions over them.

A value is an array that broadcasts to (blocks, threads). Registers never written are poison.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..expr import COMPARISONS, Binary, Call, Not, Sum, Var, is_int
from ..kernel import Element
from ..node import Expr, memoised, nodes
from .scalar import KINDS, ScheduleError, apply, as_index, as_kind

Place = tuple[str, tuple[int, ...]]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **COMPARISONS, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "^": operator.xor,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
POISON: dict[Any, Any] = {np.float64: np.nan, np.int32: -(2**30) + 9991, np.int64: -(2**62) + 99991, np.bool_: True}


def both(mask: Any, condition: Any) -> Any:
    """The threads of a mask (None: all) for which a condition holds."""
    if condition is True:
        return mask
    return condition if mask is None else mask & condition


@memoised
def divides(e: Any) -> bool:
    """Whether an expression has a quotient or remainder that C rounds to zero: all but shifts and masks."""
    return any(
        part.op in ("//", "%") and not (is_int(part.b) and part.b > 0 and part.b & (part.b - 1) == 0)
        for part in nodes(e, Binary)
    )


def chosen(value: Any, which: np.ndarray) -> Any:
    """A value of some threads, of those that are there; what is alike for all stays."""
    varies = np.ndim(value) == 2 and np.shape(value)[1] == len(which) > 1
    return value[:, which] if varies else value


class RegisterValues:
    """What the threads hold: scalars, and arrays of registers by place."""

    def __init__(self, env: Mapping[str, Any]):
        self.env = dict(env)
        self.dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.arrays: dict[str, dict[tuple[int, ...], Any]] = {}

    def declare(self, name: str, dtype: str, shape: tuple[int, ...], fill: Any) -> None:
        """New registers, all poison or all with one value."""
        kind = KINDS[dtype]
        start = as_kind(POISON[kind] if fill is None else fill, dtype)
        self.dtypes[name], self.shapes[name] = dtype, shape
        if shape:
            self.arrays[name] = dict.fromkeys(np.ndindex(*shape), start)
        else:
            self.env[name] = start

    def define(self, name: str, dtype: str, value: Any) -> None:
        self.dtypes[name], self.shapes[name] = dtype, ()
        self.env[name] = as_kind(value, dtype)

    def put(self, place: Place, value: Any, mask: Any) -> None:
        """Change one register of the threads in the mask."""
        name, index = place
        value = as_kind(value, self.dtypes[name])
        if mask is not None:
            value = np.where(mask, value, self.get(place))
        if index:
            self.arrays[name][index] = value
        else:
            self.env[name] = value

    def get(self, place: Place) -> Any:
        name, index = place
        return self.arrays[name][index] if index else self.env[name]

    def place(self, e: Expr) -> Place:
        """The register that an expression names."""
        return self.run(e, 1)[0]

    def run(self, e: Expr, width: int) -> list[Place]:
        """`width` neighbouring registers, from the named one on, or along the index that is left out."""
        if not isinstance(e, Var | Element) or e.name not in self.dtypes:
            raise ScheduleError("this is no place")
        shape = self.shapes[e.name]
        index = tuple(int(self.value(i, None)) for i in e.index) if isinstance(e, Element) else ()
        if len(index) == len(shape) - 1 and width > 1:
            index = (*index, 0)
        if len(index) != len(shape) or (width > 1 and not shape):
            raise ScheduleError(f"`{e.name}` has {len(shape)} dimensions")
        if not shape:
            return [(e.name, ())]
        last = index[-1]
        if any(not 0 <= i < n for i, n in zip(index, shape, strict=True)) or last + width > shape[-1]:
            raise ScheduleError(f"`{e.name}` has no such registers")
        return [(e.name, (*index[:-1], last + lane)) for lane in range(width)]

    def of(self, which: np.ndarray) -> RegisterValues:
        """What some of the threads hold, in registers of their own."""
        made = RegisterValues({name: chosen(value, which) for name, value in self.env.items()})
        made.dtypes, made.shapes = dict(self.dtypes), dict(self.shapes)
        made.arrays = {
            name: {index: chosen(value, which) for index, value in array.items()} for name, array in self.arrays.items()
        }
        return made

    # ---- expressions

    def value(self, e: Any, mask: Any) -> Any:
        """The value of an expression. What is checked, is checked for the threads in the mask only."""
        kind = e.__class__
        if kind is Var:
            return self.scalar(e.name)
        if kind is Element:
            return self.get(self.place(e))
        if kind is Sum:
            result = e.constant
            for atom, factor in e.terms:
                result = result + as_index(self.value(atom, mask)) * factor
            return result
        if kind is Call:
            return self.call(e, mask)
        if kind is Binary:
            return self.binary(e, mask)
        if kind is Not:
            return np.logical_not(self.value(e.a, mask))
        return e

    def scalar(self, name: str) -> Any:
        if name not in self.env:
            raise ScheduleError(f"undefined name `{name}`" if name not in self.arrays else f"`{name}` is an array")
        return self.env[name]

    def call(self, e: Any, mask: Any) -> Any:
        if e.fn == "where" and divides(e):  # the side that is not chosen is not computed
            chosen = np.asarray(self.value(e.args[0], mask), bool)
            return np.where(
                chosen,
                self.value(e.args[1], both(mask, chosen)),
                self.value(e.args[2], both(mask, ~chosen)),
            )
        args = [self.value(arg, mask) for arg in e.args]
        return apply(e.fn, args)

    def binary(self, e: Any, mask: Any) -> Any:
        a = as_index(self.value(e.a, mask))
        if e.op in ("and", "or") and divides(e.b):
            mask = both(mask, np.asarray(a, bool) if e.op == "and" else ~np.asarray(a, bool))
        b = as_index(self.value(e.b, mask))
        if e.op in ("//", "%") and divides(e):
            wrong = (np.asarray(a) < 0) | (np.asarray(b) <= 0)
            if np.any(wrong if mask is None else wrong & mask):
                raise ScheduleError(f"`{e.op}` of a negative number, or by one that is not positive")
        return OPERATORS[e.op](a, b)
