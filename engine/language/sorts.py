"""Sorts of rule expressions: what a variable holds, what a fact wants, and whether the one can be the other.

A sort is a kind, a list of that kind, or a captured statement of a known class. The question is always *may it fit*: an
`expr` (`0..K` bound K) may be a number when the rule fires, so it fits where an `int` is wanted; text never does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...codegen.target import ABILITIES, COMMON, DEVICE_FIELDS
from ...ir import expr as e
from ...ir.diagnostic import did_you_mean
from ...ir.dtypes import DTYPES
from ...ir.functions import FUNCTIONS
from ...ir.names import sort_word, with_article
from ...ir.text import syntax as s
from ...ir.text.read_statements import CLOSED, CONSTANTS, owners
from .evaluate import Fact


class Sort(NamedTuple):
    """Sort of a value: its kind, whether it is a list of them, and the class of a captured statement, if known."""

    kind: str
    many: bool = False
    node: str | None = None

    def __str__(self) -> str:
        name = READABLE.get(self.kind, self.kind)
        if self.kind == "stmt" and self.many:
            return "a run of statements"
        return f"a list ({name} each)" if self.many and self.kind != "any" else "a list" if self.many else name

    @property
    def one(self) -> Sort:
        return Sort(self.kind, False, self.node)


CLOSED_SORTS = {"Role": "role", "Via": "via", "Fn": "fn", "MonoidName": "monoid", "AtomName": "atom", "Dtype": "dtype"}
READABLE = {
    "int": "an integer", "num": "a number", "bool": "true or false", "name": "a name", "expr": "an expression",
    "text": "a text", "axis": "an axis", "stmt": "a statement", "record": "a record", "term": "a tensor value",
    "context": "a context", **{kind: with_article(sort_word(sort)) for sort, kind in CLOSED_SORTS.items()},
    "any": "anything", "value": "a value", "splice": "statements",
    "target": "the target", "index": "an axis or a number",
}  # fmt: skip
ANY, INT, NUM, BOOL, NAME = Sort("any"), Sort("int"), Sort("num"), Sort("bool"), Sort("name")
EXPR, AXIS, TEXT, TERM, CONTEXT = Sort("expr"), Sort("axis"), Sort("text"), Sort("term"), Sort("context")
LIST, RUN, AXES, RECORD = Sort("any", True), Sort("stmt", True), Sort("axis", True), Sort("record")
NAMED = ("name", "role", "via", "fn", "dtype", "context")  # kinds that only a name can be in a pattern
TARGET = Sort("target")
INDEX = Sort("index")  # what a bracket of axes holds: an axis, a number, a value of integers by its name
SPLICE = Sort("splice")  # what `xs..` puts back: statements, one or many
FIELD_SORTS = {"Over": "expr", "Block": "stmt"} | {
    sort: sort.lower() for sort in ("Name", "Expr", "Int", "Num", "Axis", "Value")
}
_VALUE_SORTS = {bool: BOOL, int: INT, float: NUM, str: TEXT, e.Var: NAME}
_CLOSED = tuple(CLOSED_SORTS.values())
_SORT_NAMES = ("int", "num", "bool", "name", "expr", "axis", "text", *_CLOSED, "any")
PARAMETER_SORTS = {kind: Sort(kind) for kind in _SORT_NAMES} | {"set": LIST, "list": LIST}

_SCALAR = frozenset(("int", "num", "bool", "name", "expr", "axis", *_CLOSED))
# What is wanted -> what may be it. `any` and `value` (an attribute of torch: number, text, list, none) fit everywhere.
_MAY_BE: dict[str, frozenset[str]] = {
    "int": frozenset(("int", "expr")),
    "num": frozenset(("int", "num", "expr")),
    "bool": frozenset(("bool", "expr")),
    "name": frozenset(("name", "expr", "axis", *_CLOSED, "term")),
    "expr": _SCALAR | {"term"},
    "axis": frozenset(("axis", "name", "expr")),
    "stmt": frozenset(("stmt", "context")),
    "record": frozenset(("record", "context", "stmt")),
    "term": frozenset(("term", "int", "num", "bool", "name", "expr")),
    "index": frozenset(("axis", "name", "expr", "int")),
    **{kind: frozenset((kind, "name", "expr")) for kind in _CLOSED},
    **{kind: frozenset((kind,)) for kind in ("text", "context", "target")},
}


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
    return "any" in (have.kind, want.kind) or have.kind in _MAY_BE[want.kind]


@functools.cache
def sort_of(text: str) -> Sort:
    """Return a sort as signatures write it: `int`, `[axis]`, `run`; without the `*` or `?` of an argument."""
    text = text.rstrip("*?")
    if text == "run":
        return RUN
    if text.startswith("["):
        inner = sort_of(text[1:-1])
        return ANY if inner.many else Sort(inner.kind, True)
    return Sort(text) if text in READABLE else ANY


def field_sort(sort: str, many: bool) -> Sort:
    """Return the sort of a node's field."""
    return Sort(CLOSED_SORTS.get(sort) or FIELD_SORTS.get(sort, "any"), many)


