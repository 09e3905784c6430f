"""The numpy meaning of scalar and index expressions: floats are float64, integers themselves, truth values bool.

Casts between float dtypes do nothing here: the meaning of a program is free of rounding. Integers wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..diagnostic import InternalError
from ..dtypes import FLOATS, INTEGERS
from ..expr import Binary, Call, Not, Sum, Var
from ..functions import DTYPES, FUNCTIONS, SELECT, identity, whole
from ..node import each_once
from ..program import Kernel, Module, Param
from ..text.print_statements import print_head

Memory = dict[str, np.ndarray]  # {buffer: its elements}
KINDS: dict[str, Any] = {name: np.float64 if name in FLOATS else kind for name, kind in DTYPES.items()}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "*": np.multiply, "//": np.floor_divide, "%": np.remainder, "^": np.bitwise_xor,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


_INDEX, _TRUTH = np.dtype(np.int64), np.dtype(np.bool_)


class ScheduleError(InternalError):
    """A program that means nothing, or not always the same: a race, an access out of bounds, a missing barrier."""


@contextmanager
def at_statement(stmt: Any) -> Iterator[None]:
    """Return a context in which errors get a note of a statement, unless they have a note of an inner statement."""
    try:
        yield
    except ScheduleError as error:
        if any(note.startswith("in `") for note in error.notes):
            raise
        note = f"in `{print_head(stmt)}`"
        raise ScheduleError(error.what, notes=(*error.notes, note)) from None


@each_once
def evaluate(e: Any, env: Mapping[str, Any], leaf: Callable[[Any], Any] = lambda e: e) -> Any:
    """Return the value of an expression. Names may denote arrays; `leaf` gives the value of anything else."""
    kind = e.__class__
    if kind is Var:
        try:
            return env[e.name]
        except KeyError:
            raise ScheduleError(f"undefined name `{e.name}`") from None
    if kind is Sum:
        result = e.constant
        for atom, factor in e.terms:
            result = result + as_index(evaluate(atom, env, leaf)) * factor
        return result
    if kind is Call:
        return apply(e.fn, [evaluate(a, env, leaf) for a in e.args])
    if kind is Binary:
        return OPERATORS[e.op](as_index(evaluate(e.a, env, leaf)), as_index(evaluate(e.b, env, leaf)))
    if kind is Not:
        return np.logical_not(evaluate(e.a, env, leaf))
    return leaf(e)


def as_index(value: Any) -> Any:
    """Return a value for index arithmetic, in which integers are i64."""
    kind = getattr(value, "dtype", _INDEX)
    return value.astype(_INDEX) if kind.kind in "iu" and kind is not _INDEX else value


def apply(fn: str, args: Sequence[Any]) -> Any:
    """Return the value of a scalar function. A number wraps around in the dtype of the integers that it meets."""
    if fn in KINDS:
        return as_kind(args[0], fn)
    chosen = args[FUNCTIONS[fn].kind == SELECT :]
    met = [arg.dtype for arg in chosen if getattr(arg, "dtype", _TRUTH).kind in "iu"]
    if met and any(arg.__class__ is int for arg in args):
        common = np.result_type(*met)
        args = [np.asarray(arg).astype(common) if arg.__class__ is int else arg for arg in args]
    return FUNCTIONS[fn].numpy(*args)


def as_kind(value: Any, dtype: str) -> np.ndarray:
    """Return a value in the kind of a dtype: floats are free of rounding, integers wrap around."""
    return whole(value, dtype) if dtype in INTEGERS else np.asarray(value).astype(KINDS[dtype], copy=False)


def fold(fn: str) -> Any:
    """Return the ufunc of a reduction."""
    return FUNCTIONS[fn].numpy


def folded(fn: str, values: np.ndarray, axis: int | tuple[int, ...] = 0) -> Any:
    """Return the values reduced along dimensions in their own dtype. numpy alone would add narrow integers in i64."""
    return fold(fn).reduce(values, axis=axis, dtype=values.dtype if values.dtype.kind in "iu" else None)


def start_value(fn: str, dtype: str) -> Any:
    """Return the start value of an accumulator."""
    return KINDS[dtype](identity(fn, dtype))


def run_each(
    kernels: Module,
    inputs: Mapping[str, Any],
    stores: Memory | None,
    launch: Callable[[Kernel, Memory, Memory], None],
) -> Memory:
    """Return all buffers after the kernels, which run in order.

    stores: receives the number of stores of each element of an output, for programs that need not store each once.
    launch: runs a kernel on its buffers, and counts the stores of each element of its outputs.
    Raises ScheduleError for a missing store.
    """
    memory = _memory_of(kernels, inputs)
    with np.errstate(all="ignore"):
        for kernel in kernels:
            counts: Memory = {}
            for param in kernel.outs:
                memory[param.name], counts[param.name] = _empty(param)
            launch(kernel, _seen_by(kernel, memory), counts)
            if stores is None:
                check_stores(counts, kernel, kernels)
            else:
                stores.update(counts)
    return memory


def _memory_of(kernels: Module, inputs: Mapping[str, Any]) -> Memory:
    """Return the buffers before the first kernel: the inputs in the kinds and shapes that the kernels declare."""
    made = {param.name for kernel in kernels for param in kernel.outs}
    declared = {p.name: p for kernel in kernels for p in kernel.ins if p.name not in made}
    missing = sorted(set(declared) - set(inputs))
    if missing:
        raise ScheduleError(f"no input for {', '.join(missing)}")
    return {name: as_kind(inputs[name], param.dtype).reshape(param.shape) for name, param in declared.items()}


def _seen_by(kernel: Kernel, memory: Memory) -> Memory:
    """Return the buffers in the shapes that a kernel declares.

    A kernel may declare other dimensions than another kernel, with the same elements in the same order.
    """
    shapes = {param.name: param.shape for param in kernel.params}
    return {name: array.reshape(shapes.get(name, array.shape)) for name, array in memory.items()}


def _empty(param: Param) -> tuple[np.ndarray, np.ndarray]:
    """Return an output before its kernel runs, and the count of stores of each element."""
    poison = np.nan if KINDS[param.dtype] is np.float64 else 0
    return np.full(param.shape, poison, KINDS[param.dtype]), np.zeros(param.shape, np.int64)


def check_stores(counts: Memory, kernel: Kernel, kernels: Module = ()) -> None:
    """Check that every element of a result is stored exactly once.

    A float result that another one of `kernels` reads may lack elements. They are NaN, and a kernel that reads one
    gives NaN. Raises ScheduleError if the check fails.
    """
    read = {param.name for other in kernels for param in other.ins}
    for name, count in counts.items():
        temporary = name in read and next(p for p in kernel.outs if p.name == name).dtype in FLOATS
        if (count > 1 if temporary else count != 1).any():
            never, often = int((count == 0).sum()), int((count > 1).sum())
            what = f"{name}: {never} elements never stored, {often} stored more than once"
            raise ScheduleError(what, notes=(f"in kernel `{kernel.name}`",))


def in_bounds(idx: list[Any], shape: tuple[int, ...]) -> Any:
    """Return the mask of the elements whose index lies inside of a shape."""
    inside: Any = True
    for position, extent in zip(idx, shape, strict=True):
        inside = inside & (np.asarray(position) >= 0) & (np.asarray(position) < extent)
    return inside


def both(mask: Any, condition: Any) -> Any:
    return condition if mask is None else mask & condition


def chosen(mask: Any, value: Any, other: Any) -> Any:
    """Return a value where a mask holds, and another elsewhere. None is a mask that holds everywhere."""
    return value if mask is None else np.where(mask, value, other)


def within(idx: list[Any], shape: tuple[int, ...], mask: Any, what: str) -> tuple[Any, ...]:
    """Return an index of elements inside of a shape, where the mask does not hold any of them.

    Raises ScheduleError, which says `what`, if the index leaves the shape where the mask holds.
    """
    inside = in_bounds(idx, shape)
    if not np.all(inside if mask is None else inside | ~np.asarray(mask)):
        raise ScheduleError(what)
    return clipped(idx, shape)


def clipped(idx: list[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(np.clip(position, 0, extent - 1) for position, extent in zip(idx, shape, strict=True))
