"""Instruction counts as plain data, kept beside a measured time, so that any later model can be compared with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...ir.diagnostic import DplcError
from .instruction_counts import InstructionCounts
from .latency import Waits

Features = dict[str, Any]
WAITS = tuple(name for name in vars(Waits()) if not name.startswith("_"))
NAMES = frozenset(field.name for field in dataclasses.fields(InstructionCounts))
LATER_WAITS = {"clusters": 0}
LATER = {
    "late": 0.0,
    "hits": 0.0,
}  # counts that came to the model after times were measured, and what they were until then


def features(counts: InstructionCounts) -> Features:
    """Numbers by name; `waits` is a table of its own, `block` a list."""
    found = {field.name: getattr(counts, field.name) for field in dataclasses.fields(InstructionCounts)}
    return found | {"waits": {name: getattr(counts.waits, name) for name in WAITS}, "block": list(counts.block)}


def counts_of(found: Mapping[str, Any]) -> InstructionCounts:
    """The counts read back. Raises DplcError for features of another model, or that are not numbers."""
    found = LATER | dict(found)
    waits = found.get("waits")
    odd = set(found) ^ NAMES
    if isinstance(waits, dict):
        waits = found["waits"] = LATER_WAITS | waits
        odd |= {f"waits.{name}" for name in set(waits) ^ set(WAITS)}
    if odd:
        hint = "measure again: `dplc tune` keeps the features of what it measures"
        raise DplcError(f"features that are not those of this model: {', '.join(sorted(odd))}", hint=hint)
    numbers = [value for name, value in found.items() if name not in ("waits", "block", "registers")]
    numbers += [found["registers"] or 0, *(waits or {}).values(), *found["block"]]
    if not isinstance(waits, dict) or not all(isinstance(value, int | float) and value >= 0 for value in numbers):
        raise DplcError("features that are no numbers")
    made = Waits()
    for name in WAITS:
        setattr(made, name, waits[name])
    return InstructionCounts(**{**found, "waits": made, "block": tuple(found["block"])})
