"""Facts about reductions: rows that a block shares, prefix sums, tuples, partial results, and two launches in a row."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from ...ir.expr import Binary, Call, Sum, Var, add, both, compare, free_names, is_int, multiply, only_sizes
from ...ir.facts.structure import (
    accumulators,
    block_dtypes,
    defines,
    dependencies,
    is_outer_product,
    merged,
    summary,
    team_loops,
    uses,
    value_dtypes,
)
from ...ir.functions import identity
from ...ir.interp.loop import lifted
from ...ir.loop import Accumulate, For, Load
from ...ir.monoid_texts import ORDERED, OVER_PARTS
from ...ir.monoids import monoid
from ...ir.names import unused
from ...ir.node import Expr, Node, distinct, each_once, nodes, values
from ...ir.program import Block
from ...ir.ranges import simplify
from ...ir.substitute import substitute
from ...ir.tile import CombineTuple, SharedTile, Stage
from ..language.evaluate import AxisList, Expression, ExpressionList, fact, statement_fact
from ..rewrite.statements.site import Site, names_at
from .accesses import accesses
from .structure import TILE, varying


@statement_fact
def team(body: Block) -> tuple[Var, ...]:
    """Return the loops that the threads of a block can share out among themselves: the outermost of each nest."""
    return tuple(Var(loop.var) for loop in team_loops(body))


@statement_fact
def team_free(body: Block) -> tuple[Var, ...]:
    """Return the loops that the threads of a block can share out and whose iterations are independent."""
    return tuple(Var(loop.var) for loop in team_loops(body) if loop.role == "free")


@statement_fact
def row_length(body: Block) -> int:
    """Return the longest reduction among the loops that threads can share out; 0 if there is none."""
    stops = [loop.stop for loop in team_loops(body) if loop.role == "reduce"]
    return longest(stops) if stops else 0


def longest(stops: Sequence[Any]) -> Any:
    """Return the greatest of some extents. Raises Undecided where sizes leave it open."""
    return max(dict.fromkeys(stops))


@statement_fact
def defined_once(body: Block) -> bool:
    """Return whether blocks of a run could be one block: no value of one has the name of a value of another."""
    found = summary(body)
    names = [load.dst for load in found.loads] + [let.dst for let in found.lets]
    return len(set(names)) == len(names)


@statement_fact
def strided_extent(body: Block, t: Var) -> int:
    """Return K if every loop of a run is `for k in t..K by T`, free or a reduction, with one K and one T; else 0.

    The loops are at the top, mention t nowhere else and have no barrier: the assignment of columns to threads must
    not matter.
    """
    found = [stmt for stmt in body if isinstance(stmt, For)]
    bounds = {(loop.start, loop.stop, loop.step) for loop in found}
    if len(found) != len(summary(body).loops) or len(bounds) != 1:
        return 0
    ((start, stop, step),) = bounds
    free = all(
        loop.role in ("reduce", "free") and t.name not in uses(loop.body) and not summary(loop.body).barriers
        for loop in found
    )
    return stop if free and start is t and step != 1 and only_sizes(stop) else 0


@statement_fact
def all_vary(body: Block, width: int) -> bool:
    """Return whether every accumulated value varies from one chunk of `width` iterations to the next.

    Otherwise (`x[k % 16]` in chunks of 32) unrolling would lose the repetitions of the value.
    """
    for loop in summary(body).loops:
        if loop.role == "reduce":
            chunk = f"{loop.var}_chunk"
            moved = substitute(loop.body, {loop.var: add(multiply(Var(chunk), width), Var(loop.var))})
            if any(chunk not in dependencies(stmt.val, moved) for stmt in summary(moved).sums):
                return False
    return True


@statement_fact
def rows_held(body: Block) -> int:
    """Count the rows of which a thread holds its elements: those that several sweeps read, and one read and used."""
    sweeps = [{load.buf for load in summary(loop.body).loads} for loop in body if isinstance(loop, For)]
    every = set().union(*sweeps)
    kept = sum(sum(buffer in sweep for sweep in sweeps) > 1 for buffer in every)
    return kept + (kept < len(every))


@statement_fact
def all_combined(body: Block, t: Var) -> bool:
    """Return whether the accumulators of a run's reductions, and no others, are combined alike over axis t."""
    found, combined = summary(body), set()
    for stmt in found.combines:
        if t in stmt.over:
            parts = [stmt.accs] if isinstance(stmt, CombineTuple) else [(acc,) for acc in stmt.accs]
            combined |= {(part, stmt.fn) for part in parts}
    folded = [fold for loop in found.loops if loop.role == "reduce" for fold in _folds(loop.body)]
    return set(folded) == combined and len(_folds(body)) == len(folded)


