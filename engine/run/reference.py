"""The reference: torch in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.interp import torch as meaning
from ..capture.capture import Capture
from .judge import GATE, GATES, Judgement, accepted, error, errors, judge

__all__ = ["GATE", "GATES", "Judgement", "accepted", "error", "errors", "judge", "run_reference"]


def run_reference(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """The outputs in float64; integers and bools exact."""
    return list(meaning.run(captured.graph, tensors))
