"""Random programs mean the same as Tensor IR and as kernels of Loop IR, wherever the cuts are."""

from __future__ import annotations

import random

import numpy as np
import pytest
from built_in import compiled
from drawing import draws
from hypothesis import given, settings, strategies as st
from random_programs import GATHERING, STEPS, data_for, program

from dplc.engine.kernels.kernels import compile_graph
from dplc.ir.interp import loop, tensor
from dplc.ir.text.programs import print_unit, read_unit
from dplc.ir.text.tensor import print_graph

TILES = (None, 1, 2, 4, 0)


def check(seed: int, tile: int | None, steps: tuple[str, ...] = STEPS) -> int:
    """The number of kernels; raises AssertionError where the kernels mean something else."""
    graph = program(random.Random(seed), steps)
    data = data_for(graph, seed)
    plan = compile_graph(graph, compiled(tile))
    memory = loop.run(plan.kernels, {name: np.atleast_1d(value) for name, value in data.items()})
    for out, wanted in zip(graph.outs, tensor.run(graph, data), strict=True):
        got = memory[out.name].reshape(wanted.shape)
        assert np.allclose(got, wanted, rtol=1e-9, atol=1e-9, equal_nan=True), (
            f"seed {seed}, tile {tile}: {out.name}\n{print_graph(graph)}"
        )
    return len(plan.kernels)


@settings(max_examples=draws(25), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(TILES))
def test_kernels_mean_what_the_program_means(seed: int, tile: int | None) -> None:
    check(seed, tile)


FIRSTS = range(0, draws(50), 100)


@pytest.mark.parametrize("first", FIRSTS)
def test_programs_in_order(first: int) -> None:
    """The same ones every time."""
    for seed in range(first, first + 100):
        check(seed, TILES[seed % len(TILES)])


@pytest.mark.parametrize("first", FIRSTS)
def test_programs_that_look_rows_up(first: int) -> None:
    """Also that fusion ends, and that no kernel reads out of bounds."""
    for seed in range(first, first + 100):
        check(seed, TILES[seed % len(TILES)], GATHERING)


@settings(max_examples=draws(8), deadline=None)
@given(st.integers(0, 10**9))
def test_kernels_read_back(seed: int) -> None:
    from dplc.ir.diagnostic import Source
    from dplc.ir.text.parse import parse

    for kernel in compile_graph(program(random.Random(seed)), compiled(None)).kernels:
        (unit,) = parse(Source("kernel", print_unit(kernel)))
        assert read_unit(unit) is kernel  # type: ignore[arg-type]
