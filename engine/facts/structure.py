"""Facts about a run of statements: its contents, its position, the effect of its guards, and changes of Kernel IR."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain, count
from typing import Any, NamedTuple

from ...ir.expr import Axis, Binary, Call, Size, Var, add, free_names, is_int, linear, subtract
from ...ir.facts import barriers
from ...ir.facts.layout import params, stages
from ...ir.facts.structure import (
    AccumulatorFold,
    accumulators,
    block_dtypes,
    defines,
    dependencies,
    is_outer_product,
    matmul_loops,
    names_read,
    only,
    replicated_names,
    summary,
    uses,
    variation,
)
from ...ir.functions import identity, opmath
from ...ir.kernel import Advance, Assign, Base, Butterfly, Define, LoadFrom, Registers, Shuffle
from ...ir.loop import Accumulate, For, If, Let, Load
from ...ir.node import Expr, Node, names_in, nodes, replace
from ...ir.program import Block, Stmt
from ...ir.ranges import decide, interval
from ...ir.sizes import at_hint
from ...ir.substitute import substitute
from ...ir.tile import SharedTile, Stage, Sync, Wait
from ..language.evaluate import (
    AxisList,
    Expression,
    ExpressionList,
    NameList,
    Number,
    ValueList,
    fact,
    kernel_fact,
    statement_fact,
)
from ..language.rule import policy
from ..rewrite.statements.site import Context, Site

TILE = "module loop tile"


def axis_names(site: Site) -> frozenset[str]:
    """Return the axes of the site's Tile."""
    return frozenset(axis.name for axis in site.tile_axes)


# ---- the statements of a run


@fact("loops(run, name?) -> [name]", TILE)
def loops(body: Block, role: Any = None) -> tuple[Var, ...]:
    """Return the variables of the loops of a run, of one role if it is given."""
    return tuple(Var(s.var) for s in summary(body).loops if role is None or s.role == role.name)


@fact("statements(text, run?) -> [stmt]", f"{TILE} kernel")
def statements(site: Site, kind: str, body: Block | None = None) -> tuple[Stmt, ...]:
    """Return the statements of a class, or the values of a function, in a run; without a run in the kernel.

    `statements("Stage")`, `statements("divide", body)`.
    """
    inside = nodes(site.kernel.body if body is None else body, Stmt)
    return tuple(one for one in inside if kind in (type(one).__name__, getattr(getattr(one, "val", None), "fn", "")))


@statement_fact
def bounded_by(body: Block, names: NameList) -> bool:
    """Return whether the bounds of a loop of the run mention one of some names."""
    return not disjoint(tuple((loop.start, loop.stop) for loop in summary(body).loops), names)


@statement_fact
def lengthens(body: Block, i: Var) -> bool:
    """Return whether a loop of the run has the more iterations the larger a name is."""
    return any(_rises(subtract(loop.stop, loop.start), i) for loop in summary(body).loops)


def _rises(e: Expr, i: Var) -> bool:
    """Return whether a term of a sum, or of one in its quotients, is a positive multiple of a name."""
    return any(
        n > 0 and (atom is i or (atom.__class__ is Binary and atom.op == "//" and _rises(atom.a, i)))
        for atom, n in linear(e)[0].items()
    )


@statement_fact
def buffers(body: Block) -> tuple[Var, ...]:
    """Return the buffers that a run loads from."""
    return tuple(dict.fromkeys(Var(load.buf) for load in summary(body).loads))


@statement_fact
def plain(body: Block) -> bool:
    """Return whether a run only loads and computes values: doing it more often changes nothing."""
    return only(body, Load, Let)


@statement_fact
def only_copies(body: Block) -> bool:
    """Return whether a run only copies to shared memory, waits, and computes values.

    More threads may run it together.
    """
    return only(body, Load, Let, Stage, Sync, Wait)


@statement_fact
def stages_of(body: Block) -> tuple[Stage, ...]:
    """Return the copies to shared memory in a run."""
    return summary(body).stages


@statement_fact
def collective(body: Block) -> bool:
    """Return whether all threads of the block take part in a statement of a run: it must not come under a guard."""
    return summary(body).barriers > 0


