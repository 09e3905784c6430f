"""Index maps pushed to the leaves: what a kernel computes, with maps left only on what it loads.

Maps on computed values stay nodes until it is known what is stored; then reading `v` under a map is computing `v` with
its axes substituted. A Reduce inside keeps its own axes: one that would capture a substituted expression is renamed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ...ir.compose import rebuilt, remap, remap_expr
from ...ir.expr import Axis, Binary, Call, Not, Size, Sum, add, multiply, rebuild, subtract
from ...ir.facts.dataflow import Dataflow
from ...ir.facts.index import operate, simplify, substitute
from ...ir.node import Expr, Node, contents, marks_of
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
    index_axes,
    is_condition,
    operands,
    postorder,
)
from ...ir.torch import TorchOp

Substitution = tuple[tuple[Axis, Any], ...]


class Resolver:
    """Resolves the values of one flow. stored: the leaves. values: names of terms, which follow them.

    sources: filled with the value that each resolved one was.
    """

    def __init__(self, flow: Dataflow, stored: Container[Any], values: dict[Any, str], sources: dict[Any, Any]):
        self.flow, self.stored, self.values, self.sources = flow, stored, values, sources
        self.names = {axis.name for axis in flow.axes}
        self.memo: dict[tuple[Any, Substitution], Term] = {}
        self.missing: list[tuple[Any, Substitution]] = []
        self.plain: dict[Any, bool] = {}
        for term in flow.order:
            self.plain[term] = self._is_plain(term)

    def _is_plain(self, term: Any) -> bool:
        """Return whether nothing needs to be pushed below this value."""
        if term in self.stored:
            return True
        if term.__class__ is Remap and not self._leaf(term.x):
            return False
        return all(self.plain[operand] for operand in operands(term))

    def _leaf(self, term: Any) -> bool:
        return term.__class__ is Input or term in self.stored

    def kernel(self, root: Term) -> Term:
        """Return the value of a stored term over other stored terms and inputs."""
        if all(self.plain[operand] for operand in operands(root)) and (
            root.__class__ is not Remap or self._leaf(root.x)
        ):
            return root
        return self._resolve((root, ()))

    def moved(self, value: Term, places: Mapping[Axis, Any]) -> Term:
        """Return a value at other indices, or with free axes renamed."""
        return self._resolve((value, self._order({axis: e for axis, e in places.items() if axis in axes(value)})))

    def _resolve(self, task: tuple[Any, Substitution]) -> Term:
        # An explicit stack: a chain of ten thousand operations does not recurse.
        stack = [task]
        while stack:
            key = stack[-1]
            if key in self.memo and key is not task:
                stack.pop()
                continue
            self.missing = []
            result = self._step(*key)
            if self.missing:
                stack.extend(reversed(self.missing))
                continue
            if key[0] in self.values:
                self.values.setdefault(result, self.values[key[0]])
            if result is not key[0]:
                self.sources.setdefault(result, self.sources.get(key[0], key[0]))
            axes(result)  # remembered bottom-up: no recursion later
            if key is task:
                return result
            self.memo[key] = result
            stack.pop()
        raise AssertionError("the task itself ends the loop")

    def _order(self, sub: dict[Axis, Any]) -> Substitution:
        if len(sub) < 2:
            return tuple(sub.items())
        return tuple(sorted(sub.items(), key=lambda pair: self.flow.bit(pair[0])))

    def _need(self, term: Any, sub: dict[Axis, Any]) -> Term:
        """Return a term under a substitution if it is known already; otherwise record it as missing.

        The result is of no use if the term is missing.
        """
        if sub:
            own = axes(term)
            sub = {axis: e for axis, e in sub.items() if e is not axis and axis in own}
        if self._leaf(term):
            return Remap(term, tuple((axis, sub[axis]) for axis in axes(term) if axis in sub)) if sub else term  # type: ignore[no-any-return]
        if not sub and self.plain.get(term, False):
            return term  # type: ignore[no-any-return]
        key = (term, self._order(sub))
        known = self.memo.get(key)
        if known is None:
            self.missing.append(key)
            return term  # type: ignore[no-any-return]
        return known

    def _index(self, e: Any, sub: dict[Axis, Any]) -> Any:
        return substitute(e, sub, lambda term: as_index(self._need(term, sub)))

    def _step(self, term: Any, pairs: Substitution) -> Term:
        kind, sub = term.__class__, dict(pairs)
        if kind is Elementwise:
            return Elementwise(term.fn, tuple([self._need(arg, sub) for arg in term.args]))
        if kind is Reduce or kind is Fold:
            return self._reduce(term, sub)
        if kind is Remap:
            inner = {axis: self._index(e, sub) for axis, e in term.map}
            outer = {axis: e for axis, e in sub.items() if axis not in inner}
            return self._need(term.x, {**outer, **inner})
        if kind is Case:
            cond = self._index(term.cond, sub)
            if cond is True or cond is False:
                return self._need(term.a if cond else term.b, sub)
            return Case(cond, self._need(term.a, sub), self._need(term.b, sub))
        if kind is Index:
            return as_term(self._index(term.expr, sub))
        return term  # type: ignore[no-any-return]

    def _reduce(self, term: Reduce | Fold, sub: dict[Axis, Any]) -> Term:
        free = {axis for e in sub.values() for axis in index_axes(e)}
        renamed = {axis: self._fresh(axis, free) for axis in term.over if axis in free} if free else {}
        over, inner = tuple(renamed.get(axis, axis) for axis in term.over), {**sub, **renamed}
        if isinstance(term, Fold):
            return Fold(term.part, over, tuple([self._need(arg, inner) for arg in term.args]))
        return Reduce(term.fn, over, self._need(term.x, inner))

    def _fresh(self, axis: Axis, avoid: set[Axis]) -> Axis:
        """Return another axis of the same extent that is not used here. The same question gets the same answer."""
        for number in itertools.count(1):
            candidate = Axis(f"{axis.name}{number}", axis.extent)
            if candidate.name not in self.names and candidate not in avoid:
                return candidate
        raise AssertionError("count never ends")


def as_index(term: Any) -> Any:
    """Return a value where an index expression is wanted."""
    if term.__class__ is Index:
        return term.expr
    return term.value if term.__class__ is Const else term


def as_term(e: Any) -> Term:
    """Return an index expression where a value is wanted."""
    if isinstance(e, bool) or e.__class__ is int:
        return Const(e, "b8" if isinstance(e, bool) else "i64")
    if (isinstance(e, Node) and not isinstance(e, Term)) or is_condition(e):
        return Index(e)
    return e  # type: ignore[no-any-return]


def over_variables(e: Any, variables: dict[Axis, Any], value: Callable[[Any], Any]) -> Any:
    """Replace axes by loop variables, and Terms by the values that hold them.

    The folding that extents allow happened before.
    """

    def change(x: Any) -> Any:
        if x.__class__ is Axis:
            return variables[x]
        if isinstance(x, (Sum, Binary, Not, Call)):
            return rebuild(x, change)
        return value(x) if isinstance(x, Node) and x.__class__ is not Size else x

    return change(e)


def holds_terms(e: Any) -> bool:
    """Return whether an index expression reads values. Nodes remember it: indices from look-ups are deep."""
    return isinstance(e, Node) and contents(e) & marks_of(Term) != 0


# ---- Renamings pushed to the leaves, before any rule looks.
#
# Where two values meet, one of them may be read under other axis names: `multiply(exp_1[j], exp_2)`. A renaming costs
# nothing, but it is between an operation and its operand, and a rule that says `multiply(exp(x), exp(y))` would not
# see through it. So a value takes the names of its readers, down to what is stored. Where readers need different
# names it keeps its own: pushing would compute it once for each.


Renaming = dict[Axis, Axis]


def push_renamings(graph: TensorGraph, origins: dict[Term, TorchOp] | None = None) -> TensorGraph:
    """Return the program with renamings at the leaves. Names and origins follow the values that have them."""
    settled = RenamingPass(graph)
    new = settled.build()
    if all(new[out.value] is out.value for out in graph.outs):
        return graph
    ins, final = own_names([new[out.value] for out in graph.outs])
    becomes = {old: final.get(value, value) for old, value in new.items()}
    if origins is not None:
        for old, origin in tuple(origins.items()):
            origins.setdefault(becomes.get(old, old), origin)
    names: dict[Any, Named] = {}
    for named in graph.names:
        value = becomes.get(named.value)
        if value is not None and value.__class__ not in (Input, Remap):
            names.setdefault(value, Named(named.name, value))
    outs = tuple(Output(out.name, out.axes, becomes[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, tuple(ins.get(x, x) for x in graph.ins), outs, tuple(names.values()))


class RenamingPass:
    """One pass: which renaming each value takes over from its readers, and the values rebuilt under them."""

    def __init__(self, graph: TensorGraph):
        self.flow = Dataflow([out.value for out in graph.outs])
        self.stored = {out.value for out in graph.outs}
        self.taken: dict[Any, Renaming] = {}  # values that are computed under their readers' names
        asked: dict[Any, list[Renaming]] = {}  # what each reader of a value would have it computed under
        for term in reversed(self.flow.order):
            renaming = self._agreed(term, asked.pop(term, []))
            if renaming:
                self.taken[term] = renaming
            for place, operand in enumerate(operands(term)):
                if term.__class__ is Remap:
                    wanted = self._renaming(term, renaming) if place == 0 else {}
                else:
                    wanted = renaming
                asked.setdefault(operand, []).append(wanted)

    def _agreed(self, term: Any, asked: list[Renaming]) -> Renaming:
        """Return the renaming that all consumers of a value need, if the value can be computed so.

        The result also names axes that are reduced below, so that a row and its sum go on to share their names.
        """
        if not asked or not asked[0] or term in self.stored:
            return {}
        first = restricted(asked[0], term)
        if any(restricted(one, term) != first for one in asked[1:]):
            return {}
        if not first and not (term.__class__ in (Reduce, Fold) and asked[0].keys() & set(term.over)):
            return {}
        together: Renaming = {}
        for one in asked:
            together = {**one, **together}
        if term.__class__ in (Reduce, Fold):
            return self._around(term, together)
        if term.__class__ in (Elementwise, Case) or (term.__class__ is Remap and self._renaming(term, {})):
            return together
        return {}

    def _around(self, term: Any, renaming: Renaming) -> Renaming:
        """Return a renaming that captures no axis that is folded: of those, too, or of the others alone; else empty."""
        free = {renaming.get(axis, axis) for axis in axes(term)}
        folded = {renaming.get(axis, axis) for axis in term.over}
        if len(folded) == len(term.over) and not folded & free:
            return renaming
        return {} if free & set(term.over) else {a: e for a, e in renaming.items() if a not in term.over}

    def _renaming(self, term: Any, outer: Renaming) -> Renaming:
        """Return the map of a Remap as a renaming, under the renaming it takes over; empty if it is none."""
        if not renames(term):
            return {}
        mapping = dict(term.map)
        out: dict[Axis, Any] = {a: outer.get(mapping.get(a, a), mapping.get(a, a)) for a in axes(term.x)}
        return {a: e for a, e in {**outer, **out}.items() if e is not a}

    def build(self) -> dict[Any, Any]:
        """Return every value, rebuilt."""
        new: dict[Any, Any] = {}
        for term in self.flow.order:
            new[term] = self._rebuilt(term, self.taken.get(term, {}), new)
            axes(new[term])  # remembered from below: no recursion later
        return new

    def _rebuilt(self, term: Any, renaming: Renaming, new: Mapping[Any, Any]) -> Any:
        def operand(x: Any) -> Any:
            return new[x] if x in self.taken else remap(new[x], restricted(renaming, x))

        kind = term.__class__
        if kind is Elementwise:
            args = tuple(map(operand, term.args))
            return term if args == term.args else Elementwise(term.fn, args)
        if kind is Reduce:
            return Reduce(term.fn, renamed(term.over, renaming), operand(term.x))
        if kind is Fold:
            return Fold(term.part, renamed(term.over, renaming), tuple(map(operand, term.args)))
        if kind is Case:
            return Case(remap_expr(term.cond, renaming), operand(term.a), operand(term.b))
        if kind is Remap:
            if term.x in self.taken and renames(term):  # of one that does not, names of axes folded below alone
                return new[term.x]
            return remap(remap(new[term.x], dict(term.map)), renaming)
        return term


def renames(term: Remap) -> bool:
    """Return whether an index map only gives axes other names."""
    return all(same_extent(axis, image) for axis, image in term.map)


def same_extent(axis: Axis, image: Any) -> bool:
    """Return whether an axis is read along one of the same extent; under a Case it may be a longer one."""
    return isinstance(image, Axis) and image.extent == axis.extent


def renamed(over: tuple[Axis, ...], renaming: Renaming) -> tuple[Axis, ...]:
    """Return folded axes under their new names."""
    return tuple(renaming.get(axis, axis) for axis in over)


def restricted(renaming: Renaming, term: Any) -> Renaming:
    """Return the part of a renaming that concerns a value."""
    own = axes(term)
    return {a: e for a, e in renaming.items() if a in own}


def own_names(roots: list[Any]) -> tuple[dict[Any, Input], dict[Any, Any]]:
    """Return the inputs that are never read plainly, with their first consumers' names, and each value over these."""
    order = postorder(roots)
    plain = {x for term in order for x in operands(term)[term.__class__ is Remap :] if x.__class__ is Input}
    plain.update(roots)
    better: dict[Any, Input] = {}
    for term in order:
        if term.__class__ is Remap and term.x.__class__ is Input and term.x not in plain:
            mapping = dict(term.map)
            names = tuple(mapping.get(a, a) for a in term.x.axes)
            if all(map(same_extent, term.x.axes, names)) and len(set(names)) == len(names):
                better.setdefault(term.x, Input(term.x.name, names, term.x.dtype))
    new: dict[Any, Any] = {x: remap(own, dict(zip(own.axes, x.axes, strict=True))) for x, own in better.items()}
    for term in order:
        if term not in new:
            new[term] = rebuilt(term, lambda x: new.get(x, x))
            axes(new[term])
    return better, new


