"""A pygments lexer for rule files and dumps, by the name `dplc`."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

CLAUSES = """
    match rewrite require prefer decreases let pick because example examples gives guards form split rule on override
    number fact pipeline pass without each inside with choose minimising maximising one of after before first last as
    graph kernel
"""
FLOW = "for in if else and or not load mat by drop"
VALUES = "true false none inf BLOCK THREAD REG VEC SYNC ASYNC TMA"


def _whole(text: str) -> words:
    return words(text.split(), prefix=r"\b", suffix=r"\b")


class RuleLexer(RegexLexer):
    """Rules (`.rw`) and dumps of every IR but CUDA."""

    name = "dplc rules"
    aliases = ("dplc", "rw")
    filenames = ("*.rw", "*.ir")
    tokens: ClassVar = {
        "root": [
            (r"\s+", Whitespace),
            (r"##.*$", String.Doc),
            (r"#.*$", Comment.Single),
            (r'"(?:[^"\\\n]|\\.)*"', String),
            (r"@\w+", Name.Decorator),
            (_whole(CLAUSES), Keyword),
            (_whole(FLOW), Keyword.Reserved),
            (_whole(VALUES), Keyword.Constant),
            (r"\b(?:f64|f32|f16|bf16|i64|i32|u8|b8)\b", Keyword.Type),
            (r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", Number),
            (r"\b[A-Z]\w*(?=\()", Name.Class),
            (r"\b[a-z_]\w*(?=\()", Name.Function),
            (r"\w+", Name),
            (r"=>|<-|->|\.\.|[-+*/%^<>=!|&~]+", Operator),
            (r".", Punctuation),
        ]
    }
