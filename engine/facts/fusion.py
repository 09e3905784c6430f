"""Facts that fusion rules ask. `v` is the value whose `mat` is in question, `y` the operation that would take it in.

All are asked of the kernel that would result: what y's part of it already holds is in the site, not in the terms.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.atoms import ATOMS
from ...ir.dtypes import DTYPES
from ...ir.expr import Axis
from ...ir.facts.dataflow import common_key, read_again
from ...ir.functions import promote
from ...ir.node import Node
from ...ir.sizes import at_hint
from ...ir.tensor import Case, Elementwise, Fold, Input, Reduce, Remap, Term, axes, dtype, operands
from ..cost import fusing as cost
from ..language.facts import fact
from ..language.policy import policy
from .products import uses_of


@fact("reduction(term) -> bool", levels="tensor")
def reduction(site: Any, v: Term) -> bool:
    """Whether a value is a reduction."""
    return v.__class__ in (Reduce, Fold)


@fact("evaluations(term) -> int", levels="tensor")
def evaluations(site: Any, v: Term) -> int:
    """Return the largest number of elements computed for an element of v at looked-up indices."""
    return site.fusion.evaluations[v]  # type: ignore[no-any-return]


@fact("places_read(term) -> int", levels="tensor")
def places_read(site: Any, v: Term) -> int:
    """Count the elements of v and of its operands that consumers of v need: one, and one more for each further
    place at which views read the same value."""
    return site.fusion.places.count[v]  # type: ignore[no-any-return]


@fact("elements(term) -> int", levels="tensor")
def elements(site: Any, v: Term) -> int:
    """How many elements a value has."""
    return site.flow.elements(site.flow.mask[v])  # type: ignore[no-any-return]


@fact("readers(term) -> int", levels="tensor")
def readers(site: Any, v: Term) -> int:
    """How many operations read a value."""
    return len(site.flow.readers[v])


@fact("recompute(term, term, int) -> int", levels="tensor")
def recompute(site: Any, v: Any, y: Any, tile: int) -> int:
    """How often y's kernel would compute v: once for every tile of the grid axes that v lacks."""
    missing = site.flow.axes_in(site.space & ~site.seen[v] & ~site.folded)
    return cost.blocks_across((at_hint(axis.extent) for axis in missing), tile)


@fact("sweeps(term, term) -> bool", levels="tensor")
def sweeps(site: Any, y: Any, v: Any) -> bool:
    """Whether y folds an axis that v varies along."""
    return y.__class__ in (Reduce, Fold) and site.flow.mask_of_axes(y.over) & site.seen[v] != 0


@fact("widens(term, term) -> bool", levels="tensor")
def widens(site: Any, y: Any, v: Any) -> bool:
    """Whether v is read again along an axis of y: as a factor of a contraction is."""
    return read_again(site.space & ~site.flow.mask_of_axes(y.over), site.seen[v]) != 0


@fact("only_for(term, term) -> bool", levels="tensor")
def only_for(site: Any, v: Any, y: Any) -> bool:
    """Whether v flows to y alone, through values that have one reader each."""
    while v is not y:
        following = site.flow.readers[v]
        if len(following) != 1:
            return False
        v = following[0]
    return True


@fact("folded_together(term, term) -> bool", levels="tensor")
def folded_together(site: Any, v: Any, y: Any) -> bool:
    """Whether all that v flows into is tuple reductions that share their loop with y."""
    if y.__class__ is not Fold:
        return False
    wanted, todo, seen = common_key(y), list(site.flow.readers[v]), {v}
    while todo:
        term = todo.pop()
        if term in seen:
            continue
        seen.add(term)
        following = site.flow.readers[term]
        if term.__class__ is Fold:
            if common_key(term) != wanted:
                return False
        elif term.__class__ is Reduce or not following or term in site.fusion.kept:
            return False
        else:
            todo += following
    return True


