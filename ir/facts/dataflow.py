"""A Tensor IR program as a flow: operands first, the readers of each value, and the axes of every value as a bit mask.

With masks, each query of fusion (which axes are new, which are reduced) is one integer operation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

from ..expr import Axis, Binary, Order, linear
from ..monoids import of_part
from ..node import Node
from ..sizes import at_hint
from ..tensor import (
    Case,
    Elementwise,
    Fold,
    Index,
    Input,
    Reduce,
    Remap,
    Term,
    axes,
    factors,
    index_axes,
    operands,
    postorder,
    read_by,
)

NEIGHBOURS = 8  # elements of f32 in a sector, which memory moves for a lane that reads apart from others


def structure_of(value: Any, stand_in: Callable[[Any], Any]) -> Any:
    """Return a value as nested tuples: for each part the result of `stand_in`, or else the structure of its parts."""
    known = stand_in(value)
    if known is not None:
        return known
    if value.__class__ is tuple:
        return tuple([structure_of(part, stand_in) for part in value])
    if isinstance(value, Node):
        return type(value).__name__, *[
            structure_of(getattr(value, field.name), stand_in) for field in type(value).fields
        ]
    return value.__class__.__name__, repr(value)


class Dataflow:
    """Terms below `roots`. position: index of a term in `order`. Lists of readers contain a term once.

    roots: values, as a mapping with the order in which each is stored, if that is known.
    """

    def __init__(self, roots: Iterable[Term]):
        self.order = postorder(roots)
        self._results = roots if isinstance(roots, Mapping) else {}
        self.position = {term: place for place, term in enumerate(self.order)}
        self.axes: list[Axis] = []
        self._bits: dict[Axis, int] = {}
        self._counts: dict[int, int] = {}
        self._natural: dict[Any, Order] = {}
        self._leading: dict[Any, set[Any]] = {}
        self.mask: dict[Any, int] = {}
        self.readers: dict[Any, list[Any]] = {term: [] for term in self.order}
        for term in self.order:
            self.mask[term] = self._mask_of(term)
            below = operands(term)
            for operand in below if len(below) < 2 else dict.fromkeys(below):
                self.readers[operand].append(term)

    def _mask_of(self, term: Any) -> int:
        kind = term.__class__
        if kind is Elementwise:
            mask = 0
            for arg in term.args:
                mask |= self.mask[arg]
            return mask
        if kind is Reduce:
            return self.mask[term.x] & ~self.mask_of_axes(term.over)
        return self.mask_of_axes(axes(term))

    def bit(self, axis: Axis) -> int:
        """Return the bit of an axis. Bits are assigned in order of first occurrence."""
        if axis not in self._bits:
            self._bits[axis] = 1 << len(self.axes)
            self.axes.append(axis)
        return self._bits[axis]

    def mask_of_axes(self, found: Iterable[Axis]) -> int:
        mask = 0
        for axis in found:
            mask |= self.bit(axis)
        return mask

    def axes_in(self, mask: int) -> list[Axis]:
        found = []
        while mask:
            low = mask & -mask
            found.append(self.axes[low.bit_length() - 1])
            mask ^= low
        return found

    def elements(self, mask: int) -> int:
        """Return the number of elements of a value over the axes of a mask."""
        if mask not in self._counts:
            self._counts[mask] = math.prod(at_hint(axis.extent) for axis in self.axes_in(mask))
        return self._counts[mask]

    def size(self, term: Term) -> int:
        """Return the number of elements of a value."""
        return self.elements(self.mask[term])

    def forms(self, term: Term) -> list[Any]:
        """Return the forms in which other values read a value: itself, its index maps, and its padded windows."""
        maps = [reader for reader in self.readers[term] if reader.__class__ is Remap and reader.x is term]
        return [term, *maps, *(reader for seen in maps for reader in self.readers[seen] if reader.__class__ is Case)]

    def leading_to(self, here: Callable[[Dataflow, Any], bool]) -> set[Any]:
        """Return the values where a test holds, or that flow into such a value through no reduction."""
        if here not in self._leading:
            found = self._leading[here] = set()
            for term in reversed(self.order):
                following = (reader for reader in self.readers[term] if reader.__class__ is not Reduce)
                if not found.isdisjoint(following) or here(self, term):
                    found.add(term)
        return self._leading[here]

    def natural(self, term: Term) -> Order:
        """Return the axes of a value in the order of its operands, the widest first. Names do not affect the order.

        The new axes of a contraction are last, or replace the summed axes if readers rather run along the last axis
        then (the channels of a convolution).
        """
        if not self._natural:
            wanted = self._wanted()
            for other in self.order:
                self._natural[other] = self._natural_of(other)
                replaced = self._replaced(other) if other.__class__ is Reduce else ()
                if replaced and wanted[other][replaced[-1]] > wanted[other][self._natural[other][-1]]:
                    self._natural[other] = replaced
        return self._natural[term]

    def _wanted(self) -> dict[Any, defaultdict[Axis | None, float]]:
        """Return, for each value and axis, the accesses that are faster if the value is stored along the axis.

        A result is stored along its last axis, and an input is read along its last axis. A contraction stores vectors,
        and its lanes gather a window along the places of its results. The window of another sum is read in vectors
        along an axis that it leaves alone (key None), if its reader runs along that axis, too. An operation accesses
        its operands along the axes of its result, and a tuple reduction along the axis that it reduces.
        """
        wanted: dict[Any, defaultdict[Axis | None, float]] = {term: defaultdict(float) for term in self.order}
        for term in reversed(self.order):
            kind, own, size = term.__class__, wanted[term], self.size(term)
            for axis in self._results.get(term, ())[-1:]:
                own[axis] += size
            if kind is Elementwise and not any(self._factors(reader) for reader in self.readers[term]):
                for axis in filter(None, map(_last_of_input, term.args)):
                    own[axis] += size
            images = dict(term.map) if kind is Remap else {}
            for operand in dict.fromkeys(operands(term)):
                found, seen = wanted[operand], self.mask[operand]
                if images and operand is term.x:
                    for axis, e in images.items():
                        found[axis] += max((own[inner] / step for inner, step in steps_of(e)), default=0.0)
                    for axis in self.axes_in(seen) if own[None] else ():
                        if axis not in images and _in_vectors(axis) and own.get(axis):
                            found[axis] += own[None]
                for axis, count in own.items():
                    if axis not in images and (axis is None or self.bit(axis) & seen):
                        found[axis] += count
                if kind is Reduce and not self._factors(term):
                    found[None] += self.size(operand) / 2
                if kind is Fold:
                    found[term.over[-1]] += self.size(operand)
            if kind is Reduce and (both := self._factors(term)):
                for axis in filter(_in_vectors, self.axes_in(self.mask[term])):
                    own[axis] += 2 * size
                for factor in both:
                    for axis in filter(self.axes_in(self.mask[term]).__contains__, offsets_of(factor)):
                        wanted[factor][axis] += NEIGHBOURS * self.size(factor)
        return wanted

    def _factors(self, term: Any) -> tuple[Term, ...]:
        """Return the factors of a contraction, the wider first; none for another value."""
        found = factors(term)
        if not contracts(self.mask[term], *(self.mask[factor] for factor in found)):
            return ()
        return tuple(sorted(found, key=lambda factor: self.mask[factor].bit_count(), reverse=True))

    def _replaced(self, term: Any) -> Order:
        """Return the axes of a contraction with its new axes where the wider factor has the summed ones; () if none.

        Offsets of a window share an index with axes of the result: the new axes replace one that is summed alone, or
        come before them.
        """
        if not (both := self._factors(term)):
            return ()
        wider, other = (self._natural[factor] for factor in both)
        offsets = offsets_of(both[0])
        summed = [axis for axis in wider if axis in term.over]
        alone = (axis for axis in summed if axis not in offsets)
        place = next(alone, next(filter(offsets.__contains__, wider), None)) if summed else None
        new = tuple(axis for axis in other if axis not in wider and axis not in term.over)
        kept = {axis: () if axis in term.over else (axis,) for axis in wider}
        order = (part for axis in wider for part in ((*new, *kept[axis]) if axis is place else kept[axis]))
        return tuple(order) if place is not None and new else ()

    def _natural_of(self, term: Any) -> Order:
        kind, known = term.__class__, self._natural

        def widest_first(*args: Term) -> Iterator[Axis]:
            return chain(*sorted((known[arg] for arg in args), key=len, reverse=True))

        if kind is Elementwise:
            return tuple(dict.fromkeys(widest_first(*term.args)))
        if kind is Reduce or kind is Fold:
            folded = (term.x,) if kind is Reduce else read_by(term)
            place = {term.over[0]: places_of_fold(term)}  # elements stay where those were that they are folded up to
            found = (place.get(axis) or axis for axis in widest_first(*folded))
            return tuple(axis for axis in dict.fromkeys(found) if axis not in term.over)
        if kind is Remap:
            mapping = dict(term.map)
            groups = (index_axes(mapping[axis]) if axis in mapping else (axis,) for axis in known[term.x])
            return tuple(dict.fromkeys(axis for group in groups for axis in group))
        if kind is Case:
            return tuple(dict.fromkeys((*widest_first(term.a, term.b), *index_axes(term.cond))))
        return axes(term) if kind is Input or kind is Index else ()


def offsets_of(x: Any) -> set[Axis]:
    """Return the axes that share an index with others where an operand is read."""
    while x.__class__ is Case:
        x = x.a if len(axes(x.a)) >= len(axes(x.b)) else x.b
    found = (index_axes(e) for _, e in x.map) if x.__class__ is Remap else ()
    return {axis for several in found if len(several) > 1 for axis in several}


def _in_vectors(axis: Axis) -> bool:
    """Return whether aligned vectors of four elements along an axis cover it."""
    return bool(at_hint(axis.extent) % 4 == 0)


def steps_of(e: Any) -> Iterator[tuple[Axis, int]]:
    """Yield the axes along which an index goes on by few elements, with their number, if only within a row."""
    for atom, step in linear(e)[0].items():
        if step.__class__ is int and step > 0:
            if atom.__class__ is Axis:
                yield atom, step
            elif atom.__class__ is Binary and atom.op == "%":
                yield from ((axis, step * inner) for axis, inner in steps_of(atom.a))


def _last_of_input(x: Any) -> Axis | None:
    """Return the axis along which an operation reads an input."""
    images = dict(x.map) if x.__class__ is Remap else {}
    source = x.x if x.__class__ is Remap else x
    if source.__class__ is not Input or len(source.axes) < 2:
        return None
    last = source.axes[-1]
    return min(steps_of(images.get(last, last)), key=itemgetter(1), default=(None, 0))[0]


def read_again(result: int, factor: int) -> int:
    """Return the mask of the result's axes that a factor lacks: along these axes the factor is read again."""
    return result & ~factor


