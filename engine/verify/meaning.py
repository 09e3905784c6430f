"""Whether two programs compute the same: values and stores, under several orders of their threads.

`run` gives the meaning of a program of Loop, Tile or Kernel IR, `compare` holds another program against it.
`real_places` says which elements of a program of Tensor IR an equation between real numbers speaks about.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.compiler import BuildError
from ...codegen.emulator.executor import run_kernels
from ...ir import compose
from ...ir.diagnostic import DplcError
from ...ir.dtypes import FLOATS
from ...ir.expr import Var
from ...ir.facts.structure import summary
from ...ir.functions import FUNCTIONS, SELECT
from ...ir.interp import tensor as meaning
from ...ir.interp import tile
from ...ir.kernel import Launch
from ...ir.loop import For, Load, Merge
from ...ir.monoids import monoid, of_part
from ...ir.node import nodes
from ...ir.program import Kernel, Param, delivered, supplied
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Input,
    Mat,
    Output,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    operands,
    postorder,
    read_by,
)
from ...ir.tile import Tile
from .outcome import ERRORS, REORDERED, unlike
from .whole_programs import TooLarge

# ---- Where a program of Tensor IR is about real numbers: the elements of its outputs that depend on nothing else.
#
# An equation between real numbers says nothing of an element that divides by zero on its way; of all others it does.
# They are found by running the program with a mark for every value, set where the value is not a number, carried
# along by the same reductions and index maps.


COUNT = "n0"
NOTHING: Term = Const(False, "b8")  # the mark of what is a number everywhere


def real_places(graph: TensorGraph, data: Any) -> list[Any]:
    """Return a mask for every output: True where no value on the way to an element is infinite or NaN."""
    terms = _terms(graph)
    floats = [term for term in terms if dtype(term) in FLOATS]
    values = _values(graph, floats, data)
    if values is None:
        return [np.full([axis.extent for axis in out.axes], True) for out in graph.outs]
    bad = {Input(f"bad{n}", axes(term), "b8"): ~np.isfinite(values[n]) for n, term in enumerate(floats)}
    own = {term: mark for term, (mark, places) in zip(floats, bad.items(), strict=True) if places.any()}
    marks: dict[Term, Term] = {}
    for term in terms:
        found = dict.fromkeys((own.get(term, NOTHING), *_below(term, marks)))
        found.pop(NOTHING, None)
        marks[term] = functools.reduce(lambda a, b: Elementwise("logical_or", (a, b)), found or (NOTHING,))
    outs = tuple(Output(out.name, out.axes, marks[out.value]) for out in graph.outs)
    marked = TensorGraph(graph.name, (*graph.ins, *own.values()), outs)
    given = {mark.name: places for mark, places in bad.items()}
    return [~bad for bad in meaning.run(marked, {**data, **given})]  # the data too: it is read at indices


def _below(term: Any, marks: dict[Term, Term]) -> list[Term]:
    """Return the marks of the values that an element depends on."""
    match term:
        case Elementwise(args=(condition, a, b)) if FUNCTIONS[term.fn].kind == SELECT:
            # the side that is not taken does not count
            return [marks[condition], Elementwise("where", (compose.cast(condition, "b8"), marks[a], marks[b]))]
        case Elementwise(args=args):
            return [marks[x] for x in args]
        case Reduce(over=over, x=x):
            return [Reduce("logical_or", over, marks[x])]
        case Fold(over=over):
            return [Reduce("logical_or", over, marks[x]) for x in read_by(term)]
        case Remap(x=x, map=places):
            return [Remap(marks[x], places)]
        case Case(cond=condition, a=a, b=b):
            return [Case(condition, marks[a], marks[b])]
        case Mat(x=x):
            return [marks[x]]
    return []


def in_domain(graph: TensorGraph, data: Any) -> bool:
    """Return whether the counts of partial results are 0 or at least 1. Other counts do not form a monoid."""
    folds = (x for x in _terms(graph) if isinstance(x, Fold))
    counts = [fold.args[0] for fold in folds if of_part(fold.part)[0].operands[0] == COUNT]
    return all(bool(((value == 0) | (value >= 1)).all()) for value in _values(graph, counts, data) or ())


def whole_sums(graph: TensorGraph, data: Any) -> bool:
    """Return whether all summands of a program are whole, so that the order of its sums changes nothing."""
    summed = {y for x in _terms(graph) if isinstance(x, Reduce | Fold) for y in operands(x)}
    return all(bool((value == np.round(value)).all()) for value in _values(graph, summed, data) or ())


def _terms(graph: TensorGraph) -> list[Any]:
    return postorder(out.value for out in graph.outs)


def _values(graph: TensorGraph, terms: Iterable[Term], data: Any) -> list[Any] | None:
    """Return what some terms of a program are; None if a side of a Case that is not taken reads out of bounds."""
    shown = tuple(Output(f"value{n}", axes(term), term) for n, term in enumerate(terms))
    try:
        return meaning.run(TensorGraph(graph.name, graph.ins, shown), data) if shown else []
    except DplcError:
        return None


Program = tuple[Kernel, ...]
Arrays = dict[str, Any]
LARGEST_BLOCK = 1 << 16  # threads and registers of a block: two groups of four warps with the smallest WGMMA
LARGEST_WORK = 1 << 22  # elements of a tile times iterations of its loops
LARGEST_INPUT = 1 << 26  # elements of a buffer: half a gigabyte
MOST_ITERATIONS = 4000  # of all loops, for one thread
ROUNDED = 1e-5  # how far results in f32 may be apart, as a share of the largest


def inputs_of(program: Program, seed: int) -> Arrays:
    """Return small whole numbers, so that sums are exact in any order; truth values; indices into small tables.

    Counts of elements are 1 or more. Raises TooLarge.
    """
    params = supplied(program)
    if any(math.prod(p.shape) > LARGEST_INPUT for p in params):
        raise TooLarge
    merges = (merge for merge in nodes(program, Merge) if monoid(merge.fn).operands[0] == COUNT)
    counting = {merge.vals[0].name for merge in merges if isinstance(merge.vals[0], Var)}
    counts = {load.buf for load in nodes(program, Load) if load.dst in counting}
    return {p.name: np.abs(array(p, seed)) if p.name in counts else array(p, seed) for p in params}


def array(param: Param, seed: int) -> Any:
    """Return the values of an input; the name and the seed determine them."""
    dice = np.random.default_rng([seed, zlib.crc32(param.name.encode())])
    shape = tuple(int(n) for n in param.shape)
    if param.dtype == "b8":
        return dice.random(shape) < 0.5
    if param.dtype.startswith("i"):
        return dice.integers(0, 4, shape)
    values = dice.integers(-4, 5, shape)
    return np.where(values == 0, 5, values).astype(float)


@dataclass
class Meaning:
    """Result of a program: the values of its outputs, and the number of stores to each element.

    between: outputs of kernels that only other kernels of the program read. A rule that fuses kernels may omit them.
    apart: how far floats of the same meaning may be apart.
    """

    values: Arrays
    stores: Arrays
    between: Set[str] = frozenset()
    apart: float = REORDERED


def run(program: Program, inputs: Arrays, seed: int) -> Meaning:
    """Run a program in one order of threads, Kernel IR as its CUDA text in checked mode.

    Raises ScheduleError or EmulatorError if it has no meaning, TooLarge, and BuildError.
    """
    if work(program) > LARGEST_WORK:
        raise TooLarge
    if any(isinstance(statement, Launch) for kernel in program for statement in kernel.body):
        memory = run_kernels(program, inputs, seed)
        outs = {param.name: memory[param.name] for kernel in program for param in kernel.outs}
        return Meaning(outs, {name: (values == values).astype(int) for name, values in outs.items()}, apart=ROUNDED)
    stores: Arrays = {}
    memory = tile.run(program, inputs, seed, stores)
    between = stores.keys() - {p.name for p in delivered(program)}
    return Meaning({name: memory[name] for name in stores}, stores, between)


def work(program: Program) -> int:
    """Return a rough estimate of the work to run a program here."""
    largest = 0
    for kernel in program:
        tiles = list(nodes(kernel.body, Tile))
        block = math.prod(map(_held, tiles))
        if block > LARGEST_BLOCK:
            raise TooLarge
        size = block * math.prod(axis.extent for t in tiles for axis in t.axes if axis.role == "BLOCK")
        iterations = sum(_iterations(statement) for statement in kernel.body)
        if tiles and iterations > MOST_ITERATIONS:
            raise TooLarge
        largest = max(largest, size * max(1, iterations))
    return largest


def _held(tile: Tile) -> int:
    """Return the threads of a block times the registers of one; with tensor cores, those of the largest product."""
    sizes = {axis.name: axis.extent for axis in tile.axes if axis.role != "BLOCK"}
    threads = math.prod(axis.extent for axis in tile.axes if axis.role == "THREAD")
    lanes = {axis.name for axis in tile.axes if axis.role == "THREAD"}
    products = [{e.name for e in (*product.axes, *product.over)} & set(sizes) for product in summary(tile.body).mmas]
    held = [math.prod(sizes[name] for name in names - lanes) for names in products or [set(sizes)]]
    return int(threads * max(held))


def _iterations(statement: Any) -> int:
    inner = sum(_iterations(inner) for inner in getattr(statement, "body", ())) or 1
    if not isinstance(statement, For):
        return inner
    stop = statement.stop if isinstance(statement.stop, int) else 8
    start = statement.start if isinstance(statement.start, int) else 0
    step = statement.step if isinstance(statement.step, int) else 1
    return inner * max(1, (stop - start) // max(1, step))


def baseline(program: Program, seeds: range, seed: int) -> tuple[Arrays, Meaning] | None:
    """Return inputs and the results of the program; None if it has no single meaning."""
    try:
        inputs = inputs_of(program, seed)
        known = inputs, run(program, inputs, seeds[0])
        once = all((count <= 1).all() for count in known[1].stores.values())
        return known if once and compare(program, known, seeds[1:]) is None else None
    except BuildError:
        raise
    except (*ERRORS, TooLarge):
        return None


def compare(program: Program, known: tuple[Arrays, Meaning], seeds: range) -> str | None:
    """Return the first difference between a program and the known meaning for some inputs, or None."""
    inputs, wanted = known
    for seed in seeds:
        try:
            problem = difference(wanted, run(program, inputs, seed))
        except DplcError as error:
            return "; ".join((error.what, *error.notes, f"thread order {seed}"))
        if problem is not None:
            return f"{problem} (thread order {seed})"
    return None


def difference(wanted: Meaning, got: Meaning) -> str | None:
    """Return the first difference of two meanings, in words, or None. Buffers of the second one alone are ignored."""
    for name, values in wanted.values.items():
        other = got.values.get(name)
        if other is None and name in wanted.between:
            continue
        if other is None or other.shape != values.shape:
            return f"`{name}` is not stored"
        counts, stored = wanted.stores[name], got.stores[name]
        if (counts != stored).any():
            at = tuple(int(n) for n in np.argwhere(counts != stored)[0])
            return f"{name}{list(at)} is stored {stored[at]} times, not {counts[at]}"
        if problem := unlike(name, values, other, wanted.apart, counts > 0):
            return problem
    return None