@fact("rows(term) -> int", levels="tensor")
def rows(site: Any, v: Any) -> int:
    """How many independent elements of v the kernel would hold: its blocks, if v is folded cooperatively."""
    return site.flow.elements(site.seen[v])  # type: ignore[no-any-return]


@fact("row(term, term) -> int", levels="tensor")
def row(site: Any, v: Any, y: Any) -> int:
    """How many elements y has for one of v, along axes that the kernel folds."""
    return site.flow.elements(site.space & ~site.seen[v] & site.folded)  # type: ignore[no-any-return]


@fact("repeats(term, term) -> bool", levels="tensor")
def repeats(site: Any, y: Any, v: Any) -> bool:
    """Whether y's index map would compute an element of v more than once, or one that only running it tells."""
    before = site.fusion.open[y.x].get(v)
    if before is None:  # v is an index, not what is read
        return True
    gathered = any(_has_term(e) and site.flow.bit(axis) & before for axis, e in y.map)
    return gathered or site.flow.elements(site.seen[v]) > site.flow.elements(before)


@fact("fixed(term) -> bool", levels="tensor")
def fixed(site: Any, y: Any) -> bool:
    """Whether y's index map reads one place along the axes that it replaces."""
    return all(e.__class__ is int for _, e in y.map)


@fact("moved(term) -> bool", levels="tensor")
def moved(site: Any, y: Any) -> bool:
    """Whether y's index map replaces an axis that something folded below it varies with."""
    replaced = site.flow.mask_of_axes(axis for axis, _ in y.map)
    return any(
        replaced & site.flow.mask[value]
        for value in site.fusion.open[y.x]
        if value.__class__ is Reduce or value.__class__ is Fold
    )


def _has_term(e: Any) -> bool:
    if isinstance(e, Term):
        return True
    if not isinstance(e, Node) or e.__class__ is Axis:
        return False
    values = (getattr(e, f.name) for f in type(e).fields)
    return any(_has_term(x) for value in values for x in _leaves(value))


def _leaves(value: Any) -> Any:
    if value.__class__ is tuple:
        for item in value:
            yield from _leaves(item)
    else:
        yield value


@fact("widest(term) -> int", levels="tensor")
def widest(site: Any, y: Any) -> int:
    """The most elements of anything that y would read: the value that climbs, or what is in memory."""
    flow = site.flow
    read = [_read(site, operand, policy(site.target).operations_looked_through) for operand in operands(y)]
    climbing: int = flow.elements(flow.mask[site.top])
    return max(climbing, *read)


def _read(site: Any, term: Any, reach: int) -> int:
    """The elements of the largest stored value that an elementwise value reads."""
    kind = term.__class__
    size: int = site.flow.elements(site.flow.mask[term])
    if kind is Input or term in site.fusion.kept:
        return size
    if kind is Remap:
        return min(size, _read(site, term.x, reach))
    if reach and (kind is Elementwise or kind is Case):
        return max((_read(site, operand, reach - 1) for operand in operands(term)), default=0)
    return 0


@fact("kernels(term) -> int", levels="tensor")
def kernels(site: Any, v: Any) -> int:
    """How many kernels would compute a value."""
    return int(site.fusion.owners[v]).bit_count()


@fact("operations(term) -> int", levels="tensor")
def operations(site: Any, v: Any) -> int:
    """Count the operations that compute a value from memory, each once."""
    return len(cost.parts(v, site.fusion.kept)[0])


@fact("holds_reduction(term) -> bool", levels="tensor")
def holds_reduction(site: Any, v: Any) -> bool:
    """Whether computing a value means folding something that is not stored."""
    return bool(site.fusion.open[v])


@fact("folds_once(term, term) -> bool", levels="tensor")
def folds_once(site: Any, v: Any, w: Any) -> bool:
    """Whether all reductions of two kernels are over the same axes, and each has one."""
    a, b = site.reduction(v), site.reduction(w)
    return a is not None and b is not None and a.over == b.over


