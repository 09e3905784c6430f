"""Facts for fusion rules. `v` is the value whose `mat` is in question, `y` the operation that would absorb it.

All facts describe the resulting kernel. The site, not the terms, records the contents of y's part of that kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...ir.atoms import ATOMS
from ...ir.dtypes import DTYPES, HALVES
from ...ir.expr import Axis, linear
from ...ir.facts.dataflow import Dataflow, common_key, read_again
from ...ir.facts.layout import SECTOR
from ...ir.functions import promote
from ...ir.node import Node, contents, marks_of
from ...ir.ranges import interval
from ...ir.sizes import at_hint
from ...ir.tensor import Case, Const, Elementwise, Fold, Index, Input, Reduce, Remap, Term, axes, dtype, operands
from ..cost import limits as cost
from ..language.evaluate import Value, tensor_fact
from ..language.rule import policy
from .structure import upper_bound

# ---- Operands of products that no shared tile can hold: what computing them in every warp costs.
#
# An operand goes through shared memory where a block reads each element of it at one index. One computed from
# several elements of a stored value (a rotation of halves, a window) is computed by the threads that multiply it, from
# L2.


class Use(NamedTuple):
    """A product with an operand, the sum over it, and the axes that the operand is seen under there."""

    product: Any
    total: Any
    seen: int


def uses_of(site: Any, v: Any) -> Iterator[Use]:
    """Yield the products that v is an operand of, also through a view or a padded window."""
    flow, kept = site.flow, site.kept
    for seen in (v, *(form for form in flow.forms(v)[1:] if form not in kept)):
        for product in flow.readers[seen]:
            if product.__class__ is not Elementwise or product in kept:
                continue
            for total in flow.readers[product]:
                if total.__class__ is Reduce and flow.mask_of_axes(total.over) & flow.mask[seen]:
                    yield Use(product, total, flow.mask[seen])


@tensor_fact
def scattered(site: Any, v: Value) -> bool:
    """Return whether an element of v is computed from several elements of one value in memory.

    In that case no shared tile holds the elements that a block needs.
    """
    made, _ = cost.parts(v, site.kept)
    sources = [term.x for term in made if term.__class__ is Remap]
    return len(set(sources)) < len(sources)


@tensor_fact
def by_every_warp(site: Any, v: Value) -> float:
    """Return the seconds of a product's warps for the elements of its operand v that each of them computes."""
    made, read = cost.parts(v, site.kept)
    loads = sum(term.__class__ is Remap and term.x in read for term in made) or 1
    return max((_asked(site, use) * loads for use in uses_of(site, v)), default=0.0)


def _asked(site: Any, use: Use) -> float:
    """Return the seconds of L2 traffic for one element of an operand at every index of a product.

    Each access reads a sector. Fewer blocks than multiprocessors reach only their share of the bandwidth.
    """
    flow, target = site.flow, site.target
    patch, tile = policy(target).fragment_side, policy(target).tile_side
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


@tensor_fact
def reduction(v: Term) -> bool:
    """Return whether a value is a reduction."""
    return v.__class__ in (Reduce, Fold)


@tensor_fact
def evaluations(site: Any, v: Term) -> int:
    """Return the largest number of elements computed for an element of v at looked-up indices."""
    return site.evaluations[v]  # type: ignore[no-any-return]


@tensor_fact
def places_read(site: Any, v: Term) -> int:
    """Count the elements of v and of its operands that consumers of v need.

    An element counts once, and once more for each further index at which views read the same value.
    """
    return site.places.count[v]  # type: ignore[no-any-return]


@tensor_fact
def elements(site: Any, v: Term) -> int:
    """Count the elements of a value."""
    return site.flow.elements(site.flow.mask[v])  # type: ignore[no-any-return]


@tensor_fact
def readers(site: Any, v: Term) -> int:
    """Count the operations that read a value."""
    return len(site.flow.readers[v])


@tensor_fact
def recompute(site: Any, v: Value, y: Value, tile: int) -> int:
    """Count how often y's kernel would compute v: once for every tile of the grid axes that v lacks."""
    missing = site.flow.axes_in(site.space & ~site.seen[v] & ~site.folded)
    return cost.blocks_across((at_hint(axis.extent) for axis in missing), tile)


