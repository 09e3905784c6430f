"""State of a live page: a record in parts, the progress of its first compile, and the requests of its reader.

Nothing here or in the server imports PyTorch, so that the page opens before PyTorch is loaded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...ir.diagnostic import UsageError

MOST_TRIES = 100_000
STAGES = {
    "rules": "reading rules", "pytorch": "loading PyTorch", "capture": "capturing", "torch": "rules on Torch IR",
    "tensor": "rules on Tensor IR", "fusion": "fusion", "tile": "rules on Tile IR", "kernel": "rules on Kernel IR",
    "cuda": "printing CUDA", "links": "linking lines",
}  # fmt: skip


@dataclass(frozen=True)
class News:
    """Describe the newest change of a live page.

    number: number of the change, from 1. compiles: number of compiles so far. error: why no newer compile exists.
    diff: difference of the CUDA text to the preceding compile. ms: duration of the compile. why: its cause.
    """

    number: int = 0
    compiles: int = 0
    error: str = ""
    diff: str = ""
    ms: float = 0.0
    why: str = ""


class LivePage:
    """Hold the parts of a record and the newest change. Compiles and searches write it, requests read it."""

    def __init__(self, title: str) -> None:
        self._changed = threading.Condition()
        self._parts: dict[str, Any] = {"title": title}
        self._numbers = {"title": 0}
        self.news = News()

    @property
    def record(self) -> dict[str, Any]:
        """Return all parts in their present state."""
        with self._changed:
            return {name: part for name, part in self._parts.items() if part is not None}

    def show(self, **parts: Any) -> News:
        """Replace the parts of these names. None removes a part."""
        return self._put(parts, {})

    def tell(self, parts: Mapping[str, Any], error: str = "", diff: str = "", ms: float = 0.0, why: str = "") -> News:
        """Replace parts and report the compile that computed them."""
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
        """Wait until a condition on the news holds. Returns False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: until(self.news), seconds)

    def since(self, number: int) -> dict[str, Any]:
        """Return the news, with all parts that changed after change `number` under `data`."""
        with self._changed:
            newer = {name: self._parts[name] for name, known in self._numbers.items() if known > number}
            return {**asdict(self.news), "data": newer}


class Progress:
    """Report the stages of the first compile in the part `stages`: text, milliseconds (None until done), running."""

    def __init__(self, shown: LivePage) -> None:
        self._shown, self._began = shown, 0.0
        self._took: dict[str, float] = {}
        self._now = ""
        self._report()

    def begin(self, name: str) -> None:
        """End the running stage and begin this one."""
        if self._now:
            took = (time.perf_counter() - self._began) * 1e3
            self._took[self._now] = self._took.get(self._now, 0.0) + took
        self._now, self._began = name, time.perf_counter()
        self._report()

    def _report(self) -> None:
        stages = [{"text": text, "ms": self._took.get(name), "now": name == self._now} for name, text in STAGES.items()]
        self._shown.show(stages=stages)


@dataclass(frozen=True)
class Switches:
    """Changes by the reader. without: rules that are off; settings: `RULE.PARAM=VALUE`, as `--set` takes them."""

    without: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchRequest:
    """Searches that follow each compile. tries: number of schedules, 0 for none; explore: search the e-graph too."""

    tries: int = 0
    explore: bool = False


def switches_of(request: Any) -> Switches:
    """Read switches from JSON: {"without": [names], "settings": [texts]}. Raises UsageError for anything else."""
    names, settings = (_texts(request, key) for key in ("without", "settings"))
    return Switches(frozenset(names), tuple(settings))


def _texts(request: Any, key: str) -> list[str]:
    found = request.get(key, []) if isinstance(request, dict) else None
    if isinstance(found, list) and all(isinstance(text, str) and len(text) < 400 for text in found):
        return found
    raise UsageError('a change is {"without": [rules], "settings": ["RULE.PARAM=VALUE"]}')


def search_of(request: Any) -> SearchRequest:
    """Read a search from JSON: {"tries": number, "explore": bool}. Raises UsageError for anything else."""
    fields = request if isinstance(request, dict) else {"tries": None}
    tries, explore = fields.get("tries", 0), fields.get("explore", False)
    if type(tries) is not int or not 0 <= tries <= MOST_TRIES or type(explore) is not bool:
        raise UsageError('a search is {"tries": number, "explore": true or false}')
    return SearchRequest(tries, explore)
