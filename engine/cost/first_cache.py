"""What L1 serves: sectors that the straight-line code of a block has asked for before, by any of its warps.

Loads and copies of less than 16 bytes go through it (cp.async.ca); copies of 16 bytes and of boxes do not. What an
earlier turn of a loop asked for may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .accesses import SECTOR, sectors

WORD = 4  # bytes
KEPT_BELOW = 16  # bytes of a copy that L1 keeps


class FirstCache:
    """The sectors that a block has asked for, of each buffer."""

    def __init__(self) -> None:
        self._asked: dict[str, set[int]] = {}

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The body of a loop starts with nothing."""
        outside, self._asked = self._asked, {}
        yield
        self._asked = outside

    def served(self, buffer: str, copies: Iterable[Any], mask: Any) -> float:
        """Of the sectors that the copies of an unrolled access ask for, the share that was asked for before.

        copies: of each, the first byte of each lane (warps, lanes).
        """
        asked, touched, fresh = self._asked.setdefault(buffer, set()), 0.0, 0
        for places in copies:
            touched += sectors(places, mask)
            here = set(np.unique(np.broadcast_to(places, mask.shape)[mask] // SECTOR).tolist())
            fresh += len(here - asked)
            asked |= here
        return 1 - fresh / touched if touched else 0.0
