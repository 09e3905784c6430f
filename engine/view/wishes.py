"""What the reader of a live page may ask for, read from JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir.diagnostic import UsageError

MOST_TRIES = 100_000


@dataclass(frozen=True)
class Switches:
    """What the reader of the page changed. without: rules that are off; settings: `RULE.PARAM=VALUE`, as of `--set`."""

    without: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchWish:
    """What is searched beside each compile. tries: of schedules, 0 for none; explore: the e-graph too."""

    tries: int = 0
    explore: bool = False


def switches_of(wanted: Any) -> Switches:
    """Switches from JSON: {"without": [names], "settings": [texts]}. Raises UsageError for anything else."""
    names, settings = (_texts(wanted, key) for key in ("without", "settings"))
    return Switches(frozenset(names), tuple(settings))


def _texts(wanted: Any, key: str) -> list[str]:
    found = wanted.get(key, []) if isinstance(wanted, dict) else None
    if isinstance(found, list) and all(isinstance(text, str) and len(text) < 400 for text in found):
        return found
    raise UsageError('a change is {"without": [rules], "settings": ["RULE.PARAM=VALUE"]}')


def search_of(wanted: Any) -> SearchWish:
    """A search from JSON: {"tries": number, "explore": bool}. Raises UsageError for anything else."""
    tries, explore = (
        (wanted.get("tries", 0), wanted.get("explore", False)) if isinstance(wanted, dict) else (None, None)
    )
    if type(tries) is not int or not 0 <= tries <= MOST_TRIES or type(explore) is not bool:
        raise UsageError('a search is {"tries": number, "explore": true or false}')
    return SearchWish(tries, explore)
