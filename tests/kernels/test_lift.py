"""Lifting, one matter at a time."""

from __future__ import annotations

import numpy as np
import pytest
from built_in import compiled
from drawing import draws
from random_programs import data_for

from dplc.engine.kernels.fusion_pass import FusionRules
from dplc.engine.kernels.kernels import Plan, compile_graph
from dplc.engine.kernels.sharing import key
from dplc.ir import compose
from dplc.ir.diagnostic import Source
from dplc.ir.expr import Axis, binary
from dplc.ir.interp import loop, tensor
from dplc.ir.loop import If, Load
from dplc.ir.node import nodes
from dplc.ir.program import Kernel
from dplc.ir.tensor import Elementwise, Fold, Input, Output, TensorGraph, Term
from dplc.ir.text.parse import parse
from dplc.ir.text.programs import print_unit, read_unit

I, J = Axis("i", 4), Axis("j", 6)  # noqa: E741
X = Input("x", (I, J))


def lifted(*outs: tuple[Term, tuple[Axis, ...]], ins: tuple[Input, ...] = (X,), names: tuple[str, ...] = ()) -> Plan:
    results = tuple(Output((names or ("y", "z", "u"))[n], dims, term) for n, (term, dims) in enumerate(outs))
    return compile_graph(TensorGraph("g", ins, results), compiled(None))


def kernel(text: str) -> Kernel:
    (unit,) = parse(Source("text", text))
    return read_unit(unit)  # type: ignore[arg-type]


def test_a_scalar_lives_in_one_element() -> None:
    plan = lifted((compose.reduce("add", (I, J), X), ()))
    assert plan.outputs[0].shape == (1,)
    assert "y[0] = sum1" in print_unit(plan.kernels[0]) or "y[0] = sum" in print_unit(plan.kernels[0])


def test_concatenation_is_two_guarded_loads_and_no_branch() -> None:
    k = Axis("k", 12)
    right = compose.elementwise("multiply", compose.remap(X, {J: binary("-", k, 6)}), 2.0)
    plan = lifted((compose.case(binary("<", k, 6), compose.remap(X, {J: k}), right), (I, k)))
    (only,) = plan.kernels
    assert not list(nodes(only.body, If))
    assert [load.when is not True for load in nodes(only.body, Load)] == [True, True]


@pytest.mark.parametrize(("kind", "zero"), [("f32", 0.0), ("f16", 0.0), ("i64", 0), ("i32", 0), ("b8", False)])
def test_what_a_guard_leaves_out_is_zero_of_its_kind(kind: str, zero: object) -> None:
    """Nobody selects it, but it may be a place: the first exists in every axis."""
    k, x = Axis("k", 12), Input("x", (I, J), kind)
    shifted = compose.elementwise("abs", compose.remap(x, {J: binary("-", k, 6)})) if kind != "b8" else x
    right = shifted if kind != "b8" else compose.remap(x, {J: binary("-", k, 6)})
    plan = lifted((compose.case(binary("<", k, 6), compose.remap(x, {J: k}), right), (I, k)), ins=(x,))
    loads = list(nodes(plan.kernels[0].body, Load))
    assert [(load.other, type(load.other)) for load in loads if load.when is not True] == [(zero, type(zero))] * 2


def test_an_element_that_is_read_twice_is_loaded_once() -> None:
    plan = lifted((compose.elementwise("add", X, compose.elementwise("multiply", X, X)), (I, J)))
    assert len(list(nodes(plan.kernels[0].body, Load))) == 1


def test_padding_is_one_guarded_load() -> None:
    k = Axis("k", 8)
    inside = binary("and", binary(">=", k, 1), binary("<", k, 7))
    plan = lifted((compose.case(inside, compose.remap(X, {J: binary("-", k, 1)}), -1.0), (I, k)))
    (load,) = nodes(plan.kernels[0].body, Load)
    assert load.other == -1.0 and len(plan.kernels[0].body) == 1


