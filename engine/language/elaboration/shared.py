"""What stands once in a file, with parameters, and is named in its rules: groups of guards, forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import names

T = TypeVar("T", eq.GuardGroup, eq.StatementForm)


class Shared(Generic[T]):
    """All of one word. `declare` each, ask `asked` where a rule names one, then `finish`."""

    word: ClassVar[str]

    def __init__(self) -> None:
        self.known: dict[str, T] = {}
        self.used: set[str] = set()

    def declare(self, declared: T) -> None:
        if declared.name in self.known:
            first = f"first in line {self.known[declared.name].span.line}"
            raise DplcError(f"`{self.word} {declared.name}` is declared twice", declared.span, (first,))
        said = [item.text for item in declared.parameters if isinstance(item, s.NameOf)]
        for item in declared.parameters:
            if not isinstance(item, s.NameOf) or said.count(item.text) > 1:
                raise DplcError(f"the parameters of `{self.word}` are names, each once", item.span)
        self.known[declared.name] = declared

    def asked(self, call: s.Apply) -> tuple[T, Mapping[str, s.Syntax]]:
        """What a call names, and its arguments by parameter."""
        found = self.known.get(call.fn)
        if found is None:
            hint = did_you_mean(call.fn, self.known)
            raise DplcError(f"this file declares no `{self.word} {call.fn}`", call.span, (), hint)
        wanted = [name.text for name in names(found.parameters)]
        if len(call.items) != len(wanted):
            takes = (
                f"{len(wanted)} argument{'s' * (len(wanted) > 1)}, {', '.join(wanted)}" if wanted else "no arguments"
            )
            what = f"`{self.word} {found.name}` takes {takes}; here are {len(call.items)}"
            raise DplcError(what, call.span)
        self.used.add(found.name)
        return found, dict(zip(wanted, call.items, strict=True))

    def finish(self) -> None:
        """What no rule of the file names is an error."""
        for name, declared in self.known.items():
            if name not in self.used:
                raise DplcError(f"no rule of this file has `{self.word} {name}(..)`", declared.span)


def put(node: Any, known: Mapping[str, s.Syntax]) -> Any:
    """Syntax with arguments in the place of parameters, also of those that name a loop, an axis, a role or a function;
    what a comprehension binds is its own."""
    if isinstance(node, tuple):
        return tuple(put(item, known) for item in node)
    if isinstance(node, s.NameOf):
        return known.get(node.text, node)
    if isinstance(node, str):
        given = known.get(node)
        return given.text if isinstance(given, s.NameOf) else node
    if not isinstance(node, s.Syntax) or isinstance(node, s.Text):
        return node
    if isinstance(node, s.Comprehension):
        known = {name: value for name, value in known.items() if name != node.variable}
    fixed = ("span", *_FIXED.get(type(node), ()))
    fields = (field.name for field in dataclasses.fields(node) if field.name not in fixed)
    return dataclasses.replace(node, **{name: put(getattr(node, name), known) for name in fields})


_FIXED: dict[type, tuple[str, ...]] = {s.Member: ("field",), s.Keyword: ("name",), s.Guard: ("kind", "reason")}
