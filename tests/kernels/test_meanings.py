"""What no rule proves keeps its meaning, too: every pass in Python over Tensor and Loop IR, on drawn programs with gathers, views,
pieces and ragged extents. Renamings have tests of their own; lifting is tested with the cuts of test_random_programs.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from drawing import draws
from random_programs import GATHERING, Maker, data_for, program

from dplc.codegen.target import target
from dplc.engine.kernels.fusion_pass import Fusion, FusionDecisions
from dplc.engine.kernels.index_maps import push_renamings
from dplc.engine.kernels.kernels import Plan, commute, compile_graph
from dplc.engine.kernels.sharing import share
from dplc.engine.rewrite.terms.rewriter import rewrite_graph
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import refusal
from dplc.ir import compose
from dplc.ir.expr import Axis, add, binary
from dplc.ir.facts.dataflow import Dataflow
from dplc.ir.interp import loop, tensor
from dplc.ir.program import Kernel
from dplc.ir.tensor import Input, Output, Remap, TensorGraph
from dplc.ir.text.tensor import print_graph

DEVICE = target("h200")
Memory = dict[str, Any]


def same(graph: TensorGraph, got: Sequence[Any], data: Memory) -> None:
    for out, want, have in zip(graph.outs, tensor.run(graph, data), got, strict=True):
        assert np.allclose(np.reshape(have, want.shape), want, rtol=1e-6, atol=1e-6, equal_nan=True), (
            f"{out.name}\n{print_graph(graph)}"
        )


def memory_for(data: Memory) -> Memory:
    return {name: np.atleast_1d(value) for name, value in data.items()}


def results(graph: TensorGraph, memory: Memory) -> list[Any]:
    return [memory[out.name] for out in graph.outs]


def simplified(graph: TensorGraph) -> TensorGraph:
    return rewrite_graph(push_renamings(graph), toolchain().algebra, DEVICE)


# ---- algebra and commuting
def algebra(graph: TensorGraph, data: Memory, dice: random.Random) -> None:
    simple = simplified(graph)
    same(graph, tensor.run(simple, data), data)
    same(graph, tensor.run(commute(simple, toolchain().commuting, DEVICE), data), data)


# ---- values that share a kernel
def groups(graph: TensorGraph, data: Memory, dice: random.Random) -> None:
    """Whichever stored values are said to share a kernel: those that cannot do not."""
    decisions = Fusion(graph, toolchain().fusion, DEVICE).decide()
    waiting = [term for term in decisions.flow.order if term in decisions.stored and not isinstance(term, Input)]
    dice.shuffle(waiting)
    decisions.groups = []
    while waiting:
        number = dice.choice((1, 2, 3))
        decisions.groups.append(waiting[:number])
        waiting = waiting[number:]
    made = compile_graph(graph, toolchain().fusion, DEVICE, decisions=decisions)
    same(graph, results(graph, loop.run(made.kernels, memory_for(data))), data)


# ---- one kernel for several launches
def sharing(graph: TensorGraph, data: Memory, dice: random.Random) -> None:
    shared = share(compile_graph(graph, toolchain().fusion, DEVICE).kernels)
    memory = memory_for(data)
    for place, launch in zip(shared.place, shared.launches, strict=True):
        kernel = shared.kernels[place]
        made = loop.run(
            (kernel,), {own.name: memory[its.name] for own, its in zip(kernel.ins, launch.ins, strict=True)}
        )
        memory |= {its.name: made[own.name] for own, its in zip(kernel.outs, launch.outs, strict=True)}
    same(graph, results(graph, memory), data)


# ---- outputs in an input's memory
def aliasing(graph: TensorGraph, data: Memory, dice: random.Random) -> None:
    made = compile_graph(graph, toolchain().fusion, DEVICE)
    for output in made.outputs:
        for source in made.inputs:
            if refusal(made, output.name, source.name) is None:
                in_one_memory(graph, made, data, output.name, source.name, dice)


def in_one_memory(graph: TensorGraph, made: Plan, data: Memory, output: str, source: str, dice: random.Random) -> None:
    """After its kernel the input holds the output; in it, an element of the input is needed for that of the output only."""
    memory = memory_for(data)
    for kernel in made.kernels:
        writes = output in {param.name for param in kernel.outs}
        if writes and source in {param.name for param in kernel.ins}:
            element = dice.randrange(memory[source].size)
            assert changes(kernel, memory, source, output, element) <= {element}, print_graph(graph)
        memory |= {param.name: value for param in kernel.outs for value in [run(kernel, memory)[param.name]]}
        if writes:
            memory[source] = memory[output].copy()
    same(graph, results(graph, memory), data)


def run(kernel: Kernel, memory: Memory) -> Memory:
    return loop.run((kernel,), {param.name: memory[param.name] for param in kernel.ins})


def changes(kernel: Kernel, memory: Memory, source: str, output: str, element: int) -> set[int]:
    """The elements of a kernel's output that another value of one element of an input changes."""
    changed = memory[source].copy()
    changed.flat[element] += 1
    before, after = run(kernel, memory)[output], run(kernel, {**memory, source: changed})[output]
    return set(np.flatnonzero(~np.isclose(before, after, equal_nan=True)).tolist())


