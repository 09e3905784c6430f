"""Facts for fusion rules. `v` is the value whose `mat` is in question, `y` the operation that would absorb it.

All facts describe the resulting kernel. The site, not the terms, records the contents of y's part of that kernel.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Protocol

from ...ir.atoms import ATOMS, Atom
from ...ir.dtypes import DTYPES, HALVES
from ...ir.expr import Axis
from ...ir.facts.dataflow import Dataflow, common_key, contracts, offsets_of, places_of_fold, steps_of
from ...ir.facts.layout import SECTOR, WORD
from ...ir.functions import promote
from ...ir.node import contains, memoised
from ...ir.sizes import at_hint
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Reduce,
    Remap,
    Term,
    axes,
    dtype,
    factors,
    index_axes,
    operands,
    postorder,
)
from ..cost import limits as cost
from ..cost.tile_time import Attention
from ..language.evaluate import Value, tensor_fact
from ..language.rule import policy
from ..rewrite.terms.rewriter import TermSite
from .products import middle
from .structure import hidden_from
from .tensor import FusionSite, OperationSite, ProgramSite


class KernelOf(Protocol):
    """A kernel of a program: the value that it stores."""

    value: Term


class PairSite(ProgramSite, Protocol):
    """Two kernels that may become one."""

    entries: Sequence[KernelOf]  # all kernels, in the order of their launches

    def place(self, value: Term, /) -> int:
        """Return the index of the kernel of a value."""

    def leaves(self, value: Term) -> frozenset[Any]:
        """Return the values that the kernel of a value reads from memory."""

    def folds(self, value: Term) -> list[Any]:
        """Return the reductions of the kernel of a value."""

    def reduction(self, value: Term) -> Any:
        """Return the reduction that stands for all of a kernel, None where there is no such."""

    def extents(self, value: Term) -> Any:
        """Return the extents of a kernel's loops, None for one that does not store them in a plain layout."""

    def same_place(self, one: Term, other: Term) -> bool:
        """Return whether one kernel reads the result of another only where it stores its own."""


# ---- Operands of products that no shared tile can hold: what computing them in every warp costs.
#
# An operand goes through shared memory where a block reads each element of it at one index. One computed from
# several elements of a stored value (a rotation of halves, a window) is computed by the threads that multiply it, from
# L2.


def uses_of(flow: Dataflow, v: Any, kept: Container[Any]) -> Iterator[tuple[Any, Any, int]]:
    """Return the products that v is an operand of, also through a view or a padded window. A scan does not count.

    Each comes with the sum over it, and with the mask of the axes that the operand is seen under there.
    """
    return (
        (product, total, flow.mask[seen])
        for seen in flow.forms(v)
        if seen is v or seen not in kept
        for product in flow.readers[seen]
        if product.__class__ is Elementwise and product not in kept
        for total in flow.readers[product]
        if total.__class__ is Reduce
        and flow.mask_of_axes(total.over) & flow.mask[seen]
        and places_of_fold(total) is None
    )


def _tiles(site: FusionSite, mask: int, side: int) -> int:
    """Count the tiles along the axes of a mask."""
    return cost.blocks_across((at_hint(axis.extent) for axis in site.flow.axes_in(mask)), side)


@tensor_fact
def scattered(site: FusionSite, v: Value) -> bool:
    """Return whether an element of v is computed from several elements of one value in memory.

    In that case no shared tile holds the elements that a block needs.
    """
    sources = [term.x for term in site.parts(v)[0] if term.__class__ is Remap]
    return len(set(sources)) < len(sources)


