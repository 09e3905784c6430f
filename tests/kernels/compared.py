"""Programs whose result is compared with float64."""

from __future__ import annotations

from typing import Any

import torch

import dplc


def judged(program: Any, *inputs: torch.Tensor) -> Any:
    """The program compiled, after its result was compared with float64."""
    made = dplc.compile(program, inputs, device="emulator")
    found, wanted = made(*inputs), program(*[x.double() for x in inputs])
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= 1e-5 * max(1.0, float(wanted.abs().max()))
    return made
