"""Facts that rules may ask. Importing this package registers them; what they compute lives in `ir/facts`."""

from . import along, arithmetic, guards, launches, reuse, rows, scans, schedule, shared, structure, tuples

__all__ = [
    "along", "arithmetic", "guards", "launches", "reuse", "rows", "scans", "schedule", "shared", "structure", "tuples",
]  # fmt: skip