@tensor_fact
def sweeps(site: Any, y: Value, v: Value) -> bool:
    """Return whether y folds an axis that v varies along."""
    return y.__class__ in (Reduce, Fold) and site.flow.mask_of_axes(y.over) & site.seen[v] != 0


@tensor_fact
def widens(site: Any, y: Value, v: Value) -> bool:
    """Return whether v is read again along an axis of y: as a factor of a contraction is."""
    return read_again(site.space & ~site.flow.mask_of_axes(y.over), site.seen[v]) != 0


@tensor_fact
def in_tiles(site: Any, v: Value) -> bool:
    """Return whether y's kernel computes v in tiles: a contraction along whose axes the kernel folds nothing else."""
    product = v.x if v.__class__ is Reduce and v.fn == "add" else None
    if product.__class__ is not Elementwise or product.fn != "multiply" or site.seen[v] & site.folded:
        return False
    return all(site.flow.mask[v] & ~site.flow.mask[factor] for factor in product.args if factor in site.flow.mask)


@tensor_fact
def only_for(site: Any, v: Value, y: Value) -> bool:
    """Return whether v flows to y alone, through values that have one reader each."""
    flow = _flow(site, y)
    while v is not y:
        following = flow.readers[v]
        if len(following) != 1:
            return False
        v = following[0]
    return True


@tensor_fact
def folded_together(site: Any, v: Value, y: Value) -> bool:
    """Return whether all that v flows into is tuple reductions that share their loop with y."""
    if y.__class__ is not Fold:
        return False
    wanted, todo, seen = common_key(y), list(site.flow.readers[v]), {v}
    while todo:
        term = todo.pop()
        if term in seen:
            continue
        seen.add(term)
        following = site.flow.readers[term]
        if term.__class__ is Fold:
            if common_key(term) != wanted:
                return False
        elif term.__class__ is Reduce or not following or term in site.kept:
            return False
        else:
            todo += following
    return True


@tensor_fact
def rows(site: Any, v: Value) -> int:
    """Count the independent elements of v that the kernel would hold: its blocks, if v is reduced cooperatively."""
    return site.flow.elements(site.seen[v])  # type: ignore[no-any-return]


@tensor_fact
def row(site: Any, v: Value, y: Value) -> int:
    """Count the elements of y for one of v, along axes that the kernel reduces."""
    return site.flow.elements(site.space & ~site.seen[v] & site.folded)  # type: ignore[no-any-return]


@tensor_fact
def repeats(site: Any, y: Value, v: Value) -> bool:
    """Return whether y's index map would compute an element of v repeatedly, or an element known only at run time."""
    before = site.open[y.x].get(v)
    if before is None:  # v is an index, not what is read
        return True
    reads = marks_of(Term)
    gathered = any(isinstance(e, Node) and contents(e) & reads and site.flow.bit(axis) & before for axis, e in y.map)
    return gathered or site.flow.elements(site.seen[v]) > site.flow.elements(before)


@tensor_fact
def fixed(y: Value) -> bool:
    """Return whether y's index map reads one index along the axes that it replaces."""
    return all(e.__class__ is int for _, e in y.map)


@tensor_fact
def moved(site: Any, y: Value) -> bool:
    """Return whether y's index map replaces an axis that something folded below it varies with."""
    replaced = site.flow.mask_of_axes(axis for axis, _ in y.map)
    return any(
        replaced & site.flow.mask[value]
        for value in site.open[y.x]
        if value.__class__ is Reduce or value.__class__ is Fold
    )


@tensor_fact
def widest(site: Any, y: Value) -> int:
    """Return the most elements of anything that y would read: the value that climbs, or what is in memory."""
    flow = site.flow
    read = [_read(site, operand, policy(site.target).diamond_operations) for operand in operands(y)]
    climbing: int = flow.elements(flow.mask[site.top])
    return max(climbing, *read)


