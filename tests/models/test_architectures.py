"""torch.compile(model, backend="dplc") of architectures as users make them: whole, and right."""

from __future__ import annotations

import architectures
import pytest
import torch
from dynamo_checks import ALL_COMPILED

FEW = ("llama", "mixtral", "gpt2", "modernbert", "vit", "resnet")


pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), ALL_COMPILED]


def check(name: str) -> None:
    """Within 1e-5 of the largest value of each result; nothing in eager."""
    model, (args, kwargs) = architectures.model(name), architectures.arguments(name)
    with torch.no_grad():
        want = architectures.tensors(model(*args, **kwargs))
        got = architectures.tensors(torch.compile(model, backend="dplc")(*args, **kwargs))
    assert len(got) == len(want) > 0
    for one, other in zip(got, want, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert (one.double() - other.double()).abs().max() <= 1e-5 * other.double().abs().max()


@pytest.mark.parametrize("name", FEW)
@pytest.mark.sampled(1)
def test_whole(name: str) -> None:
    check(name)


@pytest.mark.models
@pytest.mark.parametrize("name", [name for name in architectures.ARCHITECTURES if name not in FEW])
def test_all(name: str) -> None:
    check(name)
