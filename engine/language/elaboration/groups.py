"""`guards NAME(parameters):` once in a file, `guards NAME(arguments)` in the rules of a family.

One place for conditions that mean the same, with their reasons. What a group binds by `let`, its rules read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import is_variable, names
from .shared import Shared, put


class GuardGroups(Shared[eq.GuardGroup]):
    """The groups of one file."""

    word = "guards"

    def __init__(self, declared: Iterable[eq.GuardGroup]):
        super().__init__()
        for group in declared:
            self.declare(group)
            _check(group)

    def written_out(self, clause: s.Syntax) -> Iterator[s.Syntax]:
        """A clause, or the guards of the group that it names, with the `let`s among them."""
        if not isinstance(clause, eq.UseGuards):
            yield clause
            return
        group, known = self.asked(clause.call)
        yield from put(group.guards, known)


def _check(group: eq.GuardGroup) -> None:
    read = {name.text for name in names(group.guards)}
    known = {"target", *(item.text for item in names(group.parameters))}
    for clause in group.guards:
        for name in names(clause):
            if is_variable(name.text) and "_" not in name.text and name.text not in known:
                hint = did_you_mean(name.text, known)
                raise DplcError(f"`{name.text}` is no parameter of `guards {group.name}`", name.span, (), hint)
        if isinstance(clause, s.LetClause):
            known.add(clause.name)
    for item in names(group.parameters):
        if item.text not in read:
            raise DplcError(f"no guard of `{group.name}` reads `{item.text}`", item.span)