def _read(site: Any, term: Any, reach: int) -> int:
    """Return the elements of the largest stored value that an elementwise value reads."""
    kind = term.__class__
    size: int = site.flow.elements(site.flow.mask[term])
    if kind is Input or term in site.kept:
        return size
    if kind is Remap:
        return min(size, _read(site, term.x, reach))
    if reach and (kind is Elementwise or kind is Case):
        return max((_read(site, operand, reach - 1) for operand in operands(term)), default=0)
    return 0


@tensor_fact
def kernels(site: Any, v: Value) -> int:
    """Count the kernels that would compute a value."""
    return int(site.owners[v]).bit_count()


@tensor_fact
def operations(site: Any, v: Value) -> int:
    """Count the operations that compute a value from memory, each once."""
    return len(cost.parts(v, site.kept)[0])


@tensor_fact
def holds_reduction(site: Any, v: Value) -> bool:
    """Return whether computing a value means folding something that is not stored."""
    return bool(site.open[v])


@tensor_fact
def folds_once(site: Any, v: Value, w: Value) -> bool:
    """Return whether all reductions of two kernels are over the same axes, and each has one."""
    a, b = site.reduction(v), site.reduction(w)
    return a is not None and b is not None and a.over == b.over


@tensor_fact
def same_loops(site: Any, v: Value, w: Value) -> bool:
    """Return whether two kernels store values of the same extents, in plain layouts."""
    return site.extents(v) is not None and site.extents(v) == site.extents(w)


@tensor_fact
def common_operand(site: Any, v: Value, w: Value) -> bool:
    """Return whether the reductions of two kernels reduce the same buffer at the same indices."""
    over = set(site.reduction(v).over)
    shared = _reads(site, w)
    return any(over & set(axes(read)) for read in _reads(site, v) if read in shared)


def _reads(site: Any, value: Any) -> set[Any]:
    """Return the values that a kernel reads from memory, and the index maps that it reads them through."""
    leaves, pending, seen = site.leaves(value), [value], {value}
    while pending:
        term = pending.pop()
        more = [x for x in operands(term) if x not in seen] if term is value or term not in leaves else ()
        pending += more
        seen.update(more)
    return {term for term in seen if term in leaves or term.__class__ is Remap}


@tensor_fact
def independent(site: Any, v: Value, w: Value) -> bool:
    """Return whether w reads neither v nor anything stored between the two."""
    between = site.entries[site.place(v) : site.place(w)]
    return all(entry.value not in site.leaves(w) for entry in between)


@tensor_fact
def same_place(site: Any, v: Value, w: Value) -> bool:
    """Return whether w reads v only at the index of its own element, and needs no other stored value that needs v."""
    return site.same_place(v, w)  # type: ignore[no-any-return]


@tensor_fact
def folded(site: Any, v: Value) -> int:
    """Return the largest number of elements that the reductions of a kernel reduce to one; 1 without reductions."""
    return max((_places(term.over) for term in site.folds(v)), default=1)


@tensor_fact
def distance(site: Any, v: Value, w: Value) -> int:
    """Return the distance in launches between two stored values; 1 for neighbours."""
    return site.place(w) - site.place(v)  # type: ignore[no-any-return]


@tensor_fact
def beside(site: Any, v: Value, y: Value) -> bool:
    """Return whether y's kernel folds over the axis that v folds, for more axes, and reads what v reads: one loop."""
    if v.__class__ is not Reduce or len(v.over) != 1:
        return False
    flow, kept = site.flow, site.kept
    mine, read = cost.parts(v, kept)
    return any(
        other.__class__ is Reduce
        and other.over == v.over
        and flow.mask[other] & flow.mask[v] == flow.mask[v] != flow.mask[other]
        and other not in mine
        and _reads_the_same(v, *cost.parts(other, kept), read)
        for other in cost.parts(y, kept)[0]
    )


def _reads_the_same(v: Any, made: list[Any], reads: list[Any], read: list[Any]) -> bool:
    """Return whether the computation of a reduction needs no v, and reads something that v reads."""
    return v not in made and not set(read).isdisjoint(reads)


@tensor_fact
def again(site: Any, v: Value, y: Value, tile: int) -> float:
    """Return the seconds to compute v in every block of y's kernel, from what is in shared memory."""
    flow, result = site.flow, site.space & ~site.folded
    blocks = cost.blocks(flow, result, site.seen[v], tile, site.target)
    return blocks * _in_block(site, v, v.x if v.__class__ is Reduce else v)


