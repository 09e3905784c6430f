"""Tensor IR: values over named axes. Three primitives (Elementwise, Reduce, index maps), cases, and `mat`.

A program is a DAG of interned terms. Elementwise combines its operands by axis *name*; Reduce names the axes it
folds; an index map says where each axis of the stored operand is read (`w[j, k]`, `q[h // 4, i, d]`, `table[ids[i],
d]`). Dimensions of size 1 do not exist here: the launch plan keeps torch's shapes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .expr import COMPARISONS, Axis, Binary, Not, Order, extents_of
from .functions import opmath, promote, result_dtype
from .monoids import of_part
from .node import Dtype, Expr, Fn, Name, Node, Num, contains, memoised, remember
from .program import Param
from .torch import TorchOp

R = TypeVar("R")
AxisMap = Any  # ((Axis of the operand, index expression over Axis leaves and Terms), ...), in the operand's axis order


class Term(Node):
    """A value over named axes."""


class Input(Term):
    """A stored buffer read at its own axes. axes are in memory order."""

    name: Name
    axes: tuple[Axis, ...]
    dtype: Dtype = "f32"


class Const(Term):
    """A number: `2.5`, `-inf`, `3`, `true`."""

    value: Num
    dtype: Dtype = "f32"


class Index(Term):
    """Index arithmetic made a value: `Index(i + 1)` (i64), `Index(j <= i)` (b8)."""

    expr: Expr


class Elementwise(Term):
    """`fn(args..)`; operands combine by axis name."""

    fn: Fn
    args: tuple[Term, ...]


class Reduce(Term):
    """Fold x over `over` with fn; 16-bit floats give f32. An axis that x lacks folds `extent` equal values."""

    fn: Fn
    over: tuple[Axis, ...]
    x: Term


class Fold(Term):
    """One part of a reduction over a tuple monoid (ir/monoids.py): `Fold(online.s, n, x, v)`.

    part: `monoid.part`. Folds of one monoid over the same axes whose operands agree where a part reads them share it.
    """

    part: Fn
    over: tuple[Axis, ...]
    args: tuple[Term, ...]


class Remap(Term):
    """Read x at other indices: each axis of x in `map` is replaced by an index expression; the others stay."""

    x: Term
    map: AxisMap


class Case(Term):
    """Choose a where cond holds, and b elsewhere.

    An operand is only read where its side is selected, so it may be shorter than the axis.
    """

    cond: Expr
    a: Term
    b: Term


class Mat(Term):
    """Materialise x in global memory: a kernel boundary."""

    x: Term


class Output(Node):
    """A result: stored under `name` with its dimensions in the order of `axes`."""

    name: Name
    axes: tuple[Axis, ...]
    value: Term


class Named(Node):
    """The name that a term is printed under."""

    name: Name
    value: Term


class OperatorCall(Node):
    """An op of torch that no rule lowers: torch computes it, from stored values to stored values.

    statement: its tensors are named as the graph names what is stored. given: the tensors that it reads, in torch's
    shapes: inputs of the graph, or outputs that only calls read. Its results are inputs of the graph.
    """

    statement: TorchOp
    given: tuple[Param, ...]

    @property
    def results(self) -> tuple[Param, ...]:
        """The tensors that it gives, in torch's shapes: `dst_out0`, `dst_out1`, .."""
        dst, types = self.statement.dst, self.statement.types
        return tuple(Param(f"{dst}_out{place}", kind.dtype, kind.shape) for place, kind in enumerate(types))


class TensorGraph(Node):
    """A program: inputs with their axes, outputs, and names for the lines between (for people; no meaning).

    calls: in their order. What they give is among the inputs, and what only they read is first among the outputs.
    """

    name: Name
    ins: tuple[Input, ...]
    outs: tuple[Output, ...]
    names: tuple[Named, ...] = ()
    calls: tuple[OperatorCall, ...] = ()

    @property
    def roots(self) -> tuple[Any, ...]:
        """The values of its outputs."""
        return tuple([out.value for out in self.outs])


def supplied(graph: TensorGraph) -> tuple[Input, ...]:
    """Return the inputs that the caller gives."""
    made = {param.name for call in graph.calls for param in call.results}
    return tuple(x for x in graph.ins if x.name not in made)


def delivered(graph: TensorGraph) -> tuple[Output, ...]:
    """Return the outputs that the caller gets."""
    read = {param.name for call in graph.calls for param in call.given}
    return tuple(out for out in graph.outs if out.name not in read)


def operands(term: Term) -> tuple[Term, ...]:
    """Return the terms a term reads directly, those inside index expressions included."""
    if term.__class__ is Elementwise or term.__class__ is Fold:
        return term.args
    if term.__class__ is Reduce or term.__class__ is Mat:
        return (term.x,)
    kind = term.__class__
    return _indexed(term) if kind is Remap or kind is Case or kind is Index else ()


@memoised
def _indexed(term: Any) -> tuple[Term, ...]:
    """Return the operands of a term that holds index expressions."""
    if term.__class__ is Remap:
        return (term.x, *_indexing(tuple(e for _, e in term.map)))
    if term.__class__ is Case:
        return (*_indexing((term.cond,)), term.a, term.b)
    return _indexing((term.expr,))


def _indexing(exprs: tuple[Any, ...]) -> tuple[Term, ...]:
    found = ((e,) if isinstance(e, Term) else _terms_in(e) for e in exprs if contains(e, Term))
    return tuple(dict.fromkeys(itertools.chain(*found)))


@memoised
def _terms_in(e: Any) -> tuple[Term, ...]:
    return _indexing(tuple(x for field in type(e).fields for x in _flat(getattr(e, field.name))))


def _flat(value: Any) -> tuple[Any, ...]:
    if value.__class__ is tuple:
        return tuple(x for item in value for x in _flat(item))
    return (value,)