def _folds(body: Block) -> list[tuple[tuple[str, ...], str]]:
    """Return the accumulators of each reduction of a run, those of a tuple together, and their function."""
    found = summary(body)
    return [((stmt.acc,), stmt.fn) for stmt in found.sums] + [(stmt.accs, stmt.fn) for stmt in found.merges]


# ---- Facts about folds of the elements up to an index.


@statement_fact
def neutral_to(site: Site, value: Expression, fn: Var, acc: Var) -> bool:
    """Return whether a number is the identity of an accumulator's function, which changes no reduction."""
    dtype, number = value_dtypes(site.kernel).get(acc.name), _number(value)
    return dtype is not None and number is not None and bool(number == identity(fn.name, dtype))


@fact("neutral_element(monoid, [expr]) -> bool", TILE)
def neutral_element(fn: Var, values: Any) -> bool:
    """Return whether numbers form the neutral element of a monoid: combining an element with it changes nothing."""
    known, numbers = monoid(fn.name), tuple(map(_number, values))
    if len(values) != len(known.operands) or None in numbers:
        return False
    return tuple(map(float, lifted(known, numbers))) == known.identity


def _number(value: Any) -> bool | int | float | None:
    """Return a number that is written out, f64(0.0) too; None for anything else."""
    if value.__class__ is Call and value.fn == "f64":
        (value,) = value.args
    return value if isinstance(value, bool | int | float) else None


@statement_fact
def needed(run: Block, values: ExpressionList, *later: Block) -> Block:
    """Return the statements of a run that some values or the statements of later runs depend on."""
    wanted = dependencies((*values, *map(Var, sorted(uses(tuple(chain.from_iterable(later)))))), run)
    return tuple(stmt for stmt in run if defines(stmt) in wanted)


@statement_fact
def rest(run: Block, part: Block) -> Block:
    """Return the statements of a run that are not among some of them."""
    return tuple(stmt for stmt in run if stmt not in part)


@statement_fact
def base_of_digits(body: Block, name: Var) -> int:
    """Return the number C by which a run takes the quotient and the remainder of a name: `q // C`, `q % C`.

    A load at the whole name needs both. Of several numbers it is the least, if that divides the others: these are taken
    of the quotient. The result is 0 if the run reads the name in another way, except in indices of loads and stores. It
    is also 0 if another name in the index of a load depends on the name.
    """
    digits = [e for e in distinct(body, Binary) if _is_digit(e, name)]  # of the name, or of its sum with a number
    found = summary(body)
    needed = {e.op for e in digits} | ({"%"} if any(_whole(load.idx, name) for load in found.loads) else set())
    base = min((e.b for e in digits), default=0)
    if needed != {"//", "%"} or any(e.b % base for e in digits):
        return 0
    others = {other for load in found.loads for other in free_names(load.idx)} - {name.name}
    hidden = name.name in dependencies(tuple(map(Var, sorted(others))), body)
    if hidden or any(name.name in free_names((loop.start, loop.stop)) for loop in found.loops):
        return 0
    places = tuple(access.idx for access in accesses(body))
    return base if _whole(body, name) == _whole(places, name) else 0


@each_once
def _whole(value: Any, name: Var) -> int:
    """Count the mentions of a name outside its digits."""
    if value is name or _is_digit(value, name):
        return int(value is name)
    below = values(value) if isinstance(value, Node) else value if value.__class__ is tuple else ()
    return sum(_whole(part, name) for part in below)


def _is_digit(e: Any, name: Var) -> bool:
    if e.__class__ is not Binary or e.op not in ("//", "%") or not is_int(e.b):
        return False
    return e.a is name or (e.a.__class__ is Sum and e.a.terms == ((name, 1),))


@statement_fact
def stands_up_to(run: Block, k: Var, place: Var) -> bool:
    """Return whether a run tests if k is at most another index, as an inclusive scan along k does."""
    return any(e.op == "<=" and e.a is k and e.b is place for e in distinct(run, Binary))


