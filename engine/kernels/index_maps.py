"""Index maps pushed to the leaves: what a kernel computes, with maps left only on what it loads.

Maps on computed values stay nodes until it is known what is stored; then reading `v` under a map is computing `v` with
its axes substituted. A Reduce inside keeps its own axes: one that would capture a substituted expression is renamed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from ...ir.compose import index, rebuilt, remap, remap_expr
from ...ir.expr import Axis, Binary, add, extents_of, linear, multiply, subtract
from ...ir.facts.dataflow import Dataflow
from ...ir.facts.index import operate, simplify, substitute
from ...ir.names import unused
from ...ir.node import Expr, Node, contains, immutable, memoised, replace
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Named,
    Output,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    decide_below,
    index_axes,
    operands,
    postorder,
    reduced_below,
)
from ...ir.torch import TorchOp

Task = tuple[Term, tuple[tuple[Axis, Expr], ...]]  # a value, and the axes of it that are substituted
A = TypeVar("A")
R = TypeVar("R")
FOLDING = (Reduce, Fold)


@dataclass
class Resolver:
    """Resolves the values of one flow. stored: the leaves. values: names of terms, which follow them.

    sources: filled with the value that each resolved one was.
    """

    flow: Dataflow
    stored: Container[Term]
    values: dict[Term, str]
    sources: dict[Term, Term]

    def __post_init__(self) -> None:
        self.known: dict[Task, Term] = {}
        self.missing: list[Task] = []
        self._plain: dict[Term, bool] = {}

    @functools.cached_property
    def names(self) -> set[str]:
        """The names of all axes."""
        return {axis.name for axis in self.flow.axes}

    def _is_plain(self, term: Term) -> bool:
        """Return whether a value is stored, or nothing needs to be pushed below it."""
        return decide_below(
            term,
            self._plain,
            lambda x: x in self.stored or self._reads_plainly(x),
            lambda x: () if x in self.stored else operands(x),
        )

    def _reads_plainly(self, term: Term) -> bool:
        return (term.__class__ is not Remap or self._leaf(term.x)) and all(map(self._is_plain, operands(term)))

    def _leaf(self, term: Term) -> bool:
        return term.__class__ is Input or term in self.stored

    def kernel(self, root: Term) -> Term:
        """Return the value of a stored term over other stored terms and inputs."""
        return root if self._reads_plainly(root) else self._resolve((root, ()))

    def moved(self, value: Term, places: Mapping[Axis, Expr]) -> Term:
        """Return a value at other indices, or with free axes renamed."""
        return self._resolve(_task(value, places))

    def _resolve(self, task: Task) -> Term:
        pending = [task]  # explicit: a chain of ten thousand operations does not recurse
        while pending:
            key = pending.pop()
            if key in self.known:
                continue
            self.missing = []
            result, source = self._step(*key), key[0]
            if self.missing:
                pending += (key, *reversed(self.missing))
                continue
            if source in self.values:
                self.values.setdefault(result, self.values[source])
            if result is not source:
                self.sources.setdefault(result, self.sources.get(source, source))
            self.known[key] = result
        return self.known[task]

    def _need(self, term: Term, places: Mapping[Axis, Expr]) -> Term:
        """Return a term at other indices if it is known already; otherwise record it as missing.

        The result is of no use if the term is missing.
        """
        task = _, substitution = _task(term, places)
        if self._leaf(term):
            return Remap(term, substitution) if substitution else term
        if not substitution and self._is_plain(term):
            return term
        if task not in self.known:
            self.missing.append(task)
        return self.known.get(task, term)

    def _step(self, term: Term, substitution: Sequence[tuple[Axis, Expr]]) -> Term:
        places = dict(substitution)

        def operand(x: Term) -> Term:
            return self._need(x, places)

        def at(e: Expr) -> Expr:
            return substitute(e, places, lambda x: _as_index(operand(x)))

        if term.__class__ is Elementwise:
            return Elementwise(term.fn, tuple([operand(x) for x in term.args]))
        if isinstance(term, FOLDING):
            free = {axis for e in places.values() for axis in index_axes(e)}
            taken = [axis.name for axis in free]
            places |= {
                axis: Axis(unused(axis.name, self.names, taken), axis.extent) for axis in term.over if axis in free
            }
            return _folded(term, places, operand)
        if term.__class__ is Remap:
            return self._need(term.x, {**places, **{axis: at(e) for axis, e in term.map}})
        if term.__class__ is Case:
            cond = at(term.cond)
            if cond is True or cond is False:
                return operand(term.a if cond else term.b)
            return Case(cond, operand(term.a), operand(term.b))
        return index(at(term.expr)) if term.__class__ is Index else term


def _task(term: Term, places: Mapping[Axis, Expr]) -> Task:
    return term, tuple([(axis, places[axis]) for axis in axes(term) if places.get(axis, axis) is not axis])


def _as_index(term: Term) -> Expr:
    """Return a value where an index expression is wanted."""
    return term.expr if term.__class__ is Index else term.value if term.__class__ is Const else term


def _folded(term: Reduce | Fold, names: Mapping[Axis, Expr], operand: Callable[[Term], Term]) -> Term:
    """Return a reduction of other operands, over axes under other names."""
    over = tuple(names.get(axis, axis) for axis in term.over)
    if isinstance(term, Reduce):
        return Reduce(term.fn, over, operand(term.x))
    return Fold(term.part, over, tuple(map(operand, term.args)))


# ---- Renamings pushed to the leaves, before any rule looks.
#
# Where two values meet, one of them may be read under other axis names: `multiply(exp_1[j], exp_2)`. A renaming costs
# nothing, but it is between an operation and its operand, and a rule that says `multiply(exp(x), exp(y))` would not
# see through it. So a value takes the names of its readers, down to what is stored. Where readers need different
# names it keeps its own: pushing would compute it once for each.


Renaming = dict[Axis, Axis]


def push_renamings(graph: TensorGraph, origins: dict[Term, TorchOp] | None = None) -> TensorGraph:
    """Return the program with renamings at the leaves. Names and origins follow the values that have them."""
    roots = graph.roots
    order = postorder(roots)
    taken = _taken(order, set(roots))
    new: dict[Term, Term] = {}
    for term in order:
        new[term] = _under(term, taken, new)
    if all(new[root] is root for root in roots):
        return graph
    ins, final = _own_names([new[root] for root in roots])
    becomes = {old: final.get(value, value) for old, value in new.items()}
    if origins is not None:
        for old, origin in tuple(origins.items()):
            origins.setdefault(becomes.get(old, old), origin)
    names: dict[Term, Named] = {}
    for named in graph.names:
        value = becomes.get(named.value)
        if value is not None and value.__class__ not in (Input, Remap):
            names.setdefault(value, Named(named.name, value))
    outs = tuple(Output(out.name, out.axes, becomes[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, tuple(ins.get(x, x) for x in graph.ins), outs, tuple(names.values()), graph.calls)


def _taken(order: Sequence[Term], stored: Container[Term]) -> dict[Term, Renaming]:
    """Return the values that are computed under their readers' names, with these.

    A renaming also names axes that are reduced below, so that a row and its sum go on to share their names.
    """
    taken: dict[Term, Renaming] = {}
    asked: defaultdict[Term, list[Renaming]] = defaultdict(list)  # what each reader would have a value computed under
    for term in reversed(order):
        renaming = {} if term in stored else _agreed(term, asked[term])
        if renaming:
            taken[term] = renaming
        for place, operand in enumerate(operands(term)):
            if term.__class__ is Remap:
                asked[operand].append({} if place else _inside(term, renaming))
            else:
                asked[operand].append(renaming)
    return taken


def _agreed(term: Term, asked: Sequence[Renaming]) -> Renaming:
    """Return the renaming that all consumers of a value need, if the value can be computed so."""
    if not asked[0]:
        return {}
    own, together = axes(term), dict(ChainMap(*asked))
    first, *others = [{axis: one[axis] for axis in own if axis in one} for one in asked]
    if any(other != first for other in others):
        return {}
    if isinstance(term, FOLDING):
        if not first and asked[0].keys().isdisjoint(term.over):
            return {}
        free, folded = ({together.get(axis, axis) for axis in group} for group in (own, term.over))
        if len(folded) == len(term.over) and folded.isdisjoint(free):  # captures no axis that is folded
            return together
        return {} if free & {*term.over} else {a: e for a, e in together.items() if a not in term.over}
    moves = term.__class__ is Elementwise or term.__class__ is Case or (term.__class__ is Remap and _renames(term))
    return together if first and moves else {}


def _renames(term: Remap) -> bool:
    """Return whether a map only gives axes other names. Under a Case an axis may be read along a longer one."""
    return all(isinstance(image, Axis) and image.extent == axis.extent for axis, image in term.map)


def _inside(term: Remap, outer: Renaming) -> Renaming:
    """Return the map of a Remap as a renaming, under the renaming it takes over; empty if it is none."""
    if not _renames(term):
        return {}
    images = dict(term.map)
    own = {axis: images.get(axis, axis) for axis in axes(term.x)}
    inner = outer | {axis: outer.get(image, image) for axis, image in own.items()}
    return {axis: image for axis, image in inner.items() if image is not axis}


def _under(term: Term, taken: Mapping[Term, Renaming], new: Mapping[Term, Term]) -> Term:
    """Return a value under the names that it takes over."""
    renaming = taken.get(term, {})

    def operand(x: Term) -> Term:
        return new[x] if x in taken else remap(new[x], renaming)

    if term.__class__ is Elementwise:
        return Elementwise(term.fn, tuple(map(operand, term.args)))
    if isinstance(term, FOLDING):
        return _folded(term, renaming, operand)
    if term.__class__ is Case:
        return Case(remap_expr(term.cond, renaming), operand(term.a), operand(term.b))
    if term.__class__ is not Remap:
        return term
    if term.x in taken and _renames(term):  # of one that does not, names of axes folded below alone
        return new[term.x]
    return remap(remap(new[term.x], dict(term.map)), renaming)


def _own_names(roots: Sequence[Term]) -> tuple[dict[Term, Input], dict[Term, Term]]:
    """Return the inputs that are never read plainly, with their first consumers' names, and each value over these."""
    order = postorder(roots)
    plain = {*roots, *(x for term in order for x in operands(term)[term.__class__ is Remap :])}
    better: dict[Term, Input] = {}
    new: dict[Term, Term] = {}
    for term in order:
        x = term.x if term.__class__ is Remap else None
        if x.__class__ is Input and x not in plain and x not in better and _renames(term):
            images = dict(term.map)
            names = tuple(images.get(axis, axis) for axis in x.axes)
            if len(set(names)) == len(names):
                better[x] = own = Input(x.name, names, x.dtype)
                new[x] = remap(own, dict(zip(names, x.axes, strict=True)))
    for term in order:
        new.setdefault(term, rebuilt(term, new.__getitem__))
    return better, new


