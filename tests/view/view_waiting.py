"""Waiting for what another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    """What a function gives, once it is true. Raises AssertionError where it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it was never true")
