"""Modules keep the mode that they are in; what a compiled function cannot do it refuses by name."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import dplc

X = torch.randn(8, 4)


def agrees(module: nn.Module, x: torch.Tensor = X) -> None:
    compiled = dplc.compile(module, (x,), device="emulator", trace=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


RIGHT = {
    "batch statistics": nn.BatchNorm1d(4, track_running_stats=False),
    "running statistics": nn.BatchNorm1d(4).eval(),
    "dropout in evaluation": nn.Sequential(nn.Dropout(0.5).eval(), nn.Linear(4, 4)),
    "dropout of nothing": nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 4)),
}
DRAWN = "in training mode draws random numbers"
REFUSED = {
    "dropout": (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), X, rf"`dropout` {DRAWN}[^`]*note: in 1 \(Dropout\)"),
    "alpha dropout": (nn.AlphaDropout(), X, f"`alpha_dropout` {DRAWN}"),
    "attention": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), X[None], DRAWN),
    "statistics": (nn.BatchNorm1d(4), X, r"changes `running_mean` in place[^`]*`\.eval\(\)`"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_mode_is_kept(name: str) -> None:
    modes = [module.training for module in RIGHT[name].modules()]
    agrees(RIGHT[name])
    assert [module.training for module in RIGHT[name].modules()] == modes


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.sampled(2)
def test_what_training_does_is_refused_by_name(name: str) -> None:
    module, x, message = REFUSED[name]
    with pytest.raises(dplc.DplcError, match=message) as caught:
        dplc.compile(module, (x,), device="emulator")
    assert ".eval()" in str(caught.value)
    agrees(module.eval(), x)


def test_a_tensor_that_was_frozen_and_changed() -> None:
    shift = torch.ones(4)
    compiled = dplc.compile(lambda x: x + shift, (X,), device="emulator")
    torch.testing.assert_close(compiled(X), X + 1)
    shift += 1
    with pytest.raises(dplc.DplcError, match="has changed since it was compiled"):
        compiled(X)


def test_pickling_says_why_not() -> None:
    compiled = dplc.compile(torch.sin, (X,), device="emulator")
    with pytest.raises(dplc.DplcError, match="cannot be pickled"):
        pickle.dumps(compiled)


def test_a_printed_trace_is_short() -> None:
    compiled = dplc.compile(nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), (X,), device="emulator")
    text = str(compiled.trace)
    assert "tileify" in text and ".render(2)" in text
    assert text.count("\n") <= 102 and max(map(len, text.splitlines())) < 400
    assert len(repr(compiled.trace)) < 100
