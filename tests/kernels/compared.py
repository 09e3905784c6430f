"""Programs whose result is compared with float64."""

from __future__ import annotations

from typing import Any

import torch

import dplc


def judged(program: Any, *inputs: torch.Tensor) -> Any:
    """The program compiled, after its results were compared with float64."""
    made = dplc.compile(program, inputs, device="emulator")
    results, wanted = made(*inputs), program(*[x.double() for x in inputs])
    pairs = zip(results, wanted, strict=True) if isinstance(wanted, tuple) else [(results, wanted)]
    for found, want in pairs:
        assert found.shape == want.shape
        assert float((found - want).abs().max()) <= 1e-5 * max(1.0, float(want.abs().max()))
    return made
