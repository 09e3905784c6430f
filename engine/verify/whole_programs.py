"""Fragments to whole programs: the statements of an example or of a pattern become kernels that run.

Names that nothing defines become threads or inputs. `needs` evaluates every index over its loops, axes and guards, and
buffers get the shapes that it finds. A value that is computed and never read is stored, so that its meaning shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Var, free_names, linear
from ...ir.facts.layout import place_in_source
from ...ir.facts.structure import accumulator_scopes
from ...ir.functions import FUNCTIONS
from ...ir.interp.scalar import ScheduleError, evaluate
from ...ir.loop import Accumulate, For, If, Let, Load, Merge, Scale, Store
from ...ir.monoid_texts import NAMES as MONOIDS
from ...ir.node import nodes, replace, walk
from ...ir.program import Block, Kernel, Param
from ...ir.tile import AlongAxes, Collective, Mma, SharedTile, Stage, Tile, TuplesAlongAxes
from ..rewrite.statements.driver import wellformed

# ---- How large the buffers of a kernel must be: every index evaluated over its loops, axes and guards.


LARGEST = 1 << 21  # points of one index
UNKNOWN = 5  # the extent along an index that was read from memory


class TooLarge(Exception):
    """More than a check should run."""


@dataclass
class Needs:
    """Required extents of buffers.

    hard: for loads and stores; soft: for copies (cells outside of the source are zero).
    """

    hard: dict[str, list[int]] = field(default_factory=dict)
    soft: dict[str, list[int]] = field(default_factory=dict)

    def note(self, which: dict[str, list[int]], buffer: str, extents: list[int]) -> None:
        known = which.setdefault(buffer, extents)
        if len(known) != len(extents):
            raise ScheduleError(f"`{buffer}` is read with {len(known)} and with {len(extents)} indices")
        which[buffer] = [max(pair) for pair in zip(known, extents, strict=True)]


def needs(body: Block) -> Needs:
    """Return the extents that a body needs of its buffers.

    Raises ScheduleError for an expression that cannot be evaluated, and TooLarge for large loops.
    """
    walk = _ExtentWalk(Needs(), set())
    walk.block(body, {}, None)
    for shared_tile in walk.shared_tiles:
        walk.needs.hard.pop(shared_tile, None)
    return walk.needs


@dataclass
class _ExtentWalk:
    """Loop variables are arrays, each with a dimension of its own."""

    needs: Needs
    shared_tiles: set[str]
    depth: int = 0

    def block(self, block: Block, env: dict[str, Any], mask: Any) -> None:
        env = dict(env)
        for statement in block:
            if isinstance(statement, For):
                values, inside = self.loop(statement, env)
                both = inside if mask is None else mask if inside is None else mask & inside
                self.inner(statement.body, {**env, statement.var: values}, both, 1)
            elif isinstance(statement, If):
                found = self.value(statement.cond, env)
                both = mask if found is None else found if mask is None else mask & found
                self.inner(statement.body, env, both, 0)
            elif isinstance(statement, Tile):
                axes = {a.name: np.arange(a.extent).reshape(-1, *(1,) * n) for n, a in enumerate(statement.axes)}
                self.inner(statement.body, {**env, **axes}, mask, len(axes))
            elif isinstance(statement, Let):
                env[statement.dst] = self.value(statement.val, env)
            else:
                self.access(statement, env, mask)

    def inner(self, body: Block, env: dict[str, Any], mask: Any, dimensions: int) -> None:
        self.depth += dimensions
        self.block(body, env, mask)
        self.depth -= dimensions

    def loop(self, loop: For, env: dict[str, Any]) -> tuple[Any, Any]:
        """Return the values of a loop's variable, and a mask of those that are iterations, or None if all are."""
        start, stop, step = (self.value(e, env) for e in (loop.start, loop.stop, loop.step))
        if start is None or stop is None or step is None or np.ndim(step) or step < 1:
            raise ScheduleError("the bounds of a loop vary")
        iterations = max(0, math.ceil((np.max(stop) - np.min(start)) / step)) if np.size(start) and np.size(stop) else 0
        values = start + step * np.arange(iterations).reshape(-1, *(1,) * self.depth)
        return values, None if not np.ndim(start) and not np.ndim(stop) else values < stop

    def access(self, statement: Any, env: dict[str, Any], mask: Any) -> None:
        if isinstance(statement, Load):
            env[statement.dst] = None
            when = None if statement.when is True else self.value(statement.when, env)
            mask = when if mask is None else mask if when is None else mask & when
            self.hard(statement.buf, statement.idx, env, mask)
        elif isinstance(statement, Store):
            self.hard(statement.buf, statement.idx, env, mask)
        elif isinstance(statement, SharedTile):
            self.shared_tiles.add(statement.dst)
        elif isinstance(statement, Stage):
            self.shared_tiles.add(statement.dst)
            ends = [axis.extent - 1 for axis in statement.box]
            last = place_in_source(statement, ends)
            origins = [self.value(e, env) for e in last]
            extents = [UNKNOWN if o is None else int(np.max(o, initial=0)) + 1 for o in origins]
            self.needs.note(self.needs.soft, statement.src, extents)

    def hard(self, buffer: str, indices: tuple[Any, ...], env: dict[str, Any], mask: Any) -> None:
        values = [self.value(e, env) for e in indices]
        self.needs.note(self.needs.hard, buffer, [UNKNOWN if v is None else _largest(v, mask) + 1 for v in values])

    def value(self, e: Any, env: dict[str, Any]) -> Any:
        """Return the values of an expression; None if it depends on memory."""
        known = {name: value for name, value in env.items() if value is not None}
        if math.prod(np.broadcast_shapes(*(np.shape(known[name]) for name in free_names(e) & known.keys()))) > LARGEST:
            raise TooLarge
        try:
            return evaluate(e, known)
        except ScheduleError:
            return None