@tensor_fact
def strided(site: FusionSite, v: Value) -> bool:
    """Return whether the results of a product read v, which is an input's, with a sector for each element.

    No axis of a result, and no long one of v, runs along the last dimension of the input.
    """
    view = v.args[0] if v.__class__ is Elementwise and v.fn == "copy" else v
    view = view.a if view.__class__ is Case else view
    if view.__class__ is not Remap or view.x.__class__ is not Input:
        return False
    last = axes(view.x)[-1]
    e = dict(view.map).get(last, last)
    close = any(step == 1 and axis.extent * WORD >= SECTOR for axis, step in steps_of(e))
    results = [site.flow.mask[total] for _, total, _ in uses_of(site.flow, v, site.kept)]
    return not close and not any(mask & site.flow.mask_of_axes(index_axes(e)) for mask in results)


@tensor_fact
def overlaps(x: Value) -> bool:
    """Return whether several axes share an index of what is read: the phases, offsets and positions of a window."""
    return bool(offsets_of(x))


@tensor_fact
def by_every_warp(site: FusionSite, v: Value) -> float:
    """Return the seconds of a product's warps for the elements of its operand v that each of them computes."""
    made, read = site.parts(v)
    loads = sum(term.__class__ is Remap and term.x in read for term in made) or 1
    return max((_asked(site, *use) * loads for use in uses_of(site.flow, v, site.kept)), default=0.0)


def _asked(site: FusionSite, product: Any, total: Any, seen: int) -> float:
    """Return the seconds of L2 traffic for one element of an operand at every index of a product.

    Each access reads a sector. Fewer blocks than multiprocessors reach only their share of the bandwidth.
    """
    flow, target = site.flow, site.target
    result = flow.mask[total]
    batch = flow.mask[product.args[0]] & flow.mask[product.args[-1]] & result
    repeated = _tiles(site, result & ~seen, policy(target).fragment_side)
    blocks = flow.elements(batch) * _tiles(site, result & ~batch, policy(target).tile_side)
    asked = flow.elements(seen) * repeated * SECTOR
    return asked / (target.l2_bytes_per_second * min(1.0, blocks / target.multiprocessors))


@tensor_fact
def reduction(v: Term) -> bool:
    """Return whether a value is a reduction."""
    return v.__class__ in (Reduce, Fold)


@tensor_fact
def evaluations(site: OperationSite, v: Term) -> int:
    """Return the largest number of elements computed for an element of v at looked-up indices."""
    return site.evaluations[v]


@tensor_fact
def places_read(site: OperationSite, v: Term) -> int:
    """Count the elements of v and of its operands that consumers of v need.

    An element counts once, and once more for each further index at which views read the same value.
    """
    return site.places.count[v]


@tensor_fact
def index_nodes(site: OperationSite, v: Term) -> int:
    """Count the nodes of the longest index in memory that consumers of v would compute."""
    return site.places.nodes[v]


@tensor_fact
def elements(site: FusionSite, v: Term) -> int:
    """Count the elements of a value."""
    return site.flow.size(v)


@tensor_fact
def readers(site: FusionSite, v: Term) -> int:
    """Count the operations that read a value."""
    return len(site.flow.readers[v])


@tensor_fact
def recompute(site: OperationSite, v: Value, y: Value, tile: int) -> int:
    """Count how often y's kernel would compute v: once for every tile of the grid axes that v lacks."""
    return _tiles(site, site.space & ~site.seen[v] & ~site.folded, tile)


@tensor_fact
def sweeps(site: OperationSite, y: Value, v: Value) -> bool:
    """Return whether y folds an axis that v varies along."""
    return reduction(y) and site.flow.mask_of_axes(y.over) & site.seen[v] != 0


@tensor_fact
def widens(site: OperationSite, y: Value, v: Value) -> bool:
    """Return whether v is read again along an axis of y: as a factor of a contraction is."""
    return bool(site.space & ~site.flow.mask_of_axes(y.over) & ~site.seen[v])


@tensor_fact
def in_tiles(site: OperationSite, v: Value) -> bool:
    """Return whether y's kernel computes v in tiles: a contraction along whose axes the kernel folds nothing else."""
    mask = site.flow.mask
    return not site.seen[v] & site.folded and contracts(mask[v], *(mask[factor] for factor in factors(v)))


