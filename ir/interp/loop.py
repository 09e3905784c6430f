"""The meaning of Loop IR, sequential: free loops become array dimensions, so that it is fast enough for whole models.

A vectorised loop adds a leading dimension; values of an outer loop have fewer dimensions and broadcast. A reduction is
vectorised the same way, and reduced where it accumulates, unless the arrays would get too large.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ..facts.structure import Path, accumulator_scopes, value_dtypes
from ..loop import Accumulate, Carry, For, If, Let, Load, Merge, Scale, Store
from ..monoids import Monoid, monoid
from ..program import Block, Kernel, Module
from .scalar import (
    Memory,
    ScheduleError,
    as_kind,
    at_statement,
    both,
    chosen,
    evaluate,
    fold,
    folded,
    run_each,
    start_value,
    within,
)

# ---- reductions over tuple monoids


Parts = tuple[Any, ...]  # one array for each part


def lifted(monoid: Monoid, operands: Sequence[Any]) -> Parts:
    """Return the parts of single elements."""
    return _defined(monoid, monoid.lift, dict(zip(monoid.operands, operands, strict=True)))


def combined(monoid: Monoid, left: Parts, right: Parts) -> Parts:
    """Return the parts of two combined partial results."""
    return _defined(monoid, monoid.combine, monoid.sides(left, right))


def _defined(monoid: Monoid, block: tuple[Let, ...], names: dict[str, Any]) -> Parts:
    for stmt in block:
        names[stmt.dst] = evaluate(stmt.val, names)
    return tuple(names[part] for part in monoid.parts)


def reduced(monoid: Monoid, parts: Parts, axis: int = 0) -> Parts:
    """Return the parts reduced along an axis, neighbours first."""
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts))
    every = tuple(np.moveaxis(np.broadcast_to(part, shape), axis, 0) for part in parts)
    while len(every[0]) > 1:
        pairs = len(every[0]) // 2 * 2
        both = combined(monoid, tuple(p[0:pairs:2] for p in every), tuple(p[1:pairs:2] for p in every))
        every = tuple(np.concatenate((made, rest[pairs:])) for made, rest in zip(both, every, strict=True))
    return tuple(part[0] for part in every)


def folded_tuples(monoid: Monoid, parts: Parts, axis: int) -> list[Any]:
    """Return the parts reduced along an axis that is kept with extent 1.

    The result of a part is as wide as the part and the parts that it depends on.
    """
    shapes, out = dict(zip(monoid.parts, map(np.shape, parts), strict=True)), []
    for name, result in zip(monoid.parts, reduced(monoid, parts, axis), strict=True):
        own = np.broadcast_shapes(shapes[name], *(shapes[other] for other in monoid.beside(name)))
        whole = np.expand_dims(result, axis)
        out.append(whole[tuple(slice(0, 1) if extent == 1 else slice(None) for extent in own)])
    return out


def fold_tuples(monoid: Monoid, operands: Sequence[Any], count: int) -> Parts:
    """Return the reduction of `count` elements, along the first dimension of the operands (or of none of them)."""
    if not count:
        return monoid.identity
    parts = lifted(monoid, operands)
    shape = np.broadcast_shapes((count,), *(np.shape(part)[:1] for part in parts))
    spread = tuple(np.broadcast_to(part, (*shape, *np.shape(part)[1:]) if np.ndim(part) else shape) for part in parts)
    ranks = max(part.ndim for part in spread)
    return reduced(monoid, tuple(p.reshape(p.shape[0], *(1,) * (ranks - p.ndim), *p.shape[1:]) for p in spread))


LARGEST = 1 << 21  # elements of one array; longer reductions run step by step


def run(
    kernels: Module,
    inputs: Mapping[str, Any],
    stores: Memory | None = None,
    only: Mapping[str, Any] | None = None,
) -> Memory:
    """Return all buffers after the kernels, which run in order.

    stores: as of `run_each`.
    only: {free loop: its values}, to compute some of the elements; elements that are not stored are NaN or 0.
    Raises ScheduleError for an access out of bounds or a missing store.
    """
    return run_each(kernels, inputs, stores, functools.partial(launch, only=only or {}))


def launch(kernel: Kernel, memory: Memory, counts: Memory, only: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Run a kernel. only: as of `run`."""
    _Nest(kernel, memory, counts, only).block(kernel.body, (), None)