def index_axes(e: Any) -> Order:
    """Return the axes that an index expression varies with, in order of first occurrence."""
    if isinstance(e, Axis):
        return (e,)
    if isinstance(e, Term):
        return axes(e)
    return _axes_in(e) if isinstance(e, Node) else ()


@memoised
def _axes_in(e: Any) -> Order:
    return tuple(dict.fromkeys(a for f in type(e).fields for x in _flat(getattr(e, f.name)) for a in index_axes(x)))


def read_by(term: Fold) -> tuple[Term, ...]:
    """Return the operands of a Fold on which its part depends."""
    monoid, part = of_part(term.part)
    given = dict(zip(monoid.operands, term.args, strict=True))
    return tuple(given[name] for name in monoid.reads(part))


def from_below(function: Callable[[Any], R]) -> Callable[[Any], R]:
    """Memoise a function of terms that calls itself on their operands.

    The operands are computed first, because chains of terms may be longer than the stack of Python.
    """

    @functools.wraps(function)
    def asked(term: Any) -> R:
        memo: dict[object, R] | None = term._memo
        if memo is not None and function in memo:
            return memo[function]
        pending = [term]
        while pending:
            top = pending[-1]
            unknown = [x for x in operands(top) if x._memo is None or function not in x._memo]
            if unknown:
                pending += unknown
            else:
                remember(pending.pop(), function, function(top))
        result: R = term._memo[function]
        return result

    return asked


@from_below
def axes(term: Any) -> Order:
    """Return the axes a term varies with, in order of first occurrence."""
    kind = term.__class__
    if term.__class__ is Input:
        return term.axes
    if kind is Elementwise:
        return tuple(dict.fromkeys(a for x in term.args for a in axes(x)))
    if kind is Reduce:
        return tuple(a for a in axes(term.x) if a not in term.over)
    if kind is Fold:
        read = dict.fromkeys(a for x in read_by(term) for a in axes(x))
        return tuple(a for a in read if a not in term.over)
    if kind is Mat:
        return axes(term.x)
    if kind is Remap:
        mapping = dict(term.map)
        kept = ((b for b in index_axes(mapping[a])) if a in mapping else (a,) for a in axes(term.x))
        return tuple(dict.fromkeys(b for group in kept for b in group))
    if kind is Case:
        return tuple(dict.fromkeys((*index_axes(term.cond), *axes(term.a), *axes(term.b))))
    if kind is Index:
        return index_axes(term.expr)
    return ()


@from_below
def dtype(term: Any) -> str:
    """Return the dtype of a term's elements."""
    kind = term.__class__
    if term.__class__ is Input or term.__class__ is Const:
        return term.dtype
    if kind is Elementwise:
        return result_dtype(term.fn, *map(dtype, term.args))
    if kind is Fold:
        return opmath(promote(*map(dtype, term.args)))
    if kind is Case:
        return promote(dtype(term.a), dtype(term.b))
    if kind is Index:
        return "b8" if is_condition(term.expr) else "i64"
    return opmath(dtype(term.x)) if kind is Reduce else dtype(term.x)


@from_below
def reduced_below(term: Any) -> tuple[frozenset[Axis], frozenset[Axis]]:
    """Return the axes that reductions in a value fold, and the axes that their results vary with."""
    own = (frozenset(term.over), frozenset(axes(term))) if term.__class__ in (Reduce, Fold) else (NONE, NONE)
    folded, results = zip(own, *map(reduced_below, operands(term)), strict=True)
    return _union(folded), _union(results)


NONE: frozenset[Axis] = frozenset()


def _union(sets: Sequence[frozenset[Axis]]) -> frozenset[Axis]:
    """Return the union of some sets, which is one of them if it has all: the values of a chain share it."""
    largest = max(sets, key=len)
    return largest if all(map(largest.issuperset, sets)) else largest.union(*sets)


def decide_below(
    root: Any, known: dict[Any, R], decide: Callable[[Any], R], below: Callable[[Any], Sequence[Any]] = operands
) -> R:
    """Return the decision of a value. The decisions of all values below it are made first, and each once."""
    if root not in known:
        for term in postorder((root,), lambda term: () if term in known else below(term)):
            if term not in known:
                known[term] = decide(term)
    return known[root]


def postorder(roots: Iterable[Any], below: Callable[[Any], Sequence[Any]] = operands) -> list[Any]:
    """Return all terms below the roots, every operand before its readers, each once, in depth-first order."""
    out: list[Any] = []
    seen: set[Any] = set()
    stack = [(root, False) for root in reversed(tuple(roots))]
    while stack:
        term, done = stack.pop()
        if done:
            out.append(term)
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack += [(x, False) for x in reversed(below(term)) if x not in seen]
    return out


def terms(graph: TensorGraph) -> list[Any]:
    """Return all terms of a program, every operand before its readers, each once."""
    return postorder(graph.roots)


def is_condition(e: Expr) -> bool:
    """Return whether an index expression is a truth value: a comparison, or a combination of comparisons."""
    if isinstance(e, bool) or e.__class__ is Not:
        return True
    return e.__class__ is Binary and (e.op in COMPARISONS or e.op in ("and", "or"))


def inputs(graph: TensorGraph) -> tuple[Param, ...]:
    """Return the buffers that the caller gives as unit parameters."""
    return tuple(Param(x.name, x.dtype, extents_of(x.axes)) for x in supplied(graph))


def factors(term: Any) -> tuple[Term, ...]:
    """Return the two factors of a sum of products; none for any other value."""
    summed = term.x if term.__class__ is Reduce and term.fn == "add" else None
    return summed.args if summed.__class__ is Elementwise and summed.fn == "multiply" else ()
