"""What the threads of a block all do to one operand of a product, and could share out among themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...ir.expr import Var, add, free_names, linear, multiply
from ...ir.facts.layout import address, params, ranges_of, stages
from ...ir.facts.structure import AccumulatorFold, Variations, accumulators, dependencies, only, summary, uses
from ...ir.facts.types import value_dtypes
from ...ir.loop import Accumulate, Let, Load
from ...ir.node import Expr, memoised
from ...ir.program import Block, Kernel
from ...ir.ranges import interval
from ..language.facts import fact


class Operand(NamedTuple):
    """part: what a loop does to the cells of a slab alone; sums: what it accumulates. rest: the loop without it.

    values: what the rest needs of it (besides loads, which the rest has too); raw: whether it needs the cell as it is.
    buf, idx: the cell of the slab. lanes: the thread axes along which all do the same; threads along them, and `lane`:
    the number of one among those.
    """

    part: Block
    rest: Block
    sums: tuple[AccumulatorFold, ...]
    values: tuple[Var, ...]
    raw: bool
    buf: Var
    idx: tuple[Expr, ...]
    lanes: tuple[Var, ...]
    threads: int
    lane: Expr


@fact("operands(run, [stmt]) -> [record]", "tile")
def operands(site: Any, body: Block, copies: Any) -> tuple[Operand, ...]:
    """For each slab that some Stages fill, what the body of a loop does to its cells that more than one thread does."""
    if site.tile is None or not only(body, Load, Let, Accumulate):
        return ()
    known, key = _asked(site.kernel), (body, tuple([stage.dst for stage in copies]))
    if key not in known:
        known[key] = tuple(_operands(site, body, dict.fromkeys(key[1])))
    return known[key]


@memoised
def _asked(kernel: Kernel) -> dict[Any, tuple[Operand, ...]]:
    """The operands of a kernel's loops, as far as asked for: several rules ask one after the other."""
    return {}


def _operands(site: Any, body: Block, slabs: dict[str, None]) -> Iterator[Operand]:
    threads = [axis for axis in site.tile.axes if axis.role == "THREAD"]
    inside = {axis.name for axis in site.tile.axes if axis.role != "BLOCK"}
    # through what stands before the loop too: a scale of the column is not part of the row, nor is its guard; a sum
    # that was folded under a guard of the column is no row's own, for a thread beyond the last column has none of it
    variations = Variations(site.kernel.body, guarded=True)
    varying = [variations.of(_reads(stmt)) & inside for stmt in body]
    for slab in slabs:
        cells = {stmt.idx for stmt in body if isinstance(stmt, Load) and stmt.buf == slab and stmt.when is True}
        lanes = [axis for axis in threads if not cells or axis.name not in dependencies(next(iter(cells)), body)]
        if len(cells) != 1 or sum(load.buf == slab for load in summary(site.kernel.body).loads) != 1 or not lanes:
            continue
        (idx,) = cells
        own = dependencies(idx, body) & inside
        first = next(stmt.dst for stmt in body if isinstance(stmt, Load) and stmt.buf == slab)
        mine = [
            stmt
            for stmt, names in zip(body, varying, strict=True)
            if names <= own and (not isinstance(stmt, Accumulate) or first in dependencies(stmt.val, body))
        ]
        others = [stmt for stmt in body if stmt not in mine]
        needed = uses(tuple(others))
        values = tuple(Var(stmt.dst) for stmt in mine if isinstance(stmt, Let) and stmt.dst in needed)
        sums = accumulators(tuple(mine))
        part = tuple(_needed(mine, {value.name for value in values}))
        rest = tuple(stmt for stmt in body if stmt in others or (isinstance(stmt, Load) and stmt.dst in needed))
        raw = any(isinstance(stmt, Load) and stmt.buf == slab for stmt in rest)
        lane: Expr = 0
        for axis in lanes:
            lane = add(multiply(lane, axis.extent), Var(axis.name))
        count = 1
        for axis in lanes:
            count *= axis.extent
        yield Operand(
            part, rest, sums, values, raw, Var(slab), idx, tuple(Var(axis.name) for axis in lanes), count, lane
        )  # fmt: skip


def _reads(stmt: Any) -> Any:
    return stmt.val if isinstance(stmt, Let | Accumulate) else (stmt.idx, stmt.when)


def _needed(block: list[Any], wanted: set[str]) -> Iterator[Any]:
    """The statements of a block that accumulate, or that what accumulates or is wanted needs."""
    kept = []
    for stmt in reversed(block):
        if isinstance(stmt, Accumulate) or stmt.dst in wanted:
            kept.append(stmt)
            wanted = wanted | uses((stmt,))
    yield from reversed(kept)


@fact("holds(record) -> bool", "tile")
def holds(site: Any, operand: Operand) -> bool:
    """Whether the slab of an operand is of the dtype of the values that are computed from it: nothing is rounded."""
    source = params(site.kernel)[stages(site.kernel)[operand.buf.name].src]
    known = value_dtypes(site.kernel)
    return all(known[value.name] == source.dtype for value in operand.values)


@fact("own_cells(record, name) -> bool", "tile")
def own_cells(site: Any, operand: Operand, k: Var) -> bool:
    """Whether no two places of an operand are one cell: terms of its address that do not reach into one another."""
    known = ranges_of(site.kernel)
    terms, _ = linear(address(site.kernel, operand.buf.name, operand.idx))
    uniform = {axis.name for axis in site.tile.axes if axis.role == "BLOCK"}
    inside = {axis.name for axis in site.tile.axes} - uniform | {k.name}
    for name in free_names(tuple(operand.idx)) & inside:  # `i // 2` of two rows is the same one for both
        if Var(name) not in terms and interval(Var(name), known)[1] > 0:
            return False
    reach = 0
    steps = []
    for atom, factor in terms.items():
        if atom.__class__ is Var and atom.name in inside:
            steps.append((factor, interval(atom, known)[1]))
        elif dependencies(atom, ()) & inside:
            return False
    for factor, last in sorted(steps):
        if factor <= reach:
            return False
        reach += factor * last
    return True
