"""Parse a text to a syntax tree. Syntax errors name what was expected and point at the place with a caret."""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

from lark import Lark, Token, UnexpectedInput, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken, VisitError
from lark.indenter import DedentError, Indenter

from ..diagnostic import DplcError, Source, Span, did_you_mean
from . import syntax as s
from .equations import EquationBuilder
from .syntax import words_in

# ---- messages of the parser


_READABLE = {
    "_NL": "the end of the line", "_INDENT": "an indented block", "_DEDENT": "the end of the block", "NAME": "a name",
    "INT": "a number", "FLOAT": "a number", "STRING": 'a "text"', "COLON": "`:`", "RPAR": "`)`", "RSQB": "`]`",
    "EQUAL": "`=`", "LPAR": "`(`", "ARROW": "`->`", "BECAUSE": '`because "reason"`', "ON": "`on LEVEL`",
    "$END": "the end of the file", "expression": "an expression", "COMMA": "`,`", "LSQB": "`[`", "LBRACE": "`{`",
    "RBRACE": "`}`", "PLUS": "`+`", "MINUS": "`-`", "STAR": "`*`", "DIVIDE": "`//`", "XOR": "`^`",
    "COMPARE": "a comparison", "DOT": "`.`", "__ANON_0": "`..`",
}  # fmt: skip
_FILE = (
    "a rule file holds rules, numbers, facts, forms, guards, pipelines and `without`; a dump holds kernels or graphs"
)
_CLAUSES = ("match", "let", "pick", "split", "guards", "join", "where", "prefer", "rewrite", "example", "gives")
_QUOTES = "'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_STRING = re.compile(r'"[^"\n]*"|#.*')
# A line that is a condition: a question that is asked, or two things that are compared.
_CONDITION = re.compile(r"(?=\S)((?:not )?\w+\([^#]*?\)|[^#=]*?[\w)\]] (?:[<>]=?|==|!=|in) [^#]*?)\s*(?:#.*)?$")
_STARTS = {"INT", "FLOAT", "NAME", "STRING", "LPAR", "LSQB", "LBRACE", "MINUS", "NOT", "CHOOSE"}  # of an expression


def syntax_error(source: Source, error: UnexpectedInput) -> DplcError:
    """The error of a text that the grammar does not know."""
    line, column = error.line, error.column
    slip = _slip(source, error, line if line is not None and line > 0 else len(source.text.splitlines()))
    if slip is not None:
        return slip
    ended = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    if ended or isinstance(error, UnexpectedEOF) or line is None or line < 1:
        line, column = _last_line(source)
    width = len(error.token) if isinstance(error, UnexpectedToken) and error.token.type not in _READABLE else 1
    span = Span(source, line, max(column - 1, 0), line, max(column - 1, 0) + max(width, 1))
    expected = set(
        getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    )
    if isinstance(error, UnexpectedCharacters):
        what = f"unexpected character {f'`{error.char}`' if error.char.isprintable() else f'U+{ord(error.char):04X}'}"
    elif isinstance(error, UnexpectedToken):
        written = not error.token.type.startswith(("_", "$"))
        found = f"`{error.token}`" if written else _READABLE.get(error.token.type, f"`{error.token}`")
        what = f"unexpected {found.removeprefix('the ')}"
    else:
        what = "unexpected end of the text"
    if expected >= _STARTS:
        expected = expected - _STARTS | {"expression"}
    top = "RULE" in expected and "PIPELINE" in expected
    keywords = sorted(k.lower() for k in expected if k.isalpha() and k not in _READABLE)
    hint = did_you_mean(str(error.token), keywords) if isinstance(error, UnexpectedToken) else None
    if hint is None and expected == {"_INDENT"}:
        hint = "indent it by 4 spaces"
    few = list(dict.fromkeys(_READABLE[k] for k in sorted(expected) if k in _READABLE)) + [f"`{k}`" for k in keywords]
    notes = (
        [f"expected {', '.join(few[:-1])} or {few[-1]}" if len(few) > 1 else f"expected {few[0]}"]
        if 0 < len(few) <= 9
        else []
    )
    return DplcError(what, span, [_FILE] if top and hint is None else notes, hint)


def _last_line(source: Source) -> tuple[int, int]:
    """The last line that holds something, and the column behind it."""
    lines = source.text.splitlines()
    number = next((n for n in range(len(lines), 0, -1) if lines[n - 1].strip()), 1)
    return number, len(lines[number - 1].rstrip()) + 1 if lines else 1


def _slip(source: Source, error: UnexpectedInput, line: int) -> DplcError | None:
    """The slips that show further on than where they are: each is told at its own place."""
    if isinstance(error, UnexpectedCharacters) and error.char == '"':
        where = Span(source, line, error.column - 1, line, len(source.line(line)))
        return DplcError("a text without its end", where, (), 'write `"` behind it, on the same line')
    if isinstance(error, UnexpectedCharacters) and error.char in _QUOTES:
        where = Span(source, line, error.column - 1, line, error.column)
        return DplcError(f"`{error.char}` begins no text", where, (), 'a text stands between two `"`')
    if isinstance(error, UnexpectedToken) and (slip := _slip_of_token(source, error, line)) is not None:
        return slip
    last = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    above = next((n for n in range(line if last else line - 1, 0, -1) if source.line(n).strip()), 0)
    guard = re.match(r"\s*(where|prefer)\b(.*?)\s*(#.*)?$", source.line(above))
    expected = {*(getattr(error, "accepts", None) or ()), *(getattr(error, "expected", None) or ())}
    if guard and "because" not in guard[2] and "_INDENT" in expected and isinstance(error, UnexpectedToken):
        where = Span(source, above, guard.end(2) - 1, above, guard.end(2))
        hint = 'write `because "what is wrong where it does not hold"` behind it'
        return DplcError(f"a `{guard[1]}` without its reason", where, (), hint)
    return _slip_of_line(source, line)


def _slip_of_token(source: Source, error: UnexpectedToken, line: int) -> DplcError | None:
    """A bracket that is open or closes none, a text without its `because`, a line that is too far in."""
    kind, column = error.token.type, max(error.column - 1, 0)
    never = _never_closed(source, error, line, column)
    if never is not None:
        return never
    here = Span(source, line, column, line, column + len(error.token))
    if kind in ("RPAR", "RSQB", "RBRACE") and _open_bracket(source, line, column) is None:
        return DplcError(f"`{error.token}` closes no bracket", here, (), "take it away, or open one before it")
    if kind == "STRING" and re.match(r"\s*(where|prefer|pass|one|without|number)\b", source.line(line)):
        return _reason_alone(source, line, column, here)
    if kind == "_INDENT":  # the token stands at the end of the line before
        below = next((n for n in range(line + 1, len(source.text.splitlines()) + 1) if source.line(n).strip()), line)
        return _too_far_in(source, line, below)
    return None


def _never_closed(source: Source, error: UnexpectedToken, line: int, column: int) -> DplcError | None:
    """A bracket that is open where a later line begins, a reason or something that only its end may be followed by."""
    kind, token, text = error.token.type, str(error.token).strip(), source.line(line)
    ended = kind.startswith(("_", "$"))  # the file ends in it: the lexer counts no lines inside of a bracket
    within = len(text) if ended else column if kind == "BECAUSE" or token in ("on", "for") else 0
    opened, notes = _open_bracket(source, line, within), tuple[str, ...]()
    if ended:
        notes = ("the file ends inside of it",)
    elif opened is not None and opened.line < line:
        notes = (f"line {line} goes on inside of it: {text.strip()}",)
    elif kind == "BECAUSE" or re.match(r"(override )?rule\b", text):
        notes = (f"`{token}` stands inside of it",)
    if opened is None or not notes:
        return None
    bracket = source.line(opened.line)[opened.column]
    close = {"(": ")", "[": "]", "{": "}"}[bracket]
    return DplcError(f"`{bracket}` is never closed", opened, notes, f"write `{close}`")


def _reason_alone(source: Source, line: int, column: int, here: Span) -> DplcError:
    """A text behind a guard: without its `because`, or behind one that was read as a name, for a value was due."""
    word = re.search(r"\bbecause\s+$", source.line(line)[:column])
    if word is None:
        return DplcError("a reason without its word", here, (), "write `because` before it")
    where = Span(source, line, word.start(), line, word.start() + len("because"))
    return DplcError("unexpected `because`", where, ("what stands before it is no whole condition",), "write its end")


def _too_far_in(source: Source, line: int, below: int) -> DplcError | None:
    """A line that is further in than the one above it, which opens nothing."""
    text = source.line(below)
    if not re.match(r" *\S", text):
        return None
    where = Span(source, below, 0, below, max(len(text) - len(text.lstrip()), 1))
    if re.match(r"(override )?rule\b", source.line(line)):
        whole = Span(source, below, len(text) - len(text.lstrip()), below, len(text.rstrip()))
        return DplcError("a pattern without its word", whole, (), "write `match`, on a line of its own, above it")
    note = f"line {line} begins no block: it ends without `:`"
    return DplcError("this line stands too far in", where, (note,), "begin it where the line above begins")


def _slip_of_line(source: Source, line: int) -> DplcError | None:
    """What is wrong with the line itself, or with the one before it: a guard without its word, a tab among spaces."""
    text = source.line(line)
    loose = re.match(r"(?!where\b|prefer\b|pass\b|one\b|number\b|override\b)(\S.*?)\s+because \"", text)
    clause = re.match(r"(where|prefer|let|guards|form|split|choose)\b", text)
    if loose is None and clause is None and _in_rule(source, line):
        loose = _CONDITION.match(text)
    if loose:
        hint = "write `where` before it if the result were wrong, `prefer` if it were slow"
        hint += "" if "because" in text else ', and `because ".."` behind it'
        return DplcError("a guard without its word", Span(source, line, 0, line, loose.end(1)), (), hint)
    nameless = re.match(r"((?:override )?rule) (on \w+)\s*(#.*)?$", text)
    if nameless:
        where = Span(source, line, nameless.end(1), line, nameless.end(1) + 1)
        return DplcError("a rule without its name", where, (), f"write `{nameless[1]} mine {nameless[2]}`")
    program = re.match(r"( *)(\w+) +\w+\(.*\) *->", text)
    if program and program[2] not in ("graph", "kernel", "fact"):
        where = Span(source, line, program.end(1), line, program.end(2))
        return DplcError(
            f"`{program[2]}` begins no program", where, (), "write `graph`; `kernel` on the levels of loops"
        )
    for n in (line, line + 1):
        tabs = re.match(r" *\t+", source.line(n))
        if tabs and any(one.startswith(" ") for one in source.text.splitlines()):
            where = Span(source, n, 0, n, tabs.end())
            return DplcError(
                "a tab among lines that begin with spaces", where, (), "begin lines with spaces, four for each level"
            )
    return None


def _in_rule(source: Source, line: int) -> bool:
    """Whether a line stands among the clauses of a rule."""
    above = (source.line(n) for n in range(line - 1, 0, -1))
    first = next(
        (text for text in above if re.match(r"(override )?[a-z]", text) and text.split()[0] not in _CLAUSES), ""
    )
    return bool(re.match(r"(override )?rule\b", first))


def _open_bracket(source: Source, line: int, end: int = 0) -> Span | None:
    """The innermost bracket that is open in a line before column `end`."""
    opened: list[Span] = []
    for number in range(1, line + 1):
        text = _STRING.sub(lambda found: " " * len(found[0]), source.line(number))
        text = text[:end] if number == line else text
        for column, character in enumerate(text):
            if character in "([{":
                opened.append(Span(source, number, column, number, column + 1))
            elif character in ")]}" and opened:
                opened.pop()
    return opened[-1] if opened else None


def outdented(source: Source) -> DplcError:
    """The error of a line whose indentation fits no block around it, at that line."""
    columns, depth, above = [0], 0, 0
    for number, text in enumerate(source.text.splitlines(), 1):
        bare = _STRING.sub("", text).strip()
        inside, depth = depth > 0, max(depth + sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}")), 0)
        if not bare or inside:
            continue
        wide = text.expandtabs(8)
        column = len(wide) - len(wide.lstrip())
        while column < columns[-1]:
            columns.pop()
        if columns[-1] < column < above:
            note = "a tab counts as 8 spaces" if "\t" in source.text else "lines of one block begin in one column"
            where = Span(source, number, 0, number, max(len(text) - len(text.lstrip()), 1))
            return DplcError("the indentation fits no block around it", where, (note,), "indent by 4 spaces")
        columns += [column] if column > columns[-1] else []
        above = column
    return DplcError(f"{source.name}: the indentation fits no block around it")


LARGEST_INT = 2**63  # one more than the largest, whose negative is the smallest
LONGEST_INT = 40  # digits that are looked at


class _BlockIndenter(Indenter):
    NL_type = "_NL"
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    OPEN_PAREN_types = ["LPAR", "LSQB", "LBRACE"]
    CLOSE_PAREN_types = ["RPAR", "RSQB", "RBRACE"]
    tab_len = 8


def _tokens(children: list[Any], *kinds: str) -> list[str]:
    return [str(c) for c in children if isinstance(c, Token) and c.type in kinds]


def _docs(children: list[Any]) -> tuple[str, ...]:
    return tuple(c[1] for c in children if isinstance(c, tuple) and c[0] == "doc")


def _name(children: list[Any]) -> Token:
    """The name that a declaration gives."""
    return next(c for c in children if isinstance(c, Token) and c.type == "NAME")


def _overrides(children: list[Any]) -> bool:
    return any(isinstance(c, Token) and c.type == "OVERRIDE" for c in children)


def _device(children: list[Any]) -> s.NameOf | None:
    """The device that a declaration is for."""
    return next((c[1] for c in children if isinstance(c, tuple) and c[0] == "device"), None)


def _text(token: Token | None) -> str | None:
    return None if token is None else str(token)


def _fields(children: list[Any]) -> Iterator[Any]:
    return (str(child) if isinstance(child, Token) else child for child in children)


def _spanning(cls: Callable[..., s.Syntax]) -> Callable[[Any, Any, list[Any]], s.Syntax]:
    """Return a method that builds a node over the whole text of its alternative."""
    return lambda self, meta, c: cls(self.span(meta), *_fields(c))


def _at_first(cls: Callable[..., s.Syntax]) -> Callable[[Any, Any, list[Any]], s.Syntax]:
    """Return a method that builds a node at the place of its first token."""
    return lambda self, meta, c: cls(self.place(c[0]), *_fields(c))


@v_args(meta=True)
class _Build(EquationBuilder):
    """Lark calls one method per grammar alternative, bottom-up."""

    # ---- alternatives whose children are the fields of a node, in order
    match = _spanning(s.Match)
    rewrite = _spanning(s.Rewrite)
    param = _spanning(s.ParamItem)
    drop = _spanning(s.DropStatement)
    load = _spanning(s.LoadOf)
    arm = _spanning(s.Arm)
    use_rule = _spanning(s.UseRule)
    keyword = _spanning(s.Keyword)
    run = _spanning(s.Run)
    axis = _spanning(s.AxisItem)
    substitution = _spanning(s.Substitution)
    range_ = _spanning(s.Between)
    ternary = _spanning(s.Choice)
    attribute_of = _spanning(s.Member)
    pass_ = _spanning(s.PassStatement)
    parameter = _at_first(s.Parameter)
    pick = _at_first(s.PickClause)
    without = _at_first(s.Without)
    capture = _at_first(s.CaptureStatement)
    inside = _at_first(s.InsideBlock)
    name = _at_first(s.NameOf)

    # ---- rules and pipelines
    def start(self, meta: Any, c: list[Any]) -> tuple[s.Syntax, ...]:
        return tuple(x for x in c if isinstance(x, s.Syntax))

    def doc(self, meta: Any, c: list[Any]) -> tuple[str, str]:
        return ("doc", str(c[0])[2:].strip())

    def attribute(self, meta: Any, c: list[Any]) -> tuple[str, str]:
        return ("attribute", str(c[0]))

    def rule(self, meta: Any, c: list[Any]) -> s.Rule:
        marks = [x for x in c if isinstance(x, tuple) and len(x) == 2 and x[0] in ("doc", "attribute")]
        names = [x for x in c if isinstance(x, Token) and x.type == "NAME"]
        rows = next((x[1] for x in c if isinstance(x, tuple) and x[0] == "rows"), ())
        parts = [x for x in c if isinstance(x, s.Syntax)]
        return s.Rule(
            self.place(names[0]),
            tuple(text for kind, text in marks if kind == "doc"),
            tuple(text for kind, text in marks if kind == "attribute"),
            _overrides(c),
            str(names[0]),
            tuple(x for x in parts if isinstance(x, s.Parameter)),
            rows,
            str(names[1]),
            tuple(x for x in parts if not isinstance(x, s.Parameter | s.Example)),
            tuple(x for x in parts if isinstance(x, s.Example)),
            words_in(tuple(x for x in parts if not isinstance(x, s.Match | s.Example))),
            device=_device(c),
        )

    def of_device(self, meta: Any, c: list[Any]) -> tuple[str, s.NameOf]:
        return ("device", s.NameOf(self.place(c[0]), str(c[0])))

    def fact(self, meta: Any, c: list[Any]) -> s.FactOf:
        docs = _docs(c)
        name = _name(c)
        given = tuple(x for x in c if isinstance(x, s.Parameter))
        result, value = str(c[-3]), c[-2]
        return s.FactOf(self.place(name), docs, _overrides(c), str(name), given, result, value, _device(c))

    def given(self, meta: Any, c: list[Any]) -> s.Parameter:
        return s.Parameter(self.place(c[0]), str(c[0]), str(c[1]), None, None)

    def one_sort(self, meta: Any, c: list[Any]) -> str:
        return str(c[0])

    def list_sort(self, meta: Any, c: list[Any]) -> str:
        return f"[{c[0]}]"

    def number(self, meta: Any, c: list[Any]) -> s.NumberOf:
        docs = _docs(c)
        name = _name(c)
        value = next(x for x in c if isinstance(x, s.Syntax))
        reason = next((x for x in c if isinstance(x, str) and not isinstance(x, Token)), None)
        return s.NumberOf(self.place(name), docs, _overrides(c), str(name), value, reason, _device(c))

    def rows(self, meta: Any, c: list[Any]) -> tuple[str, tuple[s.Syntax, ...]]:
        return ("rows", tuple(c))

    def tuple_(self, meta: Any, c: list[Any]) -> s.Group:
        return s.Group(self.span(meta), "(", c[0] or ())

    def let(self, meta: Any, c: list[Any]) -> s.LetClause:
        return s.LetClause(self.place(c[1]), str(c[1]), c[2])

    def where(self, meta: Any, c: list[Any]) -> s.Guard:
        return s.Guard(c[0].span, "where", c[0], c[1])

    def prefer(self, meta: Any, c: list[Any]) -> s.Guard:
        return s.Guard(c[0].span, "prefer", c[0], c[1])

    def reason(self, meta: Any, c: list[Any]) -> str:
        return _tokens(c, "STRING")[0][1:-1]

    def because_inline(self, meta: Any, c: list[Any]) -> str:
        return str(c[0])[1:-1]

    def example(self, meta: Any, c: list[Any]) -> s.Example:
        blocks = [x for x in c if isinstance(x, tuple)]
        arguments = tuple(x for x in c if isinstance(x, s.Keyword))
        return s.Example(self.place(c[0]), str(c[0])[1:-1], arguments, blocks[0], blocks[1])

    def counterexample(self, meta: Any, c: list[Any]) -> s.Example:
        blocks = [x for x in c if isinstance(x, tuple)]
        arguments = tuple(x for x in c if isinstance(x, s.Keyword))
        return s.Example(self.place(c[0]), str(c[0])[1:-1], arguments, blocks[0], _tokens(c, "STRING")[1][1:-1])

    def examples_of(self, meta: Any, c: list[Any]) -> s.ExamplesOf:
        return s.ExamplesOf(self.place(c[0]), str(c[0]), tuple(c[1:]))

    def pipeline(self, meta: Any, c: list[Any]) -> s.Pipeline:
        docs = _docs(c)
        name = _name(c)
        entries = (x for x in c if isinstance(x, s.Syntax))
        of = (replace(x, pipeline=str(name)) if isinstance(x, s.Without) else x for x in entries)
        return s.Pipeline(self.place(name), docs, str(name), tuple(of))

    def pass_entry(self, meta: Any, c: list[Any]) -> s.PassEntry:
        names = [x for x in c if isinstance(x, Token) and x.type in ("NAME", "NUMBERED")]
        places = tuple(x for x in c if isinstance(x, tuple))
        reason = next((x for x in c if isinstance(x, str) and not isinstance(x, Token)), None)
        arguments = tuple(x for x in c if isinstance(x, s.Keyword))
        alias = str(names[1]) if len(names) > 1 else None
        return s.PassEntry(self.place(names[0]), str(names[0]), arguments, alias, places, reason)

    def after(self, meta: Any, c: list[Any]) -> tuple[str, str | None]:
        return ("after", str(c[0]))

    def before(self, meta: Any, c: list[Any]) -> tuple[str, str | None]:
        return ("before", str(c[0]))

    def first(self, meta: Any, c: list[Any]) -> tuple[str, str | None]:
        return ("first", None)

    def last(self, meta: Any, c: list[Any]) -> tuple[str, str | None]:
        return ("last", None)

    def one_of(self, meta: Any, c: list[Any]) -> s.OneOf:
        reason = next((x for x in c if isinstance(x, str) and not isinstance(x, Token)), None)
        return s.OneOf(self.span(meta), tuple(_tokens(c, "NAME", "NUMBERED")), reason)

    # ---- statements
    def unit(self, meta: Any, c: list[Any]) -> s.Unit:
        arrow = next(i for i, x in enumerate(c) if isinstance(x, Token) and x.type == "ARROW")
        ins, outs = (tuple(x for x in part if x is not None) for part in (c[2:arrow], c[arrow + 1 : -1]))
        return s.Unit(self.place(c[1]), str(c[0]), str(c[1]), ins, outs, c[-1])

    def size(self, meta: Any, c: list[Any]) -> s.SizeItem:
        low, high, multiple, hint = (None if x is None else int(self.int_(meta, [x]).value) for x in (*c[1:4], c[5]))
        assert low is not None and high is not None
        return s.SizeItem(self.span(meta), str(c[0]), low, high, 1 if multiple is None else multiple, hint)

    def param_run(self, meta: Any, c: list[Any]) -> s.Run:
        return s.Run(self.span(meta), s.NameOf(self.place(c[0]), str(c[0])))

    def type(self, meta: Any, c: list[Any]) -> s.TypeOf:
        return s.TypeOf(self.span(meta), str(c[0]), c[1] or ())

    def type_tuple(self, meta: Any, c: list[Any]) -> tuple[s.TypeOf, ...]:
        return tuple(c)

    def block(self, meta: Any, c: list[Any]) -> tuple[s.Syntax, ...]:
        return tuple(c)

    def bare(self, meta: Any, c: list[Any]) -> s.Statement:
        return s.Statement(c[0].span, c[0])

    def op_block(self, meta: Any, c: list[Any]) -> s.Statement:
        return s.Statement(c[0].span, c[0], c[1])

    def run_stmt(self, meta: Any, c: list[Any]) -> s.RunStatement:
        return s.RunStatement(c[0].span, c[0], tuple(x for x in c[1:] if x is not None))

    def assign(self, meta: Any, c: list[Any]) -> s.Assign:
        return s.Assign(self.join(c[0], c[1]), c[0], c[1])

    def assign_block(self, meta: Any, c: list[Any]) -> s.Assign:
        return s.Assign(self.join(c[0], c[1]), c[0], c[1], (), c[2])

    def typed_assign(self, meta: Any, c: list[Any]) -> s.Assign:
        target = s.NameOf(self.place(c[0]), str(c[0]))
        return s.Assign(self.join(target, c[2]), target, c[2], c[1] if isinstance(c[1], tuple) else (c[1],))

    def join(self, first: s.Syntax, last: s.Syntax) -> Span:
        a, b = first.span, last.span
        return Span(self.source, a.line, a.column, b.end_line, b.end_column)

    def accumulate(self, meta: Any, c: list[Any]) -> s.AccumulateInto:
        return s.AccumulateInto(self.join(c[0], c[2]), c[0], c[2])

    def for_(self, meta: Any, c: list[Any]) -> s.ForLoop:
        attributes = tuple(x for x in c[4:-1] if x is not None)
        return s.ForLoop(self.place(c[0]), str(c[0]), c[1], c[2], c[3], attributes, c[-1])

    def if_(self, meta: Any, c: list[Any]) -> s.IfBlock:
        return s.IfBlock(c[0].span, c[0], c[1])

    def each(self, meta: Any, c: list[Any]) -> s.EachBlock:
        return s.EachBlock(self.place(c[0]), tuple(map(str, c[:-2])), c[-2], c[-1])

    # ---- items
    def items(self, meta: Any, c: list[Any]) -> tuple[s.Syntax, ...]:
        return tuple(x for x in c if isinstance(x, s.Syntax))

    def role_run(self, meta: Any, c: list[Any]) -> s.Run:
        return s.Run(self.span(meta), c[0].base, str(c[1]))

    # ---- expressions
    def choose(self, meta: Any, c: list[Any]) -> s.Chosen:
        start, variable, domain, condition, sense, cost = c
        weighed = s.Comprehension(self.span(meta), "[", cost, str(variable), domain, condition)
        return s.Chosen(self.join(s.NameOf(self.place(start), ""), cost), weighed, str(sense) == "maximising")

    def binary(self, meta: Any, c: list[Any]) -> s.Operation:
        return s.Operation(self.span(meta), str(c[1]), c[0], c[2])

    def not_in_op(self, meta: Any, c: list[Any]) -> s.Operation:
        return s.Operation(self.span(meta), "not in", c[0], c[1])

    def not_op(self, meta: Any, c: list[Any]) -> s.Prefix:
        return s.Prefix(self.span(meta), "not", c[0])

    def negative(self, meta: Any, c: list[Any]) -> s.Syntax:
        if isinstance(c[1], s.Number):
            return s.Number(self.span(meta), -c[1].value)
        return s.Prefix(self.span(meta), "-", c[1])

    def index(self, meta: Any, c: list[Any]) -> s.Subscript:
        return s.Subscript(self.span(meta), c[0], c[1] or ())

    def call(self, meta: Any, c: list[Any]) -> s.Apply:
        return s.Apply(self.span(meta), str(c[0]), c[1] or ())

    def int_(self, meta: Any, c: list[Any]) -> s.Number:
        if len(c[0]) > LONGEST_INT or int(c[0]) > LARGEST_INT:
            raise DplcError("this number is too large: an integer has 64 bits", self.place(c[0]))
        return s.Number(self.place(c[0]), int(c[0]))

    def float_(self, meta: Any, c: list[Any]) -> s.Number:
        if math.isinf(float(c[0])):
            raise DplcError("this number is too large; infinity is written `inf`", self.place(c[0]))
        return s.Number(self.place(c[0]), float(c[0]))

    def string(self, meta: Any, c: list[Any]) -> s.Text:
        return s.Text(self.place(c[0]), str(c[0])[1:-1])

    def paren(self, meta: Any, c: list[Any]) -> s.Group:
        return s.Group(self.span(meta), "(", c[0] or ())

    def list_(self, meta: Any, c: list[Any]) -> s.Group:
        return s.Group(self.span(meta), "[", c[0] or ())

    def set_(self, meta: Any, c: list[Any]) -> s.Group:
        return s.Group(self.span(meta), "{", c[0] or ())

    def comprehension(self, meta: Any, c: list[Any]) -> s.Comprehension:
        return s.Comprehension(self.span(meta), "[", c[0], str(c[1]), c[2], c[3])

    def set_comprehension(self, meta: Any, c: list[Any]) -> s.Comprehension:
        return s.Comprehension(self.span(meta), "{", c[0], str(c[1]), c[2], c[3])


_lock = threading.Lock()


@functools.cache
def _parser() -> tuple[Lark, _Build]:
    build = _Build()
    grammar = (files(__package__) / "grammar.lark").read_text()
    lark = Lark(grammar, parser="lalr", postlex=_BlockIndenter(), maybe_placeholders=True, propagate_positions=True)
    return lark, build


def parse(source: Source) -> tuple[s.Syntax, ...]:
    """The declarations of a text: units, rules, pipelines. Raises DplcError at the first syntax error."""
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    with _lock:
        lark, build = _parser()
        build.source = source
        try:
            return build.transform(lark.parse(text))  # type: ignore[no-any-return]
        except DedentError:
            raise outdented(source) from None
        except UnexpectedInput as unexpected:
            raise syntax_error(source, unexpected) from None
        except VisitError as error:  # what a method of the builder raised
            if isinstance(error.orig_exc, DplcError):
                raise error.orig_exc from None
            raise
        except RecursionError:
            raise DplcError(f"{source.name}: brackets or blocks nest too deep") from None


# ---- arithmetic while reading


LARGEST_EXTENT = 2**48


def calculated(node: s.Syntax, compute: Callable[..., Any], *operands: Any) -> Any:
    """compute(*operands). Raises DplcError at the node where it gives nothing, or an integer of more than 64 bits."""
    try:
        found = compute(*operands)
    except ZeroDivisionError:
        raise DplcError("division by zero", node.span) from None
    except (TypeError, ArithmeticError, ValueError) as error:
        raise DplcError(str(error), node.span) from None
    if found.__class__ is int and not -LARGEST_INT <= found < LARGEST_INT:
        raise DplcError("this number is too large: an integer has 64 bits", node.span)
    return found


def extent(node: s.Syntax, value: Any, least: int = 0) -> Any:
    """An extent as it was read: a whole number that memory could hold, or an expression. Raises DplcError."""
    if value.__class__ is float or value.__class__ is bool or value is None:
        raise DplcError(f"an extent is a whole number, not {str(value).lower()}", node.span)
    if value.__class__ is int and not least <= value <= LARGEST_EXTENT:
        raise DplcError(f"an extent is {least} to 2^48, not {value}", node.span)
    return value
