"""Facts about tensor cores and ragged edges.

They say which atoms multiply the operands of a schedule's products, which operands the threads of a block could
transform once, and what the bounds checks of ragged edges hide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from ...ir.atoms import ATOMS, AtomRecord
from ...ir.dtypes import DTYPES
from ...ir.expr import Binary, Call, Var, add, extents_of, free_names, linear, subtract
from ...ir.facts.layout import (
    ROW,
    address,
    is_box,
    is_swizzled_box,
    item_bytes,
    params,
    ranges_of,
    shared_tile_bytes,
    stages,
)
from ...ir.facts.structure import (
    AccumulatorFold,
    Variations,
    accumulators,
    dependencies,
    only,
    summary,
    used_names,
    uses,
    value_dtypes,
)
from ...ir.functions import promote
from ...ir.loop import Accumulate, For, If, Let, Load, Scale, Store
from ...ir.node import Expr, nodes
from ...ir.program import Block, Kernel
from ...ir.ranges import interval
from ...ir.tile import Combine, Mma, Stage, Sync
from ...ir.verify.loop import not_positive
from ..language.evaluate import Expression, StatementList, ValueList, fact, statement_fact, tile_fact
from ..rewrite.statements.site import Site
from .shared_memory import kept_inside, thread_number
from .structure import axis_names, conjuncts


class AtomProduct(NamedTuple):
    """Product that a run sums, as an atom sees it.

    a, b: dtypes of its factors, before they are widened; sums: dtype of its sum; steps: how many the innermost loop
    sums, 0 without a loop. staged: whether the factors are elements of shared tiles that Stages fill; alone: whether
    the innermost loop has no other product; along: whether its loops run along the rows of all that they load.
    """

    a: Var
    b: Var
    sums: Var
    steps: int
    staged: bool
    alone: bool
    along: bool


@tile_fact
def products(site: Site, body: Block) -> tuple[AtomProduct, ...]:
    """Return the products of two operands that a run sums, in loops or in tensor cores; none if it sums anything else.

    Products that are alike count once. The operands are elements of buffers or shared tiles, at most widened.
    """
    found = summary(body)
    reductions = [loop for loop in found.loops if loop.role == "reduce"]
    if found.mmas and not reductions:
        known = value_dtypes(site.kernel)
        pairs = ((known[mma.a.name], known[mma.b.name], known[mma.acc]) for mma in found.mmas)
        return tuple({AtomProduct(Var(a), Var(b), Var(sums), 0, True, True, False): None for a, b, sums in pairs})
    innermost = [loop for loop in reductions if not summary(loop.body).loops]
    # a run may be one loop's own
    bodies = [(loop.body, _iterations(loop)) for loop in innermost] if found.loops else [(body, 0)]
    along = all(map(_along, reductions))
    each = [_products(site.kernel, inner, steps, along) for inner, steps in bodies]
    return tuple(dict.fromkeys(chain(*each))) if all(each) else ()


@tile_fact
def swizzled_boxes(site: Site, copies: StatementList) -> bool:
    """Return whether TMA can copy all of some Stages whose rows are each a whole span of a swizzle."""
    known, kernel = params(site.kernel), site.kernel
    return all(is_swizzled_box(s, known[s.src].shape, item_bytes(kernel, s)) for s in copies)


@tile_fact
def asynchronous_mma_copies(site: Site, body: Block) -> tuple[Stage, ...]:
    """Return the copies of the one loop over chunks in a run, where it holds them and one product of theirs; else none.

    TMA can make them, in rows that are whole spans of its swizzle.
    """
    known, kernel = params(site.kernel), site.kernel
    match _serial_loops(body):
        case [For(body=(Stage() as a, Stage() as b, Sync(), For(role="reduce"), Sync()))] if (
            len(summary(body).stages) == 2
            and all(
                s.via == "SYNC" and s.depth == 1 and is_box(s, known[s.src].shape, item_bytes(kernel, s))
                and s.box[-1].extent * item_bytes(kernel, s) % ROW == 0
                for s in (a, b)
            )
        ):  # fmt: skip
            return a, b
    return ()


def _serial_loops(body: Block) -> list[For]:
    return [stmt for stmt in body if isinstance(stmt, For) and stmt.role == "serial"]


@tile_fact
def bytes_alike(site: Site, body: Block, axis: Var) -> int:
    """Return the bytes of a slot of each shared tile that TMA fills alike for all blocks along an axis."""
    known = {s.dst: s for s in summary(body).stages if s.via == "TMA"}
    own = {s.dst for s in summary(body).stages if axis.name in free_names((s.origin, s.slot, s.when))}
    return sum(shared_tile_bytes(site.kernel, known[dst]) for dst in known.keys() - own)


@tile_fact
def chunks(body: Block) -> int:
    """Return the number of iterations of the one serial loop of a run; 1 if unknown, or if there is not exactly one."""
    loops = _serial_loops(body)
    return _iterations(loops[0]) if len(loops) == 1 else 1


@tile_fact
def computes(site: Site, atom: AtomRecord, products: ValueList) -> bool:
    """Return whether an atom does every one of some products, of which there is one at least.

    An asynchronous atom accumulates a single product, along rows unless it reads across them.
    """
    return bool(products) and all(
        atom.sums == p.sums
        and atom_multiplies(site, atom, p.a, p.b)
        and p.steps % atom.k == 0
        and (not atom.asynchronous or (p.alone and (atom.across or p.along)))
        for p in products
    )


@tile_fact
def atom_multiplies(site: Site, atom: AtomRecord, a: Var, b: Var) -> bool:
    """Return whether an atom multiplies operands of two dtypes. f32 loses bits: it needs a kernel in TF32."""
    kept = a.name == "f32" and site.kernel.precision == "f32"
    return not kept and ATOMS[atom.name.name].multiplies(a.name, b.name)


@tile_fact
def only_product(body: Block) -> bool:
    """Return whether a run is one product of tensor cores and the loads of its operands, no more."""
    return len(summary(body).mmas) == 1 and all(isinstance(stmt, Load | Mma) for stmt in body)


@fact("cast_to(name) -> fn", "tile")
def cast_to(site: Site, value: Var) -> Var:
    """Return the function that rounds to the dtype of a value."""
    return Var(value_dtypes(site.kernel)[value.name])


@tile_fact
def widened(site: Site, body: Block, value: Var, source: Var) -> bool:
    """Return whether a value is the source, at most in a dtype that holds all of it: the run does nothing else."""
    known = {stmt.dst: stmt.val for stmt in body if isinstance(stmt, Let)}
    return len(known) == len(body) and _narrowed(value, known, value_dtypes(site.kernel)) == source


def _narrowed(value: Any, known: dict[str, Any], dtypes: dict[str, str]) -> Any:
    """Return the value that casts widen to a value, at most: to dtypes that hold every element of the one before."""
    match known.get(value.name) if isinstance(value, Var) else None:
        case Var() as e:
            return _narrowed(e, known, dtypes)
        case Call(fn=to, args=(Var() as e,)) if to in DTYPES and promote(to, dtypes[e.name]) == to:
            return _narrowed(e, known, dtypes)
    return value


def _iterations(loop: For) -> int:
    """Return the number of iterations of a loop; 1 if unknown."""
    return loop.stop if loop.start == 0 and loop.step == 1 and isinstance(loop.stop, int) else 1


def _along(loop: For) -> bool:
    """Return whether a loop runs along the rows of all that it loads."""
    return all(loop.var in free_names(load.idx[-1]) for load in nodes(loop, Load))


def _products(kernel: Kernel, body: Block, steps: int, along: bool) -> list[AtomProduct]:
    """Return the products that a loop's body sums; an empty list if the body does anything else."""
    filled = stages(kernel)
    own = (stmt for stmt in body if isinstance(stmt, Load) and (stmt.buf in filled or stmt.buf in params(kernel)))
    loads = {Var(stmt.dst): filled.get(stmt.buf) for stmt in own if kept_inside(kernel, stmt)}
    values = {stmt.dst: stmt.val for stmt in body if isinstance(stmt, Let)}
    sums = [stmt for stmt in body if isinstance(stmt, Accumulate)]
    if len(loads) + len(values) + len(sums) != len(body) or len({total.acc for total in sums}) != len(sums):
        return []
    dtypes, factors = value_dtypes(kernel), list[tuple[Any, Any]]()
    for total in sums:
        match total.fn, values.get(getattr(total.val, "name", "")):
            case "add", Call(fn="multiply", args=(a, b)):
                factors.append((_narrowed(a, values, dtypes), _narrowed(b, values, dtypes)))
            case _:
                return []
    if set(chain(*factors)) != loads.keys() or any(a == b for a, b in factors):
        return []
    return [
        AtomProduct(
            Var(dtypes[a.name]), Var(dtypes[b.name]), Var(dtypes[total.acc]), steps,
            isinstance(loads[a], Stage) and isinstance(loads[b], Stage), len(sums) == 1, along,
        )
        for total, (a, b) in zip(sums, factors, strict=True)
    ]  # fmt: skip


