"""Where a program asked something of a length: the place of the user's at which torch's shape environment got a guard.

torch.export says what it found of lengths when it is done, and no longer where. So the guards are watched while it
traces: one that a torch call added stands where the call stands, one of a Python comparison where torch saw it.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from ...ir.diagnostic import Span
from .places import SourcePlaces


class GuardPlaces:
    """The guards of a trace with their places."""

    def __init__(self, places: SourcePlaces):
        self._places = places
        self._env: Any = None
        self._found: list[tuple[Any, int | None]] = []

    def note(self, tensors: Any, place: int | None) -> None:
        """What is new of guards. tensors: arguments of the call that stands at a place; place: None before a call."""
        if self._env is None:
            self._env = next(filter(None, map(_environment, tensors)), None)
        guards = () if self._env is None else self._env.guards
        for guard in guards[len(self._found) :]:
            self._found.append((guard, place))

    def span(self) -> Span | None:
        """Where the first of them stands, if all are of one length: of several nothing is known."""
        if self._env is not None:
            self.note((), None)
        symbols = {symbol for guard, _ in self._found for symbol in guard.expr.free_symbols}
        if len(symbols) != 1:
            return None
        spans = (self._of(guard) if place is None else self._places.span(place) for guard, place in self._found)
        return next(filter(None, spans), None)

    def _of(self, guard: Any) -> Span | None:
        told = re.fullmatch(r"\(?(.+):(\d+) in .*", str(getattr(guard, "sloc", "")), re.DOTALL)
        return None if told is None else self._places.line(told[1], int(told[2]))


def _environment(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return None
    return next((n.node.shape_env for n in tensor.shape if isinstance(n, torch.SymInt)), None)