# ---- The number of elements that a kernel would compute for one element of another value.


Below = dict[Term, frozenset[tuple[Expr, ...]]]  # the indices at which each value is read: an expression for each axis
Occurrences: TypeAlias = dict[Axis | None, int]  # how often an index names each axis, and how many other nodes it has


class Places:
    """Indices at which views and others read values, below each term of a kernel. Terms are visited operands first.

    In a chain in which every step reads its predecessor at several indices, the last step reads the first one at
    many. Each index costs a computation of its own, in text and in time. nodes: of the longest index in memory that
    consumers of a term would compute from their own axes. A step whose view names an axis twice doubles it.
    """

    def __init__(self, flow: Dataflow, kept: Set[Term]):
        self.flow, self.kept = flow, kept
        self.below: dict[Term, Below] = {}
        self.count: dict[Term, int] = {}
        self.index: dict[Term, Occurrences] = {}
        self.nodes: dict[Term, int] = {}

    def visit(self, term: Term) -> None:
        """Count the indices that consumers of a term need.

        The first one counts, and each further index of the term or of a value below it.
        """
        found: Below = {}
        index = Occurrences()
        for operand in operands(term):
            if operand not in self.kept:
                below = self.below[operand]
                found = _merged(found, _moved(below, term.map) if term.__class__ is Remap else below)
            own = _plain(operand) if operand in self.kept else self.index[operand]
            own = _written(own, term.map) if term.__class__ is Remap and operand is term.x else own
            index = {part: max(index.get(part, 0), own.get(part, 0)) for part in {**index, **own}}
        needed, readers = found, self.flow.readers[term]
        views = [reader.map for reader in readers if reader.__class__ is Remap and reader.x is term]
        self.index[term] = index or _plain(term)
        self.nodes[term] = max([sum(_written(self.index[term], view).values()) for view in (*views, ())])
        if views and len(readers) > 1 and term.__class__ is not Input:
            found = {**found, term: frozenset((axes(term),))}
            needed = found if len(views) < len(readers) else {}
            for view in views:
                needed = _merged(needed, _moved(found, view))
        self.below[term] = found
        self.count[term] = 1 + sum(len(places) - 1 for places in needed.values())


