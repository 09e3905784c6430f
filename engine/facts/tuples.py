"""Facts about what a loop folds: single accumulators and tuples, and their partial results."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from ...ir.expr import Var, both, compare, free_names
from ...ir.facts.structure import accumulators, is_outer_product, merged, summary
from ...ir.facts.types import block_dtypes
from ...ir.loop import Accumulate, Load
from ...ir.monoid_texts import ORDERED, OVER_PARTS
from ...ir.names import unused
from ...ir.node import Expr, nodes
from ...ir.program import Block
from ...ir.tile import Slab, Stage
from ..language.facts import fact
from ..rewrite.statements.names import names_at
from .structure import TILE, varying


class Partial(NamedTuple):
    """An accumulator; a name for one partial value of it; its number among all that the loop folds; where among the
    elements of the axes it is kept, at 0 along axes that it does not vary with, and the test that a thread is there."""

    acc: Var
    fn: Var
    value: Var
    place: int
    spot: tuple[Expr, ...]
    once: Expr


class Tuple(NamedTuple):
    """The accumulators of a Merge, its monoid, the same over partial results, and names for one partial result."""

    accs: tuple[Var, ...]
    fn: Var
    over_parts: Var
    values: tuple[Var, ...]


@fact("tuples(run) -> [record]", TILE)
def tuples(site: Any, body: Block) -> tuple[Tuple, ...]:
    """The tuples that a run folds for others: `.accs`, `.fn`, `.over_parts` and `.values`."""
    names = {partial.acc: partial.value for partial in partials(site, (), body, ())}
    out = []
    for stmt in merged(body):
        accs = tuple(map(Var, stmt.accs))
        fn = stmt.fn if stmt.fn.endswith(OVER_PARTS) else stmt.fn + OVER_PARTS
        out.append(Tuple(accs, Var(stmt.fn), Var(fn), tuple(names[acc] for acc in accs)))
    return tuple(dict.fromkeys(out))


@fact("in_any_order(run) -> bool", TILE)
def in_any_order(site: Any, body: Block) -> bool:
    """Whether the elements that a run folds may change places: those of a recurrence may not."""
    return all(stmt.fn not in ORDERED for stmt in summary(body).merges)


@fact("partials(run, run, [axis]) -> [record]", TILE)
def partials(site: Any, before: Block, body: Block, axes: Any) -> tuple[Partial, ...]:
    """All that a run folds for others, one at a time or as tuples: `.acc`, `.fn`, `.value` and `.place`. before: what
    stands before the run, and may make what it reads vary.

    `.spot` and `.once` say which element of the axes holds it: what does not vary with an axis is kept once along it.
    """
    taken = set(names_at(site))
    found = {single.acc: single.fn for single in accumulators(body)}
    found |= {Var(acc): Var(stmt.fn) for stmt in merged(body) for acc in stmt.accs}
    out = []
    for place, (acc, fn) in enumerate(found.items()):
        name = unused(f"{acc.name}_part", taken)
        taken.add(name)
        kept = varying(site, acc, before, body, axes)
        spot = tuple(Var(axis.name) if axis in kept else 0 for axis in axes)
        first = (compare("<", Var(axis.name), 1) for axis in axes if axis not in kept and axis.extent != 1)
        out.append(Partial(acc, fn, Var(name), place, spot, functools.reduce(both, first, True)))
    return tuple(out)


@fact("folded(run, [any]) -> [dtype]", TILE)
def folded(site: Any, body: Block, params: Any) -> tuple[Var, ...]:
    """The dtype of all that a run folds, by one function each, from these buffers: not from a kernel's result, nor from
    what is made outside of the run. None where that does not hold, or dtypes differ."""
    given = {param.name for param in params}
    given |= {one.dst for one in nodes(body, Stage)} | {one.dst for one in nodes(body, Slab)}
    read = {one.buf for one in nodes(body, Load)} | {one.src for one in nodes(body, Stage)}
    ways = {(one.acc, one.fn) for one in nodes(body, Accumulate)}
    if not read <= given or len({acc for acc, _ in ways}) < len(ways):
        return ()
    known = block_dtypes(params, body)
    kinds = {known.get(partial.acc.name, "") for partial in partials(site, (), body, ())}
    return tuple(map(Var, kinds)) if len(kinds) == 1 else ()


@fact("rows_of(run, [axis]) -> int", TILE)
def rows_of(site: Any, body: Block, axes: Any) -> int:
    """How many rows a loop folds: elements of the axes with which what it computes first varies.

    What is folded may have products of its own (scores): then an axis that only the weights of a tuple have makes no
    new rows.
    """
    inner = tuple(stmt for loop in summary(body).loops for stmt in loop.body)
    varying = frozenset().union(*(free_names(load.idx) for load in summary(inner or body).loads))
    return math.prod(axis.extent for axis in axes if axis.name in varying or not inner)


@fact("multiplies(name, run, [axis]) -> bool", TILE)
def multiplies(site: Any, j: Var, body: Block, axes: Any) -> bool:
    """Whether a reduction over j, by its body, has two operands, each varying with an axis that the other lacks."""
    return is_outer_product(body, j.name, frozenset(axis.name for axis in axes), body)


@fact("rows_share([expr], [axis]) -> bool", TILE)
def rows_share(site: Any, idx: Any, axes: Any) -> bool:
    """Whether an element is read again for other values of some axes: its index lacks one of more than one value."""
    return not {axis.name for axis in axes if axis.extent > 1} <= free_names(idx)