@fact("same_loops(term, term) -> bool", levels="tensor")
def same_loops(site: Any, v: Any, w: Any) -> bool:
    """Whether two kernels store values of the same extents, in plain layouts."""
    return site.extents(v) is not None and site.extents(v) == site.extents(w)


@fact("common_operand(term, term) -> bool", levels="tensor")
def common_operand(site: Any, v: Any, w: Any) -> bool:
    """Whether the reductions of two kernels fold the same buffer, at the same places."""
    over = set(site.reduction(v).over)
    shared = _reads(site, w)
    return any(over & set(axes(read)) for read in _reads(site, v) if read in shared)


def _reads(site: Any, value: Any) -> set[Any]:
    """What a kernel reads from memory, and what it reads it as."""
    leaves, pending, seen = site.leaves(value), [value], {value}
    while pending:
        term = pending.pop()
        more = [x for x in operands(term) if x not in seen] if term is value or term not in leaves else ()
        pending += more
        seen.update(more)
    return {term for term in seen if term in leaves or term.__class__ is Remap}


@fact("independent(term, term) -> bool", levels="tensor")
def independent(site: Any, v: Any, w: Any) -> bool:
    """Whether w reads neither v nor anything stored between the two."""
    return site.independent(v, w)  # type: ignore[no-any-return]


@fact("same_place(term, term) -> bool", levels="tensor")
def same_place(site: Any, v: Any, w: Any) -> bool:
    """Whether w reads v, only where it stands itself, and nothing stored between the two that needs v."""
    return site.same_place(v, w)  # type: ignore[no-any-return]


@fact("folded(term) -> int", levels="tensor")
def folded(site: Any, v: Any) -> int:
    """How many elements the reductions of a kernel fold into one, at most; 1 where it folds nothing."""
    return max((math.prod(at_hint(axis.extent) for axis in term.over) for term in site.folds(v)), default=1)


@fact("distance(term, term) -> int", levels="tensor")
def distance(site: Any, v: Any, w: Any) -> int:
    """How many launches lie between two stored values, one for neighbours."""
    return site.place(w) - site.place(v)  # type: ignore[no-any-return]


@fact("beside(term, term) -> bool", levels="tensor")
def beside(site: Any, v: Any, y: Any) -> bool:
    """Whether y's kernel folds over the axis that v folds, for more axes, and reads what v reads: one loop."""
    if v.__class__ is not Reduce or len(v.over) != 1:
        return False
    flow, kept = site.flow, site.fusion.kept
    mine, read = cost.parts(v, kept)
    return any(
        other.__class__ is Reduce
        and other.over == v.over
        and flow.mask[other] & flow.mask[v] == flow.mask[v] != flow.mask[other]
        and other not in mine
        and _walks_beside(v, *cost.parts(other, kept), read)
        for other in cost.parts(y, kept)[0]
    )


def _walks_beside(v: Any, made: list[Any], reads: list[Any], read: list[Any]) -> bool:
    """Whether what a reduction is made of needs no v, and reads something that v reads."""
    return v not in made and not set(read).isdisjoint(reads)


@fact("again(term, term, int) -> num", levels="tensor")
def again(site: Any, v: Any, y: Any, tile: int) -> float:
    """Seconds to compute v in every block of y's kernel, from what is in shared memory."""
    flow, result = site.flow, site.space & ~site.folded
    blocks = cost.blocks(flow, result, site.seen[v], tile, site.target)
    return blocks * _in_block(site, v, v.x if v.__class__ is Reduce else v)


def _in_block(site: Any, v: Any, walked: Any) -> float:
    """Seconds to compute v once, reading each element that it walks from shared memory."""
    made, read = cost.parts(v, site.fusion.kept)
    moved = len(read) * site.flow.elements(site.flow.mask[walked])
    return cost.issue_seconds(cost.slots_of(site.flow, made, site.target) + moved, site.target)