# ---- The number of elements that a kernel would compute for one element of another value.


Below = dict[Any, frozenset[tuple[Any, ...]]]  # the indices at which each value is read: an expression for each axis


class Places:
    """Indices at which views and others read values, below each term of a kernel. Terms are visited operands first.

    In a chain in which every step reads its predecessor at several indices, the last step reads the first one at
    many. Each index costs a computation of its own, in text and in time.
    """

    def __init__(self, flow: Dataflow, kept: Set[Any]):
        self.flow, self.kept = flow, kept
        self.views: dict[Any, list[dict[Any, Any]]] = {}  # the maps under which a value of several readers is read
        for term in flow.order:
            if term.__class__ is Remap and term.x.__class__ is not Input and len(flow.readers[term.x]) > 1:
                self.views.setdefault(term.x, []).append(dict(term.map))
        self.below: dict[Any, Below] = {}
        self.count: dict[Any, int] = {}

    def visit(self, term: Any) -> None:
        """Count the indices that consumers of a term need.

        The first one counts, and each further index of the term or of a value below it.
        """
        found: Below = {}
        for operand in operands(term):
            if operand not in self.kept:
                places = self.below[operand]
                if operand in self.views:
                    places = {**places, operand: frozenset((axes(operand),))}
                found = _merged(found, _moved(places, dict(term.map)) if term.__class__ is Remap else places)
        self.below[term] = found
        views = self.views.get(term)
        if views is not None:
            everything = {**found, term: frozenset((axes(term),))}
            found = everything if len(views) < len(self.flow.readers[term]) else {}
            for view in views:
                found = _merged(found, _moved(everything, view))
        self.count[term] = 1 + sum(len(places) - 1 for places in found.values())


