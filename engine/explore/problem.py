"""A region as plain data: terms as tuples over numbered leaves and axes, equal for regions of equal structure.

An axis is a bit of a mask. What an e-graph need not look into (index maps, conditions, gathers) is numbered: equal
numbers mean equal forms. So one solution serves every region with the same key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...ir import compose
from ...ir.expr import Axis
from ...ir.facts.dataflow import structure_of
from ...ir.functions import FUNCTIONS
from ...ir.node import immutable
from ...ir.sizes import has_sizes
from ...ir.tensor import (
    AxisMap,
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
from ..facts.tensor import first_along, one_over
from ..kernels.index_maps import translation
from ..rewrite.terms.rewriter import find_packs

# An e-node: (constructor, attributes, operands). E: (fn,), one to three operands; Red: (fn, mask); Map, Case, Op: the
# number of a form; Num: (text, dtype); Leaf: (number,).
Attribute = Any  # of an e-node: a text or a number, as its constructor says
ENode = tuple[str, tuple[Attribute, ...], tuple[int, ...]]
Maker = Callable[[list[Term]], Term]
MOST_AXES = 62
MOST_OPERANDS = 7  # of an operation that is none of these: three terms of a recurrence


class RegionTooLarge(Exception):
    """A region that has no form here; the message says what is too many."""


class Leaf(NamedTuple):
    """A stored value or an index. axes: masks in memory order; memory: whether reading it is reading memory."""

    axes: tuple[int, ...]
    dtype: str
    known: bool
    memory: bool

    @property
    def mask(self) -> int:
        return sum(self.axes)


@immutable
class IndexForm:
    """An index map, a condition or another form. images: {axis of the operand: mask it is read under}.

    mask: axes that the form itself brings. make: the term of this form over given operands. shift: of a map that reads
    a range of one axis, (that axis, the axis it is read under, where the range starts).
    """

    kind: str
    spelled: Hashable
    make: Maker = field(compare=False)
    images: tuple[tuple[int, int], ...]
    mask: int
    shift: tuple[int, int, int] | None


class Pack(NamedTuple):
    """Weight packed with its siblings.

    The fields are the nodes of the weight and of the whole, the summed axes, and the map of the weight's part.
    """

    weight: int
    over: int
    whole: int
    places: int


class Mean(NamedTuple):
    """Number that is one over the number of elements along some axes, and the map that reads the first element."""

    number: int
    over: int
    first: int


@dataclass
class Problem:
    """Region as plain data.

    nodes: its terms, operands first; roots: the terms that others read, of which the `fixed` ones have a buffer of
    their own. extents: the extent of each axis; dtypes, masks: of every node. The meaning of the numbers, which is not
    part of the key: terms (of the nodes), axes, leaf_terms.
    """

    nodes: tuple[ENode, ...]
    roots: tuple[int, ...]
    fixed: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    forms: tuple[IndexForm, ...]
    extents: dict[int, int]
    dtypes: tuple[str, ...]
    masks: tuple[int, ...]
    packs: tuple[Pack, ...]
    means: tuple[Mean, ...]
    terms: tuple[Term, ...]
    axes: tuple[Axis, ...]
    leaf_terms: tuple[Term, ...]

    @functools.cached_property
    def structure(self) -> Hashable:
        """All that rules look at but for extents: what a form says inside is none of it."""
        forms = tuple((form.kind, form.images, form.mask) for form in self.forms)
        axes, packs = tuple(self.extents), (*self.packs, *self.means)
        return self.nodes, self.dtypes, self.roots, self.fixed, self.leaves, forms, axes, packs

    @functools.cached_property
    def key(self) -> Hashable:
        """Equal for regions that have one solution."""
        return self.structure, tuple(form.spelled for form in self.forms), tuple(self.extents.values())

    def size(self, mask: int) -> int:
        """Return the elements of a value over these axes."""
        return math.prod(extent for bit, extent in self.extents.items() if bit & mask)


def number_text(value: float) -> str:
    """Return the text of a number in the e-graph: equal numbers have one text, truth values `true` or `false`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if float(value) == value or value != value else str(value)


