"""Tensor IR in numpy: broadcasting by name, reductions, gathers, cases that read one side, bounds; the verifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplc.ir.compose import case, cast, const, elementwise, index, reduce, remap
from dplc.ir.diagnostic import DplcError, InternalError, Source
from dplc.ir.expr import Axis, binary
from dplc.ir.interp.tensor import run
from dplc.ir.tensor import Case, Const, Elementwise, Index, Input, Output, Reduce, Remap, TensorGraph, axes, dtype
from dplc.ir.text.parse import parse
from dplc.ir.text.tensor import read_graph
from dplc.ir.verify.tensor import check, verify

H, J, K = Axis("i", 4), Axis("j", 3), Axis("k", 7)
X, Y = Input("x", (H,)), Input("y", (J,))
N = Input("n", (H,), "i64")
M = Input("m", (H,), "i32")
B = Input("b", (H,), "b8")


def read(text: str) -> TensorGraph:
    return read_graph(parse(Source("text", text))[0])  # type: ignore[arg-type]


def value(text: str, **data: Any) -> Any:
    return run(read(text), data)[0]


def test_operands_meet_by_name() -> None:
    text = "graph f(x: f32[4], y: f32[3]) -> z: f32[3, 4]:\n    z[j:3, i:4] = subtract(x[i], y[j])\n"
    x, y = np.arange(4.0), np.arange(3.0)
    np.testing.assert_array_equal(value(text, x=x, y=y), x[None] - y[:, None])


def test_sums_of_products_are_contractions() -> None:
    text = (
        "graph f(x: f32[4, 8], w: f32[8, 3]) -> y: f32[4, 3]:\n"
        "    p[i:4, j:8, k:3] = multiply(x[i, j], w[j, k])\n    y[i, k] = Reduce(add, j, p)\n"
    )
    x, w = np.random.default_rng(0).normal(size=(4, 8)), np.random.default_rng(1).normal(size=(8, 3))
    np.testing.assert_allclose(value(text, x=x, w=w), x @ w, rtol=1e-14)


def test_a_sum_of_products_that_is_zero_has_no_sign() -> None:
    """A factor in front of a sum that is zero would give -0.0, and what is divided by it the other infinity."""
    text = (
        "graph f(x: f32[4], w: f32[8, 3]) -> y: f32[4, 3]:\n"
        "    p[i:4, j:8, k:3] = multiply(x[i], w[j, k])\n    y[i, k] = Reduce(add, j, p)\n"
    )
    w = np.tile([[1.0], [-1.0]], (4, 3))
    assert not np.signbit(value(text, x=np.full(4, -3.0), w=w)).any()


def test_a_case_reads_only_the_side_it_takes() -> None:
    text = "graph f(a: f32[j:4], b: f32[k:3]) -> y: f32[7]:\n    y[i:7] = Case(i < 4, a[i], b[i - 4])\n"
    a, b = np.arange(4.0), np.arange(3.0)
    np.testing.assert_array_equal(value(text, a=a, b=b), np.concatenate([a, b]))


@pytest.mark.parametrize("edge", ["i < 5", "i < 3", "i <= 4", "true"])
def test_reading_beyond_the_end_is_an_error(edge: str) -> None:
    text = f"graph f(a: f32[j:4], b: f32[k:3]) -> y: f32[7]:\n    y[i:7] = Case({edge}, a[i], b[i - 4])\n"
    with pytest.raises(DplcError, match="reads out of bounds"):
        value(text, a=np.zeros(4), b=np.zeros(3))


def test_a_gather_out_of_bounds_is_an_error_and_under_where_too() -> None:
    head = "graph f(w: f32[k:3], ids: i64[4]) -> y: f32[4]:\n"
    text = head + "    c[i:4] = less(ids[i], 3)\n    y[i] = where(c, w[ids[i]], 0.0)\n"
    assert value(text, w=np.arange(3.0), ids=np.array([0, 1, 2, 0])).tolist() == [0, 1, 2, 0]
    with pytest.raises(DplcError, match="reads out of bounds"):
        value(text, w=np.arange(3.0), ids=np.array([0, 1, 3, 0]))


def test_integers_and_booleans_are_exact() -> None:
    text = "graph f(n: i64[4], b: b8[4]) -> y: i64[4]:\n    c[i:4] = i64(b[i])\n    y[i] = add(n[i], c)\n"
    n = np.array([1 << 60, -1, 0, 5])
    out = value(text, n=n, b=np.array([True, False, True, True]))
    assert out.dtype == np.int64 and out.tolist() == [(1 << 60) + 1, -1, 1, 6]


# ---- constructors


@pytest.mark.parametrize(("fn", "args", "want"), [
    ("add", (X, 2), "f32"), ("add", (N, 2), "i64"), ("add", (N, 0.5), "f32"), ("add", (M, 2), "i32"),
    ("add", (B, 1), "i64"), ("add", (M, N), "i64"), ("add", (N, X), "f32"), ("divide", (N, 2), "f32"),
    ("less", (N, 0.5), "b8"), ("exp", (N,), "f32"), ("where", (B, X, 0), "f32"), ("where", (B, N, False), "i64"),
    ("where", (B, B, False), "b8"), ("logical_and", (X, B), "b8"), ("maximum", (N, -1), "i64"),
])  # fmt: skip
def test_numbers_take_the_dtype_of_what_they_meet(fn: str, args: tuple[Any, ...], want: str) -> None:
    term = elementwise(fn, *args)
    assert dtype(term) == want
    axis = tuple(axes(term))
    assert check(TensorGraph("f", (X, N, M, B), (Output("out", axis, term),))) == []


def test_what_is_known_folds() -> None:
    assert elementwise("add", 2, 3) == 5
    assert elementwise("multiply", X, 1) is not X  # neutral elements are rules (rules/tensor/exact.rw)
    assert elementwise("add", index(H), 0) is index(H)
    assert elementwise("subtract", 0, X) is not X
    assert elementwise("add", index(H), 1) is Index(binary("+", H, 1))
    assert elementwise("less_equal", index(J), index(J)) is const(True)
    assert cast(cast(X, "f32"), "f32") is X
    assert case(True, X, Y) is X
    assert reduce("add", (J,), X) is elementwise("multiply", X, 3)
    assert reduce("maximum", (J,), X) is X
    assert remap(remap(X, {H: J}), {J: K}) is Remap(X, ((H, K),))
    assert remap(X, {J: 0}) is X


def test_casts_keep_their_meaning() -> None:
    assert isinstance(cast(N, "f32"), Elementwise)
    assert cast(const(2.7), "i64") is Const(2, "i64")
    assert cast(const(0.5), "b8") is Const(True, "b8")


# ---- the verifier


def graph_of(term: Any, *out: Axis) -> TensorGraph:
    return TensorGraph("f", (X, Y, N, M, B), (Output("out", tuple(out), term),))


@pytest.mark.parametrize(("term", "problem"), [
    (Elementwise("add", (X, N)), "add(f32, i64)"),
    (Elementwise("exp", (N,)), "exp(i64)"),
    (Elementwise("where", (X, X, X)), "where(f32, f32, f32)"),
    (Elementwise("add", (X,)), "`add` of 1 operands"),
    (Reduce("exp", (H,), X), "`exp` cannot reduce"),
    (Reduce("add", (J,), X), "which its operand lacks"),
    (Remap(X, ((H, binary("+", H, 1)),)), "an index in 1..5 reads axis i:4"),
    (Case(H, X, X), "the condition of a Case is a number"),
    (Elementwise("add", (X, Input("i", (H,)))), "is not declared"),
])  # fmt: skip
def test_broken_invariants_are_told(term: Any, problem: str) -> None:
    graph = graph_of(term, *axes(term))
    assert any(problem in line for line in check(graph)), check(graph)
    with pytest.raises(InternalError):
        verify(graph)


def test_a_missing_axis_of_one_element_changes_nothing() -> None:
    """At a size of 1 an index over the size folds to 0, and the operand loses the axis that the reduction names."""
    x = np.arange(4.0)
    one, other = Axis("one", 1), Axis("other", 1)
    for term in (Reduce("add", (one,), X), Remap(X, ((one, other),))):
        graph = TensorGraph("f", (X,), (Output("out", (H,), term),))
        assert check(graph) == []
        np.testing.assert_array_equal(run(graph, {"x": x})[0], x)


def test_outputs_name_all_their_axes() -> None:
    assert check(graph_of(elementwise("relu", X))) == ["`out` leaves out axis i"]


def test_two_axes_of_one_name() -> None:
    other = Input("y", (Axis("i", 9),))
    graph = TensorGraph("f", (X, other), (Output("out", (H,), elementwise("relu", X)),))
    assert check(graph) == ["axis i has extents 4 and 9"]


def test_functions_of_numbers_are_numbers() -> None:
    assert elementwise("copy", 2.5) == 2.5 and elementwise("subtract", 3, 5) == -2
    assert [elementwise("where", found, 1.0, 2.0) for found in (True, False)] == [1.0, 2.0]