def _merged(one: Below, other: Below) -> Below:
    """Return the indices of both."""
    if not one or one is other:
        return other
    return {**one, **{value: places | one.get(value, frozenset()) for value, places in other.items()}}


def _moved(below: Below, view: dict[Any, Any]) -> Below:
    """Return the indices as read through a view."""
    through: dict[Any, Any] = {}  # what an expression is under the view: indices of a chain have their parts in common

    def read(e: Any) -> Any:
        if e not in through:
            through[e] = remap_expr(e, view)
        return through[e]

    return {value: frozenset([tuple(map(read, place)) for place in places]) for value, places in below.items()}


# ---- Outputs over the loops of the folds that they are computed from.
#
# A reshape moves nothing: its elements have the memory order of its operand. Where it cuts an axis that a fold
# varies with (the groups of a group norm, say), a loop over the pieces would fold again for each, so the fold's values
# were stored and read again. An output of such a reshape is computed over the axes before the cut; its
# addresses are the same, and the runtime gives results torch's shapes anyway.


MOST = 4  # axes whose orders are tried: 24


def uncut_outputs(graph: TensorGraph) -> TensorGraph:
    """Return the program with outputs over the axes of reductions that a reshape cuts. Offsets in memory stay."""
    values = {out.value for out in graph.outs}
    outs = tuple(_uncut(out, values) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs, graph.names) if outs != graph.outs else graph


