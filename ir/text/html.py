"""Texts and tables as HTML for notebooks: everything escaped, styles that follow the notebook's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

_CELL = "padding: 2px 14px 2px 0; text-align: left; vertical-align: baseline"
_PRE = "margin: 4px 0 8px; max-height: 30em; overflow: auto; white-space: pre; font-size: 12px; line-height: 1.45"


class Html(NamedTuple):
    """A piece of HTML that only functions of this file build, so that combined pieces are escaped once."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


def together(*pieces: Html) -> Html:
    return Html("".join(piece.text for piece in pieces))


def line(text: str) -> Html:
    """Return a paragraph."""
    return Html(f"<p style='margin: 4px 0'>{escape(text)}</p>")


def heading(text: str) -> Html:
    return Html(f"<p style='margin: 6px 0'><b>{escape(text)}</b></p>")


def code(text: str) -> Html:
    """Return a text as preformatted HTML."""
    return Html(f"<pre style='{_PRE}'>{escape(text)}</pre>")


def folded(title: str, inside: Html, open_: bool = False) -> Html:
    """Return HTML that a click on its title expands."""
    return Html(f"<details{' open' if open_ else ''}><summary>{escape(title)}</summary>{inside.text}</details>")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    head = "".join(f"<th scope='col' style='{_CELL}'>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td style='{_CELL}'>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return Html(f"<table style='border-collapse: collapse'><tr>{head}</tr>{body}</table>")


def difference(diff: Iterable[str]) -> Html:
    """Return the lines of a diff, with added and removed lines on different backgrounds."""
    colours = {"+": "rgba(40, 160, 80, .18)", "-": "rgba(220, 70, 60, .18)", "@": "rgba(120, 100, 220, .15)"}
    lines = (
        f"<span style='display: block; background: {colours.get(one[:1], 'none')}'>{escape(one) or ' '}</span>"
        for one in diff
    )
    return Html(f"<pre style='{_PRE}'>{''.join(lines)}</pre>")