@fact("in_turns(term, term) -> num", levels="tensor")
def in_turns(site: Any, v: Any, y: Any) -> float:
    """Seconds that v takes longer in the turns of y's loop than in a kernel of its own; 0 if y does not fold along it.

    The loop has the blocks of y's results, whatever v has; and a product of v has no tiles there: each of its terms
    loads its factors.
    """
    if not reduction(site, v) or not sweeps(site, y, v):
        return 0.0
    flow, over = site.flow, site.flow.mask_of_axes(y.over)
    busy = min(1.0, flow.elements(site.space & ~site.folded & ~over) / site.target.multiprocessors)
    made, read = cost.parts(v, site.fusion.kept)
    slots = cost.slots_of(flow, made, site.target)
    nested = slots + len(read) * flow.elements(flow.mask[v] | flow.mask_of_axes(v.over))
    alone = slots + sum(flow.elements(flow.mask[leaf]) for leaf in read)
    traffic = cost.traffic_seconds(cost.bytes_of(flow, read), site.target)
    in_loop: float = max(cost.issue_seconds(nested, site.target), traffic) / busy
    return in_loop - max(cost.issue_seconds(alone, site.target), traffic)


@fact("product_blocks(term, int) -> int", levels="tensor")
def product_blocks(site: Any, v: Any, tile: int) -> int:
    """How many blocks of a product compute its operand v: one for every tile of the columns that v lacks."""
    flow = site.flow
    found = (cost.blocks(flow, flow.mask[use.total], use.seen, tile, site.target) for use in uses_of(site, v))
    return max(found, default=1)


@fact("again_in(int, term) -> num", levels="tensor")
def again_in(site: Any, blocks: int, v: Any) -> float:
    """Seconds to compute an operand in so many blocks, and to put it into shared memory there."""
    stored = cost.issue_seconds(site.flow.elements(site.flow.mask[v]), site.target)
    return blocks * (_in_block(site, v, v) + stored)


@fact("multiplied_narrow(term) -> bool", levels="tensor")
def multiplied_narrow(site: Any, y: Any) -> bool:
    """Whether nothing reads a value but products that tensor cores make of what both factors are widened from."""
    readers = [
        reader for r in site.flow.readers[y] for reader in (site.flow.readers[r] if r.__class__ is Remap else (r,))
    ]
    if any(reader.__class__ is not Elementwise or reader.fn != "multiply" for reader in readers):
        return False
    held = [[_widened_from(x) for x in reader.args] for reader in readers]
    own = [atom for atom in ATOMS.values() if atom.on(site.target.sm) and atom.sums == dtype(y)]
    return bool(held) and all(any(a and b and atom.multiplies(a, b) for atom in own) for a, b in held)


def _widened_from(x: Any) -> str | None:
    """The dtype of what a value is widened from, None where it is anything else."""
    x = x.x if x.__class__ is Remap else x
    cast = x.__class__ is Elementwise and x.fn in DTYPES and promote(x.fn, dtype(x.args[0])) == x.fn
    return dtype(x.args[0]) if cast else None


@fact("apart(term) -> num", levels="tensor")
def apart(site: Any, v: Any) -> float:
    """Seconds that a kernel of its own takes for v, and to read v again."""
    _, read = cost.parts(v, site.fusion.kept)
    size = cost.bytes_of(site.flow, read) + 2 * cost.bytes_of(site.flow, [v])
    return cost.fixed_seconds(site.target) + cost.traffic_seconds(size, site.target)


@fact("multiplied(term) -> bool", levels="tensor")
def multiplied(site: Any, y: Any) -> bool:
    """Whether a value flows into a product that walks it many times, through values that nothing stores."""
    flow, todo, seen = site.flow, [y], set()
    while todo:
        term = todo.pop()
        if term in seen:
            continue
        seen.add(term)
        if any(flow.mask[use.product] & ~use.seen for use in uses_of(site, term)):
            return True
        if any(reader.__class__ is Fold for reader in flow.readers[term]):
            return True
        todo += [r for r in flow.readers[term] if r.__class__ is not Reduce and r not in site.fusion.kept]
    return False
