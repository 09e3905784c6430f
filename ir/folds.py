"""What canonical forms took away, for a trace: `compose` tells, and who traces listens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Folded:
    """`fn(args..)` was asked for; result, a term or a number, is what it is."""

    fn: str
    args: tuple[Any, ...]
    result: Any


_heard: ContextVar[list[Folded] | None] = ContextVar("folds", default=None)


@contextlib.contextmanager
def heard_folds() -> Iterator[list[Folded]]:
    """What is folded within, in order. What an inner listener hears, an outer one does not."""
    found: list[Folded] = []
    token = _heard.set(found)
    try:
        yield found
    finally:
        _heard.reset(token)


def tell(fn: str, args: tuple[Any, ...], result: Any) -> Any:
    """The result, told to who listens."""
    listener = _heard.get()
    if listener is not None:
        listener.append(Folded(fn, args, result))
    return result
