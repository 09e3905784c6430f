"""Facts that fusion rules ask. `v` is the value whose `mat` is in question, `y` the operation that would take it in.

All are asked of the kernel that would result: what y's part of it already holds is in the site, not in the terms.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import Axis
from ...ir.node import Node
from ...ir.tensor import Case, Elementwise, Fold, Input, Reduce, Remap, Term, operands
from ..rw.facts import fact
from .lift import common_key

REACH = 6  # operations looked through for what an elementwise value reads from memory


@fact("reduction(term) -> bool", levels="tensor")
def reduction(site: Any, v: Term) -> bool:
    """Whether a value is a reduction."""
    return v.__class__ in (Reduce, Fold)


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
    times = 1
    for axis in site.flow.axes_in(site.space & ~site.seen[v] & ~site.folded):
        times *= -(-axis.extent // tile)
    return times


@fact("sweeps(term, term) -> bool", levels="tensor")
def sweeps(site: Any, y: Any, v: Any) -> bool:
    """Whether y folds an axis that v varies along."""
    return y.__class__ in (Reduce, Fold) and site.flow.mask_of_axes(y.over) & site.seen[v] != 0


@fact("widens(term, term) -> bool", levels="tensor")
def widens(site: Any, y: Any, v: Any) -> bool:
    """Whether y's operand runs over further axes than v and the folded ones: a contraction."""
    return site.space & ~site.seen[v] & ~site.flow.mask_of_axes(y.over) != 0  # type: ignore[no-any-return]


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
    read = [_read(site, operand, REACH) for operand in operands(y)]
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


@fact("holds_reduction(term) -> bool", levels="tensor")
def holds_reduction(site: Any, v: Any) -> bool:
    """Whether computing a value means folding something that is not stored."""
    return bool(site.fusion.open[v])


@fact("folds_once(term, term) -> bool", levels="tensor")
def folds_once(site: Any, v: Any, w: Any) -> bool:
    """Whether each of two kernels holds one reduction, over the same axes."""
    a, b = site.reduction(v), site.reduction(w)
    return a is not None and b is not None and a.over == b.over


@fact("same_loops(term, term) -> bool", levels="tensor")
def same_loops(site: Any, v: Any, w: Any) -> bool:
    """Whether two kernels store values of the same extents, in plain layouts."""
    return site.extents(v) is not None and site.extents(v) == site.extents(w)


@fact("common_operand(term, term) -> bool", levels="tensor")
def common_operand(site: Any, v: Any, w: Any) -> bool:
    """Whether the reductions of two kernels fold the same buffer."""
    over = set(site.reduction(v).over)
    return any(
        over & set(leaf.axes if leaf.__class__ is Input else site.axes(leaf))
        for leaf in site.leaves(v)
        if leaf in site.leaves(w)
    )


@fact("independent(term, term) -> bool", levels="tensor")
def independent(site: Any, v: Any, w: Any) -> bool:
    """Whether w reads neither v nor anything stored between the two."""
    return site.independent(v, w)  # type: ignore[no-any-return]


@fact("distance(term, term) -> int", levels="tensor")
def distance(site: Any, v: Any, w: Any) -> int:
    """How many launches lie between two stored values, one for neighbours."""
    return site.place(w) - site.place(v)  # type: ignore[no-any-return]
