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

_LENGTH = re.compile(r"L\['\w+'\]\[\d+\]\.size\(\)\[\d+\]")

# torch's own questions about strides, and about sizes that were declared to be one
_OF_LAYOUT = re.compile(
    r"in (check_contiguous_sizes_strides|is_contiguous\w*|is_channels_last\w*|is_non_overlapping\w*|should_swap|ge|"
    r"produce_guards_and_solve_constraints)\b"
)


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

    def span(self, said: str) -> Span | None:
        """Where the first of those stands that torch's message is about. said: the message, which names lengths."""
        if self._env is None:
            return None
        self.note((), None)
        every = set[str]().union(*(self._lengths(guard) for guard, _ in self._found))
        named = set(_LENGTH.findall(said)) or (every if len(every) == 1 else set())
        about = [(guard, place) for guard, place in self._found if (own := self._lengths(guard)) and own <= named]
        ties = [found for found in about if len(named) > 1 and self._lengths(found[0]) == named]
        spans = (self._of(guard) if place is None else self._places.span(place) for guard, place in ties or about)
        return next(filter(None, spans), None)

    def of_several(self) -> list[tuple[Any, Span | None]]:
        """What was asked of several lengths at once, with its place, but for how memory is laid out."""
        if self._env is None:
            return []
        self.note((), None)
        found = []
        for guard, place in self._found:
            condition = self._env.replace(guard.expr)
            if len(condition.free_symbols) > 1 and not _OF_LAYOUT.search(str(getattr(guard, "sloc", ""))):
                found.append((condition, self._of(guard) if place is None else self._places.span(place)))
        return found

    def _lengths(self, guard: Any) -> set[str]:
        """The lengths that a guard is of, as torch writes them."""
        sources = self._env.var_to_sources
        found = [source.name for symbol in guard.expr.free_symbols for source in sources.get(symbol, ())]
        return {name() if callable(name) else name for name in found}

    def _of(self, guard: Any) -> Span | None:
        told = re.fullmatch(r"\(?(.+):(\d+) in .*", str(getattr(guard, "sloc", "")), re.DOTALL)
        return None if told is None else self._places.line(told[1], int(told[2]))


def _environment(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return None
    return next((n.node.shape_env for n in tensor.shape if isinstance(n, torch.SymInt)), None)
