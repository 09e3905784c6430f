"""References of the judge: a program of the user's own ops in float64, and as PyTorch computes it in eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...codegen.judge import GATE, GATES, Judgement, accepted, error, errors, judge
from ...ir.diagnostic import DplcError
from ...ir.interp import torch as meaning
from ..capture.capture import Capture
from .inputs import at_sizes

__all__ = ["GATE", "GATES", "Judgement", "accepted", "error", "errors", "judge", "run_eager", "run_reference"]


def run_reference(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of a program, of the user's own ops, in float64; integers and bools exact.

    Where capture decomposed an op, the reference is PyTorch's kernel of that op, not the decomposition: except for ops
    without a float64 kernel.
    """
    return _of_own_ops(captured, tensors, meaning.run)


def run_eager(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of a program as torch computes them, one op after the other in its own dtypes."""
    return _of_own_ops(captured, tensors, lambda graph, values: meaning.evaluated(graph, dict(values), wide=False))


def _of_own_ops(captured: Capture, tensors: Mapping[str, Any], run: Callable[..., list[Any]]) -> list[Any]:
    if (own := captured.written()) is not None:
        graph, known = own
        try:
            return list(run(at_sizes(graph, tensors), {**known, **tensors}))
        except DplcError:  # no kernel for the dtype
            pass
    return list(run(at_sizes(captured.graph, tensors), tensors))
