"""Text to syntax tree. Syntax errors say what was expected, with a caret."""

from __future__ import annotations

import functools
import math
import threading
from dataclasses import replace
from importlib.resources import files
from typing import Any

from lark import Lark, Token, UnexpectedInput, v_args
from lark.exceptions import VisitError
from lark.indenter import DedentError, Indenter

from ..diagnostic import DplcError, Source, Span
from . import syntax as s
from .equations import EquationBuilder
from .syntax_errors import outdented, syntax_error
from .words import words_in

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


@v_args(meta=True)
class _Build(EquationBuilder):
    """Lark calls one method per grammar alternative, bottom-up."""

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

    def parameter(self, meta: Any, c: list[Any]) -> s.Parameter:
        return s.Parameter(self.place(c[0]), str(c[0]), _text(c[1]), c[2], c[3])

    def match(self, meta: Any, c: list[Any]) -> s.Match:
        return s.Match(self.span(meta), c[0])

    def rewrite(self, meta: Any, c: list[Any]) -> s.Rewrite:
        return s.Rewrite(self.span(meta), c[0])

    def let(self, meta: Any, c: list[Any]) -> s.LetClause:
        return s.LetClause(self.place(c[1]), str(c[1]), c[2])

    def pick(self, meta: Any, c: list[Any]) -> s.PickClause:
        return s.PickClause(self.place(c[0]), str(c[0]), c[1])

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

    def without(self, meta: Any, c: list[Any]) -> s.Without:
        return s.Without(self.place(c[0]), str(c[0]), c[1])

    # ---- statements
    def unit(self, meta: Any, c: list[Any]) -> s.Unit:
        arrow = next(i for i, x in enumerate(c) if isinstance(x, Token) and x.type == "ARROW")
        ins, outs = (tuple(x for x in part if x is not None) for part in (c[2:arrow], c[arrow + 1 : -1]))
        return s.Unit(self.place(c[1]), str(c[0]), str(c[1]), ins, outs, c[-1])

    def param(self, meta: Any, c: list[Any]) -> s.ParamItem:
        return s.ParamItem(self.span(meta), str(c[0]), c[1])

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

    def pass_(self, meta: Any, c: list[Any]) -> s.PassStatement:
        return s.PassStatement(self.span(meta))

    def drop(self, meta: Any, c: list[Any]) -> s.DropStatement:
        return s.DropStatement(self.span(meta), c[0])

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

    def capture(self, meta: Any, c: list[Any]) -> s.CaptureStatement:
        return s.CaptureStatement(self.place(c[0]), str(c[0]), c[1], _text(c[2]))

    def for_(self, meta: Any, c: list[Any]) -> s.ForLoop:
        attributes = tuple(x for x in c[4:-1] if x is not None)
        return s.ForLoop(self.place(c[0]), str(c[0]), c[1], c[2], c[3], attributes, c[-1])

    def if_(self, meta: Any, c: list[Any]) -> s.IfBlock:
        return s.IfBlock(c[0].span, c[0], c[1])

    def inside(self, meta: Any, c: list[Any]) -> s.InsideBlock:
        return s.InsideBlock(self.place(c[0]), str(c[0]), c[1])

    def each(self, meta: Any, c: list[Any]) -> s.EachBlock:
        return s.EachBlock(self.place(c[0]), tuple(map(str, c[:-2])), c[-2], c[-1])

    def load(self, meta: Any, c: list[Any]) -> s.LoadOf:
        return s.LoadOf(self.span(meta), c[0], c[1], c[2])

    def arm(self, meta: Any, c: list[Any]) -> s.Arm:
        return s.Arm(self.span(meta), c[0], c[1], _text(c[2]), c[3], c[4])

    def use_rule(self, meta: Any, c: list[Any]) -> s.UseRule:
        return s.UseRule(self.span(meta), c[0])

    def keyword(self, meta: Any, c: list[Any]) -> s.Keyword:
        return s.Keyword(self.span(meta), str(c[0]), c[1])

    def run(self, meta: Any, c: list[Any]) -> s.Run:
        return s.Run(self.span(meta), c[0])

    # ---- items
    def items(self, meta: Any, c: list[Any]) -> tuple[s.Syntax, ...]:
        return tuple(x for x in c if isinstance(x, s.Syntax))

    def role_run(self, meta: Any, c: list[Any]) -> s.Run:
        return s.Run(self.span(meta), c[0].base, str(c[1]))

    def axis(self, meta: Any, c: list[Any]) -> s.AxisItem:
        return s.AxisItem(self.span(meta), str(c[0]), c[1], _text(c[2]), c[3], c[4])

    def substitution(self, meta: Any, c: list[Any]) -> s.Substitution:
        return s.Substitution(self.span(meta), c[0], c[1])

    def range_(self, meta: Any, c: list[Any]) -> s.Between:
        return s.Between(self.span(meta), c[0], c[1])

    # ---- expressions
    def ternary(self, meta: Any, c: list[Any]) -> s.Choice:
        return s.Choice(self.span(meta), c[0], c[1], c[2])

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

    def attribute_of(self, meta: Any, c: list[Any]) -> s.Member:
        return s.Member(self.span(meta), c[0], str(c[1]))

    def call(self, meta: Any, c: list[Any]) -> s.Apply:
        return s.Apply(self.span(meta), str(c[0]), c[1] or ())

    def name(self, meta: Any, c: list[Any]) -> s.NameOf:
        return s.NameOf(self.place(c[0]), str(c[0]))

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
