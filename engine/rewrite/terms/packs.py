"""Weights that are summed against one value, side by side as one weight: q, k and v; gate and up.

The whole is a value over the weights (a chain of cases), so the equation that uses it stands by itself; one who knows
the weights when the program is loaded computes it then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ....ir import compose
from ....ir.expr import Axis, add, binary, subtract
from ....ir.names import unused
from ....ir.tensor import AxisMap, Input, Remap, Term, axes, dtype, factors, postorder


class Packed(NamedTuple):
    """Where a weight is in a packed one: whole[places] is the weight."""

    whole: Term
    places: AxisMap
    axis: Axis


Packs = dict[tuple[Term, frozenset[Axis]], Packed]


def find_packs(roots: Iterable[Term], weights: Collection[str], terms: Sequence[Term] | None = None) -> Packs:
    """{(weight, axes that are summed): where it is packed}, for weights with a sibling.

    terms: the values to look at, by default all below the roots.
    """
    siblings: dict[Any, dict[Term, Axis]] = {}
    order = postorder(roots) if terms is None else terms
    names = {axis.name for term in order for axis in axes(term)}
    for term in order:
        both = factors(term)
        for x, w in (both, both[::-1]) if both else ():
            over: frozenset[Axis] = frozenset(term.over)  # type: ignore[attr-defined]
            own = [axis for axis in axes(w) if axis not in over]
            if _weight(w, weights) and len(own) == 1 and own[0] not in axes(x) and over <= set(axes(w)):
                rest = tuple(sorted(axis.name for axis in over))
                siblings.setdefault((x, over, rest, dtype(w)), {})[w] = own[0]
    packs: Packs = {}
    for (_, over, _, _), members in siblings.items():
        if len(members) > 1 and not any((w, over) in packs for w in members):
            packs.update(_packed(members, over, names))
    return packs


def _weight(w: Any, weights: Collection[str]) -> bool:
    """An input that is known when the program is loaded, perhaps under other names for its axes."""
    if w.__class__ is Remap and all(e.__class__ is Axis for _, e in w.map):
        w = w.x
    return w.__class__ is Input and w.name in weights


def _packed(members: dict[Term, Axis], over: frozenset[Axis], names: set[str]) -> Packs:
    name = unused("c", names, ("c",), first=0)
    names.add(name)
    every = Axis(name, sum(int(axis.extent) for axis in members.values()))
    offset, starts = 0, []
    for axis in members.values():
        starts.append(offset)
        offset += int(axis.extent)
    placed = list(zip(members.items(), starts, strict=True))
    whole: Any = None
    for (w, axis), start in reversed(placed):
        mine = compose.remap(w, {axis: subtract(every, start)})
        whole = mine if whole is None else compose.case(binary("<", every, start + int(axis.extent)), mine, whole)
    return {(w, over): Packed(whole, ((every, add(axis, start)),), every) for (w, axis), start in placed}
