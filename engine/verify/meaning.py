"""Whether two programs compute the same: values and stores, under several orders of their threads.

`run` gives the meaning of a program of Loop, Tile or Kernel IR, `compare` holds another program against it.
`finite_masks` returns the elements of a program of Tensor IR that have a real value, for which equations of reals hold.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from ...codegen.arrays import Array
from ...codegen.compiler import BuildError
from ...codegen.emulator.executor import run_kernels
from ...ir.diagnostic import DplcError
from ...ir.expr import Var, free_names
from ...ir.facts.layout import thread_count
from ...ir.facts.structure import summary
from ...ir.interp import tensor, tile
from ...ir.kernel import Launch
from ...ir.loop import For, Load, Merge
from ...ir.monoids import monoid, of_part
from ...ir.node import Node, nodes
from ...ir.program import Module, Param, delivered, supplied
from ...ir.tensor import Fold, Reduce, TensorGraph, operands
from ...ir.tile import Tile
from .outcome import ERRORS, REORDERED, Arrays, unlike
from .whole_programs import TooLarge

COUNT = "n0"


def finite_masks(graph: TensorGraph, data: Arrays) -> list[Array]:
    """Return a mask for every output: True where no value on the way to an element is infinite or NaN.

    An equation between real numbers holds for these elements only: division by zero has no real value.
    """
    values = tensor.values(graph, data, real=True)
    masks = ((out, values[out.value].bad) for out in graph.outs)
    return [True if bad is None else ~tensor.stored(bad, out) for out, bad in masks]


def in_domain(graph: TensorGraph, data: Arrays) -> bool:
    """Return whether the counts of partial results are 0 or at least 1. Other counts do not form a monoid."""
    values = tensor.values(graph, data)
    folds = (x for x in values if isinstance(x, Fold) and of_part(x.part)[0].operands[0] == COUNT)
    counts = (values[fold.args[0]].data for fold in folds)
    return all(((count == 0) | (count >= 1)).all() for count in counts)


def has_integer_summands(graph: TensorGraph, data: Arrays) -> bool:
    """Return whether all summands of a program are whole, so that the order of its sums changes nothing."""
    values = tensor.values(graph, data)
    summed = (values[y].data for x in values if isinstance(x, Reduce | Fold) for y in operands(x))
    return all((value == np.round(value)).all() for value in summed)


LARGEST_BLOCK = 1 << 16  # threads and registers of a block: two groups of four warps with the smallest WGMMA
LARGEST_WORK = 1 << 22  # elements of a tile times iterations of its loops
LARGEST_INPUT = 1 << 26  # elements of a buffer: half a gigabyte
MOST_ITERATIONS = 4000  # of all loops, for one thread
KEPT = 4096  # programs whose results are kept
ROUNDED = 1e-5  # how far results in f32 may be apart, as a share of the largest


def inputs_of(program: Module, seed: int) -> Arrays:
    """Return small whole numbers, so that sums are exact in any order; truth values; indices into small tables.

    Counts of elements are 1 or more. Raises TooLarge.
    """
    params = supplied(program)
    if any(math.prod(p.shape) > LARGEST_INPUT for p in params):
        raise TooLarge
    counting = {merge.vals[0] for merge in nodes(program, Merge) if monoid(merge.fn).operands[0] == COUNT}
    counts = {load.buf for load in nodes(program, Load) if Var(load.dst) in counting}
    return {p.name: np.abs(array(p, seed)) if p.name in counts else array(p, seed) for p in params}


def array(param: Param, seed: int) -> Array:
    """Return the values of an input; the name and the seed determine them."""
    dice = np.random.default_rng([seed, zlib.crc32(param.name.encode())])
    if param.dtype == "b8":
        return dice.random(param.shape) < 0.5
    if param.dtype.startswith("i"):
        return dice.integers(0, 4, param.shape)
    values = dice.integers(-4, 5, param.shape)
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


def run(program: Module, inputs: Arrays, seed: int) -> Meaning:
    """Run a program in one order of threads, Kernel IR as its CUDA text in checked mode.

    Raises ScheduleError or EmulatorError if it has no meaning, TooLarge, and BuildError.
    """
    if work(program) > LARGEST_WORK:
        raise TooLarge
    if any(nodes(program, Launch)):
        memory = run_kernels(program, inputs, seed)
        outs = {param.name: memory[param.name] for kernel in program for param in kernel.outs}
        return Meaning(outs, {name: (values == values).astype(int) for name, values in outs.items()}, apart=ROUNDED)
    stores: Arrays = {}
    memory = tile.run(program, inputs, seed, stores)
    between = stores.keys() - {p.name for p in delivered(program)}
    return Meaning({name: memory[name] for name in stores}, stores, between)


def work(program: Module) -> int:
    """Return a rough estimate of the work to run a program here."""
    largest = 0
    for kernel in program:
        tiles = list(nodes(kernel.body, Tile))
        block = math.prod(map(_held, tiles))
        if block > LARGEST_BLOCK:
            raise TooLarge
        size = block * math.prod(axis.extent for t in tiles for axis in t.axes if axis.role == "BLOCK")
        iterations = sum(map(_iterations, kernel.body))
        if tiles and iterations > MOST_ITERATIONS:
            raise TooLarge
        largest = max(largest, size * max(1, iterations))
    return largest


def _held(tile: Tile) -> int:
    """Return the threads of a block times the registers of one; with tensor cores, those of the largest product."""
    registers: dict[str, int] = {axis.name: axis.extent for axis in tile.axes if axis.role not in ("BLOCK", "THREAD")}
    products = [free_names((product.axes, product.over)) for product in summary(tile.body).mmas]
    every = products or [frozenset(registers)]
    return thread_count(tile) * max(math.prod(n for name, n in registers.items() if name in names) for names in every)


def _iterations(statement: Node) -> int:
    inner = sum(map(_iterations, getattr(statement, "body", ()))) or 1
    if not isinstance(statement, For):
        return inner
    usual = (statement.start, 0), (statement.stop, 8), (statement.step, 1)
    start, stop, step = (number if isinstance(number, int) else default for number, default in usual)
    return inner * max(1, (stop - start) // max(1, step))


@functools.lru_cache(maxsize=KEPT)
def baseline(program: Module, seed: int) -> tuple[Arrays, Meaning] | None:
    """Return inputs and the results of the program; None if it has no single meaning in two orders of threads."""
    try:
        inputs = inputs_of(program, seed)
        known = inputs, run(program, inputs, 0)
        once = all((count <= 1).all() for count in known[1].stores.values())
        return known if once and compare(program, known, range(1, 2)) is None else None
    except BuildError:
        raise
    except (*ERRORS, TooLarge):
        return None


def compare(program: Module, known: tuple[Arrays, Meaning], seeds: range) -> str | None:
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
