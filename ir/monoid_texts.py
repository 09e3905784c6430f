"""The definitions of the tuple monoids, as text: `monoids.toml`, and each monoid over parts of its results.

Many modules need the names alone; `ir/monoids.py` reads the definitions.
"""

from __future__ import annotations

from typing import Any

from .dtypes import toml_table

OVER_PARTS = "_parts"
TEXTS: dict[str, dict[str, Any]] = toml_table(__package__, "monoids")
TEXTS |= {
    name + OVER_PARTS: {
        "operands": [f"{part}0" for part in text["identity"]],
        "identity": text["identity"],
        "lift": "\n".join(f"{part} = {part}0" for part in text["identity"]),
        "combine": text["combine"],
    }
    for name, text in TEXTS.items()
}
NAMES = tuple(TEXTS)
ORDERED = ("affine", f"affine{OVER_PARTS}")  # of which the elements may not be reordered
PARTS = {f"{name}.{part}": (name, part) for name, text in TEXTS.items() for part in text["identity"]}


def part_identity(part: str) -> float:
    """Return the identity of a part such as `online.s`. Raises KeyError for an unknown part."""
    name, own = PARTS[part]
    return float(TEXTS[name]["identity"][own])