def _in_block(site: Any, v: Any, space: Any) -> float:
    """Return the seconds to compute v once, reading each of its elements from shared memory."""
    made, read = cost.parts(v, site.kept)
    moved = len(read) * site.flow.elements(site.flow.mask[space])
    return cost.issue_seconds(cost.slots_of(site.flow, made, site.target) + moved, site.target)


@tensor_fact
def in_iterations(site: Any, v: Value, y: Value) -> float:
    """Return the additional seconds of v inside y's loop, compared with a kernel of its own.

    The result is 0 unless v is a reduction and y reduces along its axes.
    The loop has the blocks of y's results, whatever blocks v has. A product of v has no tiles there: each of its
    terms loads its factors.
    """
    if not reduction(v) or not sweeps(site, y, v):
        return 0.0
    flow, over = site.flow, site.flow.mask_of_axes(y.over)
    busy = min(1.0, flow.elements(site.space & ~site.folded & ~over) / site.target.multiprocessors)
    made, read = cost.parts(v, site.kept)
    slots = cost.slots_of(flow, made, site.target)
    nested = slots + len(read) * flow.elements(flow.mask[v] | flow.mask_of_axes(v.over))
    alone = slots + sum(flow.elements(flow.mask[leaf]) for leaf in read)
    traffic = cost.traffic_seconds(cost.bytes_of(flow, read), site.target)
    in_loop: float = max(cost.issue_seconds(nested, site.target), traffic) / busy
    return in_loop - max(cost.issue_seconds(alone, site.target), traffic)


