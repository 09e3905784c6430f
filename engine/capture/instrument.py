"""The text after `-c`, parsed, with every call `f(a)` turned into `__dplc__(site, f, a)`.

This is the one place where text becomes code, and the text is the one that the user typed after `-c`.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ...ir.diagnostic import DplcError, Source, Span

NAME = "-c"  # what errors call the text
DIM = "dim"  # `dim(s, 1..4096)`: an extent that is known at a call
_RANGE = re.compile(rf"(\b{DIM}\(\s*\w+\s*,\s*\d+)\.\.(?=\d)")
HOOK = "__dplc__"  # ends in two underscores, or Python would mangle it inside of a class

# These look at the frame that calls them, which must stay the text's own.
_FRAME_SENSITIVE = frozenset(("super", "locals", "globals", "vars", "dir", "eval", "exec"))


@dataclass(frozen=True)
class TextStatement:
    """A top-level statement before the last expression. once: a class keeps its identity, so it runs once."""

    code: CodeType
    once: bool

    def run(self, scope: dict[str, Any]) -> None:
        exec(self.code, scope)


@dataclass(frozen=True)
class ParsedText:
    """The statements before the last expression, and that expression."""

    source: Source
    statements: tuple[TextStatement, ...]
    result: CodeType
    result_span: Span

    def value(self, scope: dict[str, Any]) -> Any:
        return eval(self.result, scope)


class _Instrument(ast.NodeTransformer):
    def __init__(self) -> None:
        self.sites = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FRAME_SENSITIVE:
            return node
        if isinstance(node.func, ast.Name) and node.func.id == DIM and node.args and isinstance(node.args[0], ast.Name):
            node.args[0] = ast.copy_location(ast.Constant(node.args[0].id), node.args[0])
        site, hook = ast.Constant(self.sites), ast.Name(HOOK, ast.Load())
        self.sites += 1
        call = ast.Call(hook, [site, node.func, *node.args], node.keywords)
        for new in (call, hook, site):
            ast.copy_location(new, node)
        return call


def parse(text: str) -> ParsedText:
    """The program of a text. Raises DplcError for a syntax error and where the last statement is no expression."""
    source = Source(NAME, textwrap.dedent(text).strip("\n").rstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            # of the same length: places stay what they are
            return _compile(source, ast.parse(_RANGE.sub(r"\1, ", source.text), NAME))
    except SyntaxError as error:
        raise DplcError(f"syntax error: {error.msg}", _syntax_span(source, error)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DplcError(f"the text cannot be parsed: {error or type(error).__name__}") from None


def _compile(source: Source, tree: ast.Module) -> ParsedText:
    if not tree.body:
        raise DplcError("the text is empty", hint="give an expression, such as `torch.relu(torch.randn(8))`")
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        raise DplcError("the last statement must be an expression: the result to compile", _span(source, last))
    span = _span(source, last)  # before the calls are rewritten
    _Instrument().visit(tree)
    statements = tuple(
        TextStatement(_code(ast.Module([statement], []), "exec"), isinstance(statement, ast.ClassDef))
        for statement in tree.body[:-1]
    )
    return ParsedText(source, statements, _code(ast.Expression(last.value), "eval"), span)


def _code(tree: Any, mode: str) -> CodeType:
    return compile(tree, NAME, mode, dont_inherit=True)


def _span(source: Source, node: ast.stmt) -> Span:
    def column(line: int, offset: int) -> int:
        return len(source.line(line).encode()[:offset].decode(errors="ignore"))

    end_line = node.end_lineno or node.lineno
    end = column(end_line, node.end_col_offset or 0)
    return Span(source, node.lineno, column(node.lineno, node.col_offset), end_line, end)


def _syntax_span(source: Source, error: SyntaxError) -> Span:
    line = error.lineno or 1
    start = max((error.offset or 1) - 1, 0)
    same_line = error.end_lineno in (None, line)
    end = (error.end_offset or 0) - 1 if same_line else len(source.line(line))
    return Span(source, line, start, line, max(end, start + 1))
