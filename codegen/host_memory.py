"""Whether something fits in this machine's memory, asked before it is taken: who takes too much is killed."""

from __future__ import annotations

import os

from ..ir.diagnostic import DplcError


def memory_bytes() -> int:
    """The memory of this machine; a lot where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 40


def check_room(wanted: int, what: str) -> None:
    """Raises DplcError for more bytes than this machine has. what: "the weights"."""
    there = memory_bytes()
    if wanted > there:
        raise DplcError(f"{what} take {wanted / 1e9:.1f} GB; this machine has {there / 1e9:.1f} GB")
