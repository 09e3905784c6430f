"""A kernel under a choice of spellings: the estimate of what it computes.

A value inside of a kernel is an instance: the class, and the axes that it is seen under. Index maps on computed values
move them to the leaves, as lifting does; a reduction whose axis would be captured gets fresh ones.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from ...ir.dtypes import DTYPES, HALVES
from ..cost.kernel_estimate import EstimatedValue, KernelEstimate, bits
from ..kernels.parts import side_by_side
from .graph import EGraph

SPELLINGS = 20  # bits for the place of a spelling: budgets allow far fewer
Under = tuple[tuple[int, int], ...]  # ((axis, mask it is seen as), ...): only where it is another one


class Body:
    """Estimates of kernels, and what they depend on."""

    def __init__(self, graph: EGraph, leaves: Container[int]):
        self.graph, self.leaves = graph, leaves
        self.items = [DTYPES[name].item_bytes for name in graph.dtype]
        self.products: dict[int, int] = {}
        self.sizes = [graph.problem.size(mask) * item for mask, item in zip(graph.mask, self.items, strict=True)]

    def used(
        self, roots: Sequence[int], choice: Mapping[int, int], stored: Container[int]
    ) -> tuple[frozenset[int], set[int]]:
        """All that an estimate depends on, and the classes among it.

        As numbers: a class and its spelling where it is computed, a class alone where it is loaded.
        """
        classes, leaves = self.graph.classes, self.leaves
        pending, seen, found = list(roots), set(roots), []
        for cls in pending:
            if cls in leaves or (cls in stored and cls not in roots):
                found.append(cls << SPELLINGS)
                continue
            place = choice[cls]
            found.append(cls << SPELLINGS | place + 1)
            for child in classes[cls][place][2]:
                if child not in seen:
                    seen.add(child)
                    pending.append(child)
        return frozenset(found), seen

    def estimate(
        self, roots: Sequence[int], choice: Mapping[int, int], stored: Container[int]
    ) -> KernelEstimate | None:
        """The estimate. None for several roots whose loops differ; axes of equal extents are one axis there."""
        self.choice, self.stored, self.roots = choice, stored, frozenset(roots)
        self.steps: list[EstimatedValue] = []
        self.seen: dict[tuple[int, Under], int] = {}
        self.extents = self.graph.problem.extents
        paired = self.side_by_side(roots) if len(roots) > 1 else None
        paired = paired or [self.paired(roots[0], root) for root in roots]
        stores = tuple(self.visit(root, under or (), True) for root, under in zip(roots, paired, strict=True))
        if any(under is None for under in paired):
            return None
        own = self.extents is self.graph.problem.extents
        sizes = self.products if own else dict(self.products)
        return KernelEstimate(tuple(self.steps), stores, self.extents, sizes)

    def paired(self, first: int, root: int) -> Under | None:
        """The axes of a root as those of the first one of its kernel; None if there are other places."""
        a, b, extents = self.graph.mask[first], self.graph.mask[root], self.graph.problem.extents
        pairs = tuple(zip(bits(b & ~a), bits(a & ~b), strict=False))
        same = (b & ~a).bit_count() == (a & ~b).bit_count()
        return pairs if same and all(extents[own] == extents[other] for own, other in pairs) else None

    def side_by_side(self, roots: Sequence[int]) -> list[Under | None] | None:
        """The axes of roots that read ranges of one value, with its places as an axis of their kernel."""
        views = [self.ranges(root) for root in roots]
        found = side_by_side(views, self.graph.problem.extents)
        if found is None:
            return None
        extents, (_, ranges) = self.graph.problem.extents, found
        own = self.graph.mask[roots[0]] & ~ranges[0][0]
        paired: list[Under | None] = []
        along = self.fresh(ranges[0][0], sum(extents[axis] for axis, _ in ranges))
        for root, (axis, _) in zip(roots, ranges, strict=True):
            mine = self.graph.mask[root] & ~axis
            pairs = tuple(zip(bits(mine & ~own), bits(own & ~mine), strict=False))
            same = (mine & ~own).bit_count() == (own & ~mine).bit_count()
            alike = same and all(extents[a] == extents[b] for a, b in pairs)
            paired.append(((axis, along), *pairs) if alike else None)
        return paired

    def ranges(self, root: int) -> dict[Any, tuple[int, int]]:
        """What a root reads at a range of one of its own axes, among what its kernel computes."""
        found: dict[Any, tuple[int, int]] = {}
        pending, seen = [root], {root}
        while pending:
            op, attributes, children = self.graph.classes[(cls := pending.pop())][self.choice[cls]]
            for child in children:
                if child in self.leaves or child in self.stored:
                    continue
                shift = self.graph.problem.forms[attributes[0]].shift if op == "Map" else None
                if shift is not None and shift[1] & self.graph.mask[root]:
                    found.setdefault((child, shift[0]), shift[1:])
                if child not in seen:
                    seen.add(child)
                    pending.append(child)
        return found

    # ---- masks under other axes
    def mask(self, mask: int, under: Under) -> int:
        for axis, image in under:
            if mask & axis:
                mask = mask & ~axis | image if image & axis == 0 else mask | image
        return mask

    def restricted(self, under: Under, mask: int) -> Under:
        return tuple((axis, image) for axis, image in under if mask & axis)

    def visit(self, cls: int, under: Under, top: bool = False) -> int:
        """The step of a class seen under some axes."""
        mask = self.graph.mask[cls]
        under = self.restricted(under, mask) if under else under
        known = self.seen.get((cls, under))
        if known is None:
            step = self.load(cls, under) if self.is_load(cls, top) else self.compute(cls, under)
            known = self.seen[cls, under] = self.put(step)
        return known

    def put(self, step: EstimatedValue) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def is_load(self, cls: int, top: bool) -> bool:
        return cls in self.leaves or (cls in self.stored and not (top and cls in self.roots) and cls not in self.roots)

    def load(self, cls: int, under: Under) -> EstimatedValue:
        axes = self.mask(self.graph.mask[cls], under)
        if not self.in_memory(cls):
            return EstimatedValue(axes, item=0)
        return EstimatedValue(axes, buffer=cls, item=self.items[cls], whole=self.sizes[cls])

    def in_memory(self, cls: int) -> bool:
        """Whether reading a leaf is reading memory: numbers and indices are not there."""
        if cls not in self.leaves or cls in self.graph.known:
            return True
        first = self.graph.classes[cls][0]
        return not (first[0] == "Num" or (first[0] == "Leaf" and not self.graph.problem.leaves[first[1][0]].memory))

    def compute(self, cls: int, under: Under) -> EstimatedValue:
        place = self.choice[cls]
        op, attributes, children = self.graph.classes[cls][place]
        axes = self.mask(self.graph.mask[cls], under)
        item = self.items[cls]
        if op in ("Red", "Fold"):
            return self.fold(attributes, children, under, axes, item)
        if op == "Map":
            return self.read(attributes[0], children[0], under, axes, item)
        reads = tuple(self.visit(child, under) for child in children)
        if op == "Op":
            form = self.graph.problem.forms[attributes[0]]
            inner = {axis: self.mask(image, under) for axis, image in form.images}
            first = self.visit(children[0], self.under(children[0], inner, under)) if inner else reads[0]
            reads = (first, *reads[1:])
        fn = attributes[0] if op == "E" else "where" if op == "Case" else "copy"
        return EstimatedValue(axes, reads, 0, fn, item=item)

    def under(self, cls: int, inner: Mapping[int, int], under: Under) -> Under:
        """What a class is seen under below an index map that is itself seen under other axes."""
        out = {axis: self.mask(axis, under) for axis in bits(self.graph.mask[cls])}
        out.update((axis, image) for axis, image in inner.items() if axis in out)
        return tuple((axis, image) for axis, image in sorted(out.items()) if image != axis)

    def read(self, form: int, child: int, under: Under, axes: int, item: int) -> EstimatedValue:
        images = {axis: self.mask(image, under) for axis, image in self.graph.problem.forms[form].images}
        place = self.visit(child, self.under(child, images, under))
        return EstimatedValue(axes, (place,), 0, "copy", item=item)

    def fold(self, attributes: Any, children: Sequence[int], under: Under, axes: int, item: int) -> EstimatedValue:
        fn, over = attributes
        taken = 0
        for _, image in under:
            taken |= image
        if over & taken:  # an axis of its own would be captured
            renamed = {axis: self.fresh(axis) for axis in bits(over & taken)}
            under = (*under, *renamed.items())
            over = self.mask(over, tuple(renamed.items()))
        reads = tuple(self.visit(child, under) for child in children)
        half = all(self.graph.dtype[child] in HALVES for child in children)
        return EstimatedValue(axes, reads, over, fn, item=item, half=half)

    def fresh(self, axis: int, extent: int | None = None) -> int:
        """Another axis of the same or a given extent, for this kernel only."""
        if self.extents is self.graph.problem.extents:
            self.extents = dict(self.extents)
        bit = 1 << max(extent.bit_length() for extent in self.extents)
        self.extents[bit] = self.extents[axis] if extent is None else extent
        return bit