def _largest(value: Any, mask: Any) -> int:
    if mask is None:
        return int(np.max(value, initial=0))
    shape = np.broadcast_shapes(np.shape(value), np.shape(mask))
    if math.prod(shape) > LARGEST:
        raise TooLarge
    chosen = np.broadcast_to(value, shape)[np.broadcast_to(mask, shape)]
    return int(np.max(chosen, initial=0))


Program = tuple[Kernel, ...]
THREADS = 4  # of a name that nothing defines


def completed(program: Program, tiled: bool = True, deep: bool = False) -> Program:
    """Return whole kernels. tiled: a fragment gets a Tile if it has an index that nothing defines.

    Raises DplcError for a program that stores nothing, and the errors of `needs`.
    """
    whole = tuple(_closed(kernel, tiled, deep) for kernel in program)
    if any(not kernel.outs for kernel in whole):
        raise DplcError("nothing is computed")
    for kernel in whole:
        scoped(kernel)
        if (problem := wellformed(kernel)) is not None:
            raise DplcError(problem)
    return whole


def _closed(kernel: Kernel, tiled: bool, deep: bool) -> Kernel:
    kernel = _framed(kernel, tiled)
    kernel = replace(kernel, body=observed(kernel, deep))
    return sized(kernel, needs(kernel.body))


def scoped(kernel: Kernel) -> None:
    """Raise DplcError if a name is used outside of the block that defines it, or before its definition."""
    accumulators = {x.acc for x in nodes(kernel.body, Accumulate)} | {x.acc for x in nodes(kernel.body, Mma)}
    accumulators |= {acc for x in nodes(kernel.body, Merge) for acc in x.accs}

    def block(body: Block, known: set[str]) -> None:
        known = set(known)
        for statement in body:
            unknown = _used(statement) - known - accumulators - {*getattr(statement, "gathered", ())}
            if unknown:
                raise DplcError(f"`{min(unknown)}` is used where nothing defines it")
            if isinstance(statement, Tile):
                block(statement.body, known | {axis.name for axis in statement.axes})
            elif isinstance(statement, For):
                block(statement.body, known | {statement.var})
            elif isinstance(statement, If):
                block(statement.body, known)
            elif isinstance(statement, Load | Let):
                known.add(statement.dst)

    block(kernel.body, set())


def _used(statement: Any) -> frozenset[str]:
    """Return the names that a statement reads itself, not in its block."""
    read = (f.name for f in type(statement).fields if f.sort in ("Expr", "Over") and f.name != "body")
    return free_names(tuple(getattr(statement, name) for name in read))


