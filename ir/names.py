"""New names: the one maker of them. The same wish and the same names in use give the same name."""

from __future__ import annotations

from collections.abc import Container


def unused(wish: str, *taken: Container[str], between: str = "", first: int = 1) -> str:
    """The wish, with the first number behind it that makes it new where it is taken. between: the two."""
    name, number = wish, first
    while any(name in names for names in taken):
        name, number = f"{wish}{between}{number}", number + 1
    return name
