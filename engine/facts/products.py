"""Facts about products: what a schedule has to know of one, and its seconds by the decisions made so far."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import gcd, inf, prod

from ...ir.expr import Axis, Call, Size, Var, extents_of, free_names, linear
from ...ir.facts.layout import DTYPE_BYTES, WORD, params, ranges_of, stages
from ...ir.facts.structure import accumulators, dependencies, is_outer_product, summary
from ...ir.loop import For, If, Load
from ...ir.node import nodes
from ...ir.program import Block
from ...ir.ranges import Ranges, interval
from ...ir.sizes import at_hint
from ...ir.tile import Stage
from ..cost.limits import COSTS
from ..cost.tile_time import (
    FMA,
    GROUP,
    VECTOR,
    WARP,
    Attention,
    OperandCost,
    Product,
    least_seconds,
    one_pass,
    three_passes,
)  # fmt: skip
from ..language.evaluate import Value, fact
from ..language.rule import policy
from ..rewrite.statements.site import Site
from .accesses import accesses, values_held
from .fragments import computes, products
from .structure import multiplies_values, unwrapped


@fact("product_of(name*) -> record", "module tile")
def product_of(site: Site, *names: Var) -> Product | None:
    """Return the largest product of a kernel, or that whose sum is in a loop, which is the last name: see `Product`.

    Of a program the kernel comes first.
    Rows and columns are along the pair of thread axes with the most outputs, up to a whole tile each.
    """
    *kernels, loop = names or (None,)
    for name in kernels:
        place = next(n for n, kernel in enumerate(site.program) if kernel.name == name.name)
        site = Site(site.program, (place, 0), site.target)
    found = _largest(site, loop)
    return found and _product(site, *found)


@fact("blocks_alike(any, int, int) -> int", "tile")
def blocks_alike(site: Site, product: Product | None, extent: Size | int, side: int) -> int:
    """Return what the blocks along a side of a product are rounded up to, so that clusters divide them (WGMMA).

    Blocks of a number that is known are as they are. Those of a size are whole clusters, where there is more than one.
    """
    grouped = product is not None and product.unit == GROUP and not isinstance(extent, int)
    return policy(site.target).cluster_blocks if grouped and at_hint(extent) > side else 1


@fact("widest_pair(name, name) -> bool", "tile")
def widest_pair(site: Site, i: Var, j: Var) -> bool:
    """Return whether two axes are those along which the largest product of a kernel has the most outputs."""
    found = _largest(site)
    return found is None or {axis.name for axis in found[0]} == {i.name, j.name}


def _largest(site: Site, loop: Var | None = None) -> tuple[tuple[Axis, Axis], tuple[For, ...]] | None:
    """Return the sides and the loops of the largest product of a kernel, or of that whose sum is in a loop."""
    nests = (nest for nest in _nests(site.tile_body, ()) if loop is None or any(one.var == loop.name for one in nest))
    found = [(pair, nest) for nest in nests if (pair := _sides(site, nest))]
    return max(found, key=lambda one: _steps(site, one[1]), default=None)


def _nests(body: Block, around: tuple[For, ...]) -> Iterator[tuple[For, ...]]:
    """Yield the loops around each reduction that contains no other loop, outermost first."""
    for stmt in body:
        loops = (*around, stmt) if isinstance(stmt, For) else around
        inner = getattr(stmt, "body", ())
        if isinstance(stmt, For) and not summary(inner).loops:
            yield loops
        yield from _nests(inner, loops)


def _steps(site: Site, nest: tuple[For, ...]) -> int:
    unknown: int = policy(site.target).unknown_iterations
    return prod(n if (n := at_hint(loop.stop)).__class__ is int else unknown for loop in nest)


def _sides(site: Site, nest: tuple[For, ...]) -> tuple[Axis, Axis] | None:
    """Return the two axes of threads along which a product has the most outputs, up to a whole tile."""
    side, values = policy(site.target).tile_side, multiplies_values(site)
    running = {name for one in accesses(site.tile_body) if one.idx for name in dependencies(one.idx[-1], ())}
    best, chosen = (0, 0), None
    for pair in combinations([axis for axis in site.tile_axes if axis.role == "THREAD"], 2):
        names = frozenset(axis.name for axis in pair)
        rank = prod(min(at_hint(axis.extent), side) for axis in pair), len(names & running)
        if rank > best and any(is_outer_product(one.body, one.var, names, site.tile_body, values) for one in nest):
            best, chosen = rank, pair
    return chosen


def _product(site: Site, pair: tuple[Axis, Axis], nest: tuple[For, ...]) -> Product:
    kernel, inner = site.kernel, nest[-1].body
    rows, columns = (at_hint(axis.extent) for axis in pair)
    names = {axis.name for axis in pair}
    varying = {acc.acc: names & dependencies(acc.acc, nest) for acc in accumulators(inner)}
    item = max((_item(site, load) for load in summary(inner).loads), default=WORD)
    given = params(kernel).items()
    bytes_of = {name: DTYPE_BYTES[param.dtype] * at_hint(prod(param.shape)) for name, param in given}
    read = {load.buf for load in summary(nest[:1]).loads} | {stage.src for stage in summary(nest[:1]).stages}
    operands = sum(size for name, size in bytes_of.items() if name in read)
    left, right = (_operand(site, axis, pair[1 - n], nest) for n, axis in enumerate(pair))
    chunked = nest[0].role == "serial" and len(nest) > 1
    loops = {loop.var for loop in nest}
    guarded = any(not loops.isdisjoint(free_names(guard.cond)) for guard in nodes(nest[:1], If))
    return Product(
        rows, columns, _steps(site, nest),
        at_hint(prod(extents_of(site.tile_axes))) // (rows * columns),
        max(1, sum(len(along) == 2 for along in varying.values())), item,
        _unit(site, site.tile_body), _unit(site, nest[:1]), _steps(site, nest[1:]) if chunked else 0,
        operands, sum(bytes_of.values()) - operands, left, right,
        _held(site, pair, nest[-1].var, (left, right)), guarded, _work(inner, names, names),
    )  # fmt: skip


def _held(
    site: Site, pair: tuple[Axis, Axis], loop: str, operands: tuple[OperandCost, OperandCost]
) -> tuple[int, int, int, int]:
    """Return the registers that a thread holds in all, for each row, for each column and for each output.

    Operands whose elements are neighbours along the loop are read in vectors (`vector_reduce`). Those that are computed
    are read once more, to compute them in shared memory (`share_operand`).
    """
    count = [0, *(int(one.work > 0) for one in operands), 0]
    wide = [1, *(VECTOR if one.along else 1 for one in operands), 1]
    for names, *_ in values_held(site, site.tile_body, {}):
        along = (pair[0].name in names) + 2 * (pair[1].name in names)
        count[along] += wide[along] if loop in names else 1
    once, row, column, output = count
    return once, row, column, output


def _operand(site: Site, axis: Axis, other: Axis, nest: tuple[For, ...]) -> OperandCost:
    """Return the operand of a product that varies with one axis and not with another."""
    inner, loops = nest[-1].body, {loop.var for loop in nest}
    names = {axis.name, other.name}
    loads = [load for load in summary(inner).loads if names & dependencies(load.idx, inner) == {axis.name}]
    gathered = any(axis.name in names and loops & names for load in loads for names in map(free_names, load.idx))
    along = not gathered and all(nest[-1].var in free_names(load.idx[-1]) for load in loads if load.idx)
    width = 1 if gathered else min((_width(site, load) for load in loads), default=1)
    count = len({load.buf for load in loads}) // max(1, len(accumulators(inner)))
    return OperandCost(max(1, count), _work(inner, names, {axis.name}), along, width)


def _item(site: Site, load: Load) -> int:
    """Return the bytes of an element that a load reads from a buffer or from its copy in shared memory."""
    copy = stages(site.kernel).get(load.buf)
    param = params(site.kernel).get(copy.src if isinstance(copy, Stage) else load.buf)
    return DTYPE_BYTES[param.dtype] if param is not None else WORD


def _width(site: Site, load: Load) -> int:
    """Return the elements of one copy of a buffer: a vector, if the rows of the buffer are whole vectors."""
    vector, param = site.target.vector_bytes // _item(site, load), params(site.kernel).get(load.buf)
    return gcd(at_hint(param.shape[-1]), vector) if param is not None and param.shape else vector


def _work(body: Block, names: set[str], along: set[str]) -> float:
    """Return the instructions of a step to compute what varies with exactly some of the names, without the products."""
    summed = {one.val for one in summary(body).sums}
    return sum(
        COSTS.get(let.val.fn, (1, 0))[0]
        for let in summary(body).lets
        if isinstance(let.val, Call) and not (let.val.fn == "multiply" and Var(let.dst) in summed)
        and names & dependencies(Var(let.dst), body) == along
    )  # fmt: skip


def _unit(site: Site, body: Block) -> str:
    """Return what can multiply the products of a run, once the guards of ragged ends are gone (`zero_filled`)."""
    summed = products(site, unwrapped(body, lambda stmt: isinstance(stmt, If)))
    atoms = [atom for atom in site.target.atoms if computes(site, atom, summed)]
    if policy(site.target).asynchronous_mma > 0 and any(atom.asynchronous for atom in atoms):
        return GROUP
    return FMA if all(atom.asynchronous for atom in atoms) else WARP


@fact("seconds_of(any, int*) -> num", "module tile")
def seconds_of(site: Site, product: Product | None, *decided: Size | int) -> float:
    """Return the predicted seconds of a product by the decisions made so far, if the others are the best.

    The decisions are, in this order, the steps of a chunk, the blocks that share the reduction, rows and columns of the
    tile of a block, rows and columns of a thread. The result is infinite if no tile fits.
    """
    if product is None:
        return inf
    chunk, *others = map(at_hint, decided)
    return least_seconds(product, site.target, (chunk or product.depth, *others))


@fact("attention_of(int, int, int, int, int, any, bool) -> record", "tile")
def attention_of(site: Site, *given: Value) -> Attention:
    """Return the attention of a kernel by its heads, rows, columns, products and results: see `Attention`.

    The last two arguments are the end of the columns that a row sees, None where each row sees all, and whether tensor
    cores multiply.
    """
    *extents, last, atoms = given
    heads, rows, columns, products, results = map(at_hint, extents)
    seen = columns if last is None else middle(last, ranges_of(site.kernel))
    item = WORD // 2 if atoms else min(WORD, max(_item(site, load) for load in summary(site.tile_body).loads))
    return Attention(heads, rows, columns, products, results, seen, last is not None, item, atoms, True)


def middle(e: Value, ranges: Ranges) -> float:
    """Return the value of an affine expression in the middle of the ranges of its variables."""
    terms, constant = linear(e)
    return constant + sum(factor * sum(interval(at_hint(atom), ranges)) / 2 for atom, factor in terms.items())


@fact("in_one_pass(record, int*) -> num", "tensor tile")
def in_one_pass(site: Site, attention: Attention, *decided: int) -> float:
    """Return the predicted seconds of attention in one kernel by the decisions made so far, if the others are the best.

    The decisions are, in this order, the rows of a block, the columns of a chunk, rows and columns of a thread. The
    result is infinite if no tile fits.
    """
    return one_pass(attention, site.target, decided)


@fact("in_three_passes(record) -> num", "tensor")
def in_three_passes(site: Site, attention: Attention) -> float:
    """Return the predicted seconds of attention in three kernels, which store the scores."""
    return three_passes(attention, site.target)