def test_a_gather_loads_its_index_first() -> None:
    t = Axis("t", 3)
    places = Input("places", (t,), "i64")
    plan = lifted((compose.remap(X, {I: places}), (t, J)), ins=(X, places))
    memory = loop.run(plan.kernels, {"x": np.arange(24.0).reshape(4, 6), "places": np.array([2, 0, 3])})
    assert (memory["y"] == np.arange(24.0).reshape(4, 6)[[2, 0, 3]]).all()
    assert {param.name: param.dtype for param in plan.kernels[0].ins} == {"x": "f32", "places": "i64"}


def test_constants_and_index_arithmetic() -> None:
    plan = lifted((compose.const(2.5), (I,)), (compose.index(binary("+", I, 1)), (I,)))
    memory = loop.run(plan.kernels, {"x": np.zeros((4, 6))})
    assert memory["y"].tolist() == [2.5] * 4 and memory["z"].tolist() == [1, 2, 3, 4]
    assert [param.dtype for param in plan.outputs] == ["f32", "i64"]


def test_outputs_that_are_inputs_views_or_returned_twice_are_copied() -> None:
    mirrored = compose.remap(X, {I: binary("-", 3, I)})
    plan = lifted((X, (J, I)), (mirrored, (I, J)), (mirrored, (I, J)))
    data = np.arange(24.0).reshape(4, 6)
    memory = loop.run(plan.kernels, {"x": data})
    assert (memory["y"] == data.T).all() and (memory["z"] == data[::-1]).all() and (memory["u"] == data[::-1]).all()


def test_an_expanded_output_is_read_at_its_first_element() -> None:
    k = Axis("k", 3)
    total = compose.reduce("add", (J,), X)
    plan = lifted((total, (I, k)), (compose.elementwise("exp", total), (I,)))
    data = np.arange(24.0).reshape(4, 6) / 24
    memory = loop.run(plan.kernels, {"x": data})
    assert np.allclose(memory["z"], np.exp(data.sum(1))) and memory["y"].shape == (4, 3)


def means_the_same(plan: Plan, graph: TensorGraph) -> bool:
    data = data_for(graph, 0)
    memory = loop.run(plan.kernels, {name: np.atleast_1d(value) for name, value in data.items()})
    return all(
        np.allclose(memory[o.name].reshape(w.shape), w)
        for o, w in zip(graph.outs, tensor.run(graph, data), strict=True)
    )


def test_a_reduction_read_under_its_own_axis_is_renamed() -> None:
    """`total[k]` where `total[i] = Reduce(add, k, x[i, k])`: the two k are not one."""
    square = Input("s", (I, Axis("k", 4)))
    k = square.axes[1]
    total = compose.reduce("add", (k,), square)
    term = compose.elementwise("add", square, compose.remap(total, {I: k}))
    graph = TensorGraph("g", (square,), (Output("y", (I, k), term),))
    plan = compile_graph(graph, compiled(None))
    assert len(plan.kernels) == 1 and means_the_same(plan, graph)


def test_cases_inside_cases() -> None:
    k = Axis("k", 12)
    inner = compose.case(
        binary("<", k, 3), compose.remap(X, {J: k}), compose.elementwise("exp", compose.remap(X, {J: k}))
    )
    right = compose.elementwise("negative", compose.remap(X, {J: binary("-", k, 6)}))
    for cond, a, b in ((binary("<", k, 6), inner, right), (binary(">=", k, 6), right, inner)):
        graph = TensorGraph("g", (X,), (Output("y", (I, k), compose.case(cond, a, b)),))
        assert means_the_same(compile_graph(graph, compiled(None)), graph)


def test_a_gather_from_one_side_of_a_case() -> None:
    k = Axis("k", 12)
    places = Input("places", (Axis("t", 3),), "i64")
    left = compose.remap(X, {J: k})
    right = compose.elementwise("exp", compose.remap(X, {J: binary("-", k, 6)}))
    joined = compose.remap(
        compose.case(binary("<", k, 6), left, right), {k: compose.elementwise("remainder", places, 12)}
    )
    graph = TensorGraph("g", (X, places), (Output("y", (I, places.axes[0]), joined),))
    assert means_the_same(compile_graph(graph, compiled(None)), graph)


