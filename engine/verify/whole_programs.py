"""Fragments to whole programs: the statements of an example or of a pattern become kernels that run.

Names that nothing defines become threads or inputs. `needs` evaluates every index over its loops, axes and guards, and
buffers get the shapes that it finds. A value that is computed and never read is stored, so that its meaning shows.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...codegen.arrays import Array
from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Var, free_names, linear
from ...ir.facts.layout import params, place_in_source, tile_of
from ...ir.facts.structure import Path, accumulator_scopes, own_names, summary
from ...ir.interp.scalar import ScheduleError, evaluate
from ...ir.loop import For, If, Let, Load, Store
from ...ir.node import Expr, nodes, replace
from ...ir.program import Block, Kernel, Module, Param, Stmt
from ...ir.tile import RegisterTile, SharedTile, Stage, Tile
from ..rewrite.statements.driver import wellformed
from .outcome import Arrays


class TooLarge(Exception):
    """More than a check should run."""


def completed(program: Module, tiled: bool = True, deep: bool = False) -> Module:
    """Return whole kernels. tiled: a fragment gets a Tile if it has an index that nothing defines.

    Raises DplcError for a program that stores nothing or is not well formed, and the errors of `needs`.
    """
    return tuple(closed(_framed(kernel, tiled), deep=deep) for kernel in program)


def closed(kernel: Kernel, before: Block | None = None, deep: bool = False) -> Kernel:
    """Return a kernel that shows what it computes, in buffers that fit. before, deep: as in `sized`, `observed`.

    Raises DplcError if it stores nothing or is not well formed, and the errors of `needs`.
    """
    whole = sized(replace(kernel, body=observed(kernel, deep)), before)
    if not whole.outs:
        raise DplcError("nothing is computed")
    scoped(whole)
    if (problem := wellformed(whole)) is not None:
        raise DplcError(problem)
    return whole


# ---- How large the buffers of a kernel must be: every index evaluated over its loops, axes and guards.


LARGEST = 1 << 21  # points of one index
UNKNOWN = 5  # the extent along an index that was read from memory


class Needs(NamedTuple):
    """Required extents of buffers, by name.

    hard: for loads and stores; every: for copies too (cells outside of the source are zero).
    """

    hard: dict[str, list[int]]
    every: dict[str, list[int]]


def needs(body: Block) -> Needs:
    """Return the extents that a body needs of its buffers.

    Raises ScheduleError for an expression that cannot be evaluated, and TooLarge for large loops.
    """
    found, shared_tiles = Needs({}, {}), {x.dst for x in nodes(body, Stage, SharedTile, RegisterTile)}
    for buffer, extents, copied in _reached(body, {}, True, 0):
        for table in () if buffer in shared_tiles else (found.every,) if copied else found:
            known = table.get(buffer, extents)
            if len(known) != len(extents):
                raise ScheduleError(f"`{buffer}` is read with {len(known)} and with {len(extents)} indices")
            table[buffer] = [*map(max, known, extents)]
    return found


def _reached(block: Any, env: Arrays, mask: Array, depth: int) -> Iterator[tuple[str, list[int], bool]]:
    """Yield the memory that each statement accesses, the extents that it needs, and whether it is copied.

    env: values of names, to which the block adds its own; a loop variable or axis is an array along a dimension of its
    own, None was read from memory.
    mask: where the block is executed, a condition on memory may always hold; depth: the number of dimensions.
    """
    for statement in block:
        ranges: Arrays = {}
        inside = mask
        match statement:
            case For():
                start, stop, step = (_value(e, env) for e in (statement.start, statement.stop, statement.step))
                if any(bound is None for bound in (start, stop, step)) or np.ndim(step) or step < 1:
                    raise ScheduleError("the bounds of a loop vary")
                iterations = math.ceil(np.max(np.subtract(stop, start), initial=0) / step)
                values = start + step * _along(depth, iterations)
                ranges = {statement.var: values}
                if np.ndim(start) or np.ndim(stop):
                    inside = mask & (values < stop)
            case Tile():
                ranges = {axis.name: _along(depth + n, axis.extent) for n, axis in enumerate(statement.axes)}
            case If():
                inside = mask & _value(statement.cond, env, True)
            case Let():
                env[statement.dst] = _value(statement.val, env)
            case Load():
                yield statement.buf, _extents(statement.idx, env, mask & _value(statement.when, env, True)), False
                env[statement.dst] = None
            case Store():
                yield statement.buf, _extents(statement.idx, env, mask), False
            case Stage():
                last = place_in_source(statement, [axis.extent - 1 for axis in statement.box])
                yield statement.src, _extents(last, env, mask), True
        yield from _reached(getattr(statement, "body", ()), env | ranges, inside, depth + len(ranges))


def _along(dimension: int, extent: int) -> Array:
    """Return the numbers below an extent along a dimension, counted from the last."""
    return np.arange(extent).reshape(-1, *(1,) * dimension)


def _value(e: Expr, env: Arrays, unknown: Array = None) -> Array:
    """Return the values of an expression. unknown: of one that depends on memory. Raises TooLarge."""
    known = {name: env[name] for name in free_names(e) if env.get(name) is not None}
    _check_size(*known.values())
    try:
        return evaluate(e, known)
    except ScheduleError:
        return unknown


def _extents(indices: Sequence[Expr], env: Arrays, mask: Array) -> list[int]:
    """Return the extent that each index needs where the mask holds."""
    needed = []
    for e in indices:
        value = _value(e, env)
        _check_size(value, mask)
        needed.append(UNKNOWN if value is None else int(np.max(np.where(mask, value, 0), initial=0)) + 1)
    return needed


def _check_size(*arrays: Array) -> None:
    """Raise TooLarge for arrays that are large together."""
    if math.prod(np.broadcast_shapes(*map(np.shape, arrays))) > LARGEST:
        raise TooLarge


# ---- names


VALUES = ("val", "vals", "a", "b")  # the fields that hold values; other expressions are indices, bounds and conditions


def scoped(kernel: Kernel) -> None:
    """Raise DplcError if a name is used outside of the block that defines it, or before its definition."""
    _check_names(kernel.body, frozenset(summary(kernel.body).folded))


def _check_names(block: Iterable[Stmt], known: frozenset[str]) -> None:
    for statement in block:
        if unknown := own_names(statement) - known:
            raise DplcError(f"`{min(unknown)}` is used where nothing defines it")
        inner = known.union(bound_names(statement))
        _check_names(getattr(statement, "body", ()), inner)
        known = inner if isinstance(statement, Load | Let) else known


def bound_names(statement: Any) -> tuple[str, ...]:
    """Return the names that a statement gives to its block, or to what follows it."""
    if isinstance(statement, Tile):
        return tuple(axis.name for axis in statement.axes)
    return tuple(getattr(statement, field) for field in ("var", "dst") if hasattr(statement, field))


def _read(body: Block, without: Container[str] = ()) -> frozenset[str]:
    """Return the names that the statements of a block read, at any depth. without: as in `own_names`."""
    return frozenset().union(*(own_names(statement, without) for statement in nodes(body, Stmt)))


# ---- a frame for free names


THREADS, MOST_THREADS = 4, 16  # of a name that nothing defines: without shared-memory tiles that it indexes, and with


def _framed(kernel: Kernel, tiled: bool) -> Kernel:
    """Close a kernel: free indices become threads (or free loops); free values are loaded."""
    body = kernel.body
    read, indices, found = _read(body), _read(body, VALUES), summary(body)
    unbound = read.difference(found.folded, *map(bound_names, nodes(body, Stmt)))
    free = [name for name in dict.fromkeys(var.name for var in nodes(body, Var)) if name in unbound]
    axes = tuple(Axis(name, _threads(body, name), "THREAD") for name in free if name in indices)
    index = tuple(Var(axis.name) for axis in axes) or (0,)
    loads = tuple(Load(name, f"{name}_in", index) for name in free if name not in indices)
    tile = tile_of(kernel)
    if tile is None and (found.collectives or found.shared_tiles or (axes and tiled)):
        tile = Tile(() if axes else (Axis("thread", THREADS, "THREAD"),), body)
    if tile is not None:
        body = (replace(tile, axes=(*axes, *tile.axes), body=(*loads, *tile.body)),)
    else:
        body = (*loads, *body)
        for axis in reversed(axes):
            body = (For(axis.name, 0, axis.extent, body, "free"),)
    return replace(kernel, body=body)


def _threads(body: Block, name: str) -> int:
    """Return the extent of a thread axis: as many threads as the shared-memory tiles that it indexes have cells."""
    boxes = {stage.dst: stage.box for stage in nodes(body, Stage)}
    fitting = []
    for load in nodes(body, Load):
        for index, axis in zip(reversed(load.idx), reversed(boxes.get(load.buf, ())), strict=False):
            others, constant = linear(index)
            factor = others.pop(Var(name), 0)
            if factor > 0 and not others:
                fitting.append(max(1, (axis.extent - 1 - constant) // factor + 1))
    return min(MOST_THREADS, *fitting) if fitting else THREADS


# ---- what is computed shows


def observed(kernel: Kernel, deep: bool = False) -> Block:
    """Return the body with a store for every value and accumulator that is never read.

    An accumulator is stored after the loops that accumulate. deep: it is stored in the innermost block that mentions
    it, so that it is initialised there again. For a tuple, one component is enough.
    """
    read = set(_read(kernel.body))  # an accumulation does not read its accumulator
    for merge in summary(kernel.body).merges:
        read.update(merge.accs[:-1] if read.isdisjoint(merge.accs) else merge.accs)
    starts, in_turns = accumulator_scopes(kernel), ("reduce",) if deep else ("reduce", "serial")

    def shown(block: Block, path: Path, index: tuple[Var, ...]) -> Block:
        """Return a block with stores at its end: of what it starts and defines, and of what loops in turns start."""
        names = [start.acc for start in starts.get(path, ())]
        names += [x.dst for x in block if isinstance(x, Let | Load)]
        made = list[Any](block)
        for n, x in enumerate(block):
            inside = (*path, n)
            if isinstance(x, For) and x.role in in_turns:
                names += [start.acc for at in sorted(starts) if at[: len(inside)] == inside for start in starts[at]]
            elif hasattr(x, "body"):
                made[n] = replace(x, body=shown(x.body, inside, (*index, *map(Var, bound_names(x)))))
        if path or not isinstance(block[0], Tile):  # what is computed outside of the threads is nobody's
            unread = (name for name in dict.fromkeys(names) if name not in read)
            made += (Store(f"{name}_out", index or (0,), Var(name)) for name in unread)
        return tuple(made)

    return shown(kernel.body, (), ())


# ---- buffers


def sized(kernel: Kernel, before: Block | None = None) -> Kernel:
    """Return the kernel with every buffer declared, in the shape that its indices need.

    before: the body when the buffers were declared; where they were longer or shorter than it needed, they stay so, and
    those that nothing accesses any more are left out.
    """
    now, past, declared = needs(kernel.body), needs(before or ()).every, params(kernel)
    stored = {store.buf for store in nodes(kernel.body, Store)}.difference(param.name for param in kernel.ins)
    names = _read(kernel.body, VALUES)
    indexing = {load.buf for load in nodes(kernel.body, Load) if load.dst in names}
    ins, outs = list[Param](), list[Param]()
    for name in dict.fromkeys((*declared, *now.every)):
        extents = now.every.get(name, [])
        param = declared.get(name) or Param(name, "i64" if name in indexing else "f32", tuple(extents))
        if len(extents) == len(param.shape):
            least, was = now.hard.get(name, [1] * len(extents)), past.get(name, extents)
            sides = zip(least, extents, param.shape, was, strict=True)
            param = replace(param, shape=tuple(max(low, n + size - old) for low, n, size, old in sides))
        if extents or before is None:
            (outs if name in stored else ins).append(param)
    return replace(kernel, ins=tuple(ins), outs=tuple(outs))
