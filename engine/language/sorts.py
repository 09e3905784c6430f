"""Sorts of rule expressions: what a variable holds, what a fact wants, and whether the one can be the other.

A sort is a kind, a list of that kind, or a captured statement of a known class. The question is always *may it fit*: an
`expr` (`0..K` bound K) may be a number when the rule fires, so it fits where an `int` is wanted; text never does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from itertools import chain, repeat
from typing import NamedTuple

from ...codegen.target import ABILITIES, COMMON, DEVICE_FIELDS
from ...ir import expr as e
from ...ir.diagnostic import DplcError, Located, Span, did_you_mean
from ...ir.dtypes import DTYPES, toml_table
from ...ir.functions import FUNCTIONS
from ...ir.names import sort_word, with_article
from ...ir.node import Field, immutable
from ...ir.text.read_statements import CLOSED, CONSTANTS, owners
from ...ir.text.syntax import (
    Apply,
    AxisItem,
    Between,
    Choice,
    Chosen,
    Comprehension,
    Group,
    LetExpression,
    Member,
    NameOf,
    Number,
    Operation,
    Prefix,
    Run,
    Subscript,
    Substitution,
    Syntax,
    Text,
)
from .evaluate import SORT_OF, SORTS, Fact


class Sort(NamedTuple):
    """Sort of a value: its kind, whether it is a list of them, and the class of a captured statement, if known."""

    kind: str
    many: bool = False
    node: str | None = None

    def __str__(self) -> str:
        name = READABLE.get(self.kind, self.kind)
        if not self.many:
            return name
        return {"stmt": "a run of statements", "any": "a list"}.get(self.kind, f"a list ({name} each)")

    @property
    def one(self) -> Sort:
        return self._replace(many=False)

    @property
    def listed(self) -> Sort:
        return self._replace(many=True)


CLOSED_SORTS = {sort: SORTS["fields"][sort] for sort in CLOSED}
READABLE: dict[str, str] = {kind: one.get("words", kind) for kind, one in SORTS["kinds"].items()}
READABLE |= {kind: with_article(sort_word(sort)) for sort, kind in CLOSED_SORTS.items()}
ANY, INT, NUM, BOOL, NAME = Sort("any"), Sort("int"), Sort("num"), Sort("bool"), Sort("name")
EXPR, AXIS, TEXT, TERM, CONTEXT = Sort("expr"), Sort("axis"), Sort("text"), Sort("term"), Sort("context")
LIST, RUN, AXES, TERMS = Sort("any", True), Sort("stmt", True), Sort("axis", True), Sort("term", True)
NAMED = ("name", "role", "via", "fn", "dtype", "context")  # kinds that only a name can be in a pattern
TARGET, FN, DTYPE = Sort("target"), Sort("fn"), Sort("dtype")
INDEX = Sort("index")  # what a bracket of axes holds: an axis, a number, a value of integers by its name
SPLICE = Sort("splice")  # what `xs..` puts back: statements, one or many
_VALUE_SORTS = {bool: BOOL, int: INT, float: NUM, str: TEXT, e.Var: NAME, tuple: LIST, list: LIST}
_CLOSED = tuple(CLOSED_SORTS.values())
_OPEN = ("int", "num", "bool", "name", "expr", "axis")
_SCALAR = (*_OPEN, *_CLOSED)
PARAMETER_SORTS = {kind: Sort(kind) for kind in (*_OPEN, "text", *_CLOSED, "any")}
PARAMETER_SORTS |= {"set": LIST, "list": LIST}


def fits(have: Sort, want: Sort) -> bool:
    """Return whether a value of one sort is allowed where the other is required."""
    if have.kind == "context" and want == RUN:
        return True
    if want == SPLICE:
        return have.kind in ("stmt", "context", "any")
    if have == ANY or want == ANY or "value" in (have.kind, want.kind):
        return True
    if have.many is not want.many:
        return False
    return "any" in (have.kind, want.kind) or have.kind in (want.kind, *SORTS["kinds"][want.kind].get("may_be", ()))


@functools.cache
def sort_of(text: str) -> Sort:
    """Return a sort as signatures write it: `int`, `[axis]`, `run`; without the `*` or `?` of an argument."""
    text = text.rstrip("*?")
    if text == "run":
        return RUN
    if text.startswith("["):
        inner = sort_of(text[1:-1])
        return ANY if inner.many else inner.listed
    return Sort(text) if text in READABLE else ANY


def field_sort(field: Field) -> Sort:
    """Return the sort of a node's field."""
    return Sort(SORTS["fields"].get(field.sort, "any"), field.many)


def sort_of_value(value: object) -> Sort:
    """Return the sort of a constant."""
    return _VALUE_SORTS.get(value.__class__, ANY)


# The sorts of reserved names; a dtype is a function, too, that casts.
_RESERVED = {name: Sort(CLOSED_SORTS[kind]) for kind, words in reversed(CLOSED.items()) for name in words}
_RESERVED |= {name: sort_of_value(value) for name, value in CONSTANTS.items()}
# The kinds of the names that the language defines (`a function`): no variable has one.
KINDS_OF_WORDS = {name: READABLE[CLOSED_SORTS[kind]] for kind, words in CLOSED.items() for name in words}
KINDS_OF_WORDS |= {**dict.fromkeys(CONSTANTS, "a constant"), "target": "the machine"}


