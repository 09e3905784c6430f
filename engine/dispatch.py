"""Which row serves a call: a table of conditions on sizes in order, of which the first that holds decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class Condition(Protocol):
    """What a row asks of a size: low..high, both included, a multiple of `multiple`."""

    @property
    def name(self) -> str: ...

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...

    @property
    def multiple(self) -> int: ...


class Dispatch:
    """A table of rows. Asked at every call, so it is plain numbers."""

    def __init__(self, rows: Iterable[Iterable[Condition]]):
        self._rows = tuple(tuple((c.name, c.low, c.high, c.multiple) for c in row) for row in rows)

    def __call__(self, sizes: Mapping[str, int]) -> int | None:
        """The place of the row that serves a call with such sizes; None where only the whole range does."""
        for place, row in enumerate(self._rows):
            for name, low, high, multiple in row:
                number = sizes[name]
                if not low <= number <= high or number % multiple:
                    break
            else:
                return place
        return None
