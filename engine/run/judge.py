"""What the judge compares with: a captured program in float64, and as PyTorch computes it in eager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...codegen.judge import GATE, GATES, Judgement, accepted, error, errors, judge
from ...ir.interp import torch as meaning
from ..capture.capture import Capture
from .inputs import at_sizes

__all__ = ["GATE", "GATES", "Judgement", "accepted", "error", "errors", "judge", "run_eager", "run_reference"]


def run_reference(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """The outputs of a captured program in float64; integers and bools exact."""
    return list(meaning.run(at_sizes(captured, tensors), tensors))


def run_eager(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """The outputs of a captured program as torch computes them, one op after the other in its own dtypes."""
    return meaning.evaluated(at_sizes(captured, tensors), dict(tensors), wide=False)