def _uncut(out: Output, values: set[Any]) -> Output:
    region = postorder([out.value], _beside)
    for view in region:
        if view.__class__ is Remap and view.x not in values and _cuts_folds(view):
            order = _order(view, out.axes)
            if order is not None:
                return Output(out.name, order, _moved_region(region, _digits(out.axes, order)))
    return out


def _beside(term: Term) -> Sequence[Term]:
    """Return the operands that are computed at the same indices as their consumer."""
    return operands(term) if term.__class__ is Elementwise else ()


def _cuts_folds(view: Remap) -> bool:
    """Return whether a reduction below varies with an axis that the map cuts: a loop over pieces would repeat it."""
    if view.x.__class__ is Input:
        return False
    cut = {axis for axis, e in view.map if isinstance(e, Node) and contents(e) & marks_of(Binary)}
    folds = (term for term in postorder([view.x]) if term.__class__ is Reduce or term.__class__ is Fold)
    return any(not cut.isdisjoint(axes(term)) for term in folds)


def _order(view: Remap, outer: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
    """Return the order of the axes that gives every element the same offset before the cut as after it, or None."""
    own, mapping, wanted = axes(view.x), dict(view.map), _place(outer, {})
    if len(own) > MOST or set(axes(view)) != set(outer) or _elements(own) != _elements(outer):
        return None
    return next((order for order in itertools.permutations(own) if _place(order, mapping) == wanted), None)


def _elements(own: Sequence[Axis]) -> Expr:
    return functools.reduce(multiply, (axis.extent for axis in own), 1)


def _place(order: Sequence[Axis], mapping: dict[Axis, Expr]) -> Expr:
    """Return the offset in memory of an element with its axes in an order, each axis mapped by the view."""
    place: Expr = 0
    for axis in order:
        place = add(multiply(place, axis.extent), mapping.get(axis, axis))
    return simplify(place)


def _digits(outer: Sequence[Axis], order: Sequence[Axis]) -> dict[Axis, Expr]:
    """Return each axis after the cut by those before it."""
    place, stride, digits = _place(order, {}), 1, {}
    for axis in reversed(outer):
        high = operate("//", place, stride)
        digits[axis] = high if axis is outer[0] else operate("%", high, axis.extent)
        stride = multiply(stride, axis.extent)
    return digits


def _moved_region(region: Sequence[Term], digits: dict[Axis, Expr]) -> Term:
    """Return the last value of a region with its axes replaced."""
    new: dict[Any, Term] = {}
    for term in region:
        new[term] = rebuilt(term, new.__getitem__) if term.__class__ is Elementwise else remap(term, digits)
        axes(new[term])  # remembered from below: no recursion later
    return new[region[-1]]


# Results side by side: values that read one computed value at ranges of one of its axes, as q, k, v read one matmul.
#
# Such values share a kernel though their extents differ. It runs over the indices of the whole; what they have in
# common is computed for each, and each value is stored where its own range is.


Range = tuple[Any, int]  # the axis of a value, and the index of the whole where it starts


def translation(e: Any) -> Range | None:
    """Return the axis that an index expression shifts, and by how much; None where it does more."""
    if e.__class__ is Axis:
        return e, 0
    if e.__class__ is Sum and len(e.terms) == 1 and e.terms[0][1] == 1 and e.terms[0][0].__class__ is Axis:
        return e.terms[0][0], e.constant
    return None


def side_by_side(views: Sequence[Mapping[Any, Range]], extents: Mapping[Any, int]) -> tuple[Any, list[Range]] | None:
    """Return the value that several values read at ranges without a gap, and these ranges, or None.

    views: for each value, {the value that it reads at a range: the range}.
    """
    for whole in views[0]:
        found = [view[whole] for view in views if whole in view]
        if len(found) < len(views):
            continue
        ordered = sorted(found, key=lambda part: part[1])
        ends = [start + extents[axis] for axis, start in ordered]
        if ends[:-1] == [start for _, start in ordered[1:]]:
            return whole, found
    return None


@dataclass(frozen=True)
class Parts:
    """The kernel's axis along the whole, and for each value where it finds that and where it is stored."""

    axis: Axis
    places: tuple[Mapping[Axis, Any], ...]  # for each value: {its own axis: its index, over `axis`}
    ranges: tuple[tuple[int, int], ...]


def parts_of(values: Sequence[Any], loops: Sequence[Sequence[Axis]], stored: Container[Any]) -> Parts | None:
    """Return the arrangement of values with these loops side by side, or None. stored: the values read from memory."""
    views = [dict(_views(value, own, stored)) for value, own in zip(values, loops, strict=True)]
    extents = {axis: axis.extent for own in loops for axis in own}
    found = side_by_side(views, extents)
    if found is None:
        return None
    (_, axis), ranges = found
    place = list(loops[0]).index(ranges[0][0])
    others = {tuple(a.extent for a in own if a is not mine) for own, (mine, _) in zip(loops, ranges, strict=True)}
    if len(others) > 1 or any(own[place] is not mine for own, (mine, _) in zip(loops, ranges, strict=True)):
        return None
    least = min(start for _, start in ranges)
    along = Axis(axis.name, sum(extents[mine] for mine, _ in ranges))
    return Parts(
        along,
        tuple({mine: subtract(along, start - least)} for mine, start in ranges),
        tuple((start - least, start - least + extents[mine]) for mine, start in ranges),
    )


def _views(value: Any, loops: Sequence[Axis], stored: Container[Any]) -> Iterable[tuple[Any, Range]]:
    """Return the values that a value reads at a range of one of its own axes, among those that its kernel computes."""
    pending, seen = [value], {value}
    while pending:
        term = pending.pop()
        if term.__class__ is Remap and len(term.map) == 1 and term.x.__class__ is not Input and term.x not in stored:
            ((axis, e),) = term.map
            moved = translation(e)
            if moved is not None and moved[0] in loops:
                yield (term.x, axis), moved
        for operand in operands(term):
            if operand not in stored and operand not in seen:
                seen.add(operand)
                pending.append(operand)
