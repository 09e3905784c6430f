"""The float64 reference is the program of the user's own ops: a wrong decomposition of one is found by `dplc run`."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from command_line import Command

from dplc.engine.capture import decompositions

# ops of the table by their overloads, with a program of each
PLANTED = {
    "upsample_nearest2d.vec": "F.interpolate(torch.randn(1, 2, 5, 4), scale_factor=1.5)",
    "upsample_bilinear2d.vec": "F.interpolate(torch.randn(1, 2, 5, 4), size=(7, 3), mode='bilinear')",
    "grid_sampler_2d.default": "F.grid_sample(torch.randn(1, 2, 5, 4), torch.rand(1, 3, 3, 2), align_corners=False)",
    "im2col.default": "F.unfold(torch.randn(1, 2, 5, 4), 3)",
    "pixel_unshuffle.default": "F.pixel_unshuffle(torch.randn(1, 2, 4, 6), 2).clone().add_(1)",
    "renorm.default": "torch.renorm(torch.randn(4, 5), 2, 0, 1.0)",
    "channel_shuffle.default": "torch.channel_shuffle(torch.randn(1, 6, 2, 2), 3)",
    "logaddexp2.default": "torch.logaddexp2(torch.randn(7), torch.randn(7))",
    "linalg_cross.default": "torch.linalg.cross(torch.randn(4, 3), torch.randn(4, 3))",
    "soft_margin_loss.default": "F.soft_margin_loss(torch.randn(9), torch.ones(9))",
    "trapezoid.dx": "torch.trapezoid(torch.randn(3, 8))",
    "gru.input": "nn.GRU(3, 4)(torch.randn(5, 2, 3))[0]",
}


def wrong(formula: Any, *arguments: Any, **options: Any) -> Any:
    """One more than the formula says."""
    result = formula(*arguments, **options)
    return (result[0] + 1, *result[1:]) if isinstance(result, (tuple, list)) else result + 1


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.sampled(3)
def test_run_finds_a_wrong_decomposition(name: str, dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    packet, _, overload = name.partition(".")
    op, known = getattr(getattr(torch.ops.aten, packet), overload), decompositions._own()
    assert dplc("run -c", PLANTED[name]).code == 0
    monkeypatch.setitem(known, op, functools.partial(wrong, known[op]))
    found = dplc("run -c", PLANTED[name])
    assert found.code == 1 and "the result is off by" in found.err