@statement_fact
def plain_sums(body: Block) -> bool:
    """Return whether a run only loads, computes, and accumulates for others."""
    return only(body, Load, Let, Accumulate) and len(accumulators(body)) == len({s.acc for s in summary(body).sums})


@fact("accumulators(run) -> [record]", TILE)
def accumulated(body: Block) -> tuple[AccumulatorFold, ...]:
    """Return the accumulators of a run that others read: `.acc` and `.fn`."""
    return accumulators(body)


@statement_fact
def starts_inside(site: Site, body: Block) -> bool:
    """Return whether a run contains all uses of an accumulator, which restarts whenever the run is reached."""
    inside = uses(body).intersection(summary(body).folded)
    return any(_mentions(site.kernel.body, acc) == _mentions(body, acc) for acc in inside)


@statement_fact
def mentions(site: Site, name: Var) -> int:
    """Count the statements of the kernel that mention a value."""
    return _mentions(site.kernel.body, name.name)


def _mentions(block: Block, name: str) -> int:
    """Count the statements that mention a name; nested statements count by themselves."""
    return sum(
        _mentions(inner, name) + (name in free_names(getattr(stmt, "cond", ()))) if inner else name in names_in(stmt)
        for stmt in block
        for inner in (getattr(stmt, "body", ()),)
    )


@statement_fact
def varying(acc: Var, before: Block, body: Block, axes: AxisList) -> tuple[Axis, ...]:
    """Return the axes of a list with which an accumulated value varies.

    The added value or the condition of the addition may vary with an axis, also through statements that precede the
    run, such as the load of a row number from a table.
    """
    adding = [guard.cond for guard in summary(body).guards if acc.name in summary(guard.body).folded]
    names = dependencies((acc, *adding), (*before, *body))
    return tuple(axis for axis in axes if axis.name in names)


@statement_fact
def follows(value: Var, name: Var, *runs: Block) -> bool:
    """Return whether what some runs compute varies with a loop's variable, or with another value."""
    return name.name in dependencies(value, tuple(chain(*runs)))


@statement_fact
def added_elsewhere(site: Site, body: Block) -> bool:
    """Return whether something outside of a run adds to what the run accumulates."""
    names = {each.acc.name for each in accumulators(body)}
    return also_outside(site, body, lambda block: sum(stmt.acc in names for stmt in summary(block).sums))


def also_outside(site: Site, body: Block, count: Callable[[Block], int]) -> bool:
    """Return whether the kernel has more of what is counted than a run of it."""
    return count(site.kernel.body) > count(body)


def multiplies_values(site: Site) -> bool:
    """Return whether a sum over comparisons (`where(at == i, x[k, j], 0)`) has results enough to be a product."""
    axes = site.tile_axes
    return bool(math.prod(at_hint(axis.extent) for axis in axes) >= policy(site.target).least_compared)


@statement_fact
def matmul_shaped(site: Site, body: Block) -> bool:
    """Return whether a reduction below has two operands, each varying with an axis of the Tile that the other lacks."""
    return bool(matmul_loops(body, axis_names(site), multiplies_values(site)))


@statement_fact
def outer_product(site: Site, var: Var, body: Block) -> bool:
    """Return whether one reduction, over `var`, has two operands, each varying with an axis that the other lacks."""
    return is_outer_product(body, var.name, axis_names(site), site.kernel.body, multiplies_values(site))


@statement_fact
def multiplied(site: Site, i: Var, j: Var, body: Block) -> bool:
    """Return whether a reduction has an operand that varies with axis i only and one with axis j only."""
    return bool(matmul_loops(body, frozenset((i.name, j.name)), multiplies_values(site)))


@statement_fact
def combined(body: Block) -> bool:
    """Return whether threads combine partial results in a run."""
    return bool(summary(body).combines or summary(body).scans)


@statement_fact
def staged(body: Block) -> bool:
    """Return whether something is copied to shared memory in a run."""
    return bool(summary(body).stages)


@statement_fact
def made(body: Block) -> tuple[Var, ...]:
    """Return the values that a run defines at its top."""
    return tuple(Var(name) for name in map(defines, body) if name is not None)