@tensor_fact
def only_for(site: TermSite, v: Value, y: Value) -> bool:
    """Return whether v flows to y alone, through values that have one reader each."""
    readers = _flow(site, y).readers
    while v is not y:
        if len(readers[v]) != 1:
            return False
        (v,) = readers[v]
    return True


@tensor_fact
def folded_together(site: FusionSite, v: Value, y: Value) -> bool:
    """Return whether all that v flows into is tuple reductions that share their loop with y."""
    readers = site.flow.readers

    def ends(term: Any) -> bool:
        return reduction(term) or term in site.kept or not readers[term]

    return y.__class__ is Fold and all(
        term.__class__ is Fold and common_key(term) == common_key(y)
        for term in postorder(readers[v], lambda term: () if ends(term) else readers[term])
        if ends(term)
    )


@tensor_fact
def rows(site: OperationSite, v: Value) -> int:
    """Count the independent elements of v that the kernel would hold: its blocks, if v is reduced cooperatively."""
    return site.flow.elements(site.seen[v])


@tensor_fact
def row(site: OperationSite, v: Value, y: Value) -> int:
    """Count the elements of y for one of v, along axes that the kernel reduces."""
    return site.flow.elements(site.space & ~site.seen[v] & site.folded)


@tensor_fact
def repeats(site: OperationSite, y: Value, v: Value) -> bool:
    """Return whether y's index map would compute an element of v repeatedly, or an element known only at run time."""
    before = site.open[y.x].get(v)
    if before is None:  # v is an index, not what is read
        return True
    gathered = site.flow.mask_of_axes(axis for axis, e in y.map if contains(e, Term))
    return gathered & before != 0 or site.flow.elements(site.seen[v]) > site.flow.elements(before)


@tensor_fact
def fixed(y: Value) -> bool:
    """Return whether y's index map reads one index along the axes that it replaces."""
    return all(e.__class__ is int for _, e in y.map)


@tensor_fact
def moved(site: OperationSite, y: Value) -> bool:
    """Return whether y's index map replaces an axis that something folded below it varies with."""
    flow = site.flow
    replaced = flow.mask_of_axes(axis for axis, _ in y.map)
    return any(replaced & flow.mask[value] for value in site.open[y.x] if reduction(value))


@tensor_fact
def widest(site: OperationSite, y: Value) -> int:
    """Return the most elements of anything that y would read: the value that climbs, or what is in memory."""
    return max(site.flow.size(site.top), _largest_read(site, operands(y), policy(site.target).diamond_operations))


def _largest_read(site: FusionSite, values: Iterable[Any], reach: int) -> int:
    """Return the elements of the largest stored value that some values read through so many elementwise operations."""
    size, largest, most = site.flow.size, 0.0, dict[Any, float]()  # of a value: the elements that its readers see
    pending = [(value, math.inf, reach) for value in values]
    for term, seen, left in pending:  # the nearest first: a value that is met again is met with less reach
        while term.__class__ is Remap and term not in site.kept:
            term, seen = term.x, min(seen, size(term))
        if term in most and most[term] >= seen:
            continue
        most[term], kind = seen, term.__class__
        if kind is Input or term in site.kept:
            own = min(seen, size(term))
            largest = own if own > largest else largest
        elif left and kind in (Elementwise, Case):
            for x in operands(term):
                if x not in most or most[x] < seen:
                    pending += ((x, seen, left - 1),)
    return int(largest)


@tensor_fact
def kernels(site: OperationSite, v: Value) -> int:
    """Count the kernels that would compute a value."""
    return int(site.owners[v]).bit_count()


@tensor_fact
def operations(site: FusionSite, v: Value) -> int:
    """Count the operations that compute a value from memory, each once."""
    return len(site.parts(v)[0])


@tensor_fact
def holds_reduction(site: OperationSite, v: Value) -> bool:
    """Return whether computing a value means folding something that is not stored."""
    return bool(site.open[v])


