"""A solution as Tensor IR again: its terms, which of them are stored, and what is computed when weights are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...ir import compose
from ...ir.dtypes import INTEGERS
from ...ir.expr import Axis
from ...ir.tensor import Const, Elementwise, Fold, Input, Remap, Term, axes, operands
from ..cost.kernel_estimate import bits
from ..kernels.candidate import Prepared
from .graph import EGraph
from .problem import Problem
from .solution import Extraction, PricedSolution


@dataclass
class Rebuilt:
    """A region, rebuilt. roots: {root of the region: what it is now}; groups: stored values that share a kernel."""

    roots: dict[Term, Term]
    stored: set[Term]
    groups: list[tuple[Term, ...]]
    prepared: list[Prepared]
    same: dict[Term, Term]  # a new value -> the one of the program that it equals


class Rebuilder:
    """Rebuilds one solution over the terms of a problem (of the same key as the one that was solved).

    now: what became of values that other regions computed; name: a fresh name for a weight.
    """

    def __init__(
        self, extraction: Extraction, found: PricedSolution, problem: Problem, now: Mapping[Term, Term],
        name: Callable[[str], str],
    ):  # fmt: skip
        self.graph: EGraph = extraction.graph
        self.extraction, self.found, self.problem, self.now, self.name = extraction, found, problem, now, name
        self.built: dict[int, Term] = {}
        self.prepared: dict[Term, Prepared] = {}

    def rebuild(self) -> Rebuilt:
        graph, solution = self.graph, self.found.solution
        roots = {self.problem.terms[root]: self.term(graph.of[root]) for root in self.problem.roots}
        stored = {self.term(cls) for cls in sorted(solution.stored)}
        groups = [tuple(self.term(cls) for cls in group) for group in solution.groups]
        same: dict[Term, Term] = {}
        for place, cls in enumerate(graph.of):
            if cls in self.built:
                same.setdefault(self.built[cls], self.problem.terms[place])
        return Rebuilt(roots, stored, groups, list(self.prepared.values()), same)

    def term(self, cls: int) -> Term:
        """The term of a class."""
        for top, node in self.extraction.in_order(self.found.solution.choice, (cls,), self.built):
            loading = top in self.graph.known and top in self.extraction.leaves
            args = [self.built[child] if loading else self.read(child) for child in node[2]]
            self.built[top] = self.make(node, args)
            axes(self.built[top])  # remembered from below
        return self.built[cls]

    def make(self, node: Any, args: list[Term]) -> Term:
        op, attributes, _ = node
        if op == "Leaf":
            leaf = self.problem.leaf_terms[attributes[0]]
            return self.now.get(leaf, leaf)
        if op == "Num":
            text, kind = attributes
            return Const(_number(text, kind), kind)
        if op == "E":
            return Elementwise(attributes[0], tuple(args))
        if op == "Red":
            return compose.reduce(attributes[0], self.axes(attributes[1]), args[0])
        if op == "Fold":
            return Fold(attributes[0], self.axes(attributes[1]), tuple(args))
        made: Term = self.problem.makers[attributes[0]](args, self.problem)
        return made

    def axes(self, mask: int) -> tuple[Axis, ...]:
        return tuple(self.problem.axes[bit.bit_length() - 1] for bit in bits(mask))

    def read(self, cls: int) -> Term:
        """What a kernel reads: a value that loading computes is an input of its own there."""
        value = self.built[cls]
        if (
            cls not in self.graph.known
            or cls not in self.extraction.leaves
            or value.__class__ is Input
            or _plain(value)
        ):
            return value
        if value not in self.prepared:
            made = Input(self.name("weight"), _memory_order(value), self.graph.dtype[cls])
            self.prepared[value] = Prepared(made, value)
        return self.prepared[value].input


def _plain(value: Any) -> bool:
    """An input under a renaming is read as it is."""
    return value.__class__ is Remap and value.x.__class__ is Input


def _memory_order(value: Term) -> tuple[Axis, ...]:
    """Axes as the widest operand has them."""
    widest: tuple[Axis, ...] = ()
    for operand in operands(value):
        own = tuple(axis for axis in axes(operand) if axis in axes(value))
        if len(own) > len(widest):
            widest = own
    return tuple(dict.fromkeys((*widest, *axes(value))))


def _number(text: str, kind: str) -> Any:
    if kind == "b8":
        return text == "true"
    if kind in INTEGERS:
        return int(text) if text.lstrip("-").isdigit() else int(float(text))
    return float(text)