@statement_fact
def reads(body: Any, name: Var) -> int:
    """Count how often a run mentions a value or loads from a buffer."""
    loads = sum(load.buf == name.name for load in summary(body).loads)
    return loads + sum(leaf is name for leaf in nodes(body, Var))


@statement_fact
def writes(body: Block, bufs: NameList) -> bool:
    """Return whether a run stores to a buffer, or copies to a shared tile, of a list."""
    found = summary(body)
    written = {stage.dst for stage in found.stages}.union(store.buf for store in found.stores)
    return any(buf.name in written for buf in bufs)


@statement_fact
def escapes(site: Site, body: Block, bufs: NameList) -> bool:
    """Return whether a buffer of a list is read in the kernel outside of a run."""
    names = {buf.name for buf in bufs}
    return also_outside(site, body, lambda block: sum(load.buf in names for load in summary(block).loads))


@statement_fact
def crosses(first: Block, *later: Block) -> bool:
    """Return whether a value defined in the first run is used in a later one."""
    return not {defines(stmt) for stmt in first}.isdisjoint(uses(tuple(chain(*later))))


@statement_fact
def outlives(first: Block, *later: Block) -> bool:
    """Return whether a later run uses a value of one pass over the first: one it defines, or a sum that it reads."""
    passing = {defines(stmt) for stmt in first}.union(uses(first).intersection(summary(first).folded))
    return not passing.isdisjoint(uses(tuple(chain(*later))))


@statement_fact
def disjoint(idx: ExpressionList, names: NameList) -> bool:
    """Return whether an index mentions none of some names."""
    return free_names(idx).isdisjoint(name.name for name in names)


@statement_fact
def zero(site: Site, buf: Var) -> Number:
    """Return zero in the dtype of a buffer or a shared tile."""
    tile = stages(site.kernel).get(buf.name)
    holder = tile if isinstance(tile, SharedTile) else params(site.kernel)[tile.src if tile else buf.name]
    return identity("add", holder.dtype)


@statement_fact
def visible(body: Block, x: Var, j: Var) -> Any:
    """Return the end of the iterations of a loop over j for which a value may be more than -inf.

    The definition `x = where(j <= e, y, -inf)` gives the end. The result is None for another definition.
    """
    choice = _choice(_lets(body), x)
    return hidden_from(choice[0], choice[2], j) if choice else None


def hidden_from(condition: Any, hidden: object, j: Any) -> Any:
    """Return the least j for which `where(condition, y, hidden)` is -inf; None if the condition gives no such end."""
    end = upper_bound(condition, j) if hidden == -math.inf else None
    return None if end is None else add(end, int(condition.op == "<="))


def _lets(body: Block) -> dict[str, Any]:
    return {stmt.dst: stmt.val for stmt in body if isinstance(stmt, Let)}


def _choice(lets: dict[str, Any], value: Any) -> tuple[Any, ...] | None:
    """Return the condition, written out, and the two values of the `where` that defines a value; else None."""
    made = lets.get(getattr(value, "name", ""))
    if made.__class__ is not Call or made.fn != "where":
        return None
    condition, *values = made.args
    return lets.get(getattr(condition, "name", ""), condition), *values


def upper_bound(condition: Any, j: Any) -> Any:
    """Return the bound e of a condition on a variable, `j < e` or `j <= e`; None for any other condition."""
    if condition.__class__ is not Binary or condition.op not in ("<", "<="):
        return None
    if linear(condition.a)[0].get(j) != 1 or j.name in free_names(condition.b):
        return None
    return subtract(condition.b, subtract(condition.a, j))


# ---- where the site is


@statement_fact
def under(site: Site, role: Var) -> bool:
    """Return whether the site is inside a loop of a role."""
    return any(isinstance(stmt, For) and stmt.role == role.name for stmt in site.enclosing)


@statement_fact
def repeated(site: Site) -> bool:
    """Return whether the site is inside of a loop, so that it comes again."""
    return any(isinstance(stmt, For) for stmt in site.enclosing)


