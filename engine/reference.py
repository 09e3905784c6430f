"""The reference: torch in float64, and how far an output is from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..ir.interp import torch as meaning
from .front.capture import Capture

GATE = 1e-5  # of max|y - reference| / max|reference| in f32; twice what eager itself has, if that is larger
# Of the output of one kernel; other dtypes are exact.
GATES = {"f32": GATE, "f16": 2.0**-9, "bf16": 2.0**-6}


def run_reference(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """The outputs in float64; integers and bools exact."""
    return list(meaning.run(captured.graph, tensors))


def error(result: Any, reference: Any) -> tuple[float, float]:
    """(max|y - reference|, the same over max|reference|). Infinities and NaNs stand in the same places, else inf."""
    got, want = result.detach().cpu(), reference.detach().cpu()
    if got.shape != want.shape:
        return float("inf"), float("inf")
    if want.dtype is torch.bool or not want.dtype.is_floating_point:
        return (0.0, 0.0) if torch.equal(got.to(want.dtype), want) else (1.0, 1.0)
    got, want = got.double(), want.double()
    finite = torch.isfinite(want)
    same = torch.equal(torch.isnan(got), torch.isnan(want)) and torch.equal(
        got[torch.isinf(want)], want[torch.isinf(want)]
    )
    if not same or not torch.isfinite(got[finite]).all():
        return float("inf"), float("inf")
    if not finite.any():
        return 0.0, 0.0
    worst = (got[finite] - want[finite]).abs().max().item()
    scale = want[finite].abs().max().item()
    return worst, worst / scale if scale else (0.0 if worst == 0 else float("inf"))


def errors(results: Sequence[Any], references: Sequence[Any]) -> tuple[float, float]:
    """The largest (absolute, relative) error over the outputs."""
    found = [error(result, reference) for result, reference in zip(results, references, strict=True)]
    return max((a for a, _ in found), default=0.0), max((r for _, r in found), default=0.0)


def accepted(results: Sequence[Any], references: Sequence[Any], eager: Sequence[Any] | None = None) -> bool:
    """Whether every output passes the gate: GATE, or twice eager's own error by the same formula."""
    for place, (result, reference) in enumerate(zip(results, references, strict=True)):
        allowed = GATE if reference.dtype.is_floating_point else 0.0
        if eager is not None and reference.dtype.is_floating_point:
            allowed = max(allowed, 2 * error(eager[place], reference)[1])
        if not error(result, reference)[1] <= allowed:
            return False
    return True
