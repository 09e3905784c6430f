"""Fragments to whole programs: the statements of an example or of a pattern become kernels that run, and are compared.

Names that nothing defines become threads or inputs. `needs` evaluates every index over its loops, axes and guards, and
buffers get the shapes that it finds. A value that is computed and never read is stored, so that its meaning shows.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

from ...codegen.arrays import Array
from ...codegen.compiler import BuildError
from ...codegen.emulator.executor import run_kernels
from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Var, free_names, linear
from ...ir.facts.layout import params, place_in_source, thread_count, tile_of
from ...ir.facts.structure import Path, accumulator_scopes, own_names, summary
from ...ir.interp import tile
from ...ir.interp.scalar import ScheduleError, evaluate
from ...ir.kernel import Launch
from ...ir.loop import For, If, Let, Load, Merge, Store
from ...ir.monoids import monoid
from ...ir.node import Expr, Node, nodes, replace
from ...ir.program import Block, Kernel, Module, Param, Stmt, delivered, supplied
from ...ir.tile import RegisterTile, SharedTile, Stage, Tile
from ..rewrite.statements.driver import bound_names, wellformed
from .outcome import ERRORS, REORDERED, Arrays, unlike


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
                iterations = ceil(np.max(np.subtract(stop, start), initial=0) / step)
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
    if prod(np.broadcast_shapes(*map(np.shape, arrays))) > LARGEST:
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
        for index, axis in zip(reversed(load.idx), reversed(boxes.get(load.buf, ()))):
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


# ---- Whether two programs compute the same: values and stores, under several orders of their threads.
#
# `run` gives the meaning of a program of Loop, Tile or Kernel IR, `compare` holds another program against it.


COUNT = "n0"


LARGEST_BLOCK = 1 << 16  # threads and registers of a block: two groups of four warps with the smallest WGMMA
LARGEST_WORK = 1 << 22  # elements of a tile times iterations of its loops
LARGEST_INPUT = 1 << 26  # elements of a buffer: half a gigabyte
MOST_ITERATIONS = 4000  # of all loops, for one thread
KEPT = 4096  # programs whose results are kept
ROUNDED = 1e-5  # how far results in f32 may be apart, as a share of the largest


def inputs_of(program: Module, seed: int) -> Arrays:
    """Return small whole numbers, so that sums are exact in any order; truth values; indices into small tables.

    Counts of elements are 1 or more. Raises TooLarge.
    """
    params = supplied(program)
    if any(prod(p.shape) > LARGEST_INPUT for p in params):
        raise TooLarge
    counting = {merge.vals[0] for merge in nodes(program, Merge) if monoid(merge.fn).operands[0] == COUNT}
    counts = {load.buf for load in nodes(program, Load) if Var(load.dst) in counting}
    return {p.name: np.abs(array(p, seed)) if p.name in counts else array(p, seed) for p in params}


def array(param: Param, seed: int) -> Array:
    """Return the values of an input; the name and the seed determine them."""
    dice = np.random.default_rng([seed, zlib.crc32(param.name.encode())])
    if param.dtype == "b8":
        return dice.random(param.shape) < 0.5
    if param.dtype.startswith("i"):
        return dice.integers(0, 4, param.shape)
    values = dice.integers(-4, 5, param.shape)
    return np.where(values == 0, 5, values).astype(float)


@dataclass
class Meaning:
    """Result of a program: the values of its outputs, and the number of stores to each element.

    between: outputs of kernels that only other kernels of the program read. A rule that fuses kernels may omit them.
    apart: how far floats of the same meaning may be apart.
    """

    values: Arrays
    stores: Arrays
    between: Set[str] = frozenset()
    apart: float = REORDERED


def run(program: Module, inputs: Arrays, seed: int) -> Meaning:
    """Run a program in one order of threads, Kernel IR as its CUDA text in checked mode.

    Raises ScheduleError or EmulatorError if it has no meaning, TooLarge, and BuildError.
    """
    if work(program) > LARGEST_WORK:
        raise TooLarge
    if any(nodes(program, Launch)):
        memory = run_kernels(program, inputs, seed)
        outs = {param.name: memory[param.name] for kernel in program for param in kernel.outs}
        return Meaning(outs, {name: (values == values).astype(int) for name, values in outs.items()}, apart=ROUNDED)
    stores: Arrays = {}
    memory = tile.run(program, inputs, seed, stores)
    between = stores.keys() - {p.name for p in delivered(program)}
    return Meaning({name: memory[name] for name in stores}, stores, between)


def work(program: Module) -> int:
    """Return a rough estimate of the work to run a program here."""
    largest = 0
    for kernel in program:
        tiles = list(nodes(kernel.body, Tile))
        block = prod(map(_held, tiles))
        if block > LARGEST_BLOCK:
            raise TooLarge
        size = block * prod(axis.extent for t in tiles for axis in t.axes if axis.role == "BLOCK")
        iterations = sum(map(_iterations, kernel.body))
        if tiles and iterations > MOST_ITERATIONS:
            raise TooLarge
        largest = max(largest, size * max(1, iterations))
    return largest


def _held(tile: Tile) -> int:
    """Return the threads of a block times the registers of one; with tensor cores, those of the largest product."""
    registers: dict[str, int] = {axis.name: axis.extent for axis in tile.axes if axis.role not in ("BLOCK", "THREAD")}
    products = [free_names((product.axes, product.over)) for product in summary(tile.body).mmas]
    every = products or [frozenset(registers)]
    return thread_count(tile) * max(prod(n for name, n in registers.items() if name in names) for names in every)


def _iterations(statement: Node) -> int:
    inner = sum(map(_iterations, getattr(statement, "body", ()))) or 1
    if not isinstance(statement, For):
        return inner
    usual = (statement.start, 0), (statement.stop, 8), (statement.step, 1)
    start, stop, step = (number if isinstance(number, int) else default for number, default in usual)
    return inner * max(1, (stop - start) // max(1, step))


@functools.lru_cache(maxsize=KEPT)
def baseline(program: Module, seed: int) -> tuple[Arrays, Meaning] | None:
    """Return inputs and the results of the program; None if it has no single meaning in two orders of threads."""
    try:
        inputs = inputs_of(program, seed)
        known = inputs, run(program, inputs, 0)
        once = all((count <= 1).all() for count in known[1].stores.values())
        return known if once and compare(program, known, range(1, 2)) is None else None
    except BuildError:
        raise
    except (*ERRORS, TooLarge):
        return None


def compare(program: Module, known: tuple[Arrays, Meaning], seeds: range) -> str | None:
    """Return the first difference between a program and the known meaning for some inputs, or None."""
    inputs, wanted = known
    for seed in seeds:
        try:
            problem = difference(wanted, run(program, inputs, seed))
        except DplcError as error:
            return "; ".join((error.what, *error.notes, f"thread order {seed}"))
        if problem is not None:
            return f"{problem} (thread order {seed})"
    return None


def difference(wanted: Meaning, got: Meaning) -> str | None:
    """Return the first difference of two meanings, in words, or None. Buffers of the second one alone are ignored."""
    for name, values in wanted.values.items():
        other = got.values.get(name)
        if other is None and name in wanted.between:
            continue
        if other is None or other.shape != values.shape:
            return f"`{name}` is not stored"
        counts, stored = wanted.stores[name], got.stores[name]
        if (counts != stored).any():
            at = tuple(int(n) for n in np.argwhere(counts != stored)[0])
            return f"{name}{list(at)} is stored {stored[at]} times, not {counts[at]}"
        if problem := unlike(name, values, other, wanted.apart, counts > 0):
            return problem
    return None