@fact("nested(context) -> bool", TILE)
def nested(site: Site, context: Context) -> bool:
    """Return whether the hole of a context is inside of a loop, so that it comes again."""
    return any(isinstance(stmt, For) for stmt in (*site.enclosing, *context.around))


@statement_fact
def least(site: Site, e: Expression) -> int:
    """Return the least value that an index expression may have at the site."""
    return interval(e, site.ranges)[0]


@fact("divergent(context?) -> bool", TILE)
def divergent(site: Site, context: Context | None = None) -> bool:
    """Return whether the site, or the hole of a context there, has a guard or loop bounds that vary by thread."""
    around = (*site.enclosing, *(context.around if context is not None else ()))
    varying = {axis.name for axis in site.tile_axes if axis.role != "BLOCK"}
    return any(isinstance(stmt, If) or not _steered_by(stmt).isdisjoint(varying) for stmt in around)


def _steered_by(stmt: Any) -> frozenset[str]:
    """Return the names that a guard, or the bounds of a loop, mention; none of another statement."""
    if isinstance(stmt, For):
        return free_names((stmt.start, stmt.stop, stmt.step))
    return free_names(stmt.cond) if isinstance(stmt, If) else frozenset()


@statement_fact
def always(site: Site, condition: Expression) -> bool:
    """Return whether a condition holds at the site, by the ranges of the names or by a guard around it."""
    known = {part for stmt in site.enclosing if isinstance(stmt, If) for part in conjuncts(stmt.cond)}
    return all(part in known or decide(part, site.ranges) is True for part in conjuncts(condition))


def conjuncts(condition: Any) -> tuple[Any, ...]:
    """Return the parts of a conjunction."""
    if condition.__class__ is Binary and condition.op == "and":
        return (*conjuncts(condition.a), *conjuncts(condition.b))
    return (condition,)


def unwrapped(body: Block, wraps: Callable[[Stmt], bool]) -> Block:
    """Return a run with the statements that only wrap others, also inside of loops, replaced by those."""
    out: list[Stmt] = []
    for stmt in body:
        inner = unwrapped(getattr(stmt, "body", ()), wraps)
        out += inner if wraps(stmt) else [replace(stmt, body=inner) if inner else stmt]
    return tuple(out)


# ---- values


@statement_fact
def changes(body: Block, e: Expression) -> bool:
    """Return whether a run changes an accumulator that an expression mentions."""
    found = summary(body)
    changed = chain(found.folded, (s.acc for s in found.scales), *(s.accs for s in found.combines))
    return not free_names(e).isdisjoint(changed)


@statement_fact
def ordered_by_barriers(site: Site, stage: Stage) -> bool:
    """Return whether barriers alone order the copies and the reads of a shared tile, whichever thread copies a cell."""
    return barriers.ordered_by_barriers(site.kernel, stage.dst)


@statement_fact
def depth(site: Site, value: Expression) -> int:
    """Count the replicated axes and loops with which a value varies.

    A value that is combined over an axis does not vary with it any more.
    """
    body = site.kernel.body
    looping = {loop.var for loop in summary(body).loops} | (replicated_names(site.tile) if site.tile else frozenset())
    return len(variation(value, body) & looping)


@statement_fact
def crossing(first: Block, later: Block) -> tuple[Var, ...]:
    """Return the values and accumulators that a run makes and a later one uses."""
    used = uses(later)
    values = (*made(first), *map(Var, summary(first).folded))
    return tuple(value for value in dict.fromkeys(values) if value.name in used)


class KeptValue(NamedTuple):
    """A value that one run makes and a later one uses, and its number among them."""

    value: Var
    place: int


@statement_fact
def kept_values(first: Block, later: Block) -> tuple[KeptValue, ...]:
    """Return the values that `crossing` finds, each as `.value` with its position in a buffer of all of them."""
    return tuple(map(KeptValue, crossing(first, later), count()))


@statement_fact
def float_values(names: NameList, body: Block, params: ValueList) -> bool:
    """Return whether some values that a run makes from the buffers of a kernel are computed in f32."""
    known = block_dtypes(params, body)
    return all(opmath(known.get(name.name, "")) == "f32" for name in names)


# ---- What a guard is needed for.


