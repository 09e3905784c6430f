"""What a kernel will be, before it is lifted: equal summaries become kernels that differ in names only.

A search asks for the price of thousands of kernels, most of which it has seen in another layer. A summary is the terms
of a kernel as plain data, operands first, with axes, buffers and terms by the order in which they are met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.expr import Axis
from ...ir.facts.dataflow import topological
from ...ir.node import Node
from ...ir.tensor import Elementwise, Reduce, Term, axes, operands
from .buffers import BufferLayout, Write

FusionSummary = tuple[Any, ...]


def fusion_summary(writes: Sequence[Write], buffers: Mapping[Any, BufferLayout]) -> FusionSummary:
    """The summary of the kernel that makes these writes and reads its other values from these buffers."""
    return _Summariser(writes, buffers).summary


class _Summariser:
    def __init__(self, writes: Sequence[Write], buffers: Mapping[Any, BufferLayout]):
        self.buffers, self.written = buffers, {write.value for write in writes}
        self.axes: dict[Axis, int] = {}
        self.terms: dict[Any, int] = {}
        self.places: dict[BufferLayout, int] = {}
        order = topological([write.value for write in writes], self._below)
        values = []
        for term in order:
            values.append(self._spelled(term))
            self.terms[term] = len(self.terms)
        stores = [(self.terms[write.value], self._buffer(write.buffer), self._part(write.guard)) for write in writes]
        self.summary: FusionSummary = (tuple(values), tuple(stores), tuple(axis.extent for axis in self.axes))

    def _read(self, term: Any) -> BufferLayout | None:
        return None if term in self.written else self.buffers.get(term)

    def _below(self, term: Any) -> Sequence[Any]:
        return () if self._read(term) is not None else operands(term)

    def _spelled(self, term: Any) -> Any:
        buffer = self._read(term)
        if buffer is not None:
            return self._buffer(buffer), tuple(map(self._axis, axes(term)))
        kind = term.__class__
        if kind is Elementwise:
            return term.fn, tuple([self.terms[x] for x in term.args])
        if kind is Reduce:
            return term.fn, tuple(map(self._axis, term.over)), self.terms[term.x]
        return kind.__name__, *(self._part(getattr(term, field.name)) for field in kind.fields)

    def _axis(self, axis: Axis) -> int:
        return self.axes.setdefault(axis, len(self.axes))

    def _buffer(self, buffer: BufferLayout) -> Any:
        known = self.places.get(buffer)
        if known is not None:
            return known
        self.places[buffer] = len(self.places)
        dims, loops = (tuple(map(self._axis, own)) for own in (buffer.dims, buffer.loops))
        return buffer.dtype, dims, loops, dims if buffer.address == buffer.dims else self._part(buffer.address)

    def _part(self, value: Any) -> Any:
        """A field of a term: index expressions with axes and terms by number."""
        kind = value.__class__
        if kind is Axis:
            return "axis", self._axis(value)
        if kind is tuple:
            return tuple(map(self._part, value))
        if isinstance(value, Term):
            return "term", self.terms[value]
        if isinstance(value, Node):
            return kind.__name__, *(self._part(getattr(value, field.name)) for field in kind.fields)
        return kind.__name__, repr(value)
