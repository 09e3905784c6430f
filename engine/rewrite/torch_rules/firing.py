"""One use of a rule on one op: which axis each position of each bracket is, and what the axes are called.

First the brackets are placed: every position gets an unnamed axis or an index expression over such. Then each axis
takes a name: that of a position it stands at, a computed value's before an input's, the newest first, never one that
another axis of this firing took; otherwise a fresh one. Then the terms are built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.compose import remap, remap_expr
from ....ir.expr import Axis
from ....ir.node import Expr, Node, walk
from ....ir.program import TensorType
from ....ir.schemas import PARTS
from ....ir.tensor import Term, axes, dtype
from ...language.questions import SITE, Environment
from .values import AxisSlot, Entry, Exactly, Lowers, NotApplicable, OpCall, View, unnamed


class TorchSite:
    """The site that facts of level torch see."""

    def __init__(self, lowering: Lowers, result: View):
        self.lowering, self.result = lowering, result
        self.env: Environment = {SITE: self}
        self.slots: dict[Axis, AxisSlot] = {}
        self.placed: dict[Any, tuple[View, tuple[Entry, ...]]] = {}
        self.unowned: dict[View, tuple[Entry, ...]] = {}
        self.locals: dict[str, Any] = {}
        self.images: dict[Axis, Expr] = {}  # unnamed axis -> its name; 0 for an extent of 1
        self.result_entries: tuple[Entry, ...] = ()
        self.call: OpCall | None = None

    # ---- unnamed axes
    def axis(self, extent: int, free: bool = False) -> Axis:
        """A new axis without a name."""
        leaf = unnamed(len(self.slots))
        self.slots[leaf] = AxisSlot(extent, free)
        return leaf

    def extent(self, entry: Entry) -> int:
        """The extent of an axis in the making."""
        return self.slots[entry].extent

    # ---- placing
    def place(self, key: Any, view: View, entries: Sequence[Entry], short: bool) -> None:
        """Let a bracket stand at the dimensions of a value. short: it may be shorter than its axis, as under a Case."""
        if view.dtype in PARTS:
            raise NotApplicable(f"`{view.name}` holds complex numbers: a rule reads their parts, by Real and Imag")
        aligned = self.align(entries, view, short)
        self.placed[key] = (view, aligned)
        if view.term is None and view not in self.unowned:
            if self._plain(view, aligned):
                self.unowned[view] = aligned
            else:
                self.lowering.own(view)
        if view.term is not None:
            self._suggest(view, aligned)

    def align(self, entries: Sequence[Entry], view: View, short: bool = False) -> tuple[Entry, ...]:
        """One entry per dimension, from the right; extents of free axes are settled."""
        spare = len(entries) - len(view.shape)
        if spare < 0:
            raise NotApplicable(f"{len(entries)} indices for {view.name} of rank {len(view.shape)}")
        aligned = tuple(self._unwrapped(e, n) for e, n in zip(entries[spare:], view.shape, strict=True))
        for entry, n in zip(aligned, view.shape, strict=True):
            slot = self.slots.get(entry) if entry.__class__ is Axis else None
            if slot is None or n in (1, slot.extent):
                continue
            if slot.extent == 1 and slot.free:
                slot.extent = n
            elif not short:
                raise NotApplicable(f"extent {n} of {view.name} meets {slot.extent}")
        return aligned

    def place_result(self, entries: Sequence[Entry]) -> None:
        """The brackets of the result: torch said its shape, so these extents are final."""
        self.result_entries = self.align(entries, self.result)
        for entry in self.result_entries:
            if entry in self.slots:
                self.slots[entry].free = False

    def _unwrapped(self, entry: Entry, n: int) -> Entry:
        whole = entry.__class__ is Exactly and self.slots[entry.axis].extent == n
        return entry.axis if whole else entry

    def _plain(self, view: View, entries: tuple[Entry, ...]) -> bool:
        """Whether an input is read at distinct whole axes."""
        read = [entry for entry, n in zip(entries, view.shape, strict=True) if n != 1]
        whole = all(
            e in self.slots and self.slots[e].extent == n for e, n in zip(entries, view.shape, strict=True) if n != 1
        )
        return whole and len(set(read)) == len(read)

    def _suggest(self, view: View, entries: tuple[Entry, ...]) -> None:
        for entry, dim in zip(entries, view.dims, strict=True):
            slot = self.slots.get(entry) if dim is not None and entry.__class__ is Axis else None
            if slot is not None and dim is not None and dim.extent == slot.extent:
                slot.candidates.append((view.computed, self.lowering.age[dim], dim))

    # ---- naming
    def name_axes(self) -> None:
        """Give every axis its name, and inputs that were not read before their axes."""
        taken: set[Axis] = set()
        for slot in sorted(self.slots.values(), key=_priority):
            for _, _, name in sorted(slot.candidates, key=lambda c: c[:2], reverse=True):
                if name not in taken and slot.extent == name.extent:
                    taken.add(name)
                    slot.axis = name
                    break
        for entry, n in zip(self.result_entries, self.result.shape, strict=True):
            if n != 1:
                self.named(entry)
        for view, entries in self.unowned.items():
            if view.term is None:  # not owned meanwhile by an op that the template made
                view.own(tuple(None if n == 1 else self.named(e) for e, n in zip(entries, view.shape, strict=True)))

    def named(self, leaf: Axis) -> Axis:
        """The named axis that an unnamed one became."""
        slot = self.slots[leaf]
        if slot.axis is None:
            slot.axis = self.lowering.fresh(slot.extent)
        return slot.axis

    def resolve(self, entry: Entry) -> Expr:
        """An index expression over named axes."""
        if entry.__class__ is Axis:
            if entry not in self.images:
                self.images[entry] = 0 if self.slots[entry].extent == 1 else self.named(entry)
            return self.images[entry]
        if not isinstance(entry, Node):
            return entry.build(self) if hasattr(entry, "build") else entry
        for leaf in _leaves(entry):
            self.resolve(leaf)
        return remap_expr(entry, self.images)

    # ---- reading
    def stack(self, axis: Axis, terms: Sequence[Term]) -> Term:
        """The values of an op that stacks some, along an axis of our own."""
        assert self.call is not None
        lanes = tuple(dict.fromkeys(lane for term in terms for lane in axes(term)))
        kind, shape = dtype(terms[0]), tuple(lane.extent for lane in lanes)
        views = tuple(View(self.result.name, kind, shape, term, lanes) for term in terms)
        fields: dict[str | int, Any] = {"tensors": views, "dim": 0}
        types = (TensorType(kind, (len(views), *shape)),)
        made = self.lowering.made(self.call, self.result.name, "Stack", fields, types)
        assert made.term is not None
        named = zip(made.dims, (axis, *lanes), strict=True)
        return remap(made.term, {own: other for own, other in named if own is not None})

    def read(self, key: Any) -> Term:
        """The operand that stands behind a bracket."""
        view, entries = self.placed[key]
        assert view.term is not None, view
        mapping = {dim: self.resolve(e) for e, dim in zip(entries, view.dims, strict=True) if dim is not None}
        return remap(view.term, mapping)


def _priority(slot: AxisSlot) -> tuple[bool, bool, int]:
    """Who chooses first: axes of computed values, then axes that are not reduced, then those with little choice."""
    return not any(c[0] for c in slot.candidates), slot.bound, len({c[2] for c in slot.candidates})


def _leaves(e: Any) -> dict[Axis, None]:
    """The unnamed axes of an index expression (it holds no terms yet), in text order."""
    return dict.fromkeys(part for part in walk(e) if part.__class__ is Axis)
