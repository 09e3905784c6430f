"""What a rule file may be at most: bounds on size and nesting, so that no file makes us slow or overflows a stack.

Far beyond what people write (our longest file has 20 kB, our deepest expression 8 brackets). Checked on the bare text,
before parsing.
"""

from __future__ import annotations

import re

from ...ir.diagnostic import DplcError, Source, Span

SIZE = 256 * 1024  # characters in a file
NESTING = 40  # brackets in brackets, blocks in blocks
OPERATORS = 200  # in one line, brackets that span lines included

_TOKEN = re.compile(
    r'(?P<skip>#[^\n]*|"[^"\n]*")|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<line>\n[ \t]*(?=[^\s#]))'
    r"|(?P<operator>\.(?!\.)|//|[-+*%^<>]|==|!=|\b(?:and|or|not|if|in)\b)"
)


def within_limits(source: Source) -> Source:
    """The source itself. Raises DplcError where it goes beyond a limit."""
    if len(source.text) > SIZE:
        what = f"{source.name} has {len(source.text):,} characters; a rule file may have {SIZE:,}"
        raise DplcError(what, hint="split it: a file is a pass")
    depth = operators = 0
    indents = [0]
    for token in _TOKEN.finditer(source.text):
        kind = token.lastgroup
        if kind == "open":
            depth, operators = depth + 1, operators + 1
        elif kind == "close":
            depth = max(depth - 1, 0)
        elif kind == "operator":
            operators += 1
        elif kind == "line" and not depth:
            operators = 0
            _indent(indents, len(token[0].expandtabs(8)) - 1)
        if depth > NESTING or len(indents) > NESTING:
            raise DplcError(f"more than {NESTING} levels of nesting", _place(source, token.end() - 1))
        if operators > OPERATORS:
            raise DplcError(f"more than {OPERATORS} operators in one line", _place(source, token.start()))
    return source


def _indent(indents: list[int], width: int) -> None:
    while width < indents[-1]:
        indents.pop()
    if width > indents[-1]:
        indents.append(width)


def _place(source: Source, position: int) -> Span:
    line = source.text.count("\n", 0, position) + 1
    column = position - (source.text.rfind("\n", 0, position) + 1)
    return Span(source, line, column, line, column + 1)
