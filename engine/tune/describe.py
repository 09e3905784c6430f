"""Decisions of a space, for people."""

from __future__ import annotations

from typing import Any

from ..schedule.space import Fire, Token


def show(token: Token) -> str:
    """A decision for people."""
    if not isinstance(token, Fire):
        return token
    values = ", ".join(f"{name}={plain_text(value)}" for name, value in token.values)
    return f"{token.rule}({values})" if values else token.rule


def plain_text(value: Any) -> str:
    return "(" + ", ".join(map(plain_text, value)) + ")" if isinstance(value, tuple) else str(value)
