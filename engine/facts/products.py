"""Operands of products that no slab can hold: what computing them in every warp costs.

An operand goes through shared memory where a block reads each element of it from one place. One that is made of several
elements of a stored value (a rotation of halves, a window) is computed by the threads that multiply it, from L2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...ir.sizes import at_hint
from ...ir.tensor import Elementwise, Reduce, Remap
from ..cost import fusing as cost
from ..cost.accesses import SECTOR
from ..language.facts import fact
from ..language.policy import policy


class Use(NamedTuple):
    """A product with an operand, the sum over it, and the axes that the operand is seen under there."""

    product: Any
    total: Any
    seen: int


def uses_of(site: Any, v: Any) -> Iterator[Use]:
    """The products that v is an operand of, also through a view."""
    flow, kept = site.flow, site.fusion.kept
    views = [r for r in flow.readers[v] if r.__class__ is Remap and r.x is v and r not in kept]
    for seen in (v, *views):
        for product in flow.readers[seen]:
            if product.__class__ is not Elementwise or product in kept:
                continue
            for total in flow.readers[product]:
                if total.__class__ is Reduce and flow.mask_of_axes(total.over) & flow.mask[seen]:
                    yield Use(product, total, flow.mask[seen])


@fact("scattered(term) -> bool", levels="tensor")
def scattered(site: Any, v: Any) -> bool:
    """Whether an element of v is made of several elements of one value in memory: no slab holds what a block needs."""
    made, _ = cost.parts(v, site.fusion.kept)
    sources = [term.x for term in made if term.__class__ is Remap]
    return len(set(sources)) < len(sources)


@fact("by_every_warp(term) -> num", levels="tensor")
def by_every_warp(site: Any, v: Any) -> float:
    """Seconds that the warps of a product take for the elements of its operand v that each of them computes."""
    made, read = cost.parts(v, site.fusion.kept)
    loads = sum(term.__class__ is Remap and term.x in read for term in made) or 1
    return max((_asked(site, use) * loads for use in uses_of(site, v)), default=0.0)


def _asked(site: Any, use: Use) -> float:
    """Seconds of L2 for one element of an operand at every place of a product: a sector, and what few blocks share."""
    flow, target = site.flow, site.target
    patch, tile = policy(target).patch_columns, policy(target).tile_columns
    result = flow.mask[use.total]
    both = [flow.mask[arg] for arg in use.product.args]
    batch = both[0] & both[-1] & result
    repeated = math.prod(-(-at_hint(axis.extent) // patch) for axis in flow.axes_in(result & ~use.seen))
    blocks = flow.elements(batch) * math.prod(
        -(-at_hint(axis.extent) // tile) for axis in flow.axes_in(result & ~batch)
    )
    busy = min(1.0, blocks / target.multiprocessors)
    asked = flow.elements(use.seen) * repeated * SECTOR
    return asked / (target.l2_bytes_per_second * busy)  # type: ignore[no-any-return]
