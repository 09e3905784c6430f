"""Facts that rules may ask. Importing this package registers them; what they compute lives in `ir/facts`."""

from . import arithmetic, rows, schedule, shared, structure

__all__ = ["arithmetic", "rows", "schedule", "shared", "structure"]
