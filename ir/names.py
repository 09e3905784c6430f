"""New names: the one maker of them. The same wish and the same names in use give the same name."""

from __future__ import annotations

from collections.abc import Container


def unused(
    wish: str, *taken: Container[str], between: str = "", first: int = 1, tried: dict[str, int] | None = None
) -> str:
    """Return `wish`, with the smallest numeric suffix that makes it unique.

    Args:
        between: separator before the suffix.
        tried: the next suffix to try for each wish. A caller whose taken names stay taken keeps it between calls.
    """
    number = first if tried is None else tried.get(wish, first)
    name = wish if number == first else f"{wish}{between}{number - 1}"
    while any(name in names for names in taken):
        name, number = f"{wish}{between}{number}", number + 1
    if tried is not None:
        tried[wish] = number
    return name
