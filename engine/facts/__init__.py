"""Facts that rules may ask. Importing this package registers them; what they compute lives in `ir/facts`."""

from . import arithmetic, schedule, shared, structure

__all__ = ["arithmetic", "schedule", "shared", "structure"]
