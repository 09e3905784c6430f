"""Functions and modules: nested arguments and results, closures, weights, in-place ops, dtypes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from capture_checks import assert_means, assert_same, assert_well_formed, ops

from dplc.engine.capture.capture import capture, fold
from dplc.ir.diagnostic import Span
from dplc.ir.interp.torch import run
from dplc.ir.text.programs import print_unit, read_program

LINEAR = nn.Linear(4, 3)


def data(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("scale", torch.tensor([2.0, 3.0, 4.0, 5.0]))

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": self.b(self.a(batch["x"])) * self.scale, "z": batch["x"].mean(), "none": None, "k": 3}


def in_place(x: Any) -> Any:
    y = x.clone()
    y.add_(1)
    y[0] = 0
    y[:, 1:3] *= 2
    return y * 2


def of_a_view(x: Any) -> Any:
    y = x * 1
    view = y.view(-1)
    z = view * 2
    view.mul_(3)
    return y + z.view_as(y)


def regions(x: Any) -> Any:
    with torch.enable_grad():
        y = x * 2
    with torch.autocast("cpu", enabled=False):
        y = y * 3
    with torch.no_grad():
        return y + 1


def with_options(x: Any, *rest: Any, scale: float = 2.0, flip: bool = False) -> Any:
    total = x * scale + sum(rest)
    return total.flip(0) if flip else total


def masked(x: Any) -> Any:
    mask = torch.tril(torch.ones(4, 4, dtype=torch.bool))
    positions = torch.arange(4)
    return x.masked_fill(~mask, float("-inf")).softmax(-1) + (positions[None] <= positions[:, None]).float()


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "closure module and global": (lambda x: LINEAR(x) + 1, (data(2, 4),), {}),
    "keyword": (with_options, (data(2, 4),), {"scale": 3.0}),
    "variadic": (with_options, (data(2, 4), data(2, 4), data(4)), {"flip": True}),
    "tied weights, dictionaries": (Tied(), ({"x": data(2, 4)},), {}),
    "list of inputs": (lambda xs, **k: sum(xs) + k["q"], ([data(2, 4), data(2, 4)],), {"q": data(4)}),
    "same tensor twice": (lambda a, b: a + b * 2, (data(2, 4),) * 2, {}),
    "method": (Tied().forward, ({"x": data(2, 4)},), {}),
    "partial": (partial(with_options, scale=4.0), (data(2, 4),), {}),
    "torch function": (torch.relu, (data(2, 4),), {}),
    "in place": (in_place, (data(2, 4),), {}),
    "in place through a view": (of_a_view, (data(2, 4),), {}),
    "regions": (regions, (data(2, 4),), {}),
    "booleans": (lambda a: (a > 0) & (a < 1) | (a == 2), (data(2, 4),), {}),
    "several tensors from one op": (lambda a: (a.split(1)[0], a.chunk(2, -1)[1], a.max(1)), (data(2, 4),), {}),
    "fixed results": (lambda a: (a, None, 3, {"k": a.sum()}), (data(2, 4),), {}),
    "infinities": (lambda a: torch.nan_to_num(a / 0), (data(2, 4),), {}),
    "written-out tensor": (lambda a: a + torch.tensor([1.0, 2.0, 3.0, 4.0]), (data(2, 4),), {}),
    "mask": (masked, (data(4, 4),), {}),
    "integers": (lambda i, b: (i // 2, i % 3, b.sum(), i + 2**40), (torch.arange(6) - 3, torch.ones(2).bool()), {}),
    "int32": (lambda i: (i * 2, i.sum(), i.float() / 3), (torch.arange(6, dtype=torch.int32),), {}),
    "random but quenched": (lambda a: F.dropout(a, 0.5, training=False), (data(2, 4),), {}),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (data(1, 2, 4, 4),), {}),
    "encoder layer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (data(2, 5, 8),), {}),
    "expanded input": (lambda a: a + 1, (data(1, 4).expand(3, 4),), {}),
    "gradients wanted": (lambda a: a * 2, (data(2, 4).requires_grad_(),), {}),
    "einsum": (lambda a: torch.einsum("ij,kj->ik", a, a), (data(2, 4),), {}),
    "newaxis and steps": (lambda a: a[:, None, ::2], (data(2, 4),), {}),
    "constant result": (lambda a: torch.arange(3) + 1, (data(2, 4),), {}),
}  # fmt: skip


@pytest.mark.parametrize(("function", "args", "kwargs"), CASES.values(), ids=CASES.keys())
@pytest.mark.sampled(14)
def test_a_function_means_what_torch_says(function: Any, args: Any, kwargs: Any) -> None:
    captured = capture(function, args, kwargs)
    assert_means(captured, function(*args, **kwargs))
    assert capture(function, args, kwargs).graph is captured.graph


@pytest.mark.parametrize("title", ["in place", "several tensors from one op", "mask", "encoder layer", "integers"])
def test_a_captured_graph_reads_back(title: str) -> None:
    function, args, kwargs = CASES[title]
    captured = capture(function, args, kwargs)
    for graph in (captured.graph, fold(captured).graph):
        assert read_program(print_unit(graph))[1] == (graph,)


def test_variadic_arguments_are_named_by_their_places() -> None:
    assert capture(with_options, (data(2, 4), data(2, 4)), {"scale": 3.0}).inputs == ("x", "rest_0")


def test_an_argument_that_is_a_closure_variable_too_stays_an_argument() -> None:
    x = data(2, 4)
    captured = capture(lambda a: a + x, (x,))
    assert list(captured.kinds.values()) == ["input", "constant"]
    outputs = run(captured.graph, {**captured.tensors, captured.inputs[0]: torch.zeros(2, 4)})
    assert_same(outputs, [x])


def test_a_tied_weight_is_one_input() -> None:
    captured = capture(Tied(), ({"x": data(2, 4)},))
    assert list(captured.kinds) == ["batch_x", "a_weight", "a_bias", "b_bias", "scale"]
    assert list(captured.kinds.values()) == ["input", "parameter", "parameter", "parameter", "buffer"]


def test_unused_arguments_stay_and_unused_weights_go() -> None:
    used, unused = nn.Linear(4, 4), nn.Linear(4, 4)
    captured = capture(lambda a, b: used(b) if a is not None else unused(b), (data(2), data(2, 4)))
    assert list(captured.tensors) == ["a", "b", "used_weight", "used_bias"]


def test_modules_are_found_where_a_function_keeps_them() -> None:
    here = {"deep": [nn.Linear(4, 4)]}

    def inner(x: Any, m: Any = nn.Linear(4, 4)) -> Any:  # noqa: B008
        return m(here["deep"][0](x))

    captured = capture(lambda x: inner(x), (data(2, 4),))
    assert sorted(captured.kinds) == ["deep_bias", "deep_weight", "m_bias", "m_weight", "x"]


def test_a_module_is_traced_in_its_mode_and_left_as_it_was() -> None:
    module = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    module[1:].eval()
    captured = capture(module, (data(3, 4),))
    assert [dict(op.args).get("training") for op in captured.graph.body[:2]] == [True, False]
    assert [part.training for part in module.modules()] == [True, True, False, False]
    assert module[1].num_batches_tracked == 0


def test_an_op_knows_its_line_or_its_module() -> None:
    captured = capture(CASES["in place"][0], (data(2, 4),))
    texts = []
    for statement in captured.graph.body:
        span = captured.spans[statement.dst]
        assert isinstance(span, Span)
        assert span.source.name.endswith("test_capture.py")
        texts.append(span.source.line(span.line)[span.column : span.end_column])
    assert texts[:2] == ["x.clone()", "y.add_(1)"]
    layers = capture(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4))), (data(2, 4),))
    assert [layers.spans[s.dst] for s in layers.graph.body] == ["0 (Linear)", "1.0 (LayerNorm)"]


def test_only_what_an_output_needs_is_captured() -> None:
    def with_waste(x: Any) -> Any:
        torch.fft.fft(x)
        return x + 1

    assert ops(capture(with_waste, (data(4),))) == ["Add"]


def test_where_and_how_is_no_part_of_the_program() -> None:
    captured = capture(
        lambda x: torch.zeros(4, device=x.device).to(x.device, non_blocking=True, copy=True) + x.contiguous(),
        (data(4),),
    )
    assert_well_formed(captured)
    assert {name for s in captured.graph.body for name, _ in s.args} == {"self", "other", "size", "dtype"}
