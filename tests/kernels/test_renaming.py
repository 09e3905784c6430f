"""Renamings at the leaves: the same values, the same text twice, and rules that see through."""

from __future__ import annotations

import random

import numpy as np
import pytest
from drawing import draws
from random_programs import GATHERING, data_for, program

from dplc.engine.kernels.index_maps import push_renamings
from dplc.ir.compose import remap
from dplc.ir.expr import Axis, binary
from dplc.ir.interp.tensor import run
from dplc.ir.tensor import Elementwise, Input, Output, Reduce, TensorGraph
from dplc.ir.text.tensor import print_graph
from dplc.ir.verify.tensor import verify

ROW, COLUMN = Axis("i", 4), Axis("j", 4)


def graph_of(value: object, *ins: Input) -> TensorGraph:
    return TensorGraph("main", ins, (Output("out", (ROW,), value),))  # type: ignore[arg-type]


def test_a_value_with_one_reader_takes_its_names() -> None:
    x, y = Input("x", (ROW,)), Input("y", (COLUMN,))
    exp_y = Elementwise("exp", (y,))
    settled = push_renamings(
        graph_of(Elementwise("multiply", (Elementwise("exp", (x,)), remap(exp_y, {COLUMN: ROW}))), x, y)
    )
    exp_own = Elementwise("exp", (Input("y", (ROW,)),))
    assert settled.outs[0].value is Elementwise("multiply", (Elementwise("exp", (x,)), exp_own))


def test_a_value_with_two_readers_keeps_its_own() -> None:
    x, y = Input("x", (ROW,)), Input("y", (COLUMN,))
    exp_y = Elementwise("exp", (y,))
    total = Reduce("add", (COLUMN,), exp_y)
    value = Elementwise("add", (Elementwise("multiply", (x, remap(exp_y, {COLUMN: ROW}))), total))
    graph = graph_of(value, x, y)
    assert push_renamings(graph) is graph


def test_a_row_and_its_sum_take_the_names_of_what_reads_both() -> None:
    """What is read as `x[k]` and summed over j is summed over k, too: one kernel sweeps one row."""
    x, y = Input("x", (COLUMN,)), Input("y", (Axis("k", 4),))
    exp_x = Elementwise("exp", (x,))
    part = Elementwise("divide", (exp_x, Reduce("add", (COLUMN,), exp_x)))
    settled = push_renamings(
        TensorGraph("main", (x, y), (Output("out", y.axes, Elementwise("add", (y, remap(part, {COLUMN: y.axes[0]})))),))
    )
    own = Elementwise("exp", (Input("x", y.axes),))
    assert settled.outs[0].value is Elementwise("add", (y, Elementwise("divide", (own, Reduce("add", y.axes, own)))))


def test_a_reduction_does_not_capture() -> None:
    x = Input("x", (COLUMN, ROW))
    y = Input("y", (ROW,))
    total = Reduce("add", (ROW,), x)  # of j
    graph = graph_of(Elementwise("add", (y, remap(total, {COLUMN: ROW}))), x, y)
    settled = push_renamings(graph)
    values = {"x": np.arange(16.0).reshape(4, 4), "y": np.arange(4.0)}
    assert np.array_equal(run(settled, values)[0], values["x"].sum(1) + values["y"])


def test_a_sum_that_is_also_read_upside_down_is_so_still() -> None:
    """One reader asks for another name of the axis that is folded; the other reads other places, not names."""
    x, y = Input("x", (ROW, COLUMN)), Input("y", (ROW, Axis("k", 4)))
    total = Reduce("add", (COLUMN,), x)
    scaled = Elementwise("multiply", (Elementwise("exp", (x,)), total))
    mirrored = remap(total, {ROW: binary("-", 3, ROW)})
    value = Elementwise("add", (mirrored, Elementwise("add", (y, remap(scaled, {COLUMN: y.axes[1]})))))
    settled = push_renamings(TensorGraph("main", (x, y), (Output("out", y.axes, value),)))
    values = {"x": np.arange(16.0).reshape(4, 4) / 16, "y": np.ones((4, 4))}
    sums = values["x"].sum(1)
    wanted = sums[::-1, None] + 1 + np.exp(values["x"]) * sums[:, None]
    np.testing.assert_allclose(run(settled, values)[0], wanted)


def test_places_of_a_gather_keep_the_names_that_its_other_reader_sees() -> None:
    """Rows of one table, each with the exponential of each: `x[ids]` under two axes."""
    other = Axis("o", 4)
    places, table = Input("ids", (ROW,), "i64"), Input("table", (Axis("n", 7), Axis("k", 3)))
    rows = remap(table, {table.axes[0]: places})
    powers = Reduce("add", (table.axes[1],), Elementwise("exp", (rows,)))
    scores = Elementwise("multiply", (rows, remap(powers, {ROW: other})))
    graph = TensorGraph("main", (places, table), (Output("out", (ROW, other, table.axes[1]), scores),))
    values = {"ids": np.array([2, 0, 1, 2]), "table": np.arange(21.0).reshape(7, 3)}
    gathered = values["table"][values["ids"]]
    wanted = gathered[:, None, :] * np.exp(gathered).sum(1)[None, :, None]
    assert np.array_equal(run(push_renamings(graph), values)[0], wanted)


def test_an_input_that_is_also_a_result_keeps_its_names() -> None:
    x, y = Input("x", (COLUMN,)), Input("y", (ROW,))
    value = Elementwise("add", (y, remap(Elementwise("exp", (remap(x, {COLUMN: Axis("l", 4)}),)), {Axis("l", 4): ROW})))
    graph = TensorGraph("main", (x, y), (Output("same", (COLUMN,), x), Output("out", (ROW,), value)))
    settled = push_renamings(graph)
    assert settled is not graph
    same, out = run(settled, {"x": np.arange(4.0), "y": np.ones(4)})
    assert np.array_equal(same, np.arange(4.0)) and np.array_equal(out, np.exp(np.arange(4.0)) + 1)


def keeps_its_meaning(graph: TensorGraph, seed: int) -> None:
    inputs = data_for(graph, seed)
    settled = push_renamings(graph)
    verify(settled)
    assert print_graph(settled) == print_graph(push_renamings(graph))
    for before, after in zip(run(graph, inputs), run(settled, inputs), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize("first", range(0, draws(30), 60))
def test_random_programs_keep_their_meaning(first: int) -> None:
    for seed in range(first, first + 60):
        keeps_its_meaning(program(random.Random(seed)), seed)
        keeps_its_meaning(program(random.Random(seed), GATHERING), seed)
