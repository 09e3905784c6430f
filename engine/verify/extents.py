"""How large the buffers of a kernel must be: every index evaluated over its loops, axes and guards."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.expr import free_names
from ...ir.facts.layout import place_in_source
from ...ir.interp.scalar import ScheduleError, evaluate
from ...ir.loop import For, If, Let, Load, Store
from ...ir.program import Block
from ...ir.tile import Slab, Stage, Team, Tile

LARGEST = 1 << 21  # points of one index
UNKNOWN = 5  # the extent along an index that was read from memory


class TooLarge(Exception):
    """More than a check should run."""


@dataclass
class Needs:
    """hard: what loads and stores touch; soft: what copies cover (cells outside of the source are zero)."""

    hard: dict[str, list[int]] = field(default_factory=dict)
    soft: dict[str, list[int]] = field(default_factory=dict)

    def note(self, which: dict[str, list[int]], buffer: str, extents: list[int]) -> None:
        known = which.setdefault(buffer, extents)
        if len(known) != len(extents):
            raise ScheduleError(f"`{buffer}` is read with {len(known)} and with {len(extents)} indices")
        which[buffer] = [max(pair) for pair in zip(known, extents, strict=True)]


def needs(body: Block) -> Needs:
    """What a body needs of its buffers. Raises ScheduleError for what cannot be evaluated, TooLarge for large loops."""
    walk = _ExtentWalk(Needs(), set())
    walk.block(body, {}, None)
    for slab in walk.slabs:
        walk.needs.hard.pop(slab, None)
    return walk.needs


@dataclass
class _ExtentWalk:
    """Loop variables are arrays, each with a dimension of its own."""

    needs: Needs
    slabs: set[str]
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
            elif isinstance(statement, Team):
                self.inner(statement.body, env, mask, 0)
            elif isinstance(statement, Let):
                env[statement.dst] = self.value(statement.val, env)
            else:
                self.access(statement, env, mask)

    def inner(self, body: Block, env: dict[str, Any], mask: Any, dimensions: int) -> None:
        self.depth += dimensions
        self.block(body, env, mask)
        self.depth -= dimensions

    def loop(self, loop: For, env: dict[str, Any]) -> tuple[Any, Any]:
        """The values of a loop's variable, and where it turns at all."""
        start, stop, step = (self.value(e, env) for e in (loop.start, loop.stop, loop.step))
        if start is None or stop is None or step is None or np.ndim(step) or step < 1:
            raise ScheduleError("the bounds of a loop vary")
        turns = max(0, math.ceil((np.max(stop) - np.min(start)) / step)) if np.size(start) and np.size(stop) else 0
        values = start + step * np.arange(turns).reshape(-1, *(1,) * self.depth)
        return values, None if not np.ndim(start) and not np.ndim(stop) else values < stop

    def access(self, statement: Any, env: dict[str, Any], mask: Any) -> None:
        if isinstance(statement, Load):
            env[statement.dst] = None
            when = None if statement.when is True else self.value(statement.when, env)
            mask = when if mask is None else mask if when is None else mask & when
            self.hard(statement.buf, statement.idx, env, mask)
        elif isinstance(statement, Store):
            self.hard(statement.buf, statement.idx, env, mask)
        elif isinstance(statement, Slab):
            self.slabs.add(statement.dst)
        elif isinstance(statement, Stage):
            self.slabs.add(statement.dst)
            ends = [axis.extent - 1 for axis in statement.slab]
            last = place_in_source(statement, ends)
            origins = [self.value(e, env) for e in last]
            extents = [UNKNOWN if o is None else int(np.max(o, initial=0)) + 1 for o in origins]
            self.needs.note(self.needs.soft, statement.src, extents)

    def hard(self, buffer: str, indices: tuple[Any, ...], env: dict[str, Any], mask: Any) -> None:
        values = [self.value(e, env) for e in indices]
        self.needs.note(self.needs.hard, buffer, [UNKNOWN if v is None else _largest(v, mask) + 1 for v in values])

    def value(self, e: Any, env: dict[str, Any]) -> Any:
        """The values of an expression; None if it depends on memory."""
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
