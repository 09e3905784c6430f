"""What a live page shows: a record in parts, each with the number of the change that made it, and what was told of it.

Nothing heavy is imported here or in the server: the page is there before torch is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class News:
    """What the reader is told. number: of the change, from 1; compiles: how many were told so far; error: why there is
    nothing newer; diff: of CUDA, to the compile before; ms: what the compile took; why: what made it."""

    number: int = 0
    compiles: int = 0
    error: str = ""
    diff: str = ""
    ms: float = 0.0
    why: str = ""


class LivePage:
    """The parts of a record and the last news. It is written by whoever compiles or searches, and read by requests."""

    def __init__(self, title: str) -> None:
        self._changed = threading.Condition()
        self._parts: dict[str, Any] = {"title": title}
        self._numbers = {"title": 0}
        self.news = News()

    @property
    def record(self) -> dict[str, Any]:
        """All parts, as they are now."""
        with self._changed:
            return {name: part for name, part in self._parts.items() if part is not None}

    def show(self, **parts: Any) -> News:
        """Put parts in the place of those of their names; None takes one away."""
        return self._put(parts, {})

    def tell(self, parts: Mapping[str, Any], error: str = "", diff: str = "", ms: float = 0.0, why: str = "") -> News:
        """Show parts, and say what made them."""
        said = {"compiles": self.news.compiles + 1, "error": error, "diff": diff, "ms": ms, "why": why}
        return self._put(parts, said)

    def _put(self, parts: Mapping[str, Any], said: Mapping[str, Any]) -> News:
        with self._changed:
            self.news = replace(self.news, number=self.news.number + 1, **said)
            self._parts.update(parts)
            self._numbers.update(dict.fromkeys(parts, self.news.number))
            self._changed.notify_all()
            return self.news

    def wait(self, until: Callable[[News], bool], seconds: float) -> bool:
        """Whether something is true of the news within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: until(self.news), seconds)

    def since(self, number: int) -> dict[str, Any]:
        """The news, with the parts that are newer than a number under `data`."""
        with self._changed:
            newer = {name: self._parts[name] for name, known in self._numbers.items() if known > number}
            return {**asdict(self.news), "data": newer}
