"""The fields of an op that a template makes, by the names that an overload of torch gives them."""

from __future__ import annotations

from typing import Any

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.schemas import Overload, accepts, names, overloads

Arguments = tuple[tuple[str, Any], ...]


def arguments_of(op: str, fields: dict[str | int, Any]) -> Arguments:
    """The fields, given by position or by name, under the names of the first overload that takes them.

    Raises DplcError where there is no such op, and where no overload of it takes them.
    """
    if op not in names():
        raise DplcError(f"unknown torch op `{op}`", hint=did_you_mean(op, names()))
    found = next(filter(None, (_bound(overload, fields) for overload in overloads(op))), None)
    if found is None:
        raise DplcError(
            f"no overload of `{op}` takes the fields that a template gives it: {', '.join(map(str, fields))}"
        )
    return found


def _bound(overload: Overload, given: dict[str | int, Any]) -> Arguments | None:
    """The fields of an overload, those given by position under their names; None if it does not take them."""
    order = [argument.name for argument in overload.arguments]
    if any(isinstance(key, int) and key >= len(order) for key in given):
        return None
    args = {order[key] if isinstance(key, int) else key: value for key, value in given.items()}
    return tuple(args.items()) if len(args) == len(given) and accepts(overload, args) else None
