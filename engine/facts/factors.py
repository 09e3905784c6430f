"""Facts of rules that move a factor behind a product, before fusion: whether that pays."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Axis
from ...ir.facts.dataflow import Dataflow
from ...ir.tensor import Elementwise, Reduce, Remap
from ..cost import fusing as cost
from ..language.facts import fact
from ..language.policy import policy


def _flow(site: Any, v: Any) -> Any:
    """The program as a flow; of an example or a fragment, what is below a value."""
    if site.flow is None or v not in site.flow.mask:
        site.flow = Dataflow((*site.roots, v) if v not in site.roots else site.roots)
    return site.flow


@fact("sums(term, axis) -> bool", levels="tensor")
def sums(site: Any, s: Any, k: Axis) -> bool:
    """Whether a value is made of a sum along an axis."""
    return any(term.__class__ is Reduce and k in term.over for term in cost.parts(s, ())[0])


@fact("picked(term) -> bool", levels="tensor")
def picked(site: Any, y: Any) -> bool:
    """Whether only some places of a value are read: all that it flows into are index maps that have fewer elements."""
    flow = _flow(site, y)
    todo, found = [y], False
    while todo:
        term = todo.pop()
        for reader in flow.readers[term]:
            if reader.__class__ is Remap and flow.elements(flow.mask[reader]) < flow.elements(flow.mask[y]):
                found = True
            elif reader.__class__ is Elementwise and flow.mask[reader] == flow.mask[y]:
                todo.append(reader)
            else:
                return False
    return found


@fact("read_once(term, term) -> bool", levels="tensor")
def read_once(site: Any, v: Any, y: Any) -> bool:
    """Whether v is read on the way to y only."""
    flow = _flow(site, y)
    while v is not y:
        following = flow.readers[v]
        if len(following) != 1:
            return False
        v = following[0]
    return True


@fact("afterwards(term, term, int) -> num", levels="tensor")
def afterwards(site: Any, v: Any, y: Any, tile: int) -> float:
    """Seconds to compute the operand v of the product y in every block, from what is in shared memory."""
    flow = _flow(site, y)
    blocks = cost.blocks(flow, flow.mask[y], flow.mask[v], tile, site.target)
    made, _ = cost.parts(v, ())
    moved = policy(site.target).shared_accesses * flow.elements(flow.mask[v])
    return cost.issue_seconds(blocks * (cost.slots_of(flow, made, site.target) + moved), site.target)


@fact("beforehand(term, term) -> num", levels="tensor")
def beforehand(site: Any, v: Any, y: Any) -> float:
    """Seconds that a kernel of its own takes for the operand v of a product y."""
    flow = _flow(site, y)
    _, read = cost.parts(v, ())
    size = cost.bytes_of(flow, [*read, v])
    return cost.fixed_seconds(site.target) + cost.traffic_seconds(size, site.target)
