"""What the parser's errors say to people: what stands there, what was expected, a caret."""

from __future__ import annotations

import re

from lark import UnexpectedInput
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from ..diagnostic import DplcError, Source, Span, did_you_mean

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