def contracts(result: int, *factors: int) -> bool:
    """Return whether a sum of a product is a contraction: each factor is read again along an axis of the result."""
    return bool(factors) and all(read_again(result, factor) for factor in factors)


def places_of_fold(term: Any) -> Axis | None:
    """Return the axis whose index bounds a prefix sum such as `Reduce(add, k, where(Index(k <= j), x, 0))`."""
    folded = term.args if term.__class__ is Fold else (term.x,) if term.__class__ is Reduce else ()
    bounds = {_bound(x, term.over) for x in folded}
    return bounds.pop() if len(bounds) == 1 else None


def _bound(x: Any, over: Order) -> Axis | None:
    chosen = x.__class__ is Elementwise and x.fn == "where" and x.args[0].__class__ is Index
    e: Any = x.args[0].expr if chosen else None
    bound = e.__class__ is Binary and e.op == "<=" and (e.a,) == over and e.b.__class__ is Axis
    return e.b if bound and e.b not in axes(x.args[1]) else None


def common_key(term: Fold) -> Any:
    """Return a key that is equal for folds with the same first part of a monoid: the running maximum of one operand."""
    monoid, _ = of_part(term.part)
    read = monoid.reads(monoid.parts[0])
    return monoid.name, term.over, tuple(x for n, x in zip(monoid.operands, term.args, strict=True) if n in read)
