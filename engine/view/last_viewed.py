"""What parameters were in the program that was viewed last, for who hovers over them in an editor."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from ...codegen.cache import cache_directory, is_ours, own
from ...codegen.compiler import BuildError
from ..rewrite.seen import show
from ..rewrite.trace import Event, Firing

MOST = 6  # values of a parameter that are told


def _file() -> Path:
    return cache_directory() / "last_viewed.json"


def remember(title: str, events: Iterable[Event]) -> None:
    """Keep the parameters of the firings of a program. Where nothing can be written, nothing is kept."""
    found: dict[str, dict[str, list[str]]] = {}
    for event in events:
        if isinstance(event, Firing):
            for name, value in event.parameters.items():
                values = found.setdefault(event.rule, {}).setdefault(name, [])
                if show(value) not in values and len(values) < MOST:
                    values.append(show(value))
    with contextlib.suppress(OSError, BuildError):
        own(cache_directory(), shared=True)
        new = _file().with_suffix(".new")
        new.write_text(json.dumps({"title": title[:200], "parameters": found}), encoding="utf-8")
        new.chmod(0o600)
        new.replace(_file())


def last_viewed(rule: str, parameter: str) -> tuple[str, list[str]] | None:
    """The program that was viewed last, and the values that a parameter had there; None where its rule did not fire."""
    try:
        if not is_ours(_file()):
            return None
        kept = json.loads(_file().read_text(encoding="utf-8"))
        return str(kept["title"]), [str(value) for value in kept["parameters"][rule][parameter]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
