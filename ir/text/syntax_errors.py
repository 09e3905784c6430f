"""What the parser's errors say to people: what stands there, what was expected, a caret."""

from __future__ import annotations

from lark import UnexpectedInput
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from ..diagnostic import DplcError, Source, Span, did_you_mean

_READABLE = {
    "_NL": "the end of the line", "_INDENT": "an indented block", "_DEDENT": "the end of the block", "NAME": "a name",
    "INT": "a number", "STRING": 'a "text"', "COLON": "`:`", "RPAR": "`)`", "RSQB": "`]`", "EQUAL": "`=`", "LPAR":
    "`(`", "ARROW": "`->`", "BECAUSE": '`because "reason"`', "ON": "`on LEVEL`", "$END": "the end of the file",
    "expression": "an expression",
}  # fmt: skip
_STARTS = {"INT", "FLOAT", "NAME", "STRING", "LPAR", "LSQB", "LBRACE", "MINUS", "NOT", "CHOOSE"}  # of an expression


def syntax_error(source: Source, error: UnexpectedInput) -> DplcError:
    """The error of a text that the grammar does not know."""
    line, column = error.line, error.column
    if isinstance(error, UnexpectedEOF) or line is None or line < 1:
        line, column = max(len(source.text.splitlines()), 1), 1
    width = len(error.token) if isinstance(error, UnexpectedToken) and error.token.type not in _READABLE else 1
    span = Span(source, line, max(column - 1, 0), line, max(column - 1, 0) + max(width, 1))
    expected = set(
        getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    )
    if isinstance(error, UnexpectedCharacters):
        what = f"unexpected character `{error.char}`"
    elif isinstance(error, UnexpectedToken):
        found = (
            _READABLE.get(error.token.type, f"`{error.token}`")
            if error.token.type.startswith(("_", "$"))
            else f"`{error.token}`"
        )
        what = f"unexpected {found}"
    else:
        what = "unexpected end of the text"
    if expected >= _STARTS:
        expected = expected - _STARTS | {"expression"}
    keywords = sorted(k.lower() for k in expected if k.isalpha() and k not in _READABLE)
    hint = did_you_mean(str(error.token), keywords) if isinstance(error, UnexpectedToken) else None
    few = [_READABLE[k] for k in sorted(expected) if k in _READABLE] + [f"`{k}`" for k in keywords]
    notes = (
        [f"expected {', '.join(few[:-1])} or {few[-1]}" if len(few) > 1 else f"expected {few[0]}"]
        if 0 < len(few) <= 9
        else []
    )
    return DplcError(what, span, notes, hint)
