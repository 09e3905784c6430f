"""An e-graph as plain Python data, read back from egglog: classes by small numbers, the same in every run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...ir.functions import FUNCTIONS
from ...ir.monoids import of_part
from .problem import MOST_OPERANDS, ENode, Problem

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
    """How saturation ended: `saturated`, or the budget that ran out. rows: e-nodes before twins are merged."""

    reason: str
    iterations: int
    rows: int
    seconds: float


@dataclass
class EGraph:
    """classes: the spellings of each class, the original one first; of: {node of the problem: class}.

    mask, dtype: of each class; known: those that loading computes. fired: rules that matched.
    missed: {kernel: how far the model was below what the lowering made of it}, which problems of one structure share.
    """

    problem: Problem
    stop: Stop | None
    classes: list[list[ENode]]
    mask: list[int]
    dtype: list[str]
    known: frozenset[int]
    of: tuple[int, ...]
    fired: tuple[str, ...] = ()
    missed: dict[Any, float] = field(default_factory=dict, repr=False, compare=False)
    bindings: Any = field(default=None, repr=False, compare=False)

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.of[root] for root in self.problem.roots))

    @property
    def constructors(self) -> set[str]:
        return {node[0] for spelled in self.classes for node in spelled}

    @property
    def enodes(self) -> int:
        return sum(map(len, self.classes))


def sorted_operands(node: ENode) -> ENode:
    """Twins under commutativity are one e-node."""
    op, attributes, children = node
    if op == "E" and len(children) == 2 and FUNCTIONS[attributes[0]].commutative:
        return op, attributes, (min(children), max(children))
    return node


def as_written(problem: Problem) -> EGraph:
    """The e-graph of a problem without any rule: each node is a class."""
    known: set[int] = set()
    masks: list[int] = []
    numbers: set[int] = set()
    for place, (op, attributes, children) in enumerate(problem.nodes):
        masks.append(mask_of(problem, (op, attributes, children), masks))
        if op == "Num":
            numbers.add(place)
        is_leaf = op == "Leaf" and problem.leaves[attributes[0]].known
        below = op in ("E", "Red", "Map") and all(c in known or c in numbers for c in children)
        if is_leaf or (below and any(c in known for c in children)):
            known.add(place)
    classes = [[sorted_operands(node)] for node in problem.nodes]
    places = tuple(range(len(classes)))
    return EGraph(problem, None, classes, masks, list(problem.dtypes), frozenset(known), places)


def mask_of(problem: Problem, node: ENode, masks: Any) -> int:
    """The axes of an e-node's value, given those of its operands."""
    op, attributes, _ = node
    if op == "Leaf":
        return problem.leaves[attributes[0]].mask
    mask = 0
    for child in read_operands(node):
        mask |= masks[child]
    if op in ("Red", "Fold"):
        return mask & ~int(attributes[1])
    if op == "Op":
        return problem.forms[attributes[0]].mask
    if op == "Case":
        return mask | problem.forms[attributes[0]].mask
    if op == "Map":
        images = problem.forms[attributes[0]].images
        out = mask
        for axis, _ in images:
            out &= ~axis
        for axis, image in images:
            out |= image if mask & axis else 0
        return out
    return mask


def read_operands(node: ENode) -> tuple[int, ...]:
    """The operands that an e-node's value varies with: a running maximum needs no weights."""
    op, attributes, children = node
    if op != "Fold":
        return children
    monoid, part = of_part(attributes[0])
    reads = monoid.reads(part)
    return tuple(child for child, name in zip(children, monoid.operands, strict=True) if name in reads)


def read_back(graph: Any, problem: Problem, stop: Stop, fired: tuple[str, ...]) -> EGraph:
    """The tables of an egglog e-graph. Classes are numbered from the program's nodes outwards."""
    tables = graph.freeze().functions
    texts: dict[Any, str] = {}
    integers: dict[Any, int] = {}

    def attribute(value: Any, sort: str) -> Any:
        if sort == "String":
            if value not in texts:
                texts[value] = graph.value_to_string(value)
            return texts[value]
        if value not in integers:
            integers[value] = graph.value_to_i64(value)
        return integers[value]

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
    """Small numbers for classes: the program's in its order, then those above them by their spelling."""
    number: dict[Any, int] = {}
    for value in original:
        number.setdefault(value, len(number))
    waiting = {value: spelled for value, spelled in rows.items() if value not in number}
    while waiting:
        ready: list[tuple[Any, Any]] = []
        for value, spelled in waiting.items():
            forms = [
                (op, tuple(map(repr, at)), tuple(sorted(number[c] for c in below)))
                for op, at, below in spelled
                if all(c in number for c in below)
            ]
            if forms:
                ready.append((min(forms), value))
        if not ready:
            break
        ready.sort(key=lambda pair: pair[0])
        for _, value in ready:
            number[value] = len(number)
            del waiting[value]
    return number