# ---- a frame for free names


def _framed(kernel: Kernel, tiled: bool) -> Kernel:
    """Close a kernel: free indices become threads (or free loops); free values are loaded."""
    free = _undefined(kernel.body)
    indices = _index_names(kernel.body)
    threads = [name for name in free if name in indices]
    body: Block = _loaded(kernel.body, [name for name in free if name not in indices], threads)
    has_tile = any(isinstance(statement, Tile) for statement in body)
    cooperative = next(nodes(body, Collective, SharedTile), None) is not None
    axes = tuple(Axis(name, _extent(kernel.body, name), "THREAD") for name in threads)
    if has_tile:
        tile = next(statement for statement in body if isinstance(statement, Tile))
        return replace(kernel, body=(replace(tile, axes=(*axes, *tile.axes)),))
    if cooperative or (axes and tiled):
        return replace(kernel, body=(Tile(axes or (Axis("thread", THREADS, "THREAD"),), body),))
    for axis in reversed(axes):
        body = (For(axis.name, 0, axis.extent, body, "free"),)
    return replace(kernel, body=body)


def _undefined(body: Block) -> tuple[str, ...]:
    """Return the names that are used and that no statement defines."""
    bound: set[str] = set()
    used: dict[str, None] = {}
    for x in walk(body):
        if isinstance(x, For):
            bound.add(x.var)
        elif isinstance(x, Tile):
            bound |= {axis.name for axis in x.axes}
        elif isinstance(x, Load | Let | Stage | SharedTile):
            bound.add(x.dst)
            bound |= {*x.gathered} if isinstance(x, Stage) else set()
        elif isinstance(x, Accumulate | Mma):
            bound.add(x.acc)
        elif isinstance(x, Merge):
            bound |= set(x.accs)
        elif isinstance(x, Var):
            used[x.name] = None
    return tuple(name for name in used if name not in bound)


# What holds indices, bounds and conditions, by the class of a statement.
_INDEXING: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Load, ("idx", "when")), (Store, ("idx",)), (Stage, ("origin", "slot", "when")), (For, ("start", "stop")),
    (If, ("cond",)), (AlongAxes, ("over",)), (TuplesAlongAxes, ("over",)), (Mma, ("axes", "over")),
)  # fmt: skip


def _index_names(body: Block) -> set[str]:
    """Return the names in indices, bounds and conditions."""
    found: set[str] = set()
    statements: Any = nodes(body, *(cls for cls, _ in _INDEXING))
    for statement in statements:
        fields = next(fields for cls, fields in _INDEXING if isinstance(statement, cls))
        read = free_names(tuple(getattr(statement, field) for field in fields))
        found |= read.difference(getattr(statement, "gathered", ()))
    return found


def _loaded(body: Block, values: list[str], threads: list[str]) -> Block:
    """Return inputs for the values that nothing defines."""
    loads = tuple(Load(name, f"{name}_in", tuple(map(Var, threads)) or (0,)) for name in values)
    if loads and len(body) == 1 and isinstance(body[0], Tile):
        return (replace(body[0], body=(*loads, *body[0].body)),)
    return (*loads, *body)


