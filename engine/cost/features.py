"""Instruction counts as plain data, kept beside a measured time, so that any later model can be compared with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...ir.atoms import ATOMS
from ...ir.diagnostic import DplcError
from .instruction_counts import InstructionCounts
from .latency import Waits

Features = dict[str, Any]
WAITS = tuple(name for name in vars(Waits()) if not name.startswith("_"))
NAMES = frozenset(field.name for field in dataclasses.fields(InstructionCounts))
LATER_WAITS = {"clusters": 0, "fills": 0, "ahead": 0}
LATER: Features = {
    "late": 0.0,
    "hits": 0.0,
    "spelled": (),
}  # counts that came to the model after times were measured, and what they were until then


def features(counts: InstructionCounts) -> Features:
    """Numbers by name; `waits` is a table of its own, `block` a list, `spelled` lists of a name and two numbers."""
    found = {field.name: getattr(counts, field.name) for field in dataclasses.fields(InstructionCounts)}
    waits = {name: getattr(counts.waits, name) for name in WAITS}
    return found | {"waits": waits, "block": list(counts.block), "spelled": [list(atom) for atom in counts.spelled]}


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
    numbers = [value for name, value in found.items() if name not in ("waits", "block", "registers", "spelled")]
    numbers += [found["registers"] or 0, *(waits or {}).values(), *found["block"]]
    spelled = _spelled(found["spelled"])
    numbers += [number for atom in spelled for number in atom[1:]]
    if not isinstance(waits, dict) or not all(isinstance(value, int | float) and value >= 0 for value in numbers):
        raise DplcError("features that are no numbers")
    made = Waits()
    for name in WAITS:
        setattr(made, name, waits[name])
    return InstructionCounts(**{**found, "waits": made, "block": tuple(found["block"]), "spelled": spelled})


def _spelled(found: Any) -> tuple[Any, ...]:
    """Atoms that the assembler makes of others, read back."""
    rows = found if isinstance(found, list | tuple) else (None,)
    if not all(isinstance(row, list | tuple) and len(row) == 3 and str(row[0]) in ATOMS for row in rows):
        raise DplcError("features of products that are not those of this model")
    return tuple(tuple(row) for row in rows)
