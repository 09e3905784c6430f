"""Judgements of outputs, as tests ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dplc.codegen.judge import judge


def accepted(results: Sequence[Any], references: Sequence[Any], eager: Sequence[Any] | None = None) -> bool:
    """Return whether every element of every output is right, or cannot be judged because eager fails there."""
    return judge(results, references, eager).ok


def errors(results: Sequence[Any], references: Sequence[Any]) -> tuple[float, float]:
    """Return the largest (absolute, relative to the largest value) distance from float64; inf where a class differs."""
    found = judge(results, references)
    return found.absolute, found.relative


def error(result: Any, reference: Any) -> tuple[float, float]:
    """Return `errors` of one output."""
    return errors([result], [reference])
