"""A region as plain data: terms as tuples over numbered leaves and axes, equal for regions of equal structure.

An axis is a bit of a mask. What an e-graph need not look into (index maps, conditions, gathers) is numbered: equal
numbers mean equal forms. So one solution serves every region with the same key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...ir import compose
from ...ir.expr import Axis
from ...ir.facts.dataflow import structure_of
from ...ir.functions import FUNCTIONS
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
    postorder,
)
from ..cost.kernel_estimate import bits
from ..facts.tensor import is_one_over
from ..kernels.index_maps import translation
from ..rewrite.terms.rewriter import find_packs
from .rules_as_egglog import number_text

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

    mask: axes that the form itself brings. shift: of a map that reads a
    range of one axis, (that axis, the axis it is read under, where the range starts).
    """

    kind: str
    spelled: Any
    images: tuple[tuple[int, int], ...] = ()
    mask: int = 0
    shift: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Pack:
    """Weight packed with its siblings.

    The fields are the nodes of the weight and of the whole, the summed axes, and the map of the weight's part.
    """

    weight: int
    over: int
    whole: int
    places: int


@dataclass(frozen=True)
class Mean:
    """Number that is one over the number of elements along some axes, and the map that reads the first element."""

    number: int
    over: int
    first: int


@dataclass
class Problem:
    """Region as plain data.

    nodes: its terms, operands first; roots: the terms that others read, of which the `fixed` ones have a buffer of
    their own. extents: the extent of each axis; dtypes, masks: of every node.
    """

    nodes: list[ENode] = field(default_factory=list)
    roots: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    leaves: list[Leaf] = field(default_factory=list)
    forms: list[IndexForm] = field(default_factory=list)
    extents: dict[int, int] = field(default_factory=dict)
    dtypes: list[str] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    # the meaning of the numbers; not part of the key
    terms: list[Term] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    leaf_terms: list[Term] = field(default_factory=list)
    makers: list[Callable[[list[Any], Problem], Term]] = field(default_factory=list)

    @functools.cached_property
    def structure(self) -> Any:
        """All that rules look at but for extents: what a form says inside is none of it."""
        forms = tuple((form.kind, form.images, form.mask) for form in self.forms)
        axes = tuple(self.extents)
        nodes, leaves, packs = tuple(self.nodes), tuple(self.leaves), (*self.packs, *self.means)
        return nodes, tuple(self.dtypes), self.roots, self.fixed, leaves, forms, axes, packs

    @functools.cached_property
    def key(self) -> Any:
        """Equal for regions that have one solution."""
        return self.structure, tuple(form.spelled for form in self.forms), tuple(self.extents.values())

    def size(self, mask: int) -> int:
        """Return the elements of a value over these axes."""
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

        for term in postorder(roots, below):
            self.add(term, term in wanted)
        self.packs(roots)
        self.means()
        self.problem.fixed = tuple(sorted({self.numbers[root] for root in roots if root in fixed}))
        self.problem.roots = tuple(dict.fromkeys(self.numbers[root] for root in roots))

    def packs(self, roots: Sequence[Term]) -> None:
        """Add weights side by side, as leaves of their own."""
        nodes = zip(self.problem.nodes, self.problem.terms, strict=True)
        inside = tuple(term for node, term in nodes if node[0] != "Leaf")
        for (w, over), found in find_packs(roots, self.known, inside).items():
            if found.whole not in self.numbers:
                self.put(self.leaf(found.whole, known=True), found.whole)
            places = self.places_form(dict(found.places))
            pack = Pack(self.numbers[w], self.mask(over), self.numbers[found.whole], places)
            self.problem.packs.append(pack)

    def means(self) -> None:
        """Record numbers that convert sums to means."""
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
            self.problem.masks.append(self.mask(axes(term)))
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
        spelled = (kind.__name__, self.spell(tuple(getattr(term, f.name) for f in kind.fields), numbers))
        images: tuple[tuple[int, int], ...] = ()
        if kind is Remap:
            images = tuple((self.axis(a), self.mask(index_axes(e))) for a, e in term.map)
        form = IndexForm("Op", spelled, images, self.mask(axes(term)))

        def make(args: list[Any], _: Problem) -> Term:
            new = dict(zip(below, args, strict=True))
            return compose.rebuilt(term, lambda x: new.get(x, x))

        return self.form(form, make)

    def spell(self, e: Any, numbers: Mapping[Any, int] = MappingProxyType({})) -> Any:
        """Return an index expression with axes and operands by number."""

        def stand_in(part: Any) -> Any:
            if part.__class__ is Axis:
                return "axis", self.axis(part)
            return ("operand", numbers[part]) if part in numbers else None

        return structure_of(e, stand_in)


# ---- An e-graph as plain Python data, read back from egglog: classes by small numbers, the same in every run.


# constructor: sorts of its attributes, number of operands
CONSTRUCTORS: dict[str, tuple[tuple[str, ...], int]] = {
    "E1": (("String",), 1), "E2": (("String",), 2), "E3": (("String",), 3),
    "Red": (("String", "i64"), 1), "Map": (("i64",), 1), "Case": (("i64",), 2),
    "F1": (("String", "i64"), 1), "F2": (("String", "i64"), 2), "F3": (("String", "i64"), 3),
    **{f"O{n}": (("i64",), n) for n in range(MOST_OPERANDS + 1)},
    "Leaf": (("i64",), 0), "Num": (("String", "String"), 0),
}  # fmt: skip


