"""Results that are objects with tensors inside; arguments that are such objects."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import dplc


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

    def __init__(self, made: torch.Tensor) -> None:
        self.made = made


def test_an_object_with_tensors_is_made_anew_at_every_call() -> None:
    model = nn.Linear(4, 4)

    def function(x: torch.Tensor) -> tuple[Any, ...]:
        cache = Cache(model)
        y = model(x)
        cache.layers[0].keys, cache.layers[0].values = y, (x[:, 4:], {"y": y})
        return y * 2, cache, Slotted(x + 1)

    x = torch.randn(3, 4)
    compiled = dplc.compile(function, (x,), device="emulator")
    (two, cache, slotted), (_, other, _) = compiled(x), compiled(x + 1)
    y = model(x).detach()
    torch.testing.assert_close((two, cache.layers[0].keys, slotted.made), (2 * y, y, x + 1))
    empty, held = cache.layers[0].values
    assert empty.shape == (3, 0) and held["y"] is cache.layers[0].keys
    assert cache.model is model and cache.length == 3
    assert cache is not other and cache.layers[0].extras == [cache]
    assert not torch.equal(other.layers[0].keys, y)


def test_in_a_text() -> None:
    text = "class C:\n  def __init__(self, x): self.x = x\nC(torch.randn(3) * 2)"
    from dplc.engine.capture.capture import capture_text

    captured = capture_text(text)
    assert captured.reference is not None and len(captured.reference) == len(captured.graph.outs) == 1


def test_what_cannot_be_copied_is_said() -> None:
    class Locked:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("one of a kind")

    with pytest.raises(dplc.DplcError, match="a Locked, which holds tensors and cannot be copied") as caught:
        dplc.compile(Locked, (torch.randn(3),))
    assert "one of a kind" in str(caught.value)


def test_an_argument_that_holds_tensors_is_refused() -> None:
    with pytest.raises(dplc.DplcError, match="argument `layer` is a Layer, which holds tensors"):
        dplc.compile(lambda layer: layer.keys * 2, (Layer(torch.randn(3)),))
