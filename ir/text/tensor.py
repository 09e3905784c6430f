"""Tensor IR's text: `y[j, k] = multiply(total, w[k])`, one computed value a line.

Axes stand on the left, with their extent where they are born (there, or in a `Reduce`). Computed values are read by
bare name, stored ones (inputs, `mat`) with brackets; brackets on a computed value are an index map. An input's own
axes are those of its first plain read in the text; where they are not, the header spells them: `x: f32[j:32, k:64]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..expr import Axis, Var, rebuild
from ..functions import CAST, FUNCTIONS, SELECT
from ..node import Expr, Node
from ..tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Mat,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    postorder,
)
from .print_statements import print_expr, print_number
from .sizes import print_sizes
from .tensor_read import default_axes, literal_dtype, read_graph

LINES = (Elementwise, Reduce, Fold, Case, Mat)


def print_graph(graph: TensorGraph) -> str:
    """A graph, without a newline at the end."""
    printer = _Printer(graph)
    lines = printer.body()
    ins = ", ".join((*print_sizes(graph), *(printer.header(x) for x in graph.ins)))
    outs = ", ".join(
        f"{o.name}: {dtype(o.value)}[{', '.join(print_expr(a.extent) for a in o.axes)}]" for o in graph.outs
    )
    return "\n".join((f"graph {graph.name}({ins}) -> {outs}:", *(f"    {line}" for line in lines or ("pass",))))


def values_of_lines(graph: TensorGraph) -> tuple[Term, ...]:
    """The value that each line below the head of a graph's text gives."""
    return tuple(term for term, _ in _Printer(graph).rows())


def print_lines(graph: TensorGraph, root: Term, below: Iterable[Term]) -> str:
    """The lines that compute a term from the values below it, under the names that they have in the graph."""
    printer = _Printer(graph)
    printer.body()
    stop = set(postorder(below))
    lines = [printer.line(term) for term in postorder((root,)) if isinstance(term, LINES) and term not in stop]
    return "\n".join(lines) or printer.reference(root)