# ---- What the threads of a block all do to one operand of a product, and could share out among themselves.


class Operand(NamedTuple):
    """Operand of a loop, with the computations on it that need nothing else.

    part: the statements of a loop that compute from the cells of a shared tile alone; sums: the accumulations of the
    loop; rest: the loop without the part. values: the values of the part that the rest needs, except loads, which the
    rest has too; raw: whether the rest needs the cell as it is. buf, idx: the cell of the shared tile. lanes: the
    thread axes along which all threads do the same; threads: their number along these axes; lane: the number of one
    thread among them.
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


@tile_fact
def operands(site: Site, body: Block, copies: StatementList) -> tuple[Operand, ...]:
    """Return the operands in shared tiles that some Stages fill.

    Each is the part of a loop's body that more than one thread does to the cells of the shared tile.
    """
    if site.tile is None or not only(body, Load, Let, Accumulate):
        return ()
    return tuple(_operands(site, body, dict.fromkeys(stage.dst for stage in copies)))


def _operands(site: Site, body: Block, shared_tiles: Iterable[str]) -> Iterator[Operand]:
    threads = [axis for axis in site.tile_axes if axis.role == "THREAD"]
    inside = {axis.name for axis in site.tile_axes if axis.role != "BLOCK"}
    # also through statements before the loop: a scale of the column is not part of the row, nor is its guard; a sum
    # that was folded under a guard of the column is not a row's: a thread past the last column lacks it
    variations = Variations(site.kernel.body, guarded=True)
    varying = [variations.of(_reads(stmt)) & inside for stmt in body]
    everywhere = [load.buf for load in summary(site.kernel.body).loads]
    for load in (stmt for tile in shared_tiles for stmt in body if isinstance(stmt, Load) and stmt.buf == tile):
        own = dependencies(load.idx, body)
        lanes = [axis for axis in threads if axis.name not in own]
        if load.when is not True or everywhere.count(load.buf) != 1 or not lanes:
            continue
        mine = tuple(
            stmt
            for stmt, names in zip(body, varying, strict=True)
            if names <= own and (not isinstance(stmt, Accumulate) or load.dst in dependencies(stmt.val, body))
        )
        others = tuple(stmt for stmt in body if stmt not in mine)
        needed = uses(others)
        values = tuple(Var(stmt.dst) for stmt in mine if isinstance(stmt, Let) and stmt.dst in needed)
        part = _needed(mine, {value.name for value in values})
        rest = tuple(stmt for stmt in body if stmt in others or (isinstance(stmt, Load) and stmt.dst in needed))
        names, count = tuple(Var(axis.name) for axis in lanes), math.prod(extents_of(lanes))
        sums, number = accumulators(mine), thread_number(lanes)
        yield Operand(part, rest, sums, values, load in rest, Var(load.buf), load.idx, names, count, number)


def _reads(stmt: Any) -> Any:
    return stmt.val if isinstance(stmt, Let | Accumulate) else (stmt.idx, stmt.when)


def _needed(block: tuple[Any, ...], wanted: set[str]) -> Block:
    """Return the statements of a block that accumulate, or that what accumulates or is wanted needs."""
    kept: Block = ()
    for stmt in reversed(block):
        if isinstance(stmt, Accumulate) or stmt.dst in wanted | uses(kept):
            kept = (stmt, *kept)
    return kept


@tile_fact
def holds(site: Site, operand: Operand) -> bool:
    """Return whether an operand's shared tile has the dtype of the values computed from it, so nothing is rounded."""
    source = params(site.kernel)[stages(site.kernel)[operand.buf.name].src]
    known = value_dtypes(site.kernel)
    return all(known[value.name] == source.dtype for value in operand.values)