@statement_fact
def place_needs(site: Site, condition: Expression, index: ExpressionList) -> bool:
    """Return whether an index may need a guard to stay in its buffer.

    It does not if guard and index vary with nothing in common, no surrounding statement depends on the names of the
    guard, and the guard holds somewhere. The elements read where the guard fails are then also read where it holds.
    """
    if condition.__class__ is not Binary or condition.op not in ("<", "<=", ">", ">="):
        return True
    if condition.b.__class__ is Size and condition.op in ("<", "<="):
        condition = Binary(condition.op, condition.a, condition.b.low)  # implies the condition for each size
    bounded = {*linear(condition.a)[0], *linear(condition.b)[0]}
    if any(atom.__class__ is not Var for atom in bounded) or decide(condition, site.ranges) is False:
        return True
    mine, body = free_names(condition), site.kernel.body
    values = {*summary(body).folded, *(stmt.dst for stmt in nodes(body, Let, Load))}
    around = map(_steered_by, site.enclosing)
    return not mine.isdisjoint(values.union(dependencies(index, body), *around))


# ---- Facts about values that are selected by the index alone: the pieces of a stack.


@statement_fact
def chosen_at(body: Block, value: Expression, axis: Var, places: int) -> ExpressionList:
    """Return the value at each index of an axis if `where` chooses it there, else an empty list.

    The values to choose from must not vary with the axis.
    """
    lets, found = _lets(body), []
    for place in range(places):
        chosen = value
        while choice := _choice(lets, chosen):
            holds = substitute(choice[0], {axis.name: place})
            if not isinstance(holds, bool):
                return ()
            chosen = choice[1 if holds else 2]
        found.append(chosen)
    return () if axis.name in dependencies(tuple(found), body) else tuple(found)


class StoredPiece(NamedTuple):
    """Value with its number, and the statements of a run that it needs and no earlier value needs."""

    place: int
    value: Any
    run: Block


@statement_fact
def pieces(body: Block, values: ExpressionList) -> tuple[StoredPiece, ...]:
    """Return each value with its number and the statements of a run that only it and later values depend on.

    Each value (`.value`, computed by `.run`) can thus be stored as soon as it is computed.
    """
    left, out = body, []
    for place, value in enumerate(values):
        needed = dependencies(value, body)
        out.append(StoredPiece(place, value, tuple(stmt for stmt in left if defines(stmt) in needed)))
        left = tuple(stmt for stmt in left if defines(stmt) not in needed)
    return tuple(out)


@statement_fact
def loads_without(body: Block, axis: Var) -> int:
    """Count the loads of a run that do not vary with an axis, neither by their index nor by their guard."""
    loads = summary(body).loads
    return sum(axis.name not in dependencies((load.idx, load.when), body) for load in loads)


# ---- Facts about Kernel IR: what a run of statements changes, and how addresses lie to each other.


@fact("changes(run, expr) -> bool", "kernel")
def changes_register(body: Block, e: Any) -> bool:
    """Return whether a run changes a register or an address that an expression reads."""
    places = {stmt.place.name for stmt in nodes(body, Assign, Butterfly, Shuffle)}
    places |= {stmt.into.name for stmt in nodes(body, LoadFrom)}
    places |= {stmt.base for stmt in nodes(body, Advance)}
    return isinstance(e, Node) and not places.isdisjoint(names_read(e))


@kernel_fact
def clash(first: Block, second: Block) -> bool:
    """Return whether two runs define the same name, so that one block cannot contain both."""
    return not _defined(first).isdisjoint(_defined(second))


def _defined(body: Block) -> set[str]:
    return {stmt.dst for stmt in nodes(body, Define, Base, Registers)}


@kernel_fact
def apart(near: Expression, far: Expression) -> int:
    """Return the distance from one offset to another if it is a number, else 0."""
    distance = subtract(far, near)
    return distance if is_int(distance) else 0


@kernel_fact
def has_constant(e: Expression) -> bool:
    """Return whether an offset ends in a number other than 0."""
    return linear(e)[1] != 0


@kernel_fact
def computed(e: Expression) -> bool:
    """Return whether an offset takes instructions: it is not a number."""
    return not is_int(e)
