"""The registry of facts: pure, typed questions that rules ask about a program.

    @fact("ceildiv(int, int) -> int")
    def ceildiv(site, a, b): ...

A fact gets the site first, then the arguments. It returns numbers, booleans, names, expressions, axes, captured
statements or records, never a statement that it built (tests run every fact under a guard that checks this). Sorts in
signatures: int num bool name expr axis stmt text any, `[x]` a list, `x*` any number of further arguments, `?` behind
an optional one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fact:
    """name, the sorts of its arguments and of its answer, and the levels it may be asked on."""

    name: str
    arguments: tuple[str, ...]
    result: str
    ask: Callable[..., Any]
    levels: frozenset[str]
    doc: str

    @property
    def least(self) -> int:
        return sum(1 for sort in self.arguments if not sort.endswith(("*", "?")))

    @property
    def most(self) -> int | None:
        return None if any(sort.endswith("*") for sort in self.arguments) else len(self.arguments)


FACTS: dict[tuple[str, str], Fact] = {}  # (level, name): a fact may mean different things on different levels


def fact(
    signature: str, levels: str = "torch tensor module loop tile kernel"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under a signature, for some levels."""
    match = re.fullmatch(r"(\w+)\(([^)]*)\) -> (.+)", signature)
    assert match, signature
    arguments = tuple(part.strip() for part in match[2].split(",") if part.strip())

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        entry = Fact(
            match[1], arguments, match[3], function, frozenset(levels.split()), (function.__doc__ or "").strip()
        )
        for level in entry.levels:
            earlier = FACTS.setdefault((level, entry.name), entry)
            assert earlier is entry, (
                f"fact `{entry.name}` on {level}: {function.__module__} and {earlier.ask.__module__}"
            )
        return function

    return register


def facts_of(level: str) -> dict[str, Fact]:
    """The facts that a rule of this level may ask, by name."""
    return _facts_of(level, len(FACTS))


@functools.cache  # every clause of every rule asks
def _facts_of(level: str, known: int) -> dict[str, Fact]:
    return {name: entry for (at, name), entry in FACTS.items() if at == level}