Scope = Mapping[str, Sort]


class Slot(NamedTuple):
    """Slot of a node or of syntax: what it is in words, and its sort where the schema has another.

    makes: a template makes the name there, if it is new. exact: a pattern that does not mention it wants its default.
    """

    words: str
    sort: str = ""
    makes: bool = False
    exact: bool = False


SLOTS: dict[str, dict[str, Slot]] = {
    owner: {name: Slot(**slot) for name, slot in slots.items()}
    for owner, slots in toml_table(__package__, "slots").items()
}


class Finding(DplcError):
    """What is wrong with a rule, a fact or a number. check: the name of the check that found it; rule: of the rule."""

    span: Span
    check = rule = ""

    def of(self, owner: str, check: str = "", rule: str = "") -> Finding:
        """Return the finding as one of its owner, a rule or a fact, which the text names first."""
        found = type(self)(f"{owner}: {self.what}", self, self.hint, self.notes)
        found.check, found.rule = check, rule
        return found


class Advice(Finding):
    """A finding that does not stop a file from loading."""

    severity = "warning"


def word_taken(name: str, at: Located) -> Finding:
    """Return the finding about a variable that has the name of a word of the language."""
    kind = KINDS_OF_WORDS[name]
    return Finding(
        f"`{name}` is {kind}, and no variable",
        at,
        f"choose another name, as `{name}_`",
        (f"wherever a rule says `{name}`, it means the {kind.split()[-1]}",),
    )


class Complaining:
    """What keeps a list of what is wrong."""

    complaints: list[Finding]

    def report(self, what: str, at: Located, hint: str | None = None, notes: Iterable[str] = ()) -> None:
        self.complaints.append(Finding(what, at, hint, notes))