class _Printer:
    def __init__(self, graph: TensorGraph):
        self.graph = graph
        self.names: dict[Term, str] = {x: x.name for x in graph.ins}
        self.orders: dict[Term, tuple[Axis, ...]] = {}
        for out in graph.outs:
            if isinstance(out.value, LINES) and out.value not in self.names:
                self.names[out.value], self.orders[out.value] = out.name, out.axes
        for named in graph.names:
            self.names.setdefault(named.value, named.name)
        self.born: set[Axis] = set()
        self.reads: dict[str, tuple[Axis, ...]] = {}  # an input's axes as its first plain read has them
        self.count = 0

    def body(self) -> list[str]:
        return [line for _, line in self.rows()]

    def rows(self) -> list[tuple[Term, str]]:
        """The value of each line, and the line."""
        values = postorder(out.value for out in self.graph.outs)
        rows: list[tuple[Term, str]] = [(term, self.line(term)) for term in values if isinstance(term, LINES)]
        for out in self.graph.outs:
            if self.names.get(out.value) != out.name:
                rows.append((out.value, f"{self.left(out.name, out.axes)} = {self.reference(out.value)}"))
        return rows

    def header(self, x: Input) -> str:
        plain = self.reads.get(x.name, default_axes(x.name, x.axes)) == x.axes
        dims = (print_expr(a.extent) if plain else f"{a.name}:{print_expr(a.extent)}" for a in x.axes)
        return f"{x.name}: {x.dtype}[{', '.join(dims)}]"

    def name(self, term: Term) -> str:
        if term not in self.names:
            taken = set(self.names.values())
            self.count += 1
            while f"v{self.count}" in taken:
                self.count += 1
            self.names[term] = f"v{self.count}"
        return self.names[term]

    def order(self, term: Term) -> tuple[Axis, ...]:
        return self.orders.get(term) or axes(term)

    def axis(self, axis: Axis) -> str:
        if axis in self.born:
            return axis.name
        self.born.add(axis)
        return f"{axis.name}:{print_expr(axis.extent)}"

    def left(self, name: str, over: tuple[Axis, ...]) -> str:
        return f"{name}[{', '.join(map(self.axis, over))}]" if over else name

    def line(self, term: Any) -> str:
        left = self.left(self.name(term), self.order(term))
        if isinstance(term, Reduce):
            return f"{left} = Reduce({term.fn}, {', '.join(map(self.axis, term.over))}, {self.reference(term.x)})"
        if isinstance(term, Fold):
            over, args = map(self.axis, term.over), (self.operand(x, _others(term.args, x)) for x in term.args)
            return f"{left} = Fold({', '.join((term.part, *over))}, ({', '.join(args)}))"
        if isinstance(term, Case):
            condition = self.index(term.cond)
            return f"{left} = Case({condition}, {self.operand(term.a, (term.b,))}, {self.operand(term.b, (term.a,))})"
        if isinstance(term, Mat):
            return f"{left} = mat({self.reference(term.x)})"
        return f"{left} = {term.fn}({', '.join(self.operands(term))})"

    def operands(self, term: Elementwise) -> Iterable[str]:
        kind = FUNCTIONS[term.fn].kind
        for n, x in enumerate(term.args):
            if kind == CAST and isinstance(x, Const):
                yield f"{x.dtype}({_number(x)})"
            elif kind == SELECT and n == 0:
                yield self.operand(x, ())
            else:
                yield self.operand(
                    x, tuple(y for m, y in enumerate(term.args) if m != n and not (kind == SELECT and m == 0))
                )

    def operand(self, x: Term, others: tuple[Term, ...]) -> str:
        """An operand; a number in the dtype that it meets is bare."""
        if isinstance(x, Const):
            met = [dtype(y) for y in others if not isinstance(y, Const)]
            return _number(x) if literal_dtype(x.value, met) == x.dtype else f"{x.dtype}({_number(x)})"
        return self.reference(x)

    def reference(self, term: Any) -> str:
        """A term as an operand."""
        if isinstance(term, Const):
            return self.operand(term, ())
        if isinstance(term, Index):
            return f"Index({self.index(term.expr)})"
        if isinstance(term, Remap):
            return self.access(term.x, dict(term.map))
        stored = isinstance(term, (Input, Mat)) and self.order(term)
        return self.access(term, {}) if stored else self.name(term)

    def access(self, x: Any, mapping: dict[Axis, Expr]) -> str:
        entries = [mapping.get(a, a) for a in self.order(x)]
        if isinstance(x, Input) and x.name not in self.reads and _plain(entries, x.axes):
            self.reads[x.name] = tuple(entries)
        return f"{self.name(x)}[{', '.join(map(self.index, entries))}]"

    def index(self, e: Expr) -> str:
        return print_expr(self._leaves(e))

    def _leaves(self, e: Expr) -> Expr:
        if isinstance(e, Axis):
            return Var(e.name)
        if isinstance(e, Term):
            return Var(self.reference(e))
        return rebuild(e, self._leaves) if isinstance(e, Node) else e


def _others(args: tuple[Term, ...], x: Term) -> tuple[Term, ...]:
    return tuple(y for y in args if y is not x)


def _plain(entries: list[Any], own: tuple[Axis, ...]) -> bool:
    """Whether a bracket holds distinct axes as long as the dimensions."""
    whole = all(isinstance(e, Axis) and e.extent == a.extent for e, a in zip(entries, own, strict=True))
    return whole and len(set(entries)) == len(entries)


def _number(x: Const) -> str:
    if isinstance(x.value, bool):
        return "true" if x.value else "false"
    return print_number(x.value)


__all__ = ["print_graph", "print_lines", "read_graph", "values_of_lines"]
