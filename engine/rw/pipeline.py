"""Pipelines: the order of everything, from `rules/pipeline.rw` with users' files laid over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...ir.diagnostic import Span
from .rule import Rule


@dataclass(frozen=True)
class PassStep:
    """One line of a pipeline. `group` is shared by the passes of a `one of`: the first of them that fires ends the group."""

    name: str  # the pass: the stem of a file without its number, or the name of one rule
    rules: tuple[Rule, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    label: str = ""  # the name it runs under: the alias, or `name`
    span: Span | None = None
    group: str | None = None
    reason: str | None = None
