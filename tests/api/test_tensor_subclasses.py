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

    PARTS: tuple[str, ...] = ()

    @staticmethod
    def __new__(cls: Any, *parts: Tensor, shape: Any) -> Any:
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32, device=parts[0].device)

    def __init__(self, *parts: Tensor, shape: Any) -> None:
        for name, part in zip(self.PARTS, parts, strict=True):
            setattr(self, name, part)

    def __tensor_flatten__(self) -> Any:
        return list(self.PARTS), tuple(self.shape)

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, shape: Any, size: Any, stride: Any) -> Any:
        return cls(*(parts[name] for name in cls.PARTS), shape=shape)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (ATEN.detach.default, ATEN.clone.default, ATEN.alias.default):
            parts = (function(getattr(args[0], name)) for name in cls.PARTS)
            return return_and_correct_aliasing(function, args, kwargs, cls(*parts, shape=args[0].shape))
        args, kwargs = torch.utils._pytree.tree_map_only(cls, lambda x: x.elements(), (args, kwargs))
        return function(*args, **kwargs)


class Int8(Quantised):
    """Bytes [n, k] and a scale for each row."""

    PARTS = ("data_", "scale")

    @classmethod
    def of(cls, w: Tensor) -> Any:
        scale = w.abs().amax(1, keepdim=True) / 127
        return cls((w / scale).round().to(torch.int8), scale, shape=w.shape)

    def elements(self) -> Tensor:
        return self.data_.float() * self.scale


class Int4(Quantised):
    """Two numbers a byte [n, k / 2] and a scale for every four of a row."""

    PARTS = ("packed", "scales")

    @classmethod
    def of(cls, w: Tensor) -> Any:
        groups = w.reshape(w.shape[0], -1, 4)
        scales = groups.abs().amax(-1) / 7
        numbers = ((groups / scales[..., None]).round() + 8).to(torch.uint8).reshape(w.shape)
        return cls(numbers[:, ::2] | (numbers[:, 1::2] << 4), scales, shape=w.shape)

    def elements(self) -> Tensor:
        numbers = torch.stack((self.packed & 15, self.packed >> 4), -1).reshape(self.shape[0], -1, 4)
        return ((numbers.float() - 8) * self.scales[..., None]).reshape(self.shape)


class Shifted(Quantised):
    """Another quantised matrix and a shift for each row."""

    PARTS = ("inner", "shift")

    @classmethod
    def of(cls, w: Tensor) -> Any:
        return cls(Int8.of(w), w[:, :1].clone(), shape=w.shape)

    def elements(self) -> Tensor:
        return self.inner + self.shift


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Int8, Int4, Shifted)}
X = torch.randn(3, 8)


def quantised(kind: str, trained: bool = False) -> nn.Sequential:
    """A network of two layers with weights of a kind. trained: whether gradients of these weights are wanted."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    for layer in (model[0], model[2]):
        layer.weight = nn.Parameter(KINDS[kind].of(layer.weight.detach()), requires_grad=trained)
    return model


@ALL_COMPILED
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(3)
def test_subclass_weights_are_right_in_inference(kind: str, frozen: bool) -> None:
    """By torch.compile, with gradients off, and on where no parameter wants one; all of it is compiled."""
    model = quantised(kind)
    model.requires_grad_(not frozen)
    with torch.set_grad_enabled(frozen):
        torch.testing.assert_close(torch.compile(model, backend="dplc")(X), model(X))


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(3)
def test_subclass_weights_are_right_in_training(kind: str, trained: bool) -> None:
    model = quantised(kind, trained)
    x = X.clone().requires_grad_()
    wanted = [x, *(p for p in model.parameters() if p.requires_grad)]
    gradients = [
        torch.autograd.grad(function(x).square().sum(), wanted)
        for function in (torch.compile(model, backend="dplc"), model)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["Int8", "Int4"])
def test_dplc_compile_reads_the_parts_of_subclass_weights(kind: str) -> None:
    """At every call: what is written into a part shows, and so does another weight in the place of one."""
    model = quantised(kind)
    compiled = dplc.compile(model, (X,))
    torch.testing.assert_close(compiled(X), model(X).detach())
    with torch.no_grad():
        getattr(model[0].weight, Int8.PARTS[1] if kind == "Int8" else Int4.PARTS[1]).mul_(2)
    torch.testing.assert_close(compiled(X), model(X).detach())
    model[2].weight = quantised(kind)[2].weight
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


def test_dplc_compile_refuses_subclasses_in_one_line() -> None:
    """As arguments of the example and of a call, nested, and without a way to take them apart."""
    doubling, matrix, weight = X.as_subclass(Doubling), torch.eye(8), Int8.of(torch.eye(8))
    refused = {
        "argument `x` is a Doubling, a tensor subclass that changes what": lambda: dplc.compile(by, (doubling,)),
        "argument `x` is a Doubling, a tensor": lambda: dplc.compile(by, (X,))(doubling),
        "`weight` is a Int8, a tensor subclass with": lambda: dplc.compile(nn.functional.linear, (X, weight)),
        "`x` is a Int8, a tensor": lambda: dplc.compile(by, (matrix,))(weight),
        "subclass: it nests others": lambda: dplc.compile(quantised("Shifted"), (X,)),
        "or is not a parameter of a module": lambda: dplc.compile(lambda x: nn.functional.linear(x, weight), (X,)),
    }
    for message, call in refused.items():
        with pytest.raises(dplc.DplcError) as caught:
            call()
        assert message.replace("`weight`", "`x_1`") in caught.value.what
        assert ("as_subclass" if "Doubling" in message else "torch.compile(") in str(caught.value.hint)
    torch.testing.assert_close(dplc.compile(by, (X,))(X.as_subclass(Named)), by(X))


def test_torch_compile_does_what_a_torch_function_says() -> None:
    for kind in (Doubling, Named):
        x = X.as_subclass(kind)
        torch.testing.assert_close(torch.compile(by, backend="dplc")(x), by(x))