@tile_fact
def own_cells(site: Site, operand: Operand, k: Var) -> bool:
    """Return whether different indices of an operand are different cells.

    The terms of its address must not reach into one another.
    """
    known = ranges_of(site.kernel)
    terms, _ = linear(address(site.kernel, operand.buf.name, operand.idx))
    inside = {k.name, *(axis.name for axis in site.tile_axes if axis.role != "BLOCK")}
    for name in free_names(tuple(operand.idx)) & inside:  # `i // 2` of two rows is the same one for both
        if Var(name) not in terms and interval(Var(name), known)[1] > 0:
            return False
    varying = {atom: factor for atom, factor in terms.items() if free_names(atom) & inside}
    reach = 0
    for factor, last in sorted((factor, interval(atom, known)[1]) for atom, factor in varying.items()):
        if factor <= reach:
            return False
        reach += factor * last
    return all(atom.__class__ is Var for atom in varying)


# ---- Facts about guards of ragged edges: what they hide, and whether it would show.


@statement_fact
def masked(site: Site, value: Var, condition: Expression) -> bool:
    """Return whether a value `where(a, y, -inf)` is -inf if a condition fails: a and a guard of the site imply it."""
    chosen = _hidden(site, value)
    if chosen is None:
        return False
    allowed = chosen.args[0]
    if allowed.__class__ is Var:
        allowed = next((stmt.val for stmt in nodes(site.kernel.body, Let) if stmt.dst == allowed.name), None)
    around = [0, *chain.from_iterable(not_positive(stmt.cond) for stmt in site.enclosing if isinstance(stmt, If))]
    known = [add(a, b) for a in not_positive(allowed) for b in around]  # each is at most 0 where x is not -inf
    over = ([subtract(e, each) for each in known] for e in not_positive(condition))
    return condition.__class__ is Binary and all(any(n.__class__ is int and n <= 0 for n in each) for each in over)


