"""Values that are slices of a list put together: who reads one of them reads the whole at its place.

A rule that computes all tensors of a list at once says so, `Stacked(j, xs[os..]) = y[os..]`. What the whole is made of
keeps them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ....ir.compose import rebuilt, remap
from ....ir.expr import Axis
from ....ir.tensor import Const, Index, Input, Remap, Term, axes, operands

PLAIN = (Input, Remap, Const, Index)  # read where they lie: no slice is cheaper


def as_it_was_made(part: Term, read: Term) -> Iterator[tuple[Term, Term]]:
    """(value, slice): a value along the axes that it was computed along, if it was; a list may name them anew."""
    if isinstance(part, Remap):
        images = {axis: dict(part.map).get(axis, axis) for axis in axes(part.x)}
        names = {image: axis for axis, image in images.items() if image.__class__ is Axis}
        if len(names) < len(images):
            return
        part, read = part.x, remap(read, names)
    if not isinstance(part, PLAIN):
        yield part, read


def read_as_slices(roots: Sequence[Term], slices: Mapping[Term, Term], wholes: frozenset[Term]) -> tuple[Term, ...]:
    """The roots, over slices where they read what `slices` has one of. wholes: what slices are of."""
    new: dict[Term, Term] = {whole: whole for whole in wholes}
    new |= {term: of for term, of in slices.items() if term not in wholes}
    waiting = list(roots)
    while waiting:  # chains may be longer than the stack of Python
        term = waiting[-1]
        unknown = [below for below in operands(term) if below not in new] if term not in new else []
        if unknown:
            waiting += unknown
        else:
            new.setdefault(waiting.pop(), rebuilt(term, new.__getitem__) if term not in new else new[term])
    return tuple(new[root] for root in roots)
