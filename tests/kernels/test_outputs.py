"""Outputs that cut a fold's axes: computed over the axes before the cut, in one kernel, at the same places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compared import judged
from drawing import draws
from hypothesis import given, settings, strategies as st

from dplc.engine.kernels.index_maps import uncut_outputs
from dplc.ir.compose import remap
from dplc.ir.expr import Axis, binary
from dplc.ir.interp.tensor import run
from dplc.ir.tensor import Elementwise, Input, Output, Reduce, Remap, TensorGraph, postorder


@pytest.mark.parametrize(
    "after",
    [
        lambda h, r, w: h,
        lambda h, r, w: F.silu(h),
        lambda h, r, w: h + r,
        lambda h, r, w: torch.relu(h * w[:, None, None] + r) * 2,
    ],
)
@pytest.mark.parametrize(
    ("channels", "groups", "sides"), [(6, 3, (5, 7)), (6, 2, (1, 4)), (4, 4, (3, 3)), (5, 1, (2, 1))]
)
@pytest.mark.sampled(8)
def test_groups_are_read_once_whatever_follows(after: Any, channels: int, groups: int, sides: tuple[int, int]) -> None:
    torch.manual_seed(channels)
    x, r, w = torch.randn(2, channels, *sides), torch.randn(2, channels, *sides), torch.randn(channels)

    def program(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return after(F.group_norm(x, groups, w, w - 1), r, w)

    made = judged(program, x, r, w)
    assert len(made.compilation.kernels) == 1


@settings(max_examples=draws(5), deadline=None)
@given(outer=st.integers(1, 3), pieces=st.integers(1, 4), inner=st.integers(1, 7), cut=st.integers(1, 3))
def test_rows_that_are_cut_anew(outer: int, pieces: int, inner: int, cut: int) -> None:
    """A row of pieces * inner * cut elements, after its softmax, as rows of other lengths."""
    x, r = torch.randn(outer, pieces * inner * cut), torch.randn(outer * pieces, cut, inner)

    def program(x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).reshape(outer * pieces, cut, inner) * r

    assert len(judged(program, x, r).compilation.kernels) == 1


M, N = Axis("i", 4), Axis("n", 6)
D, E, R = Axis("d", 2), Axis("e", 12), Axis("r", 23)
FLAT = binary("+", binary("*", D, 12), E)


def cut_graph(places: dict[Axis, Any], outer: tuple[Axis, ...]) -> TensorGraph:
    """Rows of four over their sums, read at other places."""
    x = Input("x", (M, N))
    shares = Elementwise("divide", (x, Reduce("add", (N,), x)))
    value = Elementwise("exp", (remap(shares, places),))
    return TensorGraph("main", (x,), (Output("out", outer, value),))


def test_places_in_memory_stay() -> None:
    """Rows in their order, and rows whose elements lie beside those of other rows."""
    for places, extents in (
        ({M: binary("//", FLAT, 6), N: binary("%", FLAT, 6)}, [4, 6]),
        ({M: binary("%", FLAT, 4), N: binary("//", FLAT, 4)}, [6, 4]),
    ):
        graph = cut_graph(places, (D, E))
        made = uncut_outputs(graph)
        assert [axis.extent for axis in made.outs[0].axes] == extents
        assert not any(term.__class__ is Remap for term in postorder([made.outs[0].value]))
        x = np.random.default_rng(0).normal(size=(4, 6))
        assert np.array_equal(run(made, {"x": x})[0].ravel(), run(graph, {"x": x})[0].ravel())


@pytest.mark.parametrize(
    ("places", "outer"),
    [
        ({M: binary("//", FLAT, 6), N: binary("%", FLAT, 6)}, (E, D)),  # other places
        ({M: D, N: binary("%", binary("+", E, 1), 6)}, (D, E)),  # rows twice
        ({M: D, N: binary("//", E, 2)}, (D, E)),  # elements twice
        ({M: binary("//", R, 6), N: binary("%", R, 6)}, (R,)),  # the first elements
    ],
)
def test_what_moves_elements_stays(places: dict[Axis, Any], outer: tuple[Axis, ...]) -> None:
    graph = cut_graph(places, outer)
    assert uncut_outputs(graph) is graph


def test_what_is_stored_anyway_is_read_where_it_is_cut() -> None:
    """The value before the cut is an output, too: nothing is folded anew."""
    graph = cut_graph({M: binary("//", FLAT, 6), N: binary("%", FLAT, 6)}, (D, E))
    (view,) = (term for term in postorder([graph.outs[0].value]) if term.__class__ is Remap)
    both = TensorGraph("main", graph.ins, (*graph.outs, Output("shares", (M, N), view.x)))
    assert uncut_outputs(both) is both and uncut_outputs(graph) is not graph