@statement_fact
def only_products(site: Site, value: Var) -> bool:
    """Return whether a value is a sum of products of tensor cores, or -inf where a mask hides it.

    Nothing else is added to the sum.
    """
    if (chosen := _hidden(site, value)) is not None:
        return isinstance(chosen.args[1], Var) and only_products(site, chosen.args[1])
    return any(stmt.acc == value.name for stmt in nodes(site.kernel.body, Mma))


@statement_fact
def hides_only(site: Site, value: Var, other: Var) -> bool:
    """Return whether a value is another one, or is -inf where a mask hides the other one."""
    chosen = _hidden(site, value)
    return value == other or (chosen is not None and chosen.args[1] == other)


def _hidden(site: Site, value: Var) -> Call | None:
    """Return the one definition `where(a, y, -inf)` of a value."""
    match [stmt.val for stmt in nodes(site.kernel.body, Let) if stmt.dst == value.name]:
        case [Call(fn="where", args=(_, _, other)) as chosen] if other == -math.inf:
            return chosen
    return None


@statement_fact
def stays_apart(site: Site, acc: Var, condition: Expression) -> bool:
    """Return whether elements of an accumulator for which a condition fails reach only elements that fail it too.

    No other row is combined or multiplied with them, no index or guard depends on them, and no store lacks the guard.
    """
    axes = free_names(condition)
    if not axes <= axis_names(site):
        return False
    tainted, before, parts = {acc.name}, 0, frozenset(conjuncts(condition))
    while len(tainted) > before:  # an iteration reads what the one before it wrote
        before = len(tainted)
        if not all(_apart(stmt, axes, tainted, parts) for stmt in site.kernel.body):
            return False
    return True


def _apart(stmt: Any, axes: frozenset[str], tainted: set[str], missing: frozenset[Any]) -> bool:
    """Return whether a statement keeps rows separate, and taint the values that it computes from tainted ones.

    missing: the parts of the condition that no guard around the statement checks.
    """
    if hasattr(stmt, "body"):
        own = (stmt.start, stmt.stop) if isinstance(stmt, For) else getattr(stmt, "cond", ())
        inner = missing.difference(conjuncts(stmt.cond)) if isinstance(stmt, If) else missing
        return tainted.isdisjoint(free_names(own)) and all(_apart(each, axes, tainted, inner) for each in stmt.body)
    if isinstance(stmt, Mma):
        return _own_rows(stmt, axes, tainted)
    if tainted.isdisjoint(used_names(stmt)):
        return True
    if isinstance(stmt, Let | Accumulate | Scale):
        tainted.add(stmt.dst if isinstance(stmt, Let) else stmt.acc)
        return True
    if isinstance(stmt, Combine):
        return axes.isdisjoint(free_names(stmt.over))
    return isinstance(stmt, Store) and not missing and tainted.isdisjoint(free_names(stmt.idx))


def _own_rows(stmt: Mma, axes: frozenset[str], tainted: set[str]) -> bool:
    """Return whether rows of a product's left operand are rows of its result, along the axes of a condition."""
    if tainted.isdisjoint(free_names((stmt.a, stmt.b))):
        return True
    atom = ATOMS[stmt.atom]
    rows = {axis.name for axis, (name, _) in zip(stmt.axes, atom.axes, strict=True) if name in atom.rows}
    others = free_names((stmt.axes, stmt.over)) - rows
    if not tainted.isdisjoint(free_names(stmt.b)) or not axes.isdisjoint(others):
        return False
    tainted.add(stmt.acc)
    return True