@tensor_fact
def reductions_in(site: OperationSite, y: Value) -> int:
    """Count the reductions that y's kernel would compute before y."""
    return sum(map(reduction, site.seen))


@tensor_fact
def folds_once(site: PairSite, v: Value, w: Value) -> bool:
    """Return whether all reductions of two kernels are over the same axes, and each has one."""
    one, other = site.reduction(v), site.reduction(w)
    return None not in (one, other) and one.over == other.over


@tensor_fact
def same_loops(site: PairSite, v: Value, w: Value) -> bool:
    """Return whether two kernels store values of the same extents, in plain layouts."""
    return site.extents(v) is not None and site.extents(v) == site.extents(w)


@tensor_fact
def common_operand(site: PairSite, v: Value, w: Value) -> bool:
    """Return whether the reductions of two kernels reduce the same buffer at the same indices."""
    over = set(site.reduction(v).over)
    return any(not over.isdisjoint(axes(read)) for read in _reads(site, v) & _reads(site, w))


def _reads(site: PairSite, value: Any) -> set[Any]:
    """Return the values that a kernel reads from memory, and the index maps that it reads them through."""
    leaves = site.leaves(value)
    reached = postorder((value,), lambda term: () if term in leaves and term is not value else operands(term))
    return {term for term in reached if term in leaves or term.__class__ is Remap}


@tensor_fact
def independent(site: PairSite, v: Value, w: Value) -> bool:
    """Return whether w reads neither v nor anything stored between the two."""
    leaves = site.leaves(w)
    return all(entry.value not in leaves for entry in site.entries[site.place(v) : site.place(w)])


@tensor_fact
def same_place(site: PairSite, v: Value, w: Value) -> bool:
    """Return whether w reads v only at the index of its own element, and needs no other stored value that needs v."""
    return site.same_place(v, w)


@tensor_fact
def folded(site: PairSite, v: Value) -> int:
    """Return the largest number of elements that the reductions of a kernel reduce to one; 1 without reductions."""
    return max((_places(term.over) for term in site.folds(v)), default=1)


@tensor_fact
def distance(site: PairSite, v: Value, w: Value) -> int:
    """Return the distance in launches between two stored values; 1 for neighbours."""
    return site.place(w) - site.place(v)


@tensor_fact
def beside(site: FusionSite, v: Value, y: Value) -> bool:
    """Return whether y's kernel folds over the axis that v folds, for more axes, and reads what v reads: one loop."""
    if v.__class__ is not Reduce or len(v.over) != 1:
        return False
    mask, (mine, read) = site.flow.mask, site.parts(v)
    for other in site.parts(y)[0]:
        if other.__class__ is Reduce and other.over == v.over and other not in mine:
            made, reads = site.parts(other)
            wider = mask[other] & mask[v] == mask[v] != mask[other]
            if wider and v not in made and not set(read).isdisjoint(reads):
                return True
    return False


@tensor_fact
def again(site: OperationSite, v: Value, y: Value, tile: int) -> float:
    """Return the seconds to compute v in every block of y's kernel, from what is in shared memory."""
    blocks = cost.blocks(site.flow, site.space & ~site.folded, site.seen[v], tile, site.target)
    return blocks * _in_block(site, v, v.x if v.__class__ is Reduce else v)


def _in_block(site: FusionSite, v: Any, space: Any) -> float:
    """Return the seconds to compute v once, reading each of its elements from shared memory."""
    made, read = site.parts(v)
    return _issue_seconds(site, made, len(read) * site.flow.size(space))


def _issue_seconds(site: ProgramSite, made: list[Any], more: float, times: float = 1) -> float:
    """Return the seconds of a full device to issue some operations and more slots, a number of times."""
    return cost.issue_seconds(times * (cost.slots_of(site.flow, made, site.target) + more), site.target)