@dataclass
class _Nest:
    """One kernel under execution. `shape`: the extents of the vectorised loops, innermost first."""

    kernel: Kernel
    memory: Memory
    counts: Memory
    only: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.scopes, self.dtypes = accumulator_scopes(self.kernel), value_dtypes(self.kernel)
        self.env: dict[str, Any] = {}
        self.depths: dict[str, int] = {}  # the number of vectorised loops around each accumulator's start
        self.shape: tuple[int, ...] = ()

    def block(self, block: Block, path: Path, mask: Any) -> None:
        for acc, fn in self.scopes.get(path, ()):
            self.env[acc], self.depths[acc] = start_value(fn, self.dtypes[acc]), len(self.shape)
        for position, stmt in enumerate(block):
            with at_statement(stmt):
                self.statement(stmt, (*path, position), mask)

    def statement(self, stmt: Any, path: Path, mask: Any) -> None:
        if isinstance(stmt, For):
            self.loop(stmt, path, mask)
        elif isinstance(stmt, If):
            inner = both(mask, evaluate(stmt.cond, self.env))
            if np.any(inner):
                self.block(stmt.body, path, inner)
        elif isinstance(stmt, Load):
            self.env[stmt.dst] = self.load(stmt, mask)
        elif isinstance(stmt, Let):
            self.env[stmt.dst] = as_kind(evaluate(stmt.val, self.env), self.dtypes[stmt.dst])
        elif isinstance(stmt, Accumulate):
            self.accumulate(stmt, mask)
        elif isinstance(stmt, Merge):
            self.merge(stmt, mask)
        elif isinstance(stmt, Scale):
            self.env[stmt.acc] = self.env[stmt.acc] * chosen(mask, evaluate(stmt.val, self.env), 1)
        elif isinstance(stmt, Store):
            self.store(stmt, mask)
        elif not isinstance(stmt, Carry):
            raise ScheduleError(f"not a statement of Loop IR: {type(stmt).__name__}")

    def loop(self, stmt: For, path: Path, mask: Any) -> None:
        start, stop, step = (evaluate(e, self.env) for e in (stmt.start, stmt.stop, stmt.step))
        if np.ndim(start) or np.ndim(stop) or np.ndim(step):
            raise ScheduleError("the bounds of a loop vary")
        values = np.arange(start, stop, step)
        if stmt.role == "free" and stmt.var in self.only:
            values = values[np.isin(values, self.only[stmt.var])]
        if not len(values):
            return
        small = math.prod(self.shape) * len(values) <= LARGEST
        if stmt.role == "free" or (stmt.role == "reduce" and small):
            outer = self.shape
            self.env[stmt.var] = values.reshape(-1, *(1,) * len(outer))
            self.shape = (len(values), *outer)
            self.block(stmt.body, path, mask)
            self.shape = outer
            return
        for value in values:
            self.env[stmt.var] = value
            self.block(stmt.body, path, mask)

    def spread(self, value: np.ndarray, depth: int) -> np.ndarray:
        """Return a value to reduce, with a dimension in front for each loop inside of its accumulator's start.

        A value that does not vary with such a loop is reduced once an iteration.
        """
        inner = value.shape[max(value.ndim - depth, 0) :]
        return np.broadcast_to(value, (*self.shape[: len(self.shape) - depth], *(1,) * (depth - len(inner)), *inner))

    def accumulate(self, stmt: Accumulate, mask: Any) -> None:
        dtype, depth = self.dtypes[stmt.acc], self.depths[stmt.acc]
        value = chosen(mask, as_kind(evaluate(stmt.val, self.env), dtype), start_value(stmt.fn, dtype))
        if len(self.shape) > depth:
            value = self.spread(value, depth)
        for _ in self.shape[depth:]:
            value = folded(stmt.fn, value)
        self.env[stmt.acc] = fold(stmt.fn)(self.env[stmt.acc], value)

    def merge(self, stmt: Merge, mask: Any) -> None:
        known, depth = monoid(stmt.fn), self.depths[stmt.accs[0]]
        parts = lifted(known, [np.asarray(evaluate(e, self.env), float) for e in stmt.vals])
        parts = tuple(chosen(mask, part, start) for part, start in zip(parts, known.identity, strict=True))
        if len(self.shape) > depth:
            parts = tuple(self.spread(np.asarray(part), depth) for part in parts)
        for _ in self.shape[depth:]:
            parts = reduced(known, parts)
        have = tuple(self.env[acc] for acc in stmt.accs)
        self.env.update(zip(stmt.accs, combined(known, have, parts), strict=True))

    def load(self, stmt: Load, mask: Any) -> Any:
        array = self.memory[stmt.buf]
        idx = [evaluate(e, self.env) for e in stmt.idx]
        when = None if stmt.when is True else evaluate(stmt.when, self.env)
        value = array[within(idx, array.shape, mask if when is None else both(mask, when), "load out of bounds")]
        return chosen(when, value, stmt.other)

    def store(self, stmt: Store, mask: Any) -> None:
        array = self.memory[stmt.buf]
        selected = np.broadcast_to(True if mask is None else mask, self.shape)
        idx = [np.broadcast_to(evaluate(e, self.env), self.shape)[selected] for e in stmt.idx]
        place = within(idx, array.shape, None, "store out of bounds")
        array[place] = np.broadcast_to(evaluate(stmt.val, self.env), self.shape)[selected]
        np.add.at(self.counts[stmt.buf], place, 1)
