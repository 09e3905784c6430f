"""Complex numbers as arguments, results, weights and constants: a program is given and gives pairs of their parts, its user
sees torch's tensors."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from drawing import draws
from hypothesis import given, settings, strategies as st
from torch import nn

import dplc
from dplc.engine.capture.decompositions import ctc_loss


class Rotation(nn.Module):
    """Rope as Llama's first code and DeepSeek's say it. The angles are a buffer of complex numbers."""

    def __init__(self, length: int, width: int):
        super().__init__()
        angles = torch.outer(torch.arange(length).float(), 1 / 10000 ** (torch.arange(0, width, 2) / width))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.layer = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        pairs = self.layer(x).float().reshape(*x.shape[:-1], -1, 2)
        return torch.view_as_real(torch.view_as_complex(pairs) * self.turns[:, None]).flatten(3)


def close(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert torch.allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_buffer_is_read_at_every_call() -> None:
    model, x = Rotation(5, 8), torch.randn(2, 5, 3, 8)
    with torch.no_grad():
        compiled = dplc.compile(model, (x,))
        close(compiled(x), model(x))
        model.turns.mul_(1j)  # in place, then another tensor
        close(compiled(x), model(x))
        model.turns = model.turns * 2
        close(compiled(x), model(x))


def test_arguments_and_results() -> None:
    def function(x: Any, turns: Any) -> Any:
        return {"rotated": torch.fft.fft(x) * turns, "real": turns.real, "nothing": turns[:0]}

    x, turns = torch.randn(3, 8), torch.randn(8, dtype=torch.complex64)
    compiled = dplc.compile(function, (x, turns))
    for other in (turns, turns.conj(), torch.randn(16, dtype=torch.complex64)[::2]):
        got, want = compiled(x, other), function(x, other)
        assert got.keys() == want.keys()
        for name in want:
            close(got[name], want[name])
    with pytest.raises(dplc.DplcError, match="`turns` must hold complex numbers"):
        compiled(x, torch.view_as_real(turns))


def test_a_constant() -> None:
    turns = torch.polar(torch.ones(4), torch.arange(4.0))
    close(dplc.compile(lambda x: x * turns, (torch.ones(3, 4),))(torch.ones(3, 4)), turns.expand(3, 4))


def test_what_stands_around_is_real() -> None:
    def function(x: Any) -> Any:
        return torch.constant_pad_nd(x, (1, 2), 2.0)

    x = torch.randn(3, 4, dtype=torch.complex64)
    close(dplc.compile(function, (x,))(x), function(x))


@pytest.mark.usefixtures("fresh_dynamo")
def test_training() -> None:
    model, own = Rotation(5, 8), Rotation(5, 8)
    own.load_state_dict(model.state_dict())
    x = torch.randn(2, 5, 3, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a part in eager
        torch.compile(own, backend="dplc")(x).square().sum().backward()
    model(x).square().sum().backward()
    close(own.layer.weight.grad, model.layer.weight.grad)


@settings(max_examples=draws(2))  # each is a compile
@given(st.integers(1, 140), st.integers(1, 3), st.sampled_from(("backward", "forward", "ortho")), st.booleans())
def test_transforms_of_any_length(n: int, rows: int, norm: str, back: bool) -> None:
    def function(z: Any) -> Any:
        return (torch.fft.ifft if back else torch.fft.fft)(torch.view_as_complex(z), norm=norm)

    z = torch.randn(rows, n, 2)
    got, want = dplc.compile(function, (z,))(z), function(z.double())
    assert (got - want).abs().max() <= 1e-6 * want.abs().max() + 1e-6


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("blank", [0, 2])
def test_alignments(reduction: int, blank: int) -> None:
    """Ends and counts of each sequence, rows of labels and one row of all, what cannot be aligned, no labels at all."""
    words = ("none", "mean", "sum")
    probabilities = torch.randn(6, 4, 6).log_softmax(-1)
    labels = torch.randint(0, 6, (4, 3))
    labels[labels == blank] = 5
    ends, counts = torch.tensor([6, 3, 6, 1]), torch.tensor([3, 2, 0, 2])
    flat = torch.cat([row[:count] for row, count in zip(labels, counts, strict=True)])
    for given_labels in (labels, flat):
        for clears in (False, True):
            options: dict[str, Any] = {"blank": blank, "reduction": words[reduction], "zero_infinity": clears}
            want = nn.functional.ctc_loss(probabilities, given_labels, ends, counts, **options)
            got = ctc_loss(probabilities, given_labels, ends, counts, blank, reduction, clears)
            assert torch.allclose(got, want, rtol=1e-5)


def test_powers_of_zero_and_one_are_exact() -> None:
    """As in eager, which looks at the exponent: by a logarithm they would be NaN at 0, at infinity and at NaN."""

    def powers(x: Any, z: Any) -> Any:
        return [
            *(x**exponent for exponent in (0j, 1 + 0j)),
            *(z**exponent for exponent in (0j, 1 + 0j, 0, 1, 0.0, 1.0)),
            torch.float_power(z, 0),
        ]

    x = torch.tensor([0.0, -1.0, 2.0, torch.inf, torch.nan])
    z = torch.complex(x, x.flip(0))
    for got, want in zip(dplc.compile(powers, (x, z))(x, z), powers(x, z), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
