"""Weights and arguments that are tensor subclasses: quantised weights as torchao makes them, and `__torch_function__`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamo_checks import ALL_COMPILED
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing

import dplc

Tensor = torch.Tensor
ATEN = torch.ops.aten

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Quantised(Tensor):
    """A matrix [n, k] of which other tensors say the elements. Operations compute with the elements."""

    @staticmethod
    def __new__(cls: Any, shape: Any, **parts: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

    def __init__(self, shape: Any, **parts: Tensor) -> None:
        self.parts = parts
        vars(self).update(parts)

    def __tensor_flatten__(self) -> Any:
        return list(self.parts), self.shape

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, shape: Any, size: Any, stride: Any) -> Any:
        return cls(shape, **parts)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (ATEN.detach.default, ATEN.clone.default, ATEN.alias.default):
            (given,) = args
            made = cls(given.shape, **{name: function(part) for name, part in given.parts.items()})
            return return_and_correct_aliasing(function, args, kwargs, made)
        args, kwargs = torch.utils._pytree.tree_map_only(cls, cls.elements, (args, kwargs))
        return function(*args, **kwargs)


class Int8(Quantised):
    """Bytes [n * k] in one row and a scale for each row of the matrix."""

    @classmethod
    def of(cls, w: Tensor) -> Any:
        scale = w.abs().amax(1, keepdim=True) / 127
        return cls(w.shape, data_=(w / scale).round().to(torch.int8).reshape(-1), scale=scale)

    def elements(self) -> Tensor:
        return self.data_.reshape(self.shape).float() * self.scale


class Shifted(Quantised):
    """Another quantised matrix and a shift for each row."""

    @classmethod
    def of(cls, w: Tensor) -> Any:
        return cls(w.shape, inner=Int8.of(w), shift=w[:, :1].clone())

    def elements(self) -> Tensor:
        return self.inner + self.shift


X = torch.randn(3, 8)


def quantised(kind: Any, trained: bool = False) -> nn.Sequential:
    """A network of two layers with weights of a kind. trained: whether gradients of these weights are wanted."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    for layer in (model[0], model[2]):
        layer.weight = nn.Parameter(kind.of(layer.weight.detach()), requires_grad=trained)
    return model


@ALL_COMPILED
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", [Int8, Shifted])
def test_subclass_weights_are_right_in_inference(kind: Any, frozen: bool) -> None:
    """By torch.compile, with gradients off, and on where no parameter wants one; all of it is compiled."""
    model = quantised(kind).requires_grad_(not frozen)
    with torch.set_grad_enabled(frozen):
        torch.testing.assert_close(torch.compile(model, backend="dplc")(X), model(X))


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("kind", [Int8, Shifted])
def test_subclass_weights_are_right_in_training(kind: Any, trained: bool) -> None:
    model, x = quantised(kind, trained), X.clone().requires_grad_()
    wanted = [x, *(p for p in model.parameters() if p.requires_grad)]
    calls = torch.compile(model, backend="dplc"), model
    torch.testing.assert_close(*(torch.autograd.grad(call(x).square().sum(), wanted) for call in calls))


def test_dplc_compile_reads_the_parts_of_subclass_weights() -> None:
    """At every call: what is written into a part shows, and so does another weight in the place of one."""
    model = quantised(Int8)
    compiled = dplc.compile(model, (X,))
    torch.testing.assert_close(compiled(X), model(X).detach())
    with torch.no_grad():
        model[0].weight.scale.mul_(2)
    torch.testing.assert_close(compiled(X), model(X).detach())
    model[2].weight = quantised(Int8)[2].weight
    torch.testing.assert_close(compiled(X), model(X).detach())
    model[2].weight = nn.Parameter(torch.randn(4, 8))
    with pytest.raises(dplc.DplcError, match="2_parametrizations_weight_original0` must be"):
        compiled(X)


class Doubling(Tensor):
    """What it multiplies is twice as large."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result + result if function in (torch.mul, Tensor.mul, Tensor.__mul__) else result


class Named(Tensor):
    """A subclass by name only."""


def by(x: Tensor) -> Tensor:
    return (x * 3).sin()


DOUBLING, WEIGHT = X.as_subclass(Doubling), Int8.of(torch.eye(8))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dplc.compile(by, (DOUBLING,)), "argument `x` is a Doubling, a tensor subclass that changes what"),
        (lambda: dplc.compile(by, (X,))(DOUBLING), "argument `x` is a Doubling, a tensor"),
        (lambda: dplc.compile(nn.functional.linear, (X, WEIGHT)), "`x_1` is a Int8, a tensor subclass with"),
        (lambda: dplc.compile(by, (torch.eye(8),))(WEIGHT), "`x` is a Int8, a tensor"),
        (lambda: dplc.compile(quantised(Shifted), (X,)), "subclass: it nests others"),
        (lambda: dplc.compile(lambda x: x @ WEIGHT, (X,)), "or is not a parameter of a module"),
    ],
)
def test_dplc_compile_refuses_subclasses_in_one_line(call: Any, message: str) -> None:
    """As arguments of the example and of a call, nested, and without a way to take them apart."""
    with pytest.raises(dplc.DplcError) as caught:
        call()
    assert message in caught.value.what
    assert ("as_subclass" if "Doubling" in message else "torch.compile(") in str(caught.value.hint)


def test_plain_subclasses_and_torch_functions_do_what_they_say() -> None:
    torch.testing.assert_close(dplc.compile(by, (X,))(X.as_subclass(Named)), by(X))
    for x in (DOUBLING, X.as_subclass(Named)):
        torch.testing.assert_close(torch.compile(by, backend="dplc")(x), by(x))