def _plain(term: Term) -> Occurrences:
    """Return the occurrences of an index that is a value's own axes."""
    return dict[Axis | None, int].fromkeys(axes(term), 1)


def _written(index: Occurrences, view: Sequence[tuple[Axis, Expr]]) -> Occurrences:
    """Return the occurrences of an index whose axes a view replaces."""
    images, found = dict[Axis | None, Any](view), Counter[Axis | None]()
    for part, times in index.items():
        image = images.get(part, part)
        for own, n in (_occurrences(image) if isinstance(image, Node) else {None: 1}).items():
            found[own] += n * times
    return found


@memoised
def _occurrences(e: Any) -> Occurrences:
    """Count the axes in an index expression, under None its other nodes. A value in it is there once for each axis."""
    if e.__class__ is Axis or isinstance(e, Term):
        return dict[Axis | None, int].fromkeys(index_axes(e), 1)
    found, pending = Counter[Axis | None]({None: 1}), [*type(e).read_inner(e)]
    while pending:
        part = pending.pop()
        if part.__class__ is tuple:
            pending += part
        elif isinstance(part, Node):
            found.update(_occurrences(part))
    return found


def _merged(one: Below, other: Below) -> Below:
    """Return the indices of both."""
    if not one or one is other:
        return other
    return {**one, **{value: places | one.get(value, frozenset()) for value, places in other.items()}}