@tensor_fact
def product_blocks(site: Any, v: Value, tile: int) -> int:
    """Count how often the blocks of a product compute its operand v.

    Every tile of the columns that v lacks computes v once, or once for each position of a window that reads an element.
    """
    flow = site.flow
    return max((
        cost.blocks(flow, flow.mask[use.total], use.seen, tile, site.target)
        * max(1, flow.elements(use.seen) // flow.elements(flow.mask[v]))
        for use in uses_of(site, v)
    ), default=1)  # fmt: skip


@tensor_fact
def again_in(site: Any, blocks: int, v: Value) -> float:
    """Return the seconds to compute an operand in so many blocks, and to put it into shared memory there."""
    stored = cost.issue_seconds(site.flow.elements(site.flow.mask[v]), site.target)
    return blocks * (_in_block(site, v, v) + stored)


@tensor_fact
def multiplied_narrow(site: Any, y: Value) -> bool:
    """Return whether tensor cores can multiply for all consumers of a value.

    All consumers must be products, and an atom must multiply the dtypes from which both factors are widened.
    """
    readers = [
        reader for r in site.flow.readers[y] for reader in (site.flow.readers[r] if r.__class__ is Remap else (r,))
    ]
    if any(reader.__class__ is not Elementwise or reader.fn != "multiply" for reader in readers):
        return False
    held = [[_widened_from(x) for x in reader.args] for reader in readers]
    own = [atom for atom in ATOMS.values() if atom.on(site.target.sm) and atom.sums == dtype(y)]
    return bool(held) and all(any(a and b and atom.multiplies(a, b) for atom in own) for a, b in held)


@tensor_fact
def joins_products(site: Any, v: Value) -> bool:
    """Return whether v contains a product of groups of four warps, and a consumer of v another such product."""
    own = set(_group_products(site, cost.parts(v, site.kept)[0]))
    readers = (cost.parts(reader, site.kept)[0] for reader in site.flow.readers[v]) if own else ()
    return any(total not in own for made in readers for total in _group_products(site, made))


@tensor_fact
def several_products(site: Any, v: Value, w: Value) -> bool:
    """Return whether each of two kernels has a product that groups of four warps multiply."""
    return any(_group_products(site, site.folds(v))) and any(_group_products(site, site.folds(w)))


def _group_products(site: Any, made: Iterable[Any]) -> Iterator[Any]:
    """Yield the operations that are sums of products for groups of four warps, by their dtypes and sizes."""
    numbers = policy(site.target)
    known = ATOMS.values() if numbers.asynchronous_mma else ()
    atoms = [atom for atom in known if atom.asynchronous and atom.on(site.target.sm)]
    for total in made:
        product = total.x if total.__class__ is Reduce and total.fn == "add" else None
        if product.__class__ is not Elementwise or product.fn != "multiply":
            continue
        a, b = (set(axes(factor)) for factor in product.args)
        left, right = (_widened_from(factor) or dtype(factor) for factor in product.args)
        wide = min(_places(a - b), _places(b - a)) >= numbers.tile_side
        chunks = 2 * _places(total.over) // (SECTOR // 2 * numbers.chunk_vectors)  # of halves, in vectors of 16 bytes
        if wide and chunks >= numbers.split_least_chunks and any(atom.multiplies(left, right) for atom in atoms):
            yield total


def _places(of: Iterable[Axis]) -> int:
    return math.prod(at_hint(axis.extent) for axis in of)


def _widened_from(x: Any) -> str | None:
    """Return the dtype of what a value is widened from, None where it is anything else."""
    x = x.x if x.__class__ is Remap else x
    cast = x.__class__ is Elementwise and x.fn in DTYPES and promote(x.fn, dtype(x.args[0])) == x.fn
    return dtype(x.args[0]) if cast else None


@tensor_fact
def apart(site: Any, v: Value) -> float:
    """Return the seconds that a kernel of its own takes for v, and to read v again."""
    _, read = cost.parts(v, site.kept)
    size = cost.bytes_of(site.flow, read) + 2 * cost.bytes_of(site.flow, [v])
    return cost.fixed_seconds(site.target) + cost.traffic_seconds(size, site.target)


@tensor_fact
def multiplied(site: Any, y: Value) -> bool:
    """Return whether a value flows into a product that reads it many times, through values that nothing stores."""
    flow, todo, seen = site.flow, [y], set()
    while todo:
        term = todo.pop()
        if term in seen:
            continue
        seen.add(term)
        if any(flow.mask[use.product] & ~use.seen for use in uses_of(site, term)):
            return True
        if any(reader.__class__ is Fold for reader in flow.readers[term]):
            return True
        todo += [r for r in flow.readers[term] if r.__class__ is not Reduce and r not in site.kept]
    return False


# ---- Facts about values that climb: `x` is stored, `y` would be stored instead.


@tensor_fact
def climbed(site: Any, y: Value) -> float:
    """Return the seconds of memory to store a value and to read it once for every reader."""
    times = len(site.flow.readers[y]) + 1
    return cost.traffic_seconds(times * cost.bytes_of(site.flow, [y]), site.target)


@tensor_fact
def folds_across(site: Any, y: Value, x: Value) -> bool:
    """Return whether making y of x takes a fold of something else, along an axis that x varies with."""
    made, _ = cost.parts(y, {*site.kept, x})
    return _folds_along(site, made, x)


@tensor_fact
def waits_across(site: Any, y: Value, x: Value) -> bool:
    """Return whether y reads a stored reduction of a value that x reads too, along an axis that x varies with.

    In this case x does not wait for the reduction itself.
    """
    kept = site.kept
    _, read = cost.parts(y, {*kept, x})
    for leaf in read:
        if leaf is not x and leaf in kept:
            made, below = cost.parts(leaf, kept)
            if _folds_along(site, made, x) and not set(below).isdisjoint(cost.parts(x, kept)[1]):
                return True
    return False


def _folds_along(site: Any, made: Any, x: Any) -> bool:
    """Return whether one of some values is a fold along an axis that x varies with."""
    along = site.flow.mask[x]
    folds = (term for term in made if term.__class__ in (Reduce, Fold))
    return any(site.flow.mask_of_axes(term.over) & along for term in folds)


@tensor_fact
def left(site: Any, x: Value, y: Value) -> float:
    """Return the seconds to store x, and for each reader of y to make y of x and of what else is in memory."""
    flow, readers_of_y = site.flow, len(site.flow.readers[y])
    made, read = cost.parts(y, {*site.kept, x})
    others = cost.bytes_of(flow, [leaf for leaf in read if leaf is not x])
    size = (readers_of_y + 1) * cost.bytes_of(flow, [x]) + readers_of_y * others
    again = readers_of_y * cost.slots_of(flow, made, site.target)
    return cost.traffic_seconds(size, site.target) + cost.issue_seconds(again, site.target)


# ---- Facts of rules that move a factor after a product, before fusion: whether that pays.


def _flow(site: Any, v: Any) -> Any:
    """Return the program as a flow; of an example or a fragment, what is below a value."""
    if site.flow is None or v not in site.flow.mask:
        site.flow = Dataflow((*site.roots, v) if v not in site.roots else site.roots)
    return site.flow


@tensor_fact
def sums(s: Value, k: Axis) -> bool:
    """Return whether the computation of a value contains a sum along an axis."""
    return any(term.__class__ is Reduce and k in term.over for term in cost.parts(s, ())[0])


@tensor_fact
def afterwards(site: Any, v: Value, y: Value, tile: int) -> float:
    """Return the seconds to compute the operand v of the product y in every block, from what is in shared memory."""
    flow = _flow(site, y)
    blocks = cost.blocks(flow, flow.mask[y], flow.mask[v], tile, site.target)
    made, _ = cost.parts(v, ())
    moved = 2 * flow.elements(flow.mask[v])  # a load and a store of each element
    return cost.issue_seconds(blocks * (cost.slots_of(flow, made, site.target) + moved), site.target)


@tensor_fact
def beforehand(site: Any, v: Value, y: Value) -> float:
    """Return the seconds that a kernel of its own takes for the operand v of a product y."""
    flow = _flow(site, y)
    _, read = cost.parts(v, ())
    size = cost.bytes_of(flow, [*read, v])
    return cost.fixed_seconds(site.target) + cost.traffic_seconds(size, site.target)


# ---- Attention in one pass, or in three kernels that store the scores: the rules price both (rules/policy.rw).


class AttentionShape(NamedTuple):
    """Extents of a sum over n of functions of x times v.

    heads: independent instances; rows, columns: extents of the scores; products: products of a score; results:
    results of a row. seen: the number of scores that count in a row in the middle; hides: whether there are others.
    halves: whether the values in memory are 16-bit floats; compiled: whether the results have no symbolic dimension.
    """

    heads: int
    rows: int
    columns: int
    products: int
    results: int
    seen: float
    hides: bool
    halves: bool
    compiled: bool


@tensor_fact
def attention_shape(x: Term, v: Term, n: Axis) -> AttentionShape:
    """Return the extents of scores x, and of values v that they weigh along n."""
    own = [axis for axis in axes(x) if axis is not n]
    rows = [axis for axis in own if axis not in axes(v)]
    results = [axis for axis in axes(v) if axis not in axes(x)]
    seen, columns = _seen(x, n), _places((n,))
    held = v
    while isinstance(held, Elementwise) and held.fn == "f32":
        (held,) = held.args
    return AttentionShape(
        _places(axis for axis in own if axis not in rows), _places(rows), columns, _products(x), _places(results),
        columns if seen is None else seen, seen is not None, dtype(held) in HALVES,
        all(axis.extent.__class__ is int for axis in results),
    )  # fmt: skip


def _products(x: Term) -> int:
    """Count the products that compute one element of x from stored values.

    The factors of these products are computed before, whatever they are.
    """
    count, pending, seen = 0, [x], set()
    while pending:
        term = pending.pop()
        if term in seen:
            continue
        seen.add(term)
        if isinstance(term, Reduce):
            count += _places(term.over)
        else:
            pending.extend(operands(term))
    return count


def _seen(x: Term, n: Axis) -> float | None:
    """Return the number of indices along n that count in the middle row if `x = where(n <= e, y, -inf)`, else None."""
    if not isinstance(x, Elementwise) or x.fn != "where" or not isinstance(x.args[0], Index):
        return None
    end, hidden = upper_bound(x.args[0].expr, n), x.args[2]
    if end is None or not isinstance(hidden, Const) or hidden.value != -math.inf:
        return None
    terms, constant = linear(end)
    middle = constant + sum(factor * sum(interval(atom, {})) / 2 for atom, factor in terms.items())
    return min(max(middle, 0.0), float(at_hint(n.extent)))
