"""Kernels in the order of their launches, each after those that store what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .buffers import BufferLayout


@dataclass
class StoredValue:
    """A value that is stored: what computes it, over stored values, and where it goes."""

    value: Any
    root: Any
    buffer: BufferLayout
    copy: bool = False


def in_order(
    waiting: list[list[StoredValue]], needs: Callable[[list[StoredValue]], set[Any]]
) -> list[list[StoredValue]]:
    """Kernels in an order in which each finds what it reads; those that would wait for each other are parted."""
    ordered: list[list[StoredValue]] = []
    written: set[Any] = set()
    while waiting:
        ready = next((group for group in waiting if needs(group) <= written), None)
        if ready is None:
            broken = next(group for group in waiting if len(group) > 1)
            waiting[waiting.index(broken) : waiting.index(broken) + 1] = [[entry] for entry in broken]
            continue
        waiting.remove(ready)
        ordered.append(ready)
        written.update(entry.value for entry in ready if not entry.copy)
    return ordered
