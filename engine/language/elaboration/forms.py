"""`form NAME(parameters):` once in a file, `form NAME(arguments)` in the patterns and templates of its rules.

One place for statements that mean the same. A name of a form that is no parameter is the rule's own: the rule reads
what the form binds, as if the statements stood there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import names, walk
from .shared import Shared, put


class Forms(Shared[eq.StatementForm]):
    """The forms of one file. One may hold those above it."""

    word = "form"

    def __init__(self, declared: Iterable[eq.StatementForm]):
        super().__init__()
        for form in declared:
            self.declare(dataclasses.replace(form, body=self._block(form.body)))
            _check(self.known[form.name])

    def written_out(self, clause: s.Syntax) -> s.Syntax:
        """A clause with the statements of a form where it names one."""
        if not isinstance(clause, s.Match | s.Rewrite) or not any(isinstance(n, eq.UseForm) for n in walk(clause)):
            return clause
        return dataclasses.replace(clause, body=self._block(clause.body))

    def _block(self, statements: tuple[s.Syntax, ...]) -> tuple[s.Syntax, ...]:
        return tuple(made for statement in statements for made in self._statement(statement))

    def _statement(self, node: s.Syntax) -> Iterator[s.Syntax]:
        if isinstance(node, eq.UseForm):
            form, given = self.asked(node.call)
            yield from put(form.body, given)
            return
        body: Any = getattr(node, "body", None)
        yield dataclasses.replace(node, body=self._block(body)) if body else node  # type: ignore[call-arg]


def _check(form: eq.StatementForm) -> None:
    fields = (getattr(node, f.name) for node in walk(form.body) for f in dataclasses.fields(node) if f.name != "span")
    read = {text for text in fields if isinstance(text, str)}
    for item in names(form.parameters):
        if item.text not in read:
            raise DplcError(f"no statement of `form {form.name}` says `{item.text}`", item.span)