def sort_of_value(value: Any) -> Sort:
    """Return the sort of a constant."""
    if isinstance(value, tuple | list):
        return LIST
    return _VALUE_SORTS.get(value.__class__, ANY)


def constant_sort(name: str) -> Sort | None:
    """Return the sort of a reserved name, None for a variable."""
    if name in CONSTANTS:
        return BOOL if name in ("true", "false") else NUM if name in ("inf", "nan") else ANY
    return next((Sort(CLOSED_SORTS[kind]) for kind, names in CLOSED.items() if name in names), None)


def kind_of_word(name: str) -> str | None:
    """Return the kind of a name that the language defines (`a function`), or None for a name free for variables."""
    if name in CONSTANTS or name == "target":
        return "a constant" if name in CONSTANTS else "the machine"
    kinds = reversed(CLOSED.items())  # dtypes first: they are functions, too, that cast
    return next((READABLE[CLOSED_SORTS[kind]] for kind, words in kinds if name in words), None)


def told_of_a_word(name: str, kind: str) -> tuple[str, str, str]:
    """Return the message, note and hint for a variable that has the name of a word of the language."""
    note = f"wherever a rule says `{name}`, it means the {kind.split()[-1]}"
    return f"`{name}` is {kind}, and no variable", note, f"choose another name, as `{name}_`"


def _names_a_dtype(node: s.Syntax, other: Sort) -> bool:
    """Return whether a name is a dtype because the other side is a dtype: otherwise `f32` is a function, a cast."""
    return other.kind == "dtype" and isinstance(node, s.NameOf) and node.text in DTYPES


Scope = Mapping[str, Sort]
Report = Callable[..., None]  # what is wrong, where, a hint or nothing


