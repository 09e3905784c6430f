"""Whether two programs compute the same: values and stores, under several orders of their threads.

`run` gives the meaning of a program of Loop, Tile or Kernel IR, `compare` holds another program against it.
`real_places` says which elements of a program of Tensor IR an equation between real numbers speaks about.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
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


def real_places(graph: TensorGraph, data: Any) -> list[Any]:
    """Return a mask for every output: True where no value on the way to an element is infinite or NaN."""
    terms = postorder(out.value for out in graph.outs)
    floats = [term for term in terms if dtype(term) in FLOATS]
    values = _values(graph, floats, data)
    if values is None:
        return [np.full([axis.extent for axis in out.axes], True) for out in graph.outs]
    given = {f"bad{n}": ~np.isfinite(value) for n, value in enumerate(values)}
    own: dict[Term, Term] = {
        term: Input(f"bad{n}", axes(term), "b8") for n, term in enumerate(floats) if given[f"bad{n}"].any()
    }
    marks: dict[Term, Term] = {}
    for term in terms:
        marks[term] = _either(([own[term]] if term in own else []) + _below(term, marks))
    outs = tuple(Output(out.name, out.axes, marks[out.value]) for out in graph.outs)
    marked = TensorGraph(graph.name, (*graph.ins, *own.values()), outs)  # type: ignore[arg-type]
    return [~bad for bad in meaning.run(marked, {**data, **given})]  # the data too: it is read at indices


def in_domain(graph: TensorGraph, data: Any) -> bool:
    """Return whether the counts of partial results are 0 or at least 1. Other counts do not form a monoid."""
    folds = (x for x in postorder(out.value for out in graph.outs) if isinstance(x, Fold))
    counts = [fold.args[0] for fold in folds if of_part(fold.part)[0].operands[0] == COUNT]
    return all(bool(((value == 0) | (value >= 1)).all()) for value in _values(graph, counts, data) or ())


def whole_sums(graph: TensorGraph, data: Any) -> bool:
    """Return whether all summands of a program are whole, so that the order of its sums changes nothing."""
    terms = postorder(out.value for out in graph.outs)
    summed = {x.x for x in terms if isinstance(x, Reduce)} | {y for x in terms if isinstance(x, Fold) for y in x.args}
    return all(bool((value == np.round(value)).all()) for value in _values(graph, summed, data) or ())


def _values(graph: TensorGraph, terms: Iterable[Term], data: Any) -> list[Any] | None:
    """Return what some terms of a program are; None if a side of a Case that is not taken reads out of bounds."""
    shown = tuple(Output(f"value{n}", axes(term), term) for n, term in enumerate(terms))
    try:
        return meaning.run(TensorGraph(graph.name, graph.ins, shown), data) if shown else []
    except DplcError:
        return None


def _below(term: Any, marks: dict[Term, Term]) -> list[Term]:
    """Return the marks of the values that an element depends on."""
    kind = term.__class__
    if kind is Elementwise and FUNCTIONS[term.fn].kind == SELECT:  # the side that is not taken does not count
        condition, a, b = term.args
        return [marks[condition], Elementwise("where", (compose.cast(condition, "b8"), marks[a], marks[b]))]
    if kind is Elementwise:
        return [marks[x] for x in term.args]
    if kind is Reduce:
        return [Reduce("logical_or", term.over, marks[term.x])]
    if kind is Fold:
        return [Reduce("logical_or", term.over, marks[x]) for x in read_by(term)]
    if kind is Remap:
        return [Remap(marks[term.x], term.map)]
    if kind is Case:
        return [Case(term.cond, marks[term.a], marks[term.b])]
    return [marks[term.x]] if kind is Mat else []


def _either(marks: Iterable[Term]) -> Term:
    nothing = Const(False, "b8")
    found: Term = nothing
    for mark in dict.fromkeys(marks):
        if mark is not nothing:
            found = mark if found is nothing else Elementwise("logical_or", (found, mark))
    return found


Program = tuple[Kernel, ...]
Arrays = dict[str, Any]
LARGEST_BLOCK = 1 << 16  # threads and registers of a block: two groups of four warps with the smallest WGMMA
LARGEST_WORK = 1 << 22  # elements of a tile times iterations of its loops
LARGEST_INPUT = 1 << 26  # elements of a buffer: half a gigabyte
MOST_ITERATIONS = 4000  # of all loops, for one thread
ROUNDED = 1e-5  # how far results in f32 may be apart, as a share of the largest


def inputs_of(program: Program, seed: int) -> Arrays:
    """Return small whole numbers, so that sums are exact in any order; truth values; indices into small tables.

    Raises TooLarge.
    """
    if any(math.prod(p.shape) > LARGEST_INPUT for p in supplied(program)):
        raise TooLarge
    counts = counted(program)
    return {p.name: count(p, seed) if p.name in counts else array(p, seed) for p in supplied(program)}


def counted(program: Program) -> set[str]:
    """Return the buffers that hold the element counts of partial results."""
    first = {
        merge.vals[0].name
        for merge in nodes(program, Merge)
        if monoid(merge.fn).operands[0] == COUNT and isinstance(merge.vals[0], Var)
    }
    return {load.buf for load in nodes(program, Load) if load.dst in first}


def count(param: Param, seed: int) -> Any:
    """Return numbers of elements: 1 or more."""
    return np.abs(array(param, seed))


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


class Meaning:
    """Result of a program: the values of its outputs, and the number of stores to each element.

    between: outputs of kernels that only other kernels of the program read. A rule that fuses kernels may omit them.
    apart: how far floats of the same meaning may be apart.
    """

    def __init__(self, values: Arrays, stores: Arrays, between: frozenset[str] = frozenset(), apart: float = REORDERED):
        self.values, self.stores, self.between, self.apart = values, stores, between, apart


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
    return Meaning({name: memory[name] for name in stores}, stores, frozenset(between))


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
        first = run(program, inputs, seeds[0])
        if any((count > 1).any() for count in first.stores.values()):
            return None
        for order in seeds[1:]:
            if difference(first, run(program, inputs, order)) is not None:
                return None
    except BuildError:
        raise
    except (*ERRORS, TooLarge):
        return None
    return inputs, first


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
        problem = unlike(name, values, other, wanted.apart, counts > 0)
        if problem:
            return problem
    return None