PASSES: tuple[Callable[..., None], ...] = (algebra, groups, sharing, aliasing)


@pytest.mark.parametrize("first", range(0, draws(25), 50))
@pytest.mark.parametrize("check", PASSES)
def test_meanings_stay(check: Callable[..., None], first: int) -> None:
    for seed in range(first, first + 50):
        graph = program(random.Random(seed), GATHERING)
        check(graph, data_for(graph, seed), random.Random(seed))


# ---- results that are values in memory
def test_a_row_of_a_stack_is_what_was_stacked() -> None:
    """The second row of two equal ones, over a sum that is stored: that sum, and no sibling of it."""
    i, k, row = Axis("i", 9), Axis("k", 4), Axis("r", 2)
    x = Input("x", (i, k))
    total = compose.reduce("add", (k,), compose.remap(compose.elementwise("exp", x), {i: binary("-", 8, i)}))
    second = Remap(compose.case(binary("<", row, 1), total, total), ((row, 1),))
    graph = TensorGraph("main", (x,), (Output("out", (i,), second),))
    data = {"x": np.arange(36.0).reshape(9, 4) / 9}
    decisions = FusionDecisions(Dataflow([second]), {total, second})
    made = compile_graph(graph, toolchain().fusion, DEVICE, decisions=decisions)
    same(graph, results(graph, loop.run(made.kernels, memory_for(data))), data)


def test_a_group_computes_what_its_members_read_of_each_other_under_the_names_of_its_loops() -> None:
    """The loops are those of the first member; another one reads the second, under an axis that is renamed with it."""
    i, j, m, k = Axis("i", 3), Axis("j", 5), Axis("m", 5), Axis("k", 4)
    x, y, z = Input("x", (i, k)), Input("y", (j, k)), Input("z", (m, k))
    first = compose.reduce("add", (k,), compose.elementwise("multiply", x, y))
    second = compose.reduce("add", (k,), compose.elementwise("multiply", x, z))
    third = compose.elementwise("add", second, compose.reduce("maximum", (m,), second))
    outs = tuple(Output(f"out{n}", (i, axis), v) for n, (axis, v) in enumerate(((j, first), (m, second), (m, third))))
    graph = TensorGraph("main", (x, y, z), outs)
    values = [first, second, third]
    decisions = FusionDecisions(Dataflow(values), set(values), [values])
    made = compile_graph(graph, toolchain().fusion, DEVICE, decisions=decisions)
    data = data_for(graph, 0)
    same(graph, results(graph, loop.run(made.kernels, memory_for(data))), data)


# ---- ranges of one value, each stored where it is
def ranges_of_a_product(dice: random.Random) -> tuple[TensorGraph, FusionDecisions]:
    """Rows, looked up or not, times a matrix whose columns become two or three results."""
    maker = Maker(dice, GATHERING)
    maker.values.append((maker.input((maker.axis(5), maker.axis(4))), ()))
    x, k = maker.values[0][0], maker.values[0][0].axes[1]  # type: ignore[attr-defined]
    row = maker.axis(dice.choice((3, 5)))
    rows = maker.read(x, x.axes, (maker.places((row,), 5), k))  # type: ignore[attr-defined]
    extents = [dice.choice((1, 2, 3, 5)) for _ in range(dice.choice((2, 3)))]
    start = dice.choice((0, 2))  # columns that nobody reads
    columns = maker.axis(start + sum(extents))
    product = compose.reduce("add", (k,), compose.elementwise("multiply", rows, maker.input((k, columns))))
    outs = []
    for place, extent in enumerate(extents):
        own = maker.axis(extent)
        part = maker.read(product, (row, columns), (row, add(own, start)))
        value = compose.elementwise(dice.choice(("exp", "tanh", "negative")), part)
        outs.append(Output(f"out{place}", (row, own), value))
        start += extent
    graph = TensorGraph("program", tuple(maker.ins), tuple(dice.sample(outs, len(outs))))
    values = [out.value for out in graph.outs]
    return graph, FusionDecisions(Dataflow(values), set(values), [values])


@pytest.mark.parametrize("first", range(0, draws(20), 40))
def test_ranges_of_one_product_share_a_kernel(first: int) -> None:
    together = 0
    for seed in range(first, first + 40):
        graph, decisions = ranges_of_a_product(random.Random(seed))
        data = data_for(graph, seed)
        made = compile_graph(graph, toolchain().fusion, DEVICE, decisions=decisions)
        same(graph, results(graph, loop.run(made.kernels, memory_for(data))), data)
        together += len(made.kernels) == 1
    assert together > 20
