"""`guards NAME(parameters):` once in a file, `guards NAME(arguments)` in the rules of a family.

One place for conditions that mean the same, with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import is_variable, names, rebuilt


class GuardGroups:
    """The groups of one file."""

    def __init__(self, declared: Iterable[eq.GuardGroup]):
        self.groups: dict[str, eq.GuardGroup] = {}
        self.used: set[str] = set()
        for group in declared:
            if group.name in self.groups:
                first = f"first in line {self.groups[group.name].span.line}"
                raise DplcError(f"`guards {group.name}` is declared twice", group.span, (first,))
            _check(group)
            self.groups[group.name] = group

    def finish(self) -> None:
        """A group that no rule of the file uses is an error."""
        for name, group in self.groups.items():
            if name not in self.used:
                raise DplcError(f"no rule of this file has `guards {name}(..)`", group.span)

    def written_out(self, clause: s.Syntax) -> Iterator[s.Syntax]:
        """A clause, or the guards of the group that it names."""
        if not isinstance(clause, eq.UseGuards):
            yield clause
            return
        call = clause.call
        group = self.groups.get(call.fn)
        if group is None:
            hint = did_you_mean(call.fn, self.groups)
            raise DplcError(f"this file declares no `guards {call.fn}`", call.span, (), hint)
        if len(call.items) != len(group.parameters):
            wanted = ", ".join(name.text for name in names(group.parameters))
            what = (
                f"`guards {group.name}` takes {len(group.parameters)} arguments, {wanted}; here are {len(call.items)}"
            )
            raise DplcError(what, call.span)
        self.used.add(group.name)
        known = {name.text: item for name, item in zip(names(group.parameters), call.items, strict=True)}
        yield from _put(group.guards, known)


def _check(group: eq.GuardGroup) -> None:
    parameters = [item for item in group.parameters if isinstance(item, s.NameOf)]
    for item in group.parameters:
        if not isinstance(item, s.NameOf) or sum(other.text == item.text for other in parameters) > 1:
            raise DplcError("the parameters of `guards` are names, each once", item.span)
    read = {name.text for name in names(group.guards)}
    known = {"target", *(item.text for item in parameters)}
    for name in names(group.guards):
        if is_variable(name.text) and "_" not in name.text and name.text not in known:
            hint = did_you_mean(name.text, known)
            raise DplcError(f"`{name.text}` is no parameter of `guards {group.name}`", name.span, (), hint)
    for item in parameters:
        if item.text not in read:
            raise DplcError(f"no guard of `{group.name}` reads `{item.text}`", item.span)


def _put(node: Any, known: Mapping[str, s.Syntax]) -> Any:
    """Syntax with arguments in the place of parameters; what a comprehension binds is its own."""
    if isinstance(node, s.NameOf):
        return known.get(node.text, node)
    if isinstance(node, s.Comprehension):
        known = {name: value for name, value in known.items() if name != node.variable}
    return rebuilt(node, lambda part: _put(part, known))