def _traffic_seconds(site: ProgramSite, values: list[Any]) -> float:
    """Return the seconds to read or write some values in memory, each as often as it is listed."""
    return cost.traffic_seconds(cost.bytes_of(site.flow, values), site.target)


@tensor_fact
def in_iterations(site: OperationSite, v: Value, y: Value) -> float:
    """Return the additional seconds of v inside y's loop, compared with a kernel of its own.

    The result is 0 unless v is a reduction and y reduces along its axes.
    The threads of the loop are those that share a result of y, whatever threads v has: a block, or one for each element
    of a short row. A product of v has no tiles there: each of its terms loads its factors. Where its factors vary along
    different axes of y, the loop is scheduled as a product's, with a thread for each result.
    """
    if not reduction(v) or not sweeps(site, y, v):
        return 0.0
    flow = site.flow
    made, read = site.parts(v)
    nested = _issue_seconds(site, made, len(read) * flow.elements(flow.mask[v] | flow.mask_of_axes(v.over)))
    results = site.space & ~site.folded & ~flow.mask_of_axes(y.over)
    tiled = any(contracts(results, *(flow.mask[x] for x in factors(term))) for term in made if term.__class__ is Reduce)
    busy = min(1.0, flow.elements(results) / _threads(site.target)) if tiled else _busy(site, y)
    return max(nested, _traffic_seconds(site, read)) / busy - _seconds_alone(site, v)


def _busy(site: OperationSite, reduced: Value) -> float:
    """Return the share of the device that has threads, if the results of a reduction have a block or a thread each."""
    flow, over, target = site.flow, site.flow.mask_of_axes(reduced.over), site.target
    row, block = flow.elements(over), int(policy(target).block_threads)
    threads = flow.elements(site.space & ~site.folded & ~over) * (min(row, block) if row >= target.warp_lanes else 1)
    return min(1.0, threads / _threads(target))


def _threads(target: Any) -> int:
    """Return the threads that occupy a device."""
    return int(policy(target).block_threads * target.multiprocessors)


def _seconds_alone(site: FusionSite, v: Value) -> float:
    """Return the seconds of a value in a kernel of its own, but for the launch."""
    made, read = site.parts(v)
    return max(_issue_seconds(site, made, sum(map(site.flow.size, read))), _traffic_seconds(site, read))


@tensor_fact
def beside_others(site: OperationSite, v: Value) -> float:
    """Return the additional seconds of a kernel if it computes v and independent reductions in other loops.

    The result is 0 unless v is a reduction with such others. Blocks share the rows of a kernel with one loop where
    there are few rows (`split_fold`), and of a kernel with several loops they do not.
    """
    if not reduction(v):
        return 0.0
    flow, over, target = site.flow, site.flow.mask_of_axes(v.over), site.target
    others = [  # what a loop of the kernel computes in each iteration is another matter (`in_iterations`)
        x
        for x, mask in site.seen.items()
        if reduction(x) and not mask & site.folded and flow.mask_of_axes(x.over) != over
        if v not in site.open[x] and x not in site.open[v]
    ]
    if not others or 2 * flow.elements(site.space & ~site.folded) > target.multiprocessors:
        return 0.0
    together = sum(_seconds_alone(site, x) / _busy(site, x) for x in (v, *others))
    return together - sum(_seconds_alone(site, x) for x in others)


