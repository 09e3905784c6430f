"""Functions and modules: nested arguments and results, closures, weights, objects, and the places of ops."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capture_checks import assert_means, data, inputs_of, pointed_at

import dplc
from dplc.engine.capture.capture import capture
from dplc.ir.interp.torch import run
from dplc.ir.text.programs import print_unit

X, LINEAR, UNUSED = data(2, 4), nn.Linear(4, 3), nn.Linear(4, 3)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("scale", torch.tensor([2.0, 3.0, 4.0, 5.0]))

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": self.b(self.a(batch["x"])) * self.scale, "z": batch["x"].mean(), "none": None, "k": 3}


TIED = "input batch_x; parameter {0}a_weight {0}a_bias {0}b_bias; buffer {0}scale"


def with_options(x: Any, *rest: Any, scale: float = 2.0, flip: bool = False) -> Any:
    total = x * scale + sum(rest)
    return total.flip(0) if flip else total


def of_modules_anywhere() -> Any:
    here = {"deep": [nn.Linear(4, 4, bias=False)]}

    def inner(x: Any, m: Any = nn.Linear(4, 4, bias=False)) -> Any:  # noqa: B008
        return m(here["deep"][0](x))

    return lambda x: inner(x)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "inputs"),
    [
        (with_options, (X,), {"scale": 3.0}, "input x"),
        (with_options, (X, X, data(4)), {"flip": True}, "input x rest_0 rest_1"),
        (partial(with_options, scale=4.0), (X,), {}, "input x"),
        (torch.relu, (X,), {}, "input x_0"),
        (lambda xs, **more: sum(xs) + more["q"], ([X, X],), {"q": data(4)}, "input xs_0 xs_1 q"),
        (lambda a, b: a + b * 2, (X, X), {}, "input a b"),
        (lambda a: a + 1, (data(1, 4).requires_grad_().expand(3, 4),), {}, "input a"),
        (lambda a: a + torch.tensor([1.0, 2.0, 3.0, 4.0]), (X,), {}, "input a; constant constant"),
        (Tied(), ({"x": X},), {}, TIED.format("")),
        (Tied().forward, ({"x": X},), {}, TIED.format("tied_")),
        # an argument that is not read stays, weights that are not read go
        (
            lambda a, b: LINEAR(b) if a is not None else UNUSED(b),
            (data(2), X),
            {},
            "input a b; parameter LINEAR_weight LINEAR_bias",
        ),
        (of_modules_anywhere(), (X,), {}, "input x; parameter deep_weight m_weight"),
    ],
)
def test_a_function_means_what_torch_says(function: Any, args: Any, kwargs: Any, inputs: str) -> None:
    captured = capture(function, args, kwargs)
    assert_means(captured, function(*args, **kwargs))
    assert inputs_of(captured) == inputs
    assert capture(function, args, kwargs).graph is captured.graph


def test_an_argument_that_is_a_closure_variable_too_stays_an_argument() -> None:
    captured = capture(lambda a: a + X, (X,))
    (found,) = run(captured.graph, {**captured.tensors, "a": torch.zeros(2, 4)})
    assert torch.equal(found, X.double())


def test_a_module_is_traced_in_its_mode_and_left_as_it_was() -> None:
    training = nn.BatchNorm1d(4, track_running_stats=False)
    module = nn.Sequential(training, nn.BatchNorm1d(4).eval(), nn.Dropout(0.5).eval())
    captured = capture(module, (data(3, 4),))
    assert [dict(op.args).get("training") for op in captured.graph.body[:2]] == [True, False]
    assert [part.training for part in module.modules()] == [True, True, False, False]
    assert module[1].num_batches_tracked == 0


def in_place(x: Any) -> Any:
    y = x.clone()
    y.add_(1)
    return y * 2


def test_an_op_knows_its_line_or_its_module() -> None:
    spans = capture(in_place, (X,)).spans.values()
    assert [pointed_at(span) for span in spans] == ["x.clone()", "y.add_(1)", "y * 2"]
    assert {Path(span.source.name).name for span in spans} == {"test_capture.py"}
    layers = capture(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4))), (X,))
    assert [layers.spans[s.dst] for s in layers.graph.body] == ["0 (Linear)", "1.0 (LayerNorm)"]


def test_where_and_how_is_not_a_part_of_the_program() -> None:
    def function(x: Any) -> Any:
        return torch.zeros(4, device=x.device).to(x.device, non_blocking=True, copy=True) + x.contiguous()

    assert print_unit(capture(function, (data(4),)).graph) == (
        "graph main(x: f32[4]) -> add_1: f32[4]:\n"
        "    zeros: f32[4] = Zeros(size=(4))\n"
        "    to: f32[4] = To(zeros, f32)\n"
        "    add_1: f32[4] = Add(to, x)"
    )


# ---- Results that are objects with tensors inside; arguments that are such objects.


@dataclasses.dataclass
class Layer:
    keys: Any
    values: Any = None
    extras: list[Any] = dataclasses.field(default_factory=list)


class Cache:
    def __init__(self, model: nn.Module) -> None:
        self.model, self.layers, self.length = model, [Layer(None)], 3
        self.layers[0].extras.append(self)  # a loop


class Slotted:
    __slots__ = ("made", "never")


def test_an_object_with_tensors_is_made_anew_at_every_call() -> None:
    def function(x: torch.Tensor) -> tuple[Any, ...]:
        cache, slotted = Cache(LINEAR), Slotted()
        slotted.made, y = x + 1, LINEAR(x)
        cache.layers[0].keys, cache.layers[0].values = y, (x[:, 4:], {"y": y})
        return y * 2, cache, slotted

    compiled = dplc.compile(function, (X,), device="emulator")
    (two, cache, slotted), (_, other, _) = compiled(X), compiled(X + 1)
    y, (layer,) = LINEAR(X).detach(), cache.layers
    torch.testing.assert_close((two, layer.keys, slotted.made), (2 * y, y, X + 1))
    empty, held = layer.values
    assert empty.shape == (2, 0) and held["y"] is layer.keys
    assert cache.model is LINEAR and cache.length == 3
    assert cache is not other and layer.extras == [cache]
    assert not torch.equal(other.layers[0].keys, y)


class Locked:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("one of a kind")


def test_an_object_that_cannot_be_copied_is_named() -> None:
    with pytest.raises(dplc.DplcError, match="a Locked, which holds tensors and cannot be copied") as caught:
        dplc.compile(Locked, (X,))
    assert caught.value.notes == ("one of a kind",)


def test_an_argument_that_holds_tensors_is_refused() -> None:
    with pytest.raises(dplc.DplcError, match="argument `layer` is a Layer, which holds tensors"):
        dplc.compile(lambda layer: layer.keys * 2, (Layer(X),))
