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


# ---- words for sorts in messages


SORTS = {
    "Role": "role", "Via": "transport", "Fn": "function", "MonoidName": "monoid", "AtomName": "atom", "Dtype": "dtype",
    "Name": "name", "Int": "whole number", "Num": "number", "Expr": "expression", "Over": "list of expressions",
    "Axis": "axis", "Block": "statement", "Param": "parameter", "TensorType": "type of a tensor",
}  # fmt: skip


def sort_word(sort: str) -> str:
    """Return the word for a sort, or its own name for a class of nodes."""
    return SORTS.get(sort, sort)


def with_article(noun: str) -> str:
    """Return a noun with its article: `an atom`, `a role`."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
