"""Whether something fits in this machine's memory, asked before it is taken: who takes too much is killed."""

from __future__ import annotations

import os

from ..ir.diagnostic import DplcError


def check_room(wanted: int, what: str) -> None:
    """Raises DplcError for more bytes than this machine has. what: "the weights"."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return  # the system does not tell
    if wanted > there:
        raise DplcError(f"{what} take {wanted / 1e9:.1f} GB; this machine has {there / 1e9:.1f} GB")