def _extent(body: Block, name: str) -> int:
    """Return the extent of a thread axis: as many threads as the shared-memory tiles that it indexes have cells."""
    shared_tiles = {stage.dst: stage for stage in nodes(body, Stage)}
    fitting = [16]
    for load in nodes(body, Load):
        stage = shared_tiles.get(load.buf)
        if stage is None:
            continue
        cells = load.idx[len(load.idx) - len(stage.box) :]
        for index, axis in zip(cells, stage.box, strict=True):
            terms, constant = linear(index)
            factor = terms.get(Var(name), 0)
            if factor > 0 and len(terms) == 1:
                fitting.append(max(1, (axis.extent - 1 - constant) // factor + 1))
    return min(fitting) if len(fitting) > 1 else THREADS


# ---- what is computed shows


def observed(kernel: Kernel, deep: bool = False) -> Block:
    """Return the body with a store for every value and accumulator that is never read.

    An accumulator is stored after the loops that accumulate. deep: it is stored in the innermost block that mentions
    it, so that it is initialised there again. For a tuple, one component is enough.
    """
    values = nodes(kernel.body, Load, Let, Accumulate, Merge, Scale, Store, If, For, Stage, Mma)
    read = set().union(*map(_used, values))  # an accumulation does not read its accumulator
    for merge in nodes(kernel.body, Merge):
        read |= set(merge.accs[:-1] if read.isdisjoint(merge.accs) else merge.accs)
    starts = accumulator_scopes(kernel)

    def block(body: Block, path: tuple[int, ...], around: tuple[str, ...], looping: bool) -> tuple[Block, list[str]]:
        """Return the block, and the accumulators that are still to be stored. looping: inside of an ordered loop."""
        out: list[Any] = []
        waiting = [start.acc for start in starts.get(path, ())]
        for position, statement in enumerate(body):
            if isinstance(statement, Tile | For | If):
                names, inner = around, looping
                if isinstance(statement, Tile):
                    names = (*around, *(axis.name for axis in statement.axes))
                elif isinstance(statement, For):
                    names = (*around, statement.var)
                    inner = looping or (statement.role != "free" and (statement.role == "reduce" or not deep))
                made, more = block(statement.body, (*path, position), names, inner)
                statement = replace(statement, body=made)
                waiting += more
            out.append(statement)
        if looping or (len(body) == 1 and isinstance(body[0], Tile)):
            return tuple(out), waiting
        shown = waiting + [x.dst for x in body if isinstance(x, Let | Load)]
        out += [
            Store(f"{name}_out", tuple(map(Var, around)) or (0,), Var(name))
            for name in dict.fromkeys(shown)
            if name not in read
        ]
        return tuple(out), []

    return block(kernel.body, (), (), False)[0]


# ---- buffers


def sized(kernel: Kernel, needed: Needs, before: Needs | None = None) -> Kernel:
    """Return the kernel with every buffer declared, in the shape that its indices need.

    before: what the kernel needed when its buffers were declared; where they were longer or shorter, they stay so.
    """
    declared = {param.name: param for param in (*kernel.ins, *kernel.outs)}
    stored = {store.buf for store in nodes(kernel.body, Store)} - {
        shared_tile.dst for shared_tile in nodes(kernel.body, SharedTile)
    }
    names = _index_names(kernel.body)
    indexing = {load.buf for load in nodes(kernel.body, Load) if load.dst in names}
    ins: list[Param] = []
    outs: list[Param] = []
    for name in dict.fromkeys((*declared, *needed.hard, *needed.soft)):
        hard, soft = needed.hard.get(name), needed.soft.get(name)
        param = declared.get(name)
        if param is None:
            shape = tuple(hard or soft or ())
            if hard and soft and len(hard) == len(soft):
                shape = tuple(map(max, zip(hard, soft, strict=True)))
            param = Param(name, "i64" if name in indexing else "f32", tuple(max(1, n) for n in shape))
        elif before is not None and (hard or soft):
            param = replace(param, shape=_kept(param.shape, (hard, soft), before, name))
        elif hard and len(hard) == len(param.shape):
            param = replace(param, shape=tuple(map(max, zip(param.shape, hard, strict=True))))
        is_out = param in kernel.outs or (name in stored and param not in kernel.ins)
        (outs if is_out else ins).append(param)
    return replace(kernel, ins=tuple(ins), outs=tuple(outs))


def _kept(shape: Any, now: Any, before: Needs, name: str) -> tuple[int, ...]:
    """Return a declared shape under other extents: as much longer or shorter than what is needed as it was."""
    hard, soft = now
    wanted = soft or hard
    was = (before.soft if soft else before.hard).get(name)
    if was is None or len(was) != len(shape):
        return tuple(shape)
    floor = hard or [1] * len(shape)
    return tuple(max(1, low, n + old - past) for low, n, old, past in zip(floor, wanted, shape, was, strict=True))


def runnable(program: Program) -> bool:
    """Return whether everything a program calls has a meaning here."""
    calls = {x.fn for x in walk(program) if hasattr(x, "fn")}
    return calls <= {*FUNCTIONS, *MONOIDS}