LISTS = {"E": "E", "Op": "O", "Fold": "F"}  # constructors with a number of operands in their name


@dataclass(frozen=True)
class Stop:
    """End of a saturation: `saturated`, or the budget that ran out. rows: e-nodes before twins are merged."""

    reason: str
    iterations: int
    rows: int
    seconds: float


@dataclass
class EGraph:
    """E-graph of a region after saturation.

    classes: the spellings of each class, the original one first; of: {node of the problem: class}.
    mask, dtype: of each class; known: the classes that loading computes. fired: rules that matched.
    """

    problem: Problem
    stop: Stop | None
    classes: list[list[ENode]]
    mask: list[int]
    dtype: list[str]
    known: frozenset[int]
    of: tuple[int, ...]
    fired: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.of[root] for root in self.problem.roots))

    @property
    def enodes(self) -> int:
        return sum(map(len, self.classes))

    def spelled(self, node: ENode) -> ENode:
        """Return a node of the problem as an e-node."""
        op, attributes, children = node
        return sorted_operands((op, attributes, tuple(self.of[c] for c in children)))


def sorted_operands(node: ENode) -> ENode:
    """Return a node with sorted operands if it commutes: twins under commutativity are one e-node."""
    op, attributes, children = node
    if op == "E" and len(children) == 2 and FUNCTIONS[attributes[0]].commutative:
        return op, attributes, (min(children), max(children))
    return node


def as_written(problem: Problem) -> EGraph:
    """Return the e-graph of a problem without any rule: each node is a class."""
    known: set[int] = set()
    for place, (op, attributes, children) in enumerate(problem.nodes):
        is_leaf = op == "Leaf" and problem.leaves[attributes[0]].known
        below = op in ("E", "Red", "Map") and all(c in known or problem.nodes[c][0] == "Num" for c in children)
        if is_leaf or (below and any(c in known for c in children)):
            known.add(place)
    classes = [[sorted_operands(node)] for node in problem.nodes]
    places = tuple(range(len(classes)))
    return EGraph(problem, None, classes, list(problem.masks), list(problem.dtypes), frozenset(known), places)


def read_back(graph: Any, problem: Problem, stop: Stop, fired: tuple[str, ...]) -> EGraph:
    """Return the tables of an egglog e-graph. Classes are numbered from the program's nodes outwards."""
    tables = graph.freeze().functions
    text, integer = functools.cache(graph.value_to_string), functools.cache(graph.value_to_i64)

    def attribute(value: Any, sort: str) -> Any:
        return (text if sort == "String" else integer)(value)

    rows: dict[Any, list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]] = {}
    for name, (sorts, _) in CONSTRUCTORS.items():
        op = {text: op for op, text in LISTS.items()}.get(name[:-1], name)
        for row in tables[name].rows:
            attributes = tuple(attribute(v, sort) for v, sort in zip(row.inputs, sorts))
            rows.setdefault(row.output, []).append((op, attributes, tuple(row.inputs[len(sorts) :])))
    named = {name: table.rows[0].output for name, table in tables.items() if table.is_let_binding}
    original = [named[f"$t{place}"] for place in range(len(problem.nodes))]
    number = _numbered(rows, original)
    classes: list[list[ENode]] = [[] for _ in number]
    for value, place in number.items():
        spelled = {sorted_operands((op, at, tuple(number[c] for c in below))) for op, at, below in rows[value]}
        classes[place] = sorted(spelled, key=repr)
    of = tuple(number[value] for value in original)
    for place, node in enumerate(problem.nodes):  # the original spelling first
        mine = sorted_operands((node[0], node[1], tuple(of[c] for c in node[2])))
        others = classes[of[place]]
        classes[of[place]] = [mine, *(other for other in others if other != mine)]
    masks, kinds = [0] * len(number), ["f32"] * len(number)
    for row in tables["axes"].rows:
        masks[number[row.inputs[0]]] = graph.value_to_i64(row.output)
    for row in tables["dtype"].rows:
        kinds[number[row.inputs[0]]] = attribute(row.output, "String")
    known = frozenset(number[row.inputs[0]] for row in tables["known"].rows)
    return EGraph(problem, stop, classes, masks, kinds, known, of, fired)


def _numbered(rows: dict[Any, list[Any]], original: list[Any]) -> dict[Any, int]:
    """Return small numbers for classes: the program's in its order, then those above them by their spelling."""
    number: dict[Any, int] = {}
    for value in original:
        number.setdefault(value, len(number))
    waiting = {value: spelled for value, spelled in rows.items() if value not in number}
    while waiting:
        ready: list[tuple[Any, Any]] = []
        for value, spelled in waiting.items():
            known = [
                sorted_operands((op, at, tuple(number[c] for c in below)))
                for op, at, below in spelled
                if all(c in number for c in below)
            ]
            forms = [(op, tuple(map(repr, at)), below) for op, at, below in known]
            if forms:
                ready.append((min(forms), value))
        if not ready:
            break
        ready.sort(key=lambda pair: pair[0])
        for _, value in ready:
            number[value] = len(number)
            del waiting[value]
    return number
