"""Parse a text to a syntax tree. Syntax errors report the expected tokens and mark the location with a caret."""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken, VisitError
from lark.indenter import DedentError, Indenter
from lark.tree import Meta

from ..diagnostic import DplcError, Source, Span, closest
from ..dtypes import toml_table
from ..expr import OPERATORS, binary, invert, negate
from . import equations as q
from .syntax import (
    DECREASES,
    AccumulateInto,
    Apply,
    Arm,
    Assign,
    AxisItem,
    Between,
    CaptureStatement,
    Choice,
    Chosen,
    Comprehension,
    DropStatement,
    EachBlock,
    Example,
    ExamplesOf,
    FactOf,
    ForLoop,
    Group,
    Guard,
    IfBlock,
    InsideBlock,
    Keyword,
    LetClause,
    LetExpression,
    LoadOf,
    Match,
    Member,
    NameOf,
    Nodes,
    Number,
    NumberOf,
    OneOf,
    Operation,
    Parameter,
    ParamItem,
    PassEntry,
    PassStatement,
    PickClause,
    Pipeline,
    Prefix,
    Rewrite,
    Rule,
    Run,
    RunStatement,
    SizeItem,
    SizeOf,
    Statement,
    Subscript,
    Substitution,
    Syntax,
    Text,
    TypeOf,
    Unit,
    UseRule,
    Without,
    words_in,
)

Parts = list[Any]  # of an alternative of the grammar: syntax, tokens and marks

# ---- messages of the parser