class Inference:
    """Finder of the sort of an expression in an environment of sorts. It reports every clash inside once."""

    def __init__(self, facts: Mapping[str, Fact], report: Report):
        self.facts, self.report = facts, report

    def want(self, node: s.Syntax, sort: Sort, env: Scope, place: str) -> Sort:
        """Check the sort of an expression where `sort` is required, and return it."""
        have = self.sort(node, env)
        if not fits(have, sort):
            self.report(f"{place} is {sort}, not {have}", node)
        return have

    def sort(self, node: s.Syntax, env: Scope) -> Sort:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            return method(node, env)  # type: ignore[no-any-return]
        match node:
            case s.NameOf():
                return env.get(node.text) or constant_sort(node.text) or ANY
            case s.Number():
                return INT if isinstance(node.value, int) else NUM
            case s.Text():
                return TEXT
            case s.AxisItem():
                return AXIS
            case s.Prefix(op="not"):
                self.want(node.a, BOOL, env, "what `not` denies")
                return BOOL
            case s.Prefix():
                return self.want(node.a, EXPR, env, "what `-` negates")
            case s.Between():
                self.want(node.a, INT, env, "the start of a range")
                self.want(node.b, INT, env, "the end of a range")
                return Sort("int", True)
            case s.Run():
                have = self.sort(node.base, env)
                if not fits(have, LIST) and have != CONTEXT:
                    self.report(f"`..` splices a list, not {have}", node)
                return have
        return ANY

    # ---- operators
    def _operation(self, node: s.Operation, env: Scope) -> Sort:
        if node.op in ("and", "or"):
            self.want(node.a, BOOL, env, f"the left of `{node.op}`")
            self.want(node.b, BOOL, env, f"the right of `{node.op}`")
            return BOOL
        a, b = self.sort(node.a, env), self.sort(node.b, env)
        if node.op in ("in", "not in"):
            if not fits(b, LIST) and b.kind not in ("record", "context"):
                self.report(f"the right of `{node.op}` is a list, not {b}", node.b)
            return BOOL
        if node.op in ("==", "!="):
            if not (fits(a, b) or fits(b, a) or _names_a_dtype(node.a, b) or _names_a_dtype(node.b, a)):
                self.report(f"{a} is compared with {b}: never equal", node)
            return BOOL
        if a.many and b.many and node.op in ("+", "-"):
            return a if a.kind == b.kind else LIST
        for operand, have in ((node.a, a), (node.b, b)):
            if have.kind in ("dtype", "fn", "role", "via") or (not fits(have, NUM) and not fits(have, EXPR)):
                self.report(f"`{node.op}` works on numbers and index expressions, not on {have}", operand)
        return BOOL if node.op in e.COMPARISONS else _arithmetic(a, b)

    def _choice(self, node: s.Choice, env: Scope) -> Sort:
        self.want(node.condition, BOOL, env, "the condition of `if`")
        a, b = self.sort(node.a, env), self.sort(node.b, env)
        return a if a == b else _arithmetic(a, b) if fits(a, NUM) and fits(b, NUM) else ANY

    # ---- collections
    def _group(self, node: s.Group, env: Scope) -> Sort:
        if node.bracket == "(" and len(node.items) == 1 and not isinstance(node.items[0], (s.Run, s.AxisItem)):
            return self.sort(node.items[0], env)
        found = {self.sort(item, env).one for item in node.items}
        if not found:
            return LIST
        first = found.pop()
        return Sort(first.kind, True, first.node) if not found else LIST

    def _comprehension(self, node: s.Comprehension, env: Scope) -> Sort:
        inner = {**env, node.variable: self.element(node.domain, env)}
        if node.condition is not None:
            self.want(node.condition, BOOL, inner, "the condition of a comprehension")
        have = self.sort(node.element, inner)
        return LIST if have.many else Sort(have.kind, True, have.node)

    def _chosen(self, node: s.Chosen, env: Scope) -> Sort:
        costs, word = node.costs, "maximising" if node.most else "minimising"
        chosen = self.element(costs.domain, env)
        inner = {**env, costs.variable: chosen}
        if costs.condition is not None:
            self.want(costs.condition, BOOL, inner, "the condition of `choose`")
        have = self.sort(costs.element, inner)
        if not fits(have.one, NUM):
            self.report(f"what `{word}` compares is a number, or a list of them, not {have}", costs.element)
        return chosen

    def element(self, domain: s.Syntax, env: Scope) -> Sort:
        """Return the sort of the elements of a domain."""
        have = self.sort(domain, env)
        if not fits(have, LIST):
            self.report(f"a domain is a list, not {have}", domain)
            return ANY
        return have.one

    # ---- calls, brackets and members
    def _apply(self, node: s.Apply, env: Scope) -> Sort:
        have = [self.sort(item, env) for item in node.items]
        known = self.facts.get(node.fn)
        if known is None:
            return EXPR if node.fn in FUNCTIONS or node.fn in env else ANY
        if not any(isinstance(item, s.Run) for item in node.items):
            for n, (item, sort) in enumerate(zip(node.items, have, strict=True)):
                wanted = _argument(known, n)
                if wanted is not None and not fits(sort, wanted):
                    self.report(f"argument {n + 1} of `{node.fn}` is {wanted}, not {sort}", item)
        return sort_of(known.result)

    def _subscript(self, node: s.Subscript, env: Scope) -> Sort:
        base = self.sort(node.base, env)
        if any(isinstance(item, (s.Substitution, s.Run)) for item in node.items):
            for item in node.items:
                if isinstance(item, s.Substitution):
                    self.sort(item.right, env)
            return base
        if len(node.items) == 1 and base.many:
            self.want(node.items[0], INT, env, "the index of a list")
            return base.one
        if not fits(base, LIST) and base.kind in ("int", "num", "bool", "text"):
            self.report(f"`[..]` reads a list or substitutes, not {base}", node)
        return ANY

    def _member(self, node: s.Member, env: Scope) -> Sort:
        base = self.sort(node.base, env)
        if base == TARGET:
            return self._field(node, "a target", TARGET_FIELDS)
        if base.many or base.kind in ("int", "num", "bool", "text", "context"):
            self.report(f"`.{node.field}` is read from one statement, axis or record, not from {base}", node)
            return ANY
        owner = (
            e.Axis if base.kind == "axis" else owners().get(base.node) if base.kind == "stmt" and base.node else None
        )
        if owner is None:
            return ANY
        return self._field(node, f"`{owner.__name__}`", {f.name: field_sort(f.sort, f.many) for f in owner.fields})

    def _field(self, node: s.Member, owner: str, known: Scope) -> Sort:
        if node.field not in known:
            self.report(f"{owner} has no field `{node.field}`", node, did_you_mean(node.field, known))
        return known.get(node.field, ANY)


def _arithmetic(a: Sort, b: Sort) -> Sort:
    kinds = {a.kind, b.kind}
    return INT if kinds == {"int"} else NUM if kinds <= {"int", "num"} else EXPR if kinds <= _SCALAR else ANY


def _argument(fact: Fact, n: int) -> Sort | None:
    """Return the sort of argument n; the last one repeats if it is marked `*`."""
    if n < len(fact.arguments):
        return sort_of(fact.arguments[n])
    return sort_of(fact.arguments[-1]) if fact.most is None else None


TARGET_FIELDS: dict[str, Sort] = {
    **{f.name: {"int": INT, "float": NUM, "str": TEXT}[str(f.type)] for f in DEVICE_FIELDS},
    **dict.fromkeys(COMMON, INT),
    **dict.fromkeys(ABILITIES, BOOL),
}
