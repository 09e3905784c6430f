"""Error reports: the error, its location (file:line:col and a caret), the reasons, and the next step.

`DplcError` is the one exception that users see. Its exit code says whose fault it is: 1 the user's program or rule,
2 a wrong command line, 3 ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

USER, USAGE, INTERNAL = 1, 2, 3


@dataclass(frozen=True)
class Source:
    """A text that people wrote: a rule file, an IR file, the text after `-c`."""

    name: str
    text: str

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    def line(self, number: int) -> str:
        """Return the text of a line, numbered from 1; empty beyond the end."""
        return "".join(self._lines[number - 1 : number])


@dataclass(frozen=True)
class Span:
    """Range of a source text: lines count from 1, columns from 0, and the end is exclusive."""

    source: Source = field(repr=False)
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def span(self) -> Span:
        return self

    @property
    def location(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column + 1}"

    def excerpt(self) -> str:
        """Return the line with carets under the span."""
        text = self.source.line(self.line)
        end = self.end_column if self.end_line == self.line else len(text)
        margin = " " * len(str(self.line))
        # tabs stay tabs under the caret, so that it lands under its text
        lead = "".join(c if c == "\t" else " " for c in text[: self.column])
        return f" {self.line} | {text}\n {margin} | {lead}{'^' * max(end - self.column, 1)}"


class Located(Protocol):
    """What has a location in a source: a piece of syntax, a rule, an error, a span itself."""

    @property
    def span(self) -> Span | None: ...


class DplcError(Exception):
    """Error that dplc reports to the user.

    what: one sentence. at: its location in the source. hint: the next step. notes: reasons, one line each.
    """

    exit_code = USER
    severity = "error"

    def __init__(self, what: str, at: Located | None = None, hint: str | None = None, notes: Iterable[str] = ()):
        super().__init__(what)
        self.what, self.hint, self.notes = what, hint, tuple(notes)
        self.span: Span | None = None if at is None else at.span

    def render(self) -> str:
        """Return the whole message as plain text."""
        lines = [f"{self.severity}: {self.what}"]
        if self.span:
            lines[0] = f"{self.span.location}: {lines[0]}"
            lines.append(self.span.excerpt())
        lines += [f"  note: {note}" for note in self.notes]
        if self.hint:
            lines.append(f"  help: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


class UsageError(DplcError):
    """A wrong command line."""

    exit_code = USAGE


class InternalError(DplcError):
    """A broken promise of ours; never the user's fault."""

    exit_code = INTERNAL


class Diagnostics(DplcError):
    """Several errors found in one go."""

    def __init__(self, errors: Iterable[DplcError]):
        self.errors = tuple(errors)
        super().__init__(self.errors[0].what, self.errors[0].span)

    def render(self) -> str:
        return "\n".join(error.render() for error in self.errors)


def raise_all(errors: Sequence[DplcError]) -> None:
    """Raise the error, or all of several errors as one; nothing without an error."""
    if errors:
        raise errors[0] if len(errors) == 1 else Diagnostics(errors)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error of a library says, or the name of its class if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


LISTED = 12  # names at most that a hint lists


def closest(name: str, options: Iterable[str]) -> str | None:
    """Return the closest of the options, or None where none is close.

    Close is what has the same letters in another order or case, else most of them in order, else the same beginning.
    """
    known, letters = sorted(set(options)), sorted(name.lower())
    share = 0.65 if len(name) < 5 else 0.7  # of the letters; one slip in a short word is a third of it
    close = [option for option in known if sorted(option.lower()) == letters]
    close += difflib.get_close_matches(name, known, 1, share)
    for option in known:
        shorter = min(len(name), len(option))
        close += [option] * (shorter > 2 and name[:shorter] == option[:shorter])
    return next(iter(close), None)


def did_you_mean(name: str, options: Iterable[str]) -> str | None:
    """Return a hint that names the closest of the options, else lists them if they are few; None otherwise."""
    known = sorted(set(options))
    near = closest(name, known)
    listed = ", ".join(f"`{option}`" for option in known) if len(known) <= LISTED else ""
    return f"did you mean `{near}`?" if near else f"write {'one of ' * (len(known) > 1)}{listed}" if listed else None


def no_such(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error about a name that is none of the known ones. kind: the noun for them, such as `stage`."""
    notes = (f"{kind}s are {', '.join(known) or 'none'}",)
    near = closest(name, known)
    return UsageError(f"there is no {kind} `{name}`", hint=near and f"did you mean `{near}`?", notes=notes)