_MESSAGES = toml_table(__package__, "messages")
_READABLE: dict[str, str] = _MESSAGES["tokens"]
_FILE = (
    "a rule file holds rules, numbers, facts, forms, guards, pipelines and `without`; a dump holds kernels or graphs"
)
_CLAUSES = "match let pick split guards require prefer decreases rewrite example gives"
_QUOTES = "'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_STRING = re.compile(r'"[^"\n]*"|#.*')
# A line that is a condition: a query or a comparison.
_CONDITION = re.compile(r"(?=\S)((?:not )?\w+\([^#]*?\)|[^#=]*?[\w)\]] (?:[<>]=?|==|!=|in) [^#]*?)\s*(?:#.*)?$")
_STARTS = {"INT", "FLOAT", "NAME", "STRING", "LPAR", "LSQB", "LBRACE", "MINUS", "NOT", "CHOOSE"}  # of an expression


def syntax_error(source: Source, error: UnexpectedInput) -> DplcError:
    """Return the error of a text that the grammar does not accept."""
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
    near = closest(str(error.token), keywords) if isinstance(error, UnexpectedToken) else None
    hint = near and f"did you mean `{near}`?"
    if expected == {"_INDENT"}:
        hint = "indent it by 4 spaces"
    text = source.line(line)
    foreign = (
        said
        for spelling, said in _MESSAGES["foreign"].items()
        if any(found.start() < column <= found.end() + 1 for found in re.finditer(spelling, text))
    )
    hint = hint or next(foreign, None)
    few = list(dict.fromkeys(_READABLE[k] for k in sorted(expected) if k in _READABLE)) + [f"`{k}`" for k in keywords]
    wanted = " or ".join(filter(None, (", ".join(few[:-1]), *few[-1:]))) if len(few) <= 9 else ""
    if hint is None:
        return DplcError(
            what, span, f"write {wanted} here" if wanted else "take it out, or complete the text before it"
        )
    return DplcError(what, span, hint, [_FILE] if top else [f"expected {wanted}"] if wanted else [])


def _last_line(source: Source) -> tuple[int, int]:
    """Return the last line that is not empty, and the column after its end."""
    lines = source.text.splitlines()
    number = next((n for n in range(len(lines), 0, -1) if lines[n - 1].strip()), 1)
    return number, len(lines[number - 1].rstrip()) + 1 if lines else 1


def _slip(source: Source, error: UnexpectedInput, line: int) -> DplcError | None:
    """Return the error of a common mistake that the parser detects later than its location, at that location."""
    if isinstance(error, UnexpectedCharacters) and error.char == '"':
        where = Span(source, line, error.column - 1, line, len(source.line(line)))
        return DplcError("a text without its end", where, 'write `"` behind it, on the same line')
    if isinstance(error, UnexpectedCharacters) and error.char in _QUOTES:
        where = Span(source, line, error.column - 1, line, error.column)
        return DplcError(f"`{error.char}` begins no text", where, 'a text stands between two `"`')
    if isinstance(error, UnexpectedToken) and (slip := _slip_of_token(source, error, line)) is not None:
        return slip
    last = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    above = next((n for n in range(line if last else line - 1, 0, -1) if source.line(n).strip()), 0)
    guard = re.match(r"\s*(require|prefer)\b(.*?)\s*(#.*)?$", source.line(above))
    expected = {*(getattr(error, "accepts", None) or ()), *(getattr(error, "expected", None) or ())}
    if guard and 'else "' not in guard[2] and "_INDENT" in expected and isinstance(error, UnexpectedToken):
        where = Span(source, above, guard.end(2) - 1, above, guard.end(2))
        return DplcError(
            f"a `{guard[1]}` without its reason", where, 'write `else "what is wrong where it does not hold"` behind it'
        )
    return _slip_of_line(source, line)


def _slip_of_token(source: Source, error: UnexpectedToken, line: int) -> DplcError | None:
    """Return the error of an unbalanced bracket, a reason without its word, or a line that is indented too far."""
    kind, column = error.token.type, max(error.column - 1, 0)
    never = _never_closed(source, error, line, column)
    if never is not None:
        return never
    here = Span(source, line, column, line, column + len(error.token))
    if kind in ("RPAR", "RSQB", "RBRACE") and _open_bracket(source, line, column) is None:
        return DplcError(f"`{error.token}` closes no bracket", here, "take it away, or open one before it")
    if error.token == "because" and re.match(r"\s*(require|prefer)\b", source.line(line)):
        return DplcError("unexpected `because`", here, "write `else`")
    if kind == "STRING" and re.match(r"\s*(require|prefer|pass|one|without|number)\b", source.line(line)):
        return _reason_alone(source, line, column, here)
    if kind == "_INDENT":  # the token is at the end of the line before
        below = next((n for n in range(line + 1, len(source.text.splitlines()) + 1) if source.line(n).strip()), line)
        return _too_far_in(source, line, below)
    return None


def _never_closed(source: Source, error: UnexpectedToken, line: int, column: int) -> DplcError | None:
    """Return the error of a bracket that is open where a later line, a reason or another clause begins."""
    kind, token, text = error.token.type, str(error.token).strip(), source.line(line)
    ended = kind.startswith(("_", "$"))  # the file ends in it: the lexer counts no lines inside of a bracket
    within = len(text) if ended else column if kind in ("BECAUSE", "ELSE") or token in ("on", "for") else 0
    opened, notes = _open_bracket(source, line, within), tuple[str, ...]()
    if ended:
        notes = ("the file ends inside of it",)
    elif opened is not None and opened.line < line:
        notes = (f"line {line} goes on inside of it: {text.strip()}",)
    elif kind in ("BECAUSE", "ELSE") or re.match(r"(override )?rule\b", text):
        notes = (f"`{token}` stands inside of it",)
    if opened is None or not notes:
        return None
    bracket = source.line(opened.line)[opened.column]
    close = {"(": ")", "[": "]", "{": "}"}[bracket]
    return DplcError(f"`{bracket}` is never closed", opened, f"write `{close}`", notes)


def _reason_alone(source: Source, line: int, column: int, here: Span) -> DplcError:
    """Return the error of a reason without the word before it, or whose word was read as a name."""
    before = source.line(line)[:column]
    expected = "else" if re.match(r"\s*(require|prefer)\b", before) else "because"
    word = re.search(rf"\b{expected}\s+$", before)
    if word is None:
        return DplcError("a reason without its word", here, f"write `{expected}` before it")
    where = Span(source, line, word.start(), line, word.start() + len(expected))
    return DplcError(
        f"unexpected `{expected}`", where, "write its end", ("what stands before it is not a whole condition",)
    )


def _too_far_in(source: Source, line: int, below: int) -> DplcError | None:
    """Return the error of a line that is further indented than the line above it, which opens no block."""
    text = source.line(below)
    if not re.match(r" *\S", text):
        return None
    where = Span(source, below, 0, below, max(len(text) - len(text.lstrip()), 1))
    if re.match(r"(override )?rule\b", source.line(line)):
        whole = Span(source, below, len(text) - len(text.lstrip()), below, len(text.rstrip()))
        return DplcError("a pattern without its word", whole, "write `match`, on a line of its own, above it")
    return DplcError(
        "this line stands too far in",
        where,
        "begin it where the line above begins",
        (f"line {line} begins no block: it ends without `:`",),
    )


def _slip_of_line(source: Source, line: int) -> DplcError | None:
    """Return the error of the line itself or of the preceding one: a guard without its word, a tab among spaces."""
    text = source.line(line)
    loose = re.match(r"(?!require\b|prefer\b|pass\b|one\b|number\b|override\b)(\S.*?)\s+(?:else|because) \"", text)
    clause = re.match(r"(require|prefer|let|guards|form|split|choose)\b", text)
    if loose is None and clause is None and _in_rule(source, line):
        loose = _CONDITION.match(text)
    if loose:
        hint = "write `require` before it if the result were wrong, `prefer` if it were slow"
        hint += "" if 'else "' in text else ', and `else ".."` behind it'
        return DplcError("a guard without its word", Span(source, line, 0, line, loose.end(1)), hint)
    nameless = re.match(r"((?:override )?rule) (on \w+)\s*(#.*)?$", text)
    if nameless:
        where = Span(source, line, nameless.end(1), line, nameless.end(1) + 1)
        return DplcError("a rule without its name", where, f"write `{nameless[1]} mine {nameless[2]}`")
    program = re.match(r"( *)(\w+) +\w+\(.*\) *->", text)
    if program and program[2] not in ("graph", "kernel", "fact"):
        where = Span(source, line, program.end(1), line, program.end(2))
        return DplcError(f"`{program[2]}` begins no program", where, "write `graph`; `kernel` on the levels of loops")
    for n in (line, line + 1):
        tabs = re.match(r" *\t+", source.line(n))
        if tabs and any(one.startswith(" ") for one in source.text.splitlines()):
            where = Span(source, n, 0, n, tabs.end())
            return DplcError(
                "a tab among lines that begin with spaces", where, "begin lines with spaces, four for each level"
            )
    return None


def _in_rule(source: Source, line: int) -> bool:
    """Return whether a line is among the clauses of a rule."""
    above = (source.line(n) for n in range(line - 1, 0, -1))
    first = next(
        (text for text in above if re.match(r"(override )?[a-z]", text) and text.split()[0] not in _CLAUSES.split()), ""
    )
    return bool(re.match(r"(override )?rule\b", first))


def _open_bracket(source: Source, line: int, end: int = 0) -> Span | None:
    """Return the innermost bracket that is open in a line before column `end`."""
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
    """Return the error of a line whose indentation fits no enclosing block, at that line."""
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
            return DplcError("the indentation fits no block around it", where, "indent by 4 spaces", (note,))
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


def _plain(child: Any) -> Any:
    """Return the text of a token without quotes; anything else as it is."""
    if child.__class__ is not Token:
        return child
    return str(child)[1:-1] if child.type == "STRING" else str(child)


def _of(children: Parts, kind: Any) -> tuple[Any, ...]:
    """Return the children of a class."""
    return tuple(c for c in children if isinstance(c, kind))


def _marked(children: Parts, mark: str) -> tuple[Any, ...]:
    """Return the children that `_mark` marked."""
    return tuple(c[1] for c in children if c.__class__ is tuple and c and c[0] == mark)


def _reason(children: Parts) -> str | None:
    return next((c for c in children if c.__class__ is str), None)


def _device(children: Parts) -> NameOf | None:
    """Return the device that a declaration is for."""
    return next(iter(_marked(children, "device")), None)


# ---- methods of the builder whose children are the fields of a node, in order

Method = Callable[[Any, Meta, Parts], Any]
_whole: Method = lambda self, meta, c: self.span(meta)  # noqa: E731 - the span of the whole text of a node
_token: Method = lambda self, meta, c: self.place(c[0])  # noqa: E731 - its first token
_child: Method = lambda self, meta, c: c[0].span  # noqa: E731 - its first part
_ends: Method = lambda self, meta, c: self.join(c[0], c[-1])  # noqa: E731 - from its first part to its last
_MARKS = ("LET", "FORM", "ACC")  # tokens that say which alternative it is


def _node(cls: Any, where: Method, *leading: Any) -> Method:
    """Return a method that builds a node. An absent list is an empty one.

    leading: fields that the alternative of the grammar decides.
    """
    lists = [str(field.type).startswith(("tuple", "Nodes")) for field in fields(cls)][1 + len(leading) :]

    def build(self: Any, meta: Meta, c: Parts) -> Any:
        given = [child for child in c if getattr(child, "type", "") not in _MARKS]
        values = (() if child is None and listed else _plain(child) for child, listed in zip(given, lists))
        return cls(where(self, meta, given), *leading, *values)

    return build


def _mark(mark: str) -> Method:
    return lambda self, meta, c: (mark, _plain(c[0]) if c else None)


def _all(self: Any, meta: Meta, c: Parts) -> tuple[Any, ...]:
    return tuple(map(_plain, c))


def _only(self: Any, meta: Meta, c: Parts) -> Any:
    return _plain(c[0])


@v_args(meta=True)
class _Build(Transformer[Any, Any]):
    """Lark calls one method per grammar alternative, bottom-up."""

    source: Source

    match = _node(Match, _whole)
    rewrite = _node(Rewrite, _whole)
    param = _node(ParamItem, _whole)
    drop = _node(DropStatement, _whole)
    load = _node(LoadOf, _whole)
    arm = _node(Arm, _whole)
    use_rule = _node(UseRule, _whole)
    keyword = _node(Keyword, _whole)
    run = _node(Run, _whole)
    axis = _node(AxisItem, _whole)
    substitution = _node(Substitution, _whole)
    range_ = _node(Between, _whole)
    ternary = _node(Choice, _whole)
    attribute_of = _node(Member, _whole)
    pass_ = _node(PassStatement, _whole)
    call = _node(Apply, _whole)
    index = _node(Subscript, _whole)
    type = _node(TypeOf, _whole)
    part = _node(q.SplitPart, _whole)
    split_clause = _node(q.SplitClause, _whole)
    one_of = _node(OneOf, _whole)
    not_in_op = _node(Operation, _whole, "not in")
    not_op = _node(Prefix, _whole, "not")
    paren = tuple_ = _node(Group, _whole, "(")
    list_ = _node(Group, _whole, "[")
    set_ = _node(Group, _whole, "{")
    comprehension = _node(Comprehension, _whole, "[")
    set_comprehension = _node(Comprehension, _whole, "{")
    parameter = given = _node(Parameter, _token)
    pick = _node(PickClause, _token)
    without = _node(Without, _token)
    capture = _node(CaptureStatement, _token)
    inside = _node(InsideBlock, _token)
    name = _node(NameOf, _token)
    string = _node(Text, _token)
    let = _node(LetClause, _token)
    let_stmt = _node(q.LetStatement, _token)
    for_ = _node(ForLoop, _token)
    for_part = _node(q.PartLoop, _token)
    each = _node(EachBlock, _token)
    example = counterexample = _node(Example, _token)
    examples_of = _node(ExamplesOf, _token)
    pass_entry = _node(PassEntry, _token)
    require = _node(Guard, _child, "require")
    prefer = _node(Guard, _child, "prefer")
    decreases = _node(LetClause, _child, DECREASES)
    bare = op_block = _node(Statement, _child)
    if_ = _node(IfBlock, _child)
    use_guards = _node(q.UseGuards, _child)
    use_form = _node(q.UseForm, _child)
    run_stmt = _node(RunStatement, _child)
    accumulate = _node(AccumulateInto, _ends)
    after, before, first, last = map(_mark, ("after", "before", "first", "last"))
    parts = type_tuple = block = keywords = split_names = further = examples = _all
    passes = places = params = for_attributes = changes = _all
    reason = because_inline = one_sort = _only

    def span(self, meta: Meta) -> Span:
        if getattr(meta, "empty", True):
            return Span(self.source, 1, 0, 1, 0)
        return Span(self.source, meta.line, meta.column - 1, meta.end_line, meta.end_column - 1)

    def place(self, token: Token) -> Span:
        line, column = token.line or 1, (token.column or 1) - 1
        return Span(self.source, line, column, line, column + len(token))

    def named(self, token: Token) -> NameOf:
        return NameOf(self.place(token), str(token))

    def join(self, first: Syntax, last: Syntax) -> Span:
        a, b = first.span, last.span
        return Span(self.source, a.line, a.column, b.end_line, b.end_column)

    def head(self, c: Parts) -> tuple[Span, tuple[str, ...], bool, str]:
        """Return the span, the documentation, whether it overrides, and the name of a declaration."""
        tokens = {token.type: token for token in reversed(_of(c, Token))}
        name = tokens["NAME"]
        return self.place(name), _marked(c, "doc"), "OVERRIDE" in tokens, str(name)

    # ---- rules and pipelines
    def start(self, meta: Meta, c: Parts) -> Nodes:
        return _of(c, Syntax)

    def doc(self, meta: Meta, c: Parts) -> tuple[str, str]:
        return ("doc", str(c[0])[2:].strip())

    def rule(self, meta: Meta, c: Parts) -> Rule:
        place, docs, overrides, name = self.head(c)
        level = next(x for x in reversed(c) if isinstance(x, Token))
        parts = _of(c, Syntax)
        return Rule(
            place, docs, _marked(c, "attribute"), overrides, name, _of(c, Parameter),
            next(iter(_marked(c, "rows")), ()), str(level),
            tuple(x for x in parts if not isinstance(x, Parameter | Example)), _of(c, Example),
            words_in(tuple(x for x in parts if not isinstance(x, Match | Example))), device=_device(c),
        )  # fmt: skip

    def attribute(self, meta: Meta, c: Parts) -> tuple[str, NameOf]:
        name = self.named(c[0])
        return ("attribute", replace(name, span=replace(name.span, column=name.span.column - 1)))  # with its `@`

    def of_device(self, meta: Meta, c: Parts) -> tuple[str, NameOf]:
        return ("device", self.named(c[0]))

    def fact(self, meta: Meta, c: Parts) -> FactOf:
        value, device = c[-1]
        return FactOf(*self.head(c), _of(c, Parameter), str(c[-2]), value, device)

    def fact_line(self, meta: Meta, c: Parts) -> tuple[Syntax, NameOf | None]:
        *lets, value = _of(c, Syntax)
        return (LetExpression(self.span(meta), tuple(lets), value) if lets else value), _device(c)

    fact_block = fact_line

    def list_sort(self, meta: Meta, c: Parts) -> str:
        return f"[{c[0]}]"

    def number(self, meta: Meta, c: Parts) -> NumberOf:
        return NumberOf(*self.head(c), _of(c, Syntax)[0], _reason(c), _device(c))

    def rows(self, meta: Meta, c: Parts) -> tuple[str, Nodes]:
        return ("rows", tuple(c))

    def pipeline(self, meta: Meta, c: Parts) -> Pipeline:
        place, docs, _, name = self.head(c)
        of = tuple(replace(x, pipeline=name) if isinstance(x, Without) else x for x in _of(c, Syntax))
        return Pipeline(place, docs, name, of)

    # ---- what makes a rule an equation
    def guard_group(self, meta: Meta, c: Parts) -> q.GuardGroup:
        (call,) = _of(c, Apply)
        return q.GuardGroup(call.span, _marked(c, "doc"), call.fn, call.items, _of(c, Guard | LetClause))

    def form(self, meta: Meta, c: Parts) -> q.StatementForm:
        (call,) = _of(c, Apply)
        return q.StatementForm(call.span, _marked(c, "doc"), call.fn, call.items, c[-1])

    # ---- statements
    def unit(self, meta: Meta, c: Parts) -> Unit:
        kind, name, ins, outs, precision, body = map(_plain, c)
        return Unit(self.place(c[1]), kind, name, ins or (), outs or (), body, precision)

    def size(self, meta: Meta, c: Parts) -> SizeItem:
        low, high, multiple, hint = (None if x is None else int(self.int_(meta, [x]).value) for x in (*c[1:4], c[5]))
        assert low is not None and high is not None
        return SizeItem(self.span(meta), str(c[0]), low, high, 1 if multiple is None else multiple, hint)

    def assign(self, meta: Meta, c: Parts) -> Assign:
        return Assign(self.join(c[0], c[1]), c[0], c[1], (), *c[2:])

    assign_block = assign

    def typed_assign(self, meta: Meta, c: Parts) -> Assign:
        target = self.named(c[0])
        return Assign(self.join(target, c[2]), target, c[2], c[1] if isinstance(c[1], tuple) else (c[1],))

    # ---- items and expressions
    def items(self, meta: Meta, c: Parts) -> Nodes:
        return _of(c, Syntax)

    def choose(self, meta: Meta, c: Parts) -> Chosen:
        start, variable, domain, condition, sense, cost = c
        weighed = Comprehension(self.span(meta), "[", cost, str(variable), domain, condition)
        return Chosen(self.join(NameOf(self.place(start), ""), cost), weighed, str(sense) == "maximising")

    def binary(self, meta: Meta, c: Parts) -> Operation:
        return Operation(self.span(meta), str(c[1]).split()[-1], c[0], c[2])

    def negative(self, meta: Meta, c: Parts) -> Syntax:
        if isinstance(c[1], Number):
            return Number(self.span(meta), -c[1].value)
        return Prefix(self.span(meta), "-", c[1])

    def int_(self, meta: Meta, c: Parts) -> Number:
        if len(c[0]) > LONGEST_INT or int(c[0]) > LARGEST_INT:
            raise DplcError("this number is too large: an integer has 64 bits", self.place(c[0]))
        return Number(self.place(c[0]), int(c[0]))

    def float_(self, meta: Meta, c: Parts) -> Number:
        if math.isinf(float(c[0])):
            raise DplcError("this number is too large; infinity is written `inf`", self.place(c[0]))
        return Number(self.place(c[0]), float(c[0]))


_lock = threading.Lock()


@functools.cache
def _parser() -> tuple[Lark, _Build]:
    build = _Build()
    grammar = (files(__package__) / "grammar.lark").read_text()
    lark = Lark(grammar, parser="lalr", postlex=_BlockIndenter(), maybe_placeholders=True, propagate_positions=True)
    return lark, build


def parse(source: Source) -> Nodes:
    """Return the declarations of a text: units, rules, pipelines. Raises DplcError at the first syntax error."""
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    with _lock:
        lark, build = _parser()
        build.source = source
        try:
            declarations: Nodes = build.transform(lark.parse(text))
            return declarations
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


def calculated(node: Syntax, compute: Callable[..., Any], *operands: Any) -> Any:
    """Return compute(*operands).

    Raises DplcError at the node if compute fails or returns an integer of more than 64 bits.
    """
    try:
        found = compute(*operands)
    except ZeroDivisionError:
        raise DplcError("division by zero", node) from None
    except (TypeError, ArithmeticError, ValueError) as error:
        raise DplcError(str(error), node) from None
    if found.__class__ is int and not -LARGEST_INT <= found < LARGEST_INT:
        raise DplcError("this number is too large: an integer has 64 bits", node)
    return found


def arithmetic(node: Syntax, leaf: Callable[[Any], Any], operate: Callable[[str, Any, Any], Any] = binary) -> Any:
    """Return index arithmetic in canonical form. leaf: reads what is not arithmetic. operate: computes `a op b`."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, SizeOf):
        return node.size
    if isinstance(node, Group) and node.bracket == "(" and len(node.items) == 1:
        return arithmetic(node.items[0], leaf, operate)
    if isinstance(node, Operation) and node.op in OPERATORS:
        a, b = (arithmetic(part, leaf, operate) for part in (node.a, node.b))
        return calculated(node, operate, node.op, a, b)
    if isinstance(node, Prefix):
        return calculated(node, negate if node.op == "-" else invert, arithmetic(node.a, leaf, operate))
    return leaf(node)


def extent(node: Syntax, value: Any, least: int = 0) -> Any:
    """Return an extent after a check: a whole number that memory could hold, or an expression.

    Raises DplcError at the node for any other value.
    """
    if value.__class__ is float or value.__class__ is bool or value is None:
        raise DplcError(f"an extent is a whole number, not {str(value).lower()}", node)
    if value.__class__ is int and not least <= value <= LARGEST_EXTENT:
        raise DplcError(f"an extent is {least} to 2^48, not {value}", node)
    return value
