"""What a check reports."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.diagnostic import DplcError, Span

ERROR, WARNING = "error", "warning"


class Finding(DplcError):
    """One problem of one rule. check: the name of the check that found it; rule: the rule's name, or its family's.

    An error stops a file from loading, a warning does not.
    """

    def __init__(
        self,
        what: str,
        span: Span,
        notes: Iterable[str] = (),
        hint: str | None = None,
        severity: str = ERROR,
        check: str = "",
        rule: str = "",
    ):
        super().__init__(what, span, notes, hint)
        self.severity, self.check, self.rule = severity, check, rule

    def render(self) -> str:
        text = super().render()
        return text if self.severity == ERROR else text.replace(": error: ", f": {self.severity}: ", 1)