class Reader:
    """Reads a region: what is below `roots`, down to leaves. stored: values that others write for it."""

    def __init__(self, roots: Sequence[Term], stored: Set[Term], known: Collection[str], fixed: Collection[Term] = ()):
        self.known = known
        self.bits: dict[Axis, int] = {}
        self.leaves: dict[Term, Leaf] = {}
        self.forms: dict[IndexForm, int] = {}
        self.nodes: dict[ENode, Term] = {}  # of several terms the first one
        self.numbers: dict[Term, int] = {}
        written = stored - set(roots)

        def is_leaf(term: Term) -> bool:
            return term.__class__ is Input or term in written or (term.__class__ is Index and not operands(term))

        for term in postorder(roots, lambda term: () if is_leaf(term) else operands(term)):
            self.put(self.leaf(term) if is_leaf(term) else self.node(term), term)
        packs, means = tuple(self.packs()), tuple(self.means())
        terms = tuple(self.nodes.values())
        self.problem = Problem(
            tuple(self.nodes),
            tuple(dict.fromkeys(self.numbers[root] for root in roots)),
            tuple(sorted({self.numbers[root] for root in roots if root in fixed})),
            tuple(self.leaves.values()),
            tuple(self.forms),
            {bit: int(axis.extent) for axis, bit in self.bits.items()},
            tuple(map(dtype, terms)),
            tuple(self.mask(axes(term)) for term in terms),
            packs,
            means,
            terms,
            tuple(self.bits),
            tuple(self.leaves),
        )

    def packs(self) -> Iterator[Pack]:
        """Yield weights side by side, which become leaves of their own."""
        inside = tuple(term for node, term in self.nodes.items() if node[0] != "Leaf")
        for (weight, over), found in find_packs(inside, self.known).items():
            if found.whole not in self.numbers:
                self.put(self.leaf(found.whole, known=True), found.whole)
            places = self.map_form(found.places)
            yield Pack(self.numbers[weight], self.mask(over), self.numbers[found.whole], places)

    def means(self) -> Iterator[Mean]:
        """Yield numbers that convert sums to means."""
        masks = dict.fromkeys(attributes[1] for op, attributes, _ in self.nodes if op == "Red")
        folded = {mask: tuple(axis for axis, bit in self.bits.items() if bit & mask) for mask in masks}
        for number, term in enumerate(self.nodes.values()):
            for mask, over in folded.items():
                if one_over(term, over):
                    yield Mean(number, mask, self.map_form(first_along(over)))

    def axis(self, axis: Axis) -> int:
        if axis not in self.bits:
            if len(self.bits) >= MOST_AXES:
                raise RegionTooLarge(f"a part of it has more than {MOST_AXES} axes")
            if has_sizes(axis.extent):
                raise RegionTooLarge("a length of it is known at a call only, and exploration counts elements")
            self.bits[axis] = 1 << len(self.bits)
        return self.bits[axis]

    def mask(self, found: Iterable[Axis]) -> int:
        return sum(map(self.axis, dict.fromkeys(found)))

    def put(self, node: ENode, term: Term) -> None:
        """Give a term the number of its node."""
        first = self.nodes.setdefault(node, term)
        self.numbers[term] = self.numbers.get(first, len(self.nodes) - 1)

    def leaf(self, term: Term, known: bool = False) -> ENode:
        known = known or (term.__class__ is Input and term.name in self.known)
        order = tuple(map(self.axis, axes(term)))
        self.leaves[term] = Leaf(order, dtype(term), known, term.__class__ is not Index)
        return "Leaf", (len(self.leaves) - 1,), ()

    def node(self, term: Any) -> ENode:
        kind, below = term.__class__, operands(term)
        attributes: tuple[Attribute, ...]
        if kind is Const:
            op, attributes = "Num", (number_text(term.value), term.dtype)
        elif kind is Elementwise and len(below) <= 3:
            op, attributes = "E", (term.fn,)
        elif kind is Reduce:
            op, attributes = "Red", (term.fn, self.mask(term.over))
        elif kind is Fold:
            op, attributes = "Fold", (term.part, self.mask(term.over))
        elif kind is Remap and len(below) == 1:
            op, attributes = "Map", (self.map_form(term.map),)
        elif kind is Case and set(below) <= {term.a, term.b}:
            brings, below = index_axes(term.cond), (term.a, term.b)
            number = self.form("Case", self.spell(term.cond), lambda args: Case(term.cond, *args), brings=brings)
            op, attributes = "Case", (number,)
        elif len(below) <= MOST_OPERANDS:
            name, *parts = self.spell(term, below)
            number = self.form(
                "Op",
                (name, tuple(parts)),
                lambda args: compose.rebuilt(term, dict(zip(below, args, strict=True)).__getitem__),
                term.map if kind is Remap else (),
                axes(term),
            )
            op, attributes = "Op", (number,)
        else:
            raise RegionTooLarge(f"an operation of it reads {len(below)} values, more than {MOST_OPERANDS}")
        return op, attributes, tuple(self.numbers[x] for x in below)

    # ---- forms
    def form(self, kind: str, spelled: Hashable, make: Maker, pairs: AxisMap = (), brings: Iterable[Axis] = ()) -> int:
        """Return the number of a form. pairs: of an index map; brings: the axes that the form itself brings."""
        images = tuple((self.axis(axis), self.mask(index_axes(e))) for axis, e in pairs)
        moved = translation(pairs[0][1]) if len(pairs) == 1 else None
        shift = moved and (*images[0], moved[1])
        form = IndexForm(kind, spelled, make, images, self.mask(brings), shift)
        return self.forms.setdefault(form, len(self.forms))

    def map_form(self, pairs: AxisMap) -> int:
        spelled = tuple((self.axis(axis), self.spell(e)) for axis, e in pairs)
        return self.form("Map", spelled, lambda args: compose.remap(args[0], dict(pairs)), pairs)

    def spell(self, e: Any, below: tuple[Term, ...] = ()) -> Any:
        """Return an index expression with axes and operands by number."""
        numbers = {x: place for place, x in enumerate(below)}

        def stand_in(part: Any) -> Any:
            if part.__class__ is Axis:
                return "axis", self.axis(part)
            return ("operand", numbers[part]) if part in numbers else None

        return structure_of(e, stand_in)


