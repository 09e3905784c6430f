"""The law that facts ask and never build, as a test hook.

with checked_facts():
    Engine(anew(rules)) ...  # a fact raises if its answer holds a statement that is part of neither its arguments nor the program
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from dplc.engine.language.evaluate import FACTS, Fact
from dplc.engine.language.rule import RuleSet
from dplc.ir.diagnostic import InternalError
from dplc.ir.node import Node
from dplc.ir.program import Stmt


def statements(value: Any) -> Iterator[Stmt]:
    """Every statement in a value: in lists, sets, records, and below other statements."""
    if isinstance(value, Stmt):
        yield value
    if isinstance(value, Node):
        for field in type(value).fields:
            yield from statements(getattr(value, field.name))
    elif isinstance(value, dict):
        yield from statements(tuple(value.values()))
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from statements(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name in (field.name for field in dataclasses.fields(value)):
            yield from statements(getattr(value, name))


def checked(entry: Fact) -> Callable[..., Any]:
    """The fact, asking and then checking its answer."""

    def ask(*arguments: Any) -> Any:
        answer = entry.ask(*arguments)
        site = arguments[0] if entry.sited else None
        new = set(statements(answer))
        if new:
            new -= set(statements(arguments[entry.sited :]))
            new -= set(statements(getattr(site, "program", ())))
        if new:
            raise InternalError(f"the fact `{entry.name}` built a statement: {new.pop()!r}")
        return answer

    return ask


def anew(rules: RuleSet) -> RuleSet:
    """The same rules, of which no engine has compiled any."""
    files = ((file, tuple(dataclasses.replace(rule) for rule in file.rules)) for file in rules.files)
    return RuleSet(dataclasses.replace(file, rules=copies) for file, copies in files)


@contextlib.contextmanager
def checked_facts() -> Iterator[None]:
    """While this is open, rules that are compiled ask checked facts."""
    before = dict(FACTS)
    FACTS.update((key, dataclasses.replace(entry, ask=checked(entry))) for key, entry in before.items())
    try:
        yield
    finally:
        FACTS.clear()
        FACTS.update(before)
