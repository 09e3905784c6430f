"""Texts of programs with something else in one place."""

from __future__ import annotations


def altered(text: str, old: str, new: str, count: int = -1) -> str:
    """The text with new for old, which must be there: everywhere, or so many times."""
    assert old in text, f"{old!r} is not in the text\n{text}"
    return text.replace(old, new, count)
