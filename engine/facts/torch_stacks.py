"""Facts of level torch about lists of tensors that were computed one after the other: the steps of a loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...ir.compose import remap
from ...ir.expr import Axis
from ...ir.stacked import stacked, steps
from ...ir.tensor import Term, axes, dtype
from ..rewrite.torch_rules.firing import TorchSite
from ..rewrite.torch_rules.values import View
from .torch_shapes import torch_fact


class RecurrenceParts(NamedTuple):
    """What each tensor but the first is made of: the one before it times a factor, plus a summand."""

    factors: tuple[View, ...]
    summands: tuple[View, ...]


@torch_fact("alike([value]) -> bool")
def alike(site: TorchSite, xs: tuple[View, ...]) -> bool:
    """Whether tensors of one shape are computed by one formula of their number in the list, but for operands that are
    the steps of a recurrence."""
    terms = _along_the_first(xs)
    return len(terms) > 1 and stacked(Axis("number", len(terms)), terms, lambda others: others[0]) is not None


@torch_fact("recurrence([value]) -> record")
def recurrence(site: TorchSite, xs: tuple[View, ...]) -> RecurrenceParts:
    """`.factors` and `.summands`: how each tensor but the first is made of the one before. Empty where one is not."""
    found = steps(_along_the_first(xs))
    factors = tuple(_part(xs[0], step.factor) for step in found)
    return RecurrenceParts(factors, tuple(_part(xs[0], step.summand) for step in found))


@torch_fact("turned_round([value]) -> [value]")
def turned_round(site: TorchSite, xs: tuple[View, ...]) -> tuple[View, ...]:
    """A list of tensors from its end."""
    return xs[::-1]


def _along_the_first(xs: Iterable[View]) -> tuple[Term, ...]:
    """The values of tensors along the axes of the first; nothing where one has no axes yet, or other dimensions."""
    found: list[Term] = []
    first: View | None = None
    for view in xs:
        first = first or view
        if view.term is None or view.shape != first.shape or view.dtype != first.dtype:
            return ()
        pairs = zip(view.dims, first.dims, strict=True)
        found.append(remap(view.term, {own: other for own, other in pairs if own is not None and other is not None}))
    return tuple(found)


def _part(view: View, term: Term) -> View:
    """An operand along the axes of a tensor, with its dimensions; of size 1 where the operand does not vary."""
    own = axes(term)
    dims = tuple(dim if dim in own else None for dim in view.dims)
    shape = tuple(1 if dim is None else dim.extent for dim in dims)
    return View(view.name, dtype(term), shape, term, dims)