@immutable
class Inference(Complaining):
    """Finder of the sorts of expressions in a scope.

    complaints: what is wrong inside of the expressions so far.
    """

    facts: Mapping[str, Fact]
    scope: Scope
    complaints: list[Finding] = field(default_factory=list)

    def want(self, node: Syntax | None, sort: Sort, place: str) -> Sort:
        """Check the sort of an expression, if there is one, where `sort` is required, and return it."""
        if node is None:
            return sort
        have = self.sort(node)
        sum_as_condition = sort == BOOL != have and isinstance(node, Operation)  # a sum is never true or false
        if sum_as_condition or not fits(have, sort):
            self.report(f"{place} must be {sort}, and this is {have}", node, self._conversion(have, sort))
        return have

    def want_slots(self, node: Syntax, owner: str) -> None:
        """Check the sorts of the slots of an expression."""
        for name, slot in SLOTS[owner].items():
            self.want(getattr(node, name), sort_of(slot.sort), slot.words)

    def _conversion(self, have: Sort, want: Sort) -> str:
        """Return how to get a value of one sort from another: by a fact, if there is one, else how it is written."""
        facts = [
            name
            for name, fact in self.facts.items()
            if have.many and [*map(sort_of, fact.arguments), sort_of(fact.result)] == [have, want]
        ]
        written = (
            "a list, as `[a, b]`"
            if want.many and want != RUN
            else "a comparison, as `a > b`"
            if want == BOOL
            else str(want)
        )
        return f"did you mean `{facts[0]}(..)` of it?" if len(facts) == 1 else f"write {written}"

    def sort(self, node: Syntax) -> Sort:
        """Return the sort of an expression."""
        match node:
            case NameOf():
                return self.scope.get(node.text) or _RESERVED.get(node.text, ANY)
            case Number() | Text():
                return sort_of_value(node.value)
            case AxisItem():
                return AXIS
            case Apply():
                return self._apply(node)
            case Operation(op="and" | "or" as op) | Prefix(op="not" as op):
                self.want_slots(node, op)
                return BOOL
            case Operation():
                return self._operation(node, self.sort(node.a), self.sort(node.b))
            case Prefix():
                return self.want(node.a, EXPR, "what `-` negates")
            case Between():
                self.want_slots(node, "Between")
                return INT.listed
            case Choice():
                self.want_slots(node, "Choice")
                a, b = self.sort(node.a), self.sort(node.b)
                return a if a == b else _arithmetic(a, b) if fits(a, NUM) and fits(b, NUM) else ANY
            case Run():
                have = self.sort(node.base)
                if not fits(have, LIST) and have != CONTEXT:
                    self.report(f"`..` splices a list, not {have}", node, "leave `..` out")
                return have
            case Group(bracket="(", items=(item,)) if not isinstance(item, Run | AxisItem):
                return self.sort(item)
            case Group():
                sorts = {self.sort(item).one for item in node.items}
                return sorts.pop().listed if len(sorts) == 1 else LIST
            case Comprehension():
                _, have = self._each(node, "a comprehension")
                return LIST if have.many else have.listed
            case LetExpression():
                inner = self
                for let in node.lets:
                    inner = replace(inner, scope={**inner.scope, let.name: inner.sort(let.value)})
                return inner.sort(node.value)
            case Chosen(costs=costs):
                chosen, cost = self._each(costs, "`choose`")
                if not fits(cost.one, NUM):
                    self.report(
                        f"what `{node.word}` compares is a number, or a list of them, not {cost}",
                        costs.element,
                        self._conversion(cost, NUM),
                    )
                return chosen
            case Subscript():
                return self._subscript(node)
            case Member():
                return self._member(node, self.sort(node.base))
        return ANY

    def element(self, domain: Syntax | None) -> Sort:
        """Return the sort of the elements of a domain, if there is one."""
        have = self.want(domain, LIST, "a domain")
        return have.one if fits(have, LIST) else ANY

    def _each(self, node: Comprehension, what: str) -> tuple[Sort, Sort]:
        """Return the sorts of the variable and of the value of a comprehension."""
        variable = self.element(node.domain)
        inner = replace(self, scope={**self.scope, node.variable: variable})
        inner.want(node.condition, BOOL, f"the condition of {what}")
        return variable, inner.sort(node.element)

    def _operation(self, node: Operation, a: Sort, b: Sort) -> Sort:
        if node.op in ("in", "not in"):
            if not fits(b, LIST) and b.kind not in ("record", "context"):
                self.report(f"the right of `{node.op}` is a list, not {b}", node.b)
            return BOOL
        sides = ((node.a, a, b), (node.b, b, a))
        if node.op in ("==", "!="):
            if not any(
                fits(have, other)  # or a dtype beside a dtype: otherwise `f32` is a function, a cast
                or (other.kind == "dtype" and isinstance(side, NameOf) and side.text in DTYPES)
                for side, have, other in sides
            ):
                self.report(f"{a} is compared with {b}: never equal", node, "compare values of one sort")
            return BOOL
        if a.many and b.many and node.op in ("+", "-"):
            return a if a.kind == b.kind else LIST
        for side, have, _ in sides:
            if have.kind in ("dtype", "fn", "role", "via") or (not fits(have, NUM) and not fits(have, EXPR)):
                self.report(
                    f"`{node.op}` works on numbers and index expressions, not on {have}",
                    side,
                    "compare lengths, as `size(xs) > 2`" if have.many else "compare it by `==`",
                )
        return BOOL if node.op in e.COMPARISONS else _arithmetic(a, b)

    def _apply(self, node: Apply) -> Sort:
        fact = self.facts.get(node.fn)
        wanted: Iterable[str] = repeat("any")
        if fact is not None and not any(isinstance(item, Run) for item in node.items):
            wanted = chain(fact.arguments, repeat(fact.arguments[-1] if fact.most is None else "any"))
        for n, (item, sort) in enumerate(zip(node.items, wanted), 1):
            self.want(item, sort_of(sort), f"argument {n} of `{node.fn}`")
        if fact is not None:
            return sort_of(fact.result)
        return EXPR if node.fn in FUNCTIONS or node.fn in self.scope else ANY

    def _subscript(self, node: Subscript) -> Sort:
        base = self.sort(node.base)
        if any(isinstance(item, Substitution | Run) for item in node.items):
            for item in node.items:
                if isinstance(item, Substitution):
                    self.sort(item.right)
            return base
        if len(node.items) == 1 and base.many:
            self.want(node.items[0], INT, "the index of a list")
            return base.one
        if not base.many and base.kind in ("int", "num", "bool", "text"):
            self.report(f"`[..]` reads a list or substitutes, not {base}", node, "leave the brackets out")
        return ANY

    def _member(self, node: Member, base: Sort) -> Sort:
        if base.many or base.kind in ("int", "num", "bool", "text", "context"):
            self.report(
                f"`.{node.field}` is read from one statement, axis or record, not from {base}",
                node,
                f"read it from each: `[x.{node.field} for x in xs]`" if base.many else "leave it out",
            )
            return ANY
        owner, known = "a target", TARGET_FIELDS
        if base != TARGET:
            cls = e.Axis if base.kind == "axis" else owners().get(base.node or "")
            if cls is None:
                return ANY
            owner, known = f"`{cls.__name__}`", {f.name: field_sort(f) for f in cls.fields}
        if node.field not in known:
            self.report(f"{owner} has no field `{node.field}`", node, did_you_mean(node.field, known))
        return known.get(node.field, ANY)


def _arithmetic(a: Sort, b: Sort) -> Sort:
    kinds = {a.kind, b.kind}
    return INT if kinds == {"int"} else NUM if kinds <= {"int", "num"} else EXPR if kinds.issubset(_SCALAR) else ANY


TARGET_FIELDS: dict[str, Sort] = {
    **{f.name: sort_of(SORT_OF[str(f.type)]) for f in DEVICE_FIELDS},
    **dict.fromkeys(COMMON, INT),
    **dict.fromkeys(ABILITIES, BOOL),
    "atoms": sort_of("[record]"),
}
