"""The names in a piece of syntax that may be those of numbers and facts of a policy: names of several words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from . import syntax as s


def words_in(value: Any) -> tuple[str, ...]:
    """The names of several words that stand in some syntax as expressions or are called, sorted."""
    return tuple(sorted(set(_words(value))))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from _words(item)
    elif isinstance(value, s.NameOf):
        if "_" in value.text[1:]:
            yield value.text
    elif isinstance(value, s.Syntax):
        if isinstance(value, s.Apply) and "_" in value.fn[1:]:
            yield value.fn
        for field in fields(value):
            if field.name != "span":
                yield from _words(getattr(value, field.name))
