"""A region as plain data: terms as tuples over numbered leaves and axes, equal for regions of equal structure.

An axis is a bit of a mask. What an e-graph need not look into (index maps, conditions, gathers) is numbered: equal
numbers mean equal forms. So one solution serves every region with the same key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir import compose
from ...ir.expr import Axis
from ...ir.facts.dataflow import topological
from ...ir.node import Node
from ...ir.sizes import has_sizes
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Reduce,
    Remap,
    Term,
    axes,
    dtype,
    index_axes,
    operands,
)
from ..cost.kernel_estimate import bits
from ..facts.tensor import is_one_over
from ..kernels.parts import translation
from ..rewrite.terms.packs import find_packs
from .export import number_text

# An e-node: (constructor, attributes, operands). E: (fn,), one to three operands; Red: (fn, mask); Map, Case, Op: the
# number of a form; Num: (text, dtype); Leaf: (number,).
ENode = tuple[str, tuple[Any, ...], tuple[int, ...]]
MOST_AXES = 62
MOST_OPERANDS = 7  # of an operation that is none of these: three terms of a recurrence


class RegionTooLarge(Exception):
    """A region that has no form here; the message says what is too many."""


@dataclass(frozen=True)
class Leaf:
    """A stored value or an index. axes: masks in memory order; memory: whether reading it is reading memory."""

    axes: tuple[int, ...]
    dtype: str
    known: bool
    memory: bool

    @property
    def mask(self) -> int:
        return sum(self.axes)


@dataclass(frozen=True)
class IndexForm:
    """An index map, a condition or another form. images: {axis of the operand: mask it is read under}.

    mask: axes that the form itself brings. gathers: whether data decides what is read. shift: of a map that reads a
    range of one axis, (that axis, the axis it is read under, where the range starts).
    """

    kind: str
    spelled: Any
    images: tuple[tuple[int, int], ...] = ()
    mask: int = 0
    gathers: bool = False
    shift: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Pack:
    """A weight beside its siblings: the nodes of the weight and of the whole, what is summed, the map of its part."""

    weight: int
    over: int
    whole: int
    places: int


@dataclass(frozen=True)
class Mean:
    """A number that is one over how many places some axes have, and the map that reads the first element along them."""

    number: int
    over: int
    first: int


@dataclass
class Problem:
    """One region. nodes: its terms, operands first; roots: those that others read, of which the `fixed` ones have a
    buffer of their own. extents: {axis: places}; dtypes: of every node.
    """

    nodes: list[ENode] = field(default_factory=list)
    roots: tuple[int, ...] = ()
    fixed: frozenset[int] = frozenset()
    leaves: list[Leaf] = field(default_factory=list)
    forms: list[IndexForm] = field(default_factory=list)
    extents: dict[int, int] = field(default_factory=dict)
    dtypes: list[str] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    # what the numbers stand for; no part of the key
    terms: list[Term] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    leaf_terms: list[Term] = field(default_factory=list)
    makers: list[Callable[[list[Any], Problem], Term]] = field(default_factory=list)

    @functools.cached_property
    def structure(self) -> Any:
        """All that rules look at but for extents: what a form says inside is none of it."""
        forms = tuple((form.kind, form.images, form.mask, form.gathers) for form in self.forms)
        axes = tuple(self.extents)
        nodes, leaves, packs = tuple(self.nodes), tuple(self.leaves), (*self.packs, *self.means)
        return nodes, tuple(self.dtypes), self.roots, self.fixed, leaves, forms, axes, packs

    @functools.cached_property
    def key(self) -> Any:
        """Equal for regions that have one solution."""
        return self.structure, tuple(form.spelled for form in self.forms), tuple(self.extents.values())

    def size(self, mask: int) -> int:
        """The elements of a value over these axes."""
        return math.prod(self.extents[bit] for bit in bits(mask))


class Reader:
    """Reads a region: what is below `roots`, down to leaves. stored: values that others write for it."""

    def __init__(self, roots: Sequence[Term], stored: Any, known: Any, fixed: Any = ()):
        self.problem = Problem()
        self.stored, self.known = stored, known
        self.bits: dict[Axis, int] = {}
        self.numbers: dict[Any, int] = {}
        self.form_numbers: dict[Any, int] = {}
        self.enodes: dict[ENode, int] = {}
        wanted = set(roots)

        def below(term: Any) -> Sequence[Any]:
            return () if self.is_leaf(term) and term not in wanted else operands(term)

        for term in topological(roots, below):
            self.add(term, term in wanted)
        self.packs(roots)
        self.means()
        self.problem.fixed = frozenset(self.numbers[root] for root in roots if root in fixed)
        self.problem.roots = tuple(dict.fromkeys(self.numbers[root] for root in roots))

    def packs(self, roots: Sequence[Term]) -> None:
        """Weights side by side, as leaves of their own."""
        nodes = zip(self.problem.nodes, self.problem.terms, strict=True)
        inside = tuple(term for node, term in nodes if node[0] != "Leaf")
        for (w, over), found in find_packs(roots, self.known, inside).items():
            if found.whole not in self.numbers:
                self.put(self.leaf(found.whole, known=True), found.whole)
            places = self.places_form(dict(found.places))
            pack = Pack(self.numbers[w], self.mask(over), self.numbers[found.whole], places)
            self.problem.packs.append(pack)

    def means(self) -> None:
        """Numbers that make means of sums."""
        masks = dict.fromkeys(node[1][1] for node in self.problem.nodes if node[0] == "Red")
        for number, (node, term) in enumerate(zip(self.problem.nodes, self.problem.terms, strict=True)):
            for mask in masks if node[0] == "Num" else ():
                if is_one_over(term.value, self.problem.size(mask)):  # type: ignore[attr-defined]
                    first = self.places_form({self.problem.axes[bit.bit_length() - 1]: 0 for bit in bits(mask)})
                    self.problem.means.append(Mean(number, mask, first))

    def is_leaf(self, term: Any) -> bool:
        return term.__class__ is Input or term in self.stored or (term.__class__ is Index and not operands(term))

    def axis(self, axis: Axis) -> int:
        bit = self.bits.get(axis)
        if bit is None:
            if len(self.bits) >= MOST_AXES:
                raise RegionTooLarge(f"a part of it has more than {MOST_AXES} axes")
            bit = self.bits[axis] = 1 << len(self.bits)
            self.problem.axes.append(axis)
            if has_sizes(axis.extent):
                raise RegionTooLarge("a length of it is known at a call only, and exploration counts elements")
            self.problem.extents[bit] = int(axis.extent)
        return bit

    def mask(self, found: Any) -> int:
        mask = 0
        for axis in found:
            mask |= self.axis(axis)
        return mask

    def add(self, term: Any, root: bool) -> int:
        node = self.leaf(term) if self.is_leaf(term) and not (root and term in self.stored) else None
        return self.put(self.node(term) if node is None else node, term)

    def put(self, node: ENode, term: Term) -> int:
        number = self.enodes.get(node)
        if number is None:
            number = self.enodes[node] = len(self.problem.nodes)
            self.problem.nodes.append(node)
            self.problem.terms.append(term)
            self.problem.dtypes.append(dtype(term))
        self.numbers[term] = number
        return number

    def leaf(self, term: Any, known: bool = False) -> ENode:
        known = known or (term.__class__ is Input and term.name in self.known)
        memory = term.__class__ is not Index
        order = tuple(self.axis(axis) for axis in axes(term))
        number = len(self.problem.leaves)
        self.problem.leaves.append(Leaf(order, dtype(term), known, memory))
        self.problem.leaf_terms.append(term)
        return "Leaf", (number,), ()

    def node(self, term: Any) -> ENode:
        kind, at = term.__class__, self.numbers
        if kind is Const:
            return "Num", (number_text(term.value), term.dtype), ()
        if kind is Elementwise and len(term.args) <= 3:
            return "E", (term.fn,), tuple(at[x] for x in term.args)
        if kind is Reduce:
            return "Red", (term.fn, self.mask(term.over)), (at[term.x],)
        if kind is Fold:
            return "Fold", (term.part, self.mask(term.over)), tuple(at[x] for x in term.args)
        below = operands(term)
        if kind is Remap and len(below) == 1:
            return "Map", (self.map_form(term),), (at[term.x],)
        if kind is Case and set(below) <= {term.a, term.b}:
            return "Case", (self.case_form(term.cond),), (at[term.a], at[term.b])
        if len(below) > MOST_OPERANDS:
            raise RegionTooLarge(f"an operation of it reads {len(below)} values, more than {MOST_OPERANDS}")
        return "Op", (self.other_form(term, below),), tuple(at[x] for x in below)

    # ---- forms
    def form(self, form: IndexForm, maker: Callable[[list[Any], Problem], Term]) -> int:
        number = self.form_numbers.get(form)
        if number is None:
            number = self.form_numbers[form] = len(self.problem.forms)
            self.problem.forms.append(form)
            self.problem.makers.append(maker)
        return number

    def map_form(self, term: Remap) -> int:
        return self.places_form(dict(term.map))

    def places_form(self, mapping: dict[Axis, Any]) -> int:
        images = tuple((self.axis(a), self.mask(index_axes(e))) for a, e in mapping.items())
        spelled = tuple((self.axis(a), self.spell(e)) for a, e in mapping.items())
        shift = None
        for axis, e in mapping.items():
            moved = translation(e) if len(mapping) == 1 else None
            shift = moved and (self.axis(axis), self.axis(moved[0]), moved[1])
        return self.form(
            IndexForm("Map", spelled, images, shift=shift), lambda args, _: compose.remap(args[0], mapping)
        )

    def case_form(self, cond: Any) -> int:
        form = IndexForm("Case", self.spell(cond), mask=self.mask(index_axes(cond)))
        return self.form(form, lambda args, _: Case(cond, *args))

    def other_form(self, term: Any, below: tuple[Term, ...]) -> int:
        numbers = {x: place for place, x in enumerate(below)}
        kind = term.__class__
        spelled = (kind.__name__, self.spell([getattr(term, f.name) for f in kind.fields], numbers))
        images: tuple[tuple[int, int], ...] = ()
        if kind is Remap:
            images = tuple((self.axis(a), self.mask(index_axes(e))) for a, e in term.map)
        form = IndexForm("Op", spelled, images, self.mask(axes(term)), gathers=True)

        def make(args: list[Any], _: Problem) -> Term:
            new = dict(zip(below, args, strict=True))
            return compose.rebuilt(term, lambda x: new.get(x, x))

        return self.form(form, make)

    def spell(self, e: Any, operands_: dict[Any, int] | None = None) -> Any:
        """An index expression with axes and operands by number."""
        if e.__class__ is Axis:
            return ("axis", self.axis(e))
        if isinstance(e, (tuple, list)):
            return tuple(self.spell(x, operands_) for x in e)
        if operands_ is not None and e in operands_:
            return ("operand", operands_[e])
        if isinstance(e, Node):
            return (type(e).__name__, *(self.spell(getattr(e, f.name), operands_) for f in type(e).fields))
        return (type(e).__name__, repr(e))