# ---- An e-graph as plain Python data, read back from egglog: classes by small numbers, the same in every run.


# constructor: sorts of its attributes, number of operands
CONSTRUCTORS: dict[str, tuple[tuple[str, ...], int]] = {
    **{f"E{n}": (("String",), n) for n in (1, 2, 3)},
    "Red": (("String", "i64"), 1), "Map": (("i64",), 1), "Case": (("i64",), 2),
    **{f"F{n}": (("String", "i64"), n) for n in (1, 2, 3)},
    **{f"O{n}": (("i64",), n) for n in range(MOST_OPERANDS + 1)},
    "Leaf": (("i64",), 0), "Num": (("String", "String"), 0),
}  # fmt: skip


LISTS = {"E": "E", "Op": "O", "Fold": "F"}  # constructors with a number of operands in their name


@immutable
class Stop:
    """End of a saturation: `saturated`, or the budget that ran out. rows: e-nodes before twins are merged."""

    reason: str
    iterations: int
    rows: int


@dataclass
class EGraph:
    """E-graph of a region after saturation.

    classes: the spellings of each class, the original one first; of: {node of the problem: class}.
    mask, dtype: of each class; known: the classes that loading computes. fired: rules that matched.
    """

    problem: Problem
    stop: Stop | None
    classes: list[list[ENode]]
    mask: Sequence[int]
    dtype: Sequence[str]
    known: frozenset[int]
    of: tuple[int, ...]
    fired: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.of[root] for root in self.problem.roots))

    def spelled(self, node: ENode) -> ENode:
        """Return a node of the problem as an e-node."""
        return _over(node, self.of)


