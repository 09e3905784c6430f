"""Renamings pushed to the leaves, before any rule looks.

Where two values meet, one of them may be read under other axis names: `multiply(exp_1[j], exp_2)`. A renaming costs
nothing, but it stands between an operation and its operand, and a rule that says `multiply(exp(x), exp(y))` would not
see through it. So a value takes the names of its readers, down to what is stored. Where readers ask for different
names it keeps its own: pushing would compute it once for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.compose import rebuilt, remap, remap_expr
from ...ir.expr import Axis
from ...ir.facts.dataflow import Dataflow, topological
from ...ir.facts.index import substitute
from ...ir.tensor import Case, Elementwise, Fold, Input, Named, Output, Reduce, Remap, TensorGraph, Term, axes, operands
from ...ir.torch import TorchOp

Renaming = dict[Axis, Axis]


def push_renamings(graph: TensorGraph, origins: dict[Term, TorchOp] | None = None) -> TensorGraph:
    """The same program with renamings at the leaves. Names and origins follow the values that have them."""
    settled = RenamingPass(graph)
    new = settled.build()
    if all(new[out.value] is out.value for out in graph.outs):
        return graph
    final = own_names(graph.ins, [new[out.value] for out in graph.outs])
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
    return TensorGraph(graph.name, tuple(final.get(x, x) for x in graph.ins), outs, tuple(names.values()))


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
        """The renaming that all readers of a value ask for, if it can be computed so. Names of axes that are folded
        below come along, so that a row and its sum go on to share their names.
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
        """A renaming that captures no axis that is folded: of those, too, or of the others alone; else empty."""
        free = {renaming.get(axis, axis) for axis in axes(term)}
        folded = {renaming.get(axis, axis) for axis in term.over}
        if len(folded) == len(term.over) and not folded & free:
            return renaming
        return {} if free & set(term.over) else {a: e for a, e in renaming.items() if a not in term.over}

    def _renaming(self, term: Any, outer: Renaming) -> Renaming:
        """The map of a Remap as a renaming, under the renaming it takes over; empty if it is none."""
        if not renames(term):
            return {}
        mapping = dict(term.map)
        out: dict[Axis, Any] = {a: outer.get(mapping.get(a, a), mapping.get(a, a)) for a in axes(term.x)}
        return {a: e for a, e in {**outer, **out}.items() if e is not a}

    def build(self) -> dict[Any, Any]:
        """Every value, rebuilt."""
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
    """Whether an index map only gives axes other names."""
    return all(same_extent(axis, image) for axis, image in term.map)


def same_extent(axis: Axis, image: Any) -> bool:
    """Under a Case a value may be read along a longer axis: that is not a renaming."""
    return isinstance(image, Axis) and image.extent == axis.extent


def renamed(over: tuple[Axis, ...], renaming: Renaming) -> tuple[Axis, ...]:
    """Folded axes under their new names."""
    return tuple(renaming.get(axis, axis) for axis in over)


def restricted(renaming: Renaming, term: Any) -> Renaming:
    """The part of a renaming that concerns a value."""
    own = axes(term)
    return {a: e for a, e in renaming.items() if a in own}


def own_names(ins: tuple[Input, ...], roots: list[Any]) -> dict[Any, Any]:
    """What becomes of each value when an input that is never read plainly takes the names of its first reader."""
    order = topological(roots)
    plain = {x for term in order for x in operands(term)[term.__class__ is Remap :] if x.__class__ is Input}
    plain.update(roots)
    better: dict[Any, Input] = {}
    for term in order:
        if term.__class__ is Remap and term.x.__class__ is Input and term.x not in plain:
            mapping = dict(term.map)
            names = tuple(mapping.get(a, a) for a in term.x.axes)
            if all(map(same_extent, term.x.axes, names)) and len(set(names)) == len(names):
                better.setdefault(term.x, Input(term.x.name, names, term.x.dtype))
    new: dict[Any, Any] = {x: better.get(x, x) for x in ins}
    for term in order:
        new[term] = _over_inputs(term, better, new)
        axes(new[term])
    return new


def _over_inputs(term: Any, better: Mapping[Any, Input], new: Mapping[Any, Any]) -> Any:
    def now(x: Any) -> Any:
        return new.get(x, x)

    source = better.get(term.x) if term.__class__ is Remap else None
    if source is not None:
        mapping = {a: substitute(e, {}, now) for a, e in term.map}
        return remap(source, {b: mapping.get(a, a) for a, b in zip(term.x.axes, source.axes, strict=True)})
    return better.get(term, term) if term.__class__ is Input else rebuilt(term, now)
