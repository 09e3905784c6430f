"""A census as plain data: what a measured candidate keeps beside its time, so that any later model can be held against
it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...ir.diagnostic import DplcError
from .census import Census
from .latency import Waits

Features = dict[str, Any]
WAITS = tuple(name for name in vars(Waits()) if not name.startswith("_"))
NAMES = frozenset(field.name for field in dataclasses.fields(Census))


def features(census: Census) -> Features:
    """Numbers by name; `waits` is a table of its own, `block` a list."""
    found = {field.name: getattr(census, field.name) for field in dataclasses.fields(Census)}
    return found | {"waits": {name: getattr(census.waits, name) for name in WAITS}, "block": list(census.block)}


def census_of(found: Mapping[str, Any]) -> Census:
    """The census again. Raises DplcError for features of another model, or that are no numbers."""
    waits = found.get("waits")
    odd = set(found) ^ NAMES
    if isinstance(waits, dict):
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
    return Census(**{**found, "waits": made, "block": tuple(found["block"])})