def _moved(below: Below, view: Sequence[tuple[Axis, Expr]]) -> Below:
    """Return the indices as read through a view."""
    images = dict(view)
    exprs = {e for places in below.values() for place in places for e in place}  # those of a chain share many
    through = {e: remap_expr(e, images) for e in exprs}
    return {
        value: frozenset([tuple([through[e] for e in place]) for place in places]) for value, places in below.items()
    }


# ---- Outputs over the loops of the folds that they are computed from.
#
# A reshape moves nothing: its elements have the memory order of its operand. Where it cuts an axis that a fold
# varies with (the groups of a group norm, say), a loop over the pieces would fold again for each, so the fold's values
# were stored and read again. An output of such a reshape is computed over the axes before the cut; its
# addresses are the same, and the runtime gives results torch's shapes anyway.


MOST = 4  # axes whose orders are tried: 24


def uncut_outputs(graph: TensorGraph) -> TensorGraph:
    """Return the program with outputs over the axes of reductions that a reshape cuts. Offsets in memory stay."""
    values = {*graph.roots}
    outs = tuple(_uncut(out, values) for out in graph.outs)
    return replace(graph, outs=outs)


def _uncut(out: Output, values: Container[Term]) -> Output:
    # what is computed at the same indices as the output
    region = postorder([out.value], lambda term: operands(term) if term.__class__ is Elementwise else ())
    for view in region:
        order = _order(view, out.axes) if view.__class__ is Remap and view.x not in values else None
        if order is None:
            continue
        place, stride, digits = _offset(order, {}), 1, {}
        for axis in reversed(out.axes):
            high = operate("//", place, stride)
            digits[axis] = high if axis is out.axes[0] else operate("%", high, axis.extent)
            stride = multiply(stride, axis.extent)
        new: dict[Term, Term] = {}
        for term in region:
            new[term] = rebuilt(term, new.__getitem__) if term.__class__ is Elementwise else remap(term, digits)
        return Output(out.name, order, new[out.value])
    return out