@statement_fact
def varies_by_digit(values: ExpressionList, k: Var, base: int, count: int, *runs: Block) -> bool:
    """Return whether some of the values that runs compute varies with a digit of k, `k // base % count`.

    A value that is equal for all registers of a thread would be reduced only once.
    """
    if count == 1:
        return True
    above, digit, below = (Var(f"{k.name}_{part}") for part in ("above", "digit", "below"))
    ranges = {digit.name: (0, count - 1), below.name: (0, base - 1)}
    place = add(multiply(add(multiply(above, count), digit), base), below)
    run = substitute(tuple(chain.from_iterable(runs)), {k.name: place})
    found = summary(run)
    read = [(load.dst, (*load.idx, load.when)) for load in found.loads] + [(let.dst, (let.val,)) for let in found.lets]
    varying = {name for name, parts in read if any(digit.name in free_names(simplify(e, ranges)) for e in parts)}
    return not varying.isdisjoint(dependencies(values, run))


# ---- Facts about what a loop folds: single accumulators and tuples, and their partial results.


class Partial(NamedTuple):
    """Accumulator with a name for one of its partial values.

    The number counts it among all accumulators of the loop. spot: its element of the axes, 0 along axes that it does
    not vary with; once: the test that a thread holds this element.
    """

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


@statement_fact
def tuples(site: Site, body: Block) -> tuple[Tuple, ...]:
    """Return the tuples that a run folds for others: `.accs`, `.fn`, `.over_parts` and `.values`."""
    names = {partial.acc: partial.value for partial in partials(site, (), body, ())}
    out = []
    for stmt in merged(body):
        accs = tuple(map(Var, stmt.accs))
        fn = stmt.fn if stmt.fn.endswith(OVER_PARTS) else stmt.fn + OVER_PARTS
        out.append(Tuple(accs, Var(stmt.fn), Var(fn), tuple(names[acc] for acc in accs)))
    return tuple(dict.fromkeys(out))


@statement_fact
def in_any_order(body: Block) -> bool:
    """Return whether the order of the elements that a run reduces is free: the order of a recurrence is not."""
    return all(stmt.fn not in ORDERED for stmt in summary(body).merges)


@statement_fact
def partials(site: Site, before: Block, body: Block, axes: AxisList) -> tuple[Partial, ...]:
    """Return the accumulators that a run reduces for others, single or in tuples: `.acc`, `.fn`, `.value`.

    before: the statements that precede the run, which may make the values that it reads vary.
    `.spot` and `.once` select the element of the axes that holds a partial value. A value that does not vary with an
    axis is kept once along it.
    """
    taken = set(names_at(site))
    found = {single.acc: single.fn for single in accumulators(body)}
    found |= {Var(acc): Var(stmt.fn) for stmt in merged(body) for acc in stmt.accs}
    out = []
    for place, (acc, fn) in enumerate(found.items()):
        name = unused(f"{acc.name}_part", taken)
        taken.add(name)
        kept = varying(acc, before, body, axes)
        spot = tuple(Var(axis.name) if axis in kept else 0 for axis in axes)
        first = (compare("<", Var(axis.name), 1) for axis in axes if axis not in kept and axis.extent != 1)
        out.append(Partial(acc, fn, Var(name), place, spot, functools.reduce(both, first, True)))
    return tuple(out)


@fact("folded(run, [any]) -> [dtype]", TILE)
def folded(site: Site, body: Block, params: Any) -> tuple[Var, ...]:
    """Return the dtype of all that a run reduces, by one function each, from the given buffers.

    The list is empty if the run reads another buffer, if an accumulator has several functions, or if dtypes differ.
    """
    given = {param.name for param in params}
    given |= {one.dst for one in nodes(body, Stage)} | {one.dst for one in nodes(body, SharedTile)}
    read = {one.buf for one in nodes(body, Load)} | {one.src for one in nodes(body, Stage)}
    ways = {(one.acc, one.fn) for one in nodes(body, Accumulate)}
    if not read <= given or len({acc for acc, _ in ways}) < len(ways):
        return ()
    known = block_dtypes(params, body)
    kinds = {known.get(partial.acc.name, "") for partial in partials(site, (), body, ())}
    return tuple(map(Var, kinds)) if len(kinds) == 1 else ()


@statement_fact
def rows_of(body: Block, axes: AxisList) -> int:
    """Count the rows that a loop reduces: the elements of the axes with which its loads vary.

    Reduced values may have products of their own (scores). An axis that only the weights of a tuple have then adds no
    rows.
    """
    inner = tuple(stmt for loop in summary(body).loops for stmt in loop.body)
    varying = frozenset().union(*(free_names(load.idx) for load in summary(inner or body).loads))
    return math.prod(axis.extent for axis in axes if axis.name in varying or not inner)


@statement_fact
def multiplies(j: Var, body: Block, axes: AxisList) -> bool:
    """Return whether the body of a reduction over j has two operands, each with an axis that the other lacks."""
    return is_outer_product(body, j.name, frozenset(axis.name for axis in axes), body)