@tensor_fact
def looped_over(site: OperationSite, v: Value, y: Value) -> float:
    """Return the additional seconds of y's kernel if its threads loop over the axes that v lacks.

    The result is 0 unless v is a sum that one thread computes, and the loop has a warp of elements or more. The kernel
    then has a thread for each element of v. Neighbouring threads read a sector each where the loop runs along the
    fastest axis; there the result is 0 if the loop has a reduction of its own, which more threads share.
    """
    flow, target = site.flow, site.target
    behind = site.space & ~site.seen[v] & ~site.folded
    short = reduction(v) and flow.elements(flow.mask_of_axes(v.over)) < target.warp_lanes
    if not short or flow.elements(behind) < target.warp_lanes:
        return 0.0
    along = behind & flow.mask_of_axes(flow.natural(y)[-1:])
    if along and any(x is not v and reduction(x) and mask & behind for x, mask in site.seen.items()):
        return 0.0
    made, read = site.parts(y, (v,))
    seconds: float = max(_issue_seconds(site, made, flow.size(y)), _traffic_seconds(site, [*read, y]))
    busy: float = min(1.0, flow.elements(site.seen[v]) / (policy(target).block_threads * target.multiprocessors))
    return seconds * (SECTOR // WORD if along else 1) / busy - seconds


@tensor_fact
def product_blocks(site: FusionSite, v: Value, tile: int) -> int:
    """Count how often the blocks of a product compute its operand v.

    Every tile of the columns that v lacks computes v once, or once for each position of a window that reads an element.
    """
    flow = site.flow
    return max((
        cost.blocks(flow, flow.mask[total], seen, tile, site.target) * max(1, flow.elements(seen) // flow.size(v))
        for _, total, seen in uses_of(site.flow, v, site.kept)
    ), default=1)  # fmt: skip


@tensor_fact
def again_in(site: FusionSite, blocks: int, v: Value) -> float:
    """Return the seconds to compute an operand in so many blocks, and to put it into shared memory there.

    The elements of a window are gathered: a thread computes where each one is, unless asynchronous copies do.
    """
    flow = site.flow
    placed = max((
        1 + 2 * cost.DIVISION * (len(total.over) - 1)  # the digits of the sum
        for product, total, seen in uses_of(flow, v, site.kept)
        if flow.elements(seen) > flow.size(v)
        and contracts(flow.mask[total], *map(flow.mask.__getitem__, product.args))
    ), default=1)  # fmt: skip
    return blocks * (_in_block(site, v, v) + _issue_seconds(site, [], placed * flow.size(v)))


@tensor_fact
def multiplied_narrow(site: FusionSite, y: Value) -> bool:
    """Return whether tensor cores can multiply for all consumers of a value.

    All consumers must be products, and an atom must multiply the dtypes from which both factors are widened.
    """
    readers = site.flow.readers
    products = [product for r in readers[y] for product in (readers[r] if r.__class__ is Remap else (r,))]
    return bool(products) and all(
        product.__class__ is Elementwise
        and product.fn == "multiply"
        and any(
            atom.sums == dtype(y) and atom.multiplies(*map(_widened_from, product.args))
            for atom in ATOMS.values()
            if atom.on(site.target.sm)
        )
        for product in products
    )


@tensor_fact
def joins_products(site: FusionSite, v: Value) -> bool:
    """Return whether v contains a product of groups of four warps, and a consumer of v another such product."""
    own = _group_products(site, site.parts(v)[0])
    return bool(own) and any(_group_products(site, site.parts(r)[0]) - own for r in site.flow.readers[v])


@tensor_fact
def several_products(site: PairSite, v: Value, w: Value) -> bool:
    """Return whether each of two kernels has a product that groups of four warps multiply."""
    return all(_group_products(site, site.folds(value)) for value in (v, w))


def _group_products(site: ProgramSite, made: Iterable[Any]) -> set[Any]:
    """Return the operations that are sums of products for groups of four warps, by their dtypes and sizes."""
    if not policy(site.target).asynchronous_mma:
        return set()
    return {total for total in made if total.__class__ is Reduce and _for_groups(total, site.target)}


def _for_groups(total: Any, target: Any) -> bool:
    numbers = policy(target)
    if _own_places(total) < numbers.tile_side:
        return False
    chunks = 2 * _places(total.over) // (SECTOR // 2 * min(numbers.chunk_vectors))  # of halves, in vectors of 16 bytes
    return chunks >= numbers.split_least_chunks and any(atom.asynchronous for atom in _atoms(total, target))


def _atoms(total: Any, target: Any) -> list[Atom]:
    """Return the atoms that multiply the factors of a sum of products."""
    held = [_widened_from(factor) or dtype(factor) for factor in factors(total)]
    return [atom for atom in ATOMS.values() if held and atom.on(target.sm) and atom.multiplies(*held)]


@tensor_fact
def in_products(site: FusionSite, v: Value) -> float:
    """Return the seconds of the products that read v and that tensor cores would multiply if v was stored.

    Tensor cores multiply what is loaded: also at other indices, widened, or in windows padded with zeros. The result is
    0 for such a v, and for one with a reduction in it, whose results are in registers.
    """
    padded = v.__class__ is Case and v.b.__class__ is Const and v.b.value == 0
    if v.__class__ is Remap or padded or _widened_from(v) or any(map(reduction, site.parts(v)[0])):
        return 0.0
    totals = {total for _, total, _ in uses_of(site.flow, v, site.kept)}
    return sum(
        _issue_seconds(site, [total], 0)
        for total in totals
        if "f32" not in map(dtype, factors(total)) or total in site.in_tf32
        if any(atom.m <= _own_places(total) for atom in _atoms(total, site.target))
    )


@memoised
def _own_places(total: Any) -> int:
    """Return the indices along the axes that only one factor of a sum of products has; 0 where one of them has none."""
    a, b = (set(axes(factor)) for factor in factors(total) or (total, total))
    return min(_places(a - b), _places(b - a)) if a - b and b - a else 0


def _places(of: Iterable[Axis]) -> int:
    return math.prod(at_hint(axis.extent) for axis in of)


def _widened_from(x: Any) -> Any:
    """Return the dtype of what a value is widened from, None where it is anything else."""
    x = x.x if x.__class__ is Remap else x
    cast = x.__class__ is Elementwise and x.fn in DTYPES and promote(x.fn, dtype(x.args[0])) == x.fn
    return dtype(x.args[0]) if cast else None


@tensor_fact
def apart(site: FusionSite, v: Value) -> float:
    """Return the seconds that a kernel of its own takes for v, and to read v again."""
    return cost.fixed_seconds(site.target) + _traffic_seconds(site, [*site.parts(v)[1], v, v])


@tensor_fact
def multiplied(site: FusionSite, y: Value) -> bool:
    """Return whether a value flows into a product that reads it many times, through values that nothing stores."""
    possible, seen, pending = site.flow.leading_to(_multiplied_at_once), {y}, [y]
    while pending:
        term = pending.pop()
        if term not in possible:
            continue
        if _multiplied_at_once(site.flow, term, site.kept):
            return True
        following = {x for x in site.flow.readers[term] if x.__class__ is not Reduce and x not in site.kept} - seen
        seen |= following
        pending += following
    return False


def _multiplied_at_once(flow: Dataflow, term: Any, kept: Container[Any] = ()) -> bool:
    """Return whether a product that reads a value many times is a reader of it."""
    uses = (flow.mask[product] & ~seen for product, _, seen in uses_of(flow, term, kept))
    return any(reader.__class__ is Fold for reader in flow.readers[term]) or any(uses)


# ---- Facts about values that climb: `x` is stored, `y` would be stored instead.


@tensor_fact
def climbed(site: FusionSite, y: Value) -> float:
    """Return the seconds of memory to store a value and to read it once for every reader."""
    return _traffic_seconds(site, [y] * (len(site.flow.readers[y]) + 1))


@tensor_fact
def folds_across(site: FusionSite, y: Value, x: Value) -> bool:
    """Return whether making y of x takes a fold of something else, along an axis that x varies with."""
    return _folds_along(site, site.parts(y, (x,))[0], x)


@tensor_fact
def waits_across(site: FusionSite, y: Value, x: Value) -> bool:
    """Return whether y reads a stored reduction of a value that x reads too, along an axis that x varies with.

    In this case x does not wait for the reduction itself.
    """
    for leaf in site.parts(y, (x,))[1]:
        if leaf is not x and leaf in site.kept:
            made, below = site.parts(leaf)
            if _folds_along(site, made, x) and not set(below).isdisjoint(site.parts(x)[1]):
                return True
    return False


def _folds_along(site: FusionSite, made: Any, x: Any) -> bool:
    """Return whether one of some values is a fold along an axis that x varies with."""
    flow = site.flow
    return any(flow.mask_of_axes(term.over) & flow.mask[x] for term in made if term.__class__ in (Reduce, Fold))


@tensor_fact
def left(site: FusionSite, x: Value, y: Value) -> float:
    """Return the seconds to store x, and for each reader of y to make y of x and of what else is in memory."""
    times = len(site.flow.readers[y])
    made, read = site.parts(y, (x,))
    others = [leaf for leaf in read if leaf is not x]
    return _traffic_seconds(site, [x, *[x, *others] * times]) + _issue_seconds(site, made, 0, times)


# ---- Facts of rules that move a factor after a product, before fusion: whether that pays.


def _flow(site: TermSite, v: Any) -> Any:
    """Return the program as a flow; of an example or a fragment, what is below a value."""
    if site.flow is None or v not in site.flow.mask:
        site.flow = Dataflow((*site.roots, v))
    return site.flow


@tensor_fact
def sums(s: Value, k: Axis) -> bool:
    """Return whether the computation of a value contains a sum along an axis."""
    return any(term.__class__ is Reduce and k in term.over for term in cost.parts(s, ())[0])


@tensor_fact
def afterwards(site: TermSite, v: Value, y: Value, tile: int) -> float:
    """Return the seconds to compute the operand v of the product y in every block, from what is in shared memory."""
    flow = _flow(site, y)
    blocks = cost.blocks(flow, flow.mask[y], flow.mask[v], tile, site.target)
    moved = 2 * flow.size(v)  # a load and a store of each element
    return _issue_seconds(site, cost.parts(v, ())[0], moved, blocks)


@tensor_fact
def beforehand(site: TermSite, v: Value, y: Value) -> float:
    """Return the seconds that a kernel of its own takes for the operand v of a product y."""
    _flow(site, y)
    return cost.fixed_seconds(site.target) + _traffic_seconds(site, [*cost.parts(v, ())[1], v])


# ---- Attention in one pass, or in three kernels that store the scores: the rules price both (rules/policy.rw).


@tensor_fact
def attention_shape(x: Term, v: Term, n: Axis) -> Attention:
    """Return the extents of scores x, and of values v that they weigh along n."""
    own, weighed = axes(x), axes(v)
    results = [axis for axis in weighed if axis not in own]
    while isinstance(v, Elementwise) and v.fn == "f32":
        (v,) = v.args
    halves = dtype(v) in HALVES
    return Attention(
        _places(axis for axis in own if axis is not n and axis in weighed),
        _places(axis for axis in own if axis is not n and axis not in weighed),
        at_hint(n.extent), _products(x), _places(results), *_seen(x, n), WORD // 2 if halves else WORD, halves,
        all(axis.extent.__class__ is int for axis in results),
    )  # fmt: skip


def _products(x: Term) -> int:
    """Count the products that compute one element of x from stored values.

    The factors of these products are computed before, whatever they are.
    """
    reached = postorder((x,), lambda term: () if term.__class__ is Reduce else operands(term))
    return sum(_places(term.over) for term in reached if term.__class__ is Reduce)


def _seen(x: Any, n: Axis) -> tuple[float, bool]:
    """Return the number of indices along n that count in the middle row, and whether there are others.

    There are if `x = where(n <= e, y, -inf)`.
    """
    columns = at_hint(n.extent)
    if x.__class__ is not Elementwise or x.fn != "where" or x.args[0].__class__ is not Index:
        return columns, False
    end = hidden_from(x.args[0].expr, getattr(x.args[2], "value", None), n)
    return (columns, False) if end is None else (middle(end, {}), True)