def _order(view: Remap, outer: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
    """Return the order of the axes that gives every element the same offset before a cut as after it, or None.

    A view cuts if a reduction below varies with an axis that it divides: a loop over the pieces would repeat it.
    """
    own, images = axes(view.x), dict(view.map)
    cut = {axis for axis, e in view.map if contains(e, Binary)}
    if not cut or cut.isdisjoint(reduced_below(view.x)[1]):
        return None
    if len(own) > MOST or {*axes(view)} != {*outer} or _elements(own) != _elements(outer):
        return None
    wanted = _offset(outer, {})
    return next((order for order in itertools.permutations(own) if _offset(order, images) == wanted), None)


def _elements(own: Sequence[Axis]) -> Expr:
    return math.prod(extents_of(own))


def _offset(order: Sequence[Axis], images: Mapping[Axis, Expr]) -> Expr:
    """Return the offset in memory of an element with its axes in an order, each axis read at its image."""
    offset: Expr = 0
    for axis in order:
        offset = add(multiply(offset, axis.extent), images.get(axis, axis))
    return simplify(offset)


# Results side by side: values that read one computed value at ranges of one of its axes, as q, k, v read one matmul.
#
# Such values share a kernel though their extents differ. It runs over the indices of the whole; what they have in
# common is computed for each, and each value is stored where its own range is.


Range = tuple[A, int]  # the axis of a value, and the index of the whole where it starts


def translation(e: Expr) -> Range[Axis] | None:
    """Return the axis that an index expression shifts, and by how much; None where it does more."""
    atoms, start = linear(e)
    shifted = [atom for atom, factor in atoms.items() if atom.__class__ is Axis and factor == 1]
    return (shifted[0], start) if len(shifted) == len(atoms) == 1 else None


def side_by_side(views: Sequence[Mapping[R, Range[A]]], extents: Mapping[A, int]) -> tuple[R, list[Range[A]]] | None:
    """Return the value that several values read at ranges without a gap, and these ranges, or None.

    views: for each value, {the value that it reads at a range: the range}.
    """
    for whole in views[0]:
        found = [view[whole] for view in views if whole in view]
        pairs = itertools.pairwise(sorted(found, key=itemgetter(1)))
        if len(found) == len(views) and all(start + extents[axis] == end for (axis, start), (_, end) in pairs):
            return whole, found
    return None


@immutable
class Parts:
    """The kernel's axis along the whole, and for each value where it finds that and where it is stored."""

    axis: Axis
    places: tuple[Mapping[Axis, Expr], ...]  # for each value: {its own axis: its index, over `axis`}
    ranges: tuple[tuple[int, int], ...]


def parts_of(values: Sequence[Term], loops: Sequence[Sequence[Axis]], stored: Container[Term]) -> Parts | None:
    """Return the arrangement of values with these loops side by side, or None. stored: the values read from memory."""
    views = [dict(_views(value, own, stored)) for value, own in zip(values, loops, strict=True)]
    found = side_by_side(views, {axis: axis.extent for own in loops for axis in own})
    if found is None:
        return None
    (_, whole), ranges = found
    shapes = [
        [None if axis is mine else axis.extent for axis in own] for own, (mine, _) in zip(loops, ranges, strict=True)
    ]
    if shapes.count(shapes[0]) < len(shapes):  # they differ in more than the extent of one axis
        return None
    least = min(start for _, start in ranges)
    along = Axis(whole.name, sum(mine.extent for mine, _ in ranges))
    return Parts(
        along,
        tuple({mine: subtract(along, start - least)} for mine, start in ranges),
        tuple((start - least, start - least + mine.extent) for mine, start in ranges),
    )


def _views(
    value: Term, loops: Sequence[Axis], stored: Container[Term]
) -> Iterator[tuple[tuple[Term, Axis], Range[Axis]]]:
    """Return the values that a value reads at a range of one of its own axes, among those that its kernel computes."""
    for term in reversed(postorder([value], lambda term: [x for x in operands(term) if x not in stored])):
        if term.__class__ is Remap and len(term.map) == 1 and term.x.__class__ is not Input and term.x not in stored:
            ((axis, e),) = term.map
            moved = translation(e)
            if moved is not None and moved[0] in loops:
                yield (term.x, axis), moved
