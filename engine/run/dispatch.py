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
        listed = (tuple((c.name, c.low, c.high, c.multiple) for c in row) for row in rows)
        self._rows = tuple((place, *first, rest) for place, (first, *rest) in enumerate(listed))

    def __call__(self, sizes: Mapping[str, int]) -> int | None:
        """The place of the row that serves a call with such sizes; None where only the whole range does."""
        for place, name, low, high, multiple, rest in self._rows:
            number = sizes[name]
            if low <= number <= high and not number % multiple and (not rest or _hold(rest, sizes)):
                return place
        return None


def _hold(conditions: Iterable[tuple[str, int, int, int]], sizes: Mapping[str, int]) -> bool:
    return all(low <= sizes[name] <= high and not sizes[name] % by for name, low, high, by in conditions)