def test_a_value_that_is_only_stored_later_is_not_read_before() -> None:
    """Pushing the map of the first result spells the second one."""
    mirrored = binary("-", 3, I)
    first = compose.remap(compose.reduce("add", (J,), compose.elementwise("exp", X)), {I: mirrored})
    graph = TensorGraph("g", (X,), (Output("y", (I,), first), Output("z", (I, J), compose.remap(X, {I: mirrored}))))
    plan = compile_graph(graph, compiled(None))
    assert "z" not in {param.name for param in plan.kernels[0].ins} or plan.kernels[0].outs[0].name == "z"
    assert means_the_same(plan, graph)


def test_integers_and_booleans_keep_their_dtypes() -> None:
    n = Input("n", (I,), "i32")
    even = compose.elementwise("equal", compose.elementwise("remainder", n, 2), 0)
    plan = lifted((even, (I,)), (compose.elementwise("add", n, 1), (I,)), ins=(n,))
    assert [param.dtype for param in plan.outputs] == ["b8", "i32"]


def test_thousands_of_operations_in_one_kernel() -> None:
    term: Term = X
    for _ in range(draws(2_000)):
        term = Elementwise("negative", (term,))
    (only,) = lifted((term, (I, J))).kernels
    assert len(only.body) == 1


def test_names_of_values_and_buffers_are_no_words_of_the_language() -> None:
    where = Input("where", (I, J))
    out = Output("float", (I, J), compose.elementwise("exp", where))
    (only,) = compile_graph(TensorGraph("g", (where,), (out,)), compiled(None)).kernels
    assert only.name == "exp_2" or only.name not in ("exp", "where", "float")


@pytest.mark.parametrize("name", ["k1", "k2"])
def test_the_key_ignores_names(name: str) -> None:
    template = (
        "kernel {0}({1}: f32[4]) -> {2}: f32[4]:\n    for {3} in 0..4 free:\n"
        "        {4} = load {1}[{3}]\n        {2}[{3}] = {4}\n"
    )
    assert key(kernel(template.format("f", "x", "y", "i", "v"))) == key(
        kernel(template.format(name, "y", "x", "w", "q"))
    )


def test_the_key_sees_everything_else() -> None:
    head = "kernel f(x: f32[4], z: f32[4]) -> y: f32[4]:\n"
    base = f"{head}    for i in 0..4 free:\n        v = load x[i]\n        y[i] = v\n"
    changes = [
        ("0..4 free", "0..4 serial"),
        ("load x[i]", "load z[i]"),
        ("x: f32[4]", "x: i32[4]"),
        ("load x[i]", "load x[3 - i]"),
        ("y[i] = v", "y[i] = 1.0"),
    ]
    keys = {key(kernel(base)), *(key(kernel(base.replace(old, new))) for old, new in changes)}
    assert len(keys) == 1 + len(changes)


def test_the_rules_decide(fusion: FusionRules) -> None:
    """A rule taken out is a fusion that does not happen."""
    graph = TensorGraph("g", (X,), (Output("y", (I,), compose.elementwise("exp", compose.reduce("add", (J,), X))),))
    assert len(compile_graph(graph, fusion).kernels) == 1
    left_out = ("fuse_epilogue", "fuse_beside", "store_on_the_way")
    fewer = FusionRules(rule for rule in fusion.rules if rule.name not in left_out)
    plan = compile_graph(graph, fewer)
    assert len(plan.kernels) == 2 and plan.why[0].reason == "no fusion rule takes it in"


def test_a_fold_that_needs_another_one_has_a_loop_of_its_own() -> None:
    row = Axis("i", 6)
    x = Input("x", (row,))
    squares = Fold("welford.q", (row,), (x,))
    scaled = compose.elementwise("multiply", x, squares)
    again = Fold("welford.q", (row,), (scaled,))
    plan = lifted((compose.elementwise("add", x, again), (row,)), ins=(x,))
    data = {"x": np.arange(6.0)}
    graph = TensorGraph("f", (x,), (Output("y", (row,), compose.elementwise("add", x, again)),))
    assert np.allclose(loop.run(plan.kernels, data)["y"], tensor.run(graph, data)[0])
