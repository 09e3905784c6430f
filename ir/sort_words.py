"""What messages call the sorts of fields: an `AtomName` is an atom."""

from __future__ import annotations

SORTS = {
    "Role": "role", "Via": "transport", "Fn": "function", "MonoidName": "monoid", "AtomName": "atom", "Dtype": "dtype",
    "Name": "name", "Int": "whole number", "Num": "number", "Expr": "expression", "Over": "list of expressions",
    "Axis": "axis", "Block": "statement", "Param": "parameter", "TensorType": "type of a tensor",
}  # fmt: skip


def sort_word(sort: str) -> str:
    """The word for a sort; its own name where it is a class of nodes."""
    return SORTS.get(sort, sort)


def with_article(noun: str) -> str:
    """`an atom`, `a role`."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