def sorted_operands(node: ENode) -> ENode:
    """Return a node with sorted operands if it commutes: twins under commutativity are one e-node."""
    op, attributes, children = node
    if op == "E" and len(children) == 2 and FUNCTIONS[attributes[0]].commutative:
        return op, attributes, tuple(sorted(children))
    return node


def _over(node: tuple[str, tuple[Any, ...], tuple[Any, ...]], number: Mapping[Any, int] | Sequence[int]) -> ENode:
    """Return a node over the numbers of its operands."""
    op, attributes, children = node
    return sorted_operands((op, attributes, tuple(number[child] for child in children)))


def as_written(problem: Problem) -> EGraph:
    """Return the e-graph of a problem without any rule: each node is a class."""
    known: set[int] = set()
    for place, (op, attributes, children) in enumerate(problem.nodes):
        values = [child for child in children if problem.nodes[child][0] != "Num"]
        computed = op in ("E", "Red", "Map") and values and known.issuperset(values)
        if computed or (op == "Leaf" and problem.leaves[attributes[0]].known):
            known.add(place)
    classes = [[sorted_operands(node)] for node in problem.nodes]
    return EGraph(problem, None, classes, problem.masks, problem.dtypes, frozenset(known), tuple(range(len(classes))))


def read_back(graph: Any, problem: Problem, stop: Stop, fired: tuple[str, ...]) -> EGraph:
    """Return the tables of an egglog e-graph. Classes are numbered from the program's nodes outwards."""
    tables = graph.freeze().functions
    readers = {"String": graph.value_to_string, "i64": graph.value_to_i64}
    ops = {text: op for op, text in LISTS.items()}
    spellings: dict[Any, list[Any]] = {}
    for name, (sorts, _) in CONSTRUCTORS.items():
        for row in tables[name].rows:
            attributes = tuple(readers[sort](value) for sort, value in zip(sorts, row.inputs))
            node = ops.get(name[:-1], name), attributes, row.inputs[len(sorts) :]
            spellings.setdefault(row.output, []).append(node)
    original = [tables[f"$t{place}"].rows[0].output for place in range(len(problem.nodes))]
    number = _numbered(spellings, original)
    classes = [sorted({_over(node, number) for node in spellings[value]}, key=repr) for value in number]
    of = tuple(number[value] for value in original)
    for node, cls in zip(problem.nodes, of, strict=True):  # the original spelling first
        classes[cls].sort(key=_over(node, of).__ne__)
    known, masks, dtypes = (
        {row.inputs[0]: row.output for row in tables[name].rows} for name in ("known", "axes", "dtype")
    )
    return EGraph(
        problem,
        stop,
        classes,
        [readers["i64"](masks[value]) for value in number],
        [readers["String"](dtypes[value]) for value in number],
        frozenset(number[value] for value in known),
        of,
        fired,
    )


def _numbered(spellings: Mapping[Any, list[Any]], original: Iterable[Any]) -> dict[Any, int]:
    """Return small numbers for classes: the program's in its order, then those above them by their spelling."""
    number = {value: place for place, value in enumerate(dict.fromkeys(original))}

    def form(node: Any) -> Any:
        op, attributes, children = _over(node, number)
        return op, tuple(map(repr, attributes)), children

    while ready := {
        value: min(forms)
        for value, spelled in spellings.items()
        if value not in number and (forms := [form(node) for node in spelled if number.keys() >= set(node[2])])
    }:
        for value in sorted(ready, key=ready.__getitem__):
            number[value] = len(number)
    return number
