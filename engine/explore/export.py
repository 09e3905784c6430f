"""Rules on tensor as egglog text.

A rule is an equation between values, so its pattern becomes a query, its template a union, and guards that are true of
every spelling of a value (axes, extents, dtypes, known when loaded) hold inside the e-graph. What is true of one kernel
only cannot: such a rule is refused with its place, and still works where rules are run as rewrites.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.functions import ARITHMETIC, BITS, CAST, COMPARE, FLOAT, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.monoid_texts import PARTS
from ..language import core as c
from ..language.rule import Rule
from ..rewrite.terms.terms import mentions_mat
from .dtypes import Dtypes
from .guards import Guards

Local = dict[str, tuple[str, Any]]  # the values that a template has defined: text and dtype
HINT = "the rule still works where it is run as a rewrite"
MOST_OPERANDS = 3


@dataclass(frozen=True)
class RuleTexts:
    """Rules as egglog text, by name.

    needs: what a rule's pattern cannot do without: functions, numbers, parts of tuples, `Map`, `Case`, and `packed` for
    weights side by side. makes: the same of its template. constants: numbers that it compares extents with.
    """

    text: dict[str, str] = field(default_factory=dict)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    makes: dict[str, frozenset[str]] = field(default_factory=dict)
    constants: dict[str, frozenset[int]] = field(default_factory=dict)
    refused: tuple[DplcError, ...] = ()


def export(rules: Iterable[Rule]) -> RuleTexts:
    """The algebra among some rules, exported."""
    text: dict[str, str] = {}
    needs, makes, constants, refused = {}, {}, {}, []
    for rule in rules:
        if rule.level != "tensor" or mentions_mat(rule):
            continue
        try:
            writer = RuleText(rule)
            text[rule.name] = writer.write()
            needs[rule.name], makes[rule.name] = frozenset(writer.needs), frozenset(writer.makes)
            constants[rule.name] = frozenset(writer.constants)
        except DplcError as error:
            refused.append(error)
    return RuleTexts(text, needs, makes, constants, tuple(refused))


def number_text(value: Any) -> str:
    """A number as it stands in the e-graph: equal numbers are one text, truth values are none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if float(value) == value or value != value else str(value)


class RuleText:
    """Writes one rule. needs, makes, constants: as in `RuleTexts`."""

    def __init__(self, rule: Rule):
        self.rule = rule
        self.defined = rule.left
        self.query: list[str] = []
        self.kinds: dict[str, str] = {}  # variable -> term, axis, axes, fn, map, cond
        self.dtypes = Dtypes()
        self.needs: dict[str, None] = {}
        self.makes: dict[str, None] = {}
        self.constants: set[int] = set()
        self.functions: dict[str, tuple[Any, ...]] = {}  # function variable -> dtypes of its operands and result
        self.count = 0

    def write(self) -> str:
        root = list(self.defined)[-1]
        self.bind(root, "term", self.rule)
        text, kind = self.pattern(self.defined[root])
        self.query.append(f"(= {variable(root)} {text})")
        self.dtypes.of_variable(root, kind)
        guards = Guards(self).write()
        actions, value, made = self.template()
        self.dtypes.require(made, kind)
        query = " ".join((*self.query, *guards, *self.dtypes.guards()))
        return (
            f"(rule ({query}) ({' '.join((*actions, f'(union {variable(root)} {value})'))}) "
            f':ruleset rule_{self.rule.name} :name "{self.rule.name}")'
        )

    # ---- what both sides share
    def refuse(self, what: str, node: Any) -> DplcError:
        return DplcError(f"rule `{self.rule.name}`: {what} has no form in an e-graph", node.span, (), HINT)

    def bind(self, name: str, kind: str, node: Any) -> None:
        """A variable of the pattern."""
        if self.kinds.setdefault(name, kind) != kind:
            raise self.refuse(f"`{name}`, which is {self.kinds[name]} here and {kind} there,", node)

    def fresh(self) -> str:
        self.count += 1
        return f"w{self.count}"

    # ---- the pattern
    def pattern(self, term: c.ValueTerm) -> tuple[str, Any]:
        """The query of a value, and its dtype."""
        match term:
            case c.NumberTerm():
                name = self.fresh()
                self.needs[number_text(term.value)] = None
                return f'(Num "{number_text(term.value)}" {name})', self.dtypes.of_number(name)
            case c.NameTerm():
                return self.name(term)
            case c.MappedTerm():
                self.bind(term.map, "map", term)
                self.needs["Map"] = None
                text, kind = self.pattern(term.x)
                return f"(Map {variable(term.map)} {text})", kind
            case c.ReadTerm():
                raise self.refuse("an index map with a form of its own", term)
            case c.ReduceTerm():
                fn, axes = self.folded(term)
                text, kind = self.pattern(term.x)
                return f"(Red {fn} {axes} {text})", self.dtypes.reduced(kind)
            case c.FoldTerm():
                return self.tuple_fold(term)
            case c.CaseTerm(condition=c.NameOf(text=condition)):
                self.bind(condition, "cond", term)
                self.needs["Case"] = None
                a, b = self.pattern(term.a), self.pattern(term.b)
                return f"(Case {variable(condition)} {a[0]} {b[0]})", self.dtypes.same(a[1], b[1])
            case c.FunctionTerm():
                return self.function(term)
        raise self.refuse(f"`{getattr(term.node, 'fn', 'this')}` in a pattern", term)

    def name(self, term: c.NameTerm) -> tuple[str, Any]:
        name = term.name
        if name == "_":
            return self.fresh(), self.dtypes.fresh()
        known = name in self.kinds
        self.bind(name, "term", term)
        if not known and name in self.defined:
            text, kind = self.pattern(self.defined[name])
            self.query.append(f"(= {variable(name)} {text})")
            self.dtypes.of_variable(name, kind)
        return variable(name), self.dtypes.of_variable(name)

    def tuple_fold(self, term: c.FoldTerm) -> tuple[str, Any]:
        """One part of a reduction over a tuple."""
        if term.part not in PARTS:
            raise self.refuse("a Fold of any part", term)
        self.needs[term.part] = None
        axes = self.axes(term)
        parts = [self.pattern(operand) for operand in term.operands]
        kind = parts[0][1]
        for _, other in parts[1:]:
            kind = self.dtypes.same(kind, other)
        return f'(F{len(parts)} "{term.part}" {axes} {joined(parts)})', self.dtypes.reduced(kind)

    def folded(self, term: c.ReduceTerm) -> tuple[str, str]:
        """The function and the axes of a Reduce."""
        axes = self.axes(term)
        if term.fn in FUNCTIONS:
            self.needs[term.fn] = None
            return f'"{term.fn}"', axes
        self.bind(term.fn, "fn", term)
        return variable(term.fn), axes

    def axes(self, term: c.ReduceTerm | c.FoldTerm) -> str:
        """The axes that a reduction folds: `k` is one axis, `ks..` all of them."""
        axis = self.one_axis(term)
        if isinstance(axis, c.RunTerm):
            self.bind(axis.name, "axes", term)
        else:
            if axis.name not in self.kinds:
                self.query.append(f"(single {variable(axis.name)})")
            self.bind(axis.name, "axis", term)
        return variable(axis.name)

    def one_axis(self, term: c.ReduceTerm | c.FoldTerm) -> c.AxisTerm | c.RunTerm:
        if len(term.over) != 1 or (isinstance(term.over[0], c.AxisTerm) and term.over[0].extent is not None):
            raise self.refuse("a reduction over a list of axes, or one of this extent,", term)
        return term.over[0]

    def function(self, term: c.FunctionTerm) -> tuple[str, Any]:
        if term.runs or not 0 < len(term.operands) <= MOST_OPERANDS:
            raise self.refuse("a list of operands", term)
        parts = [self.pattern(operand) for operand in term.operands]
        if term.known:
            self.needs[term.fn] = None
            head, kind = f'"{term.fn}"', self.typed(term.fn, [kind for _, kind in parts], self.dtypes.same)
        else:
            self.bind(term.fn, "fn", term)
            head, kind = variable(term.fn), self.dtypes.fresh()
            self.functions[term.fn] = (*(kind for _, kind in parts), kind)
        return f"(E{len(parts)} {head} {joined(parts)})", kind

    def typed(self, fn: str, kinds: list[Any], agree: Any) -> Any:
        """The dtype of a function's result; `agree` makes two dtypes one."""
        kind = FUNCTIONS[fn].kind
        if kind == CAST:
            return self.dtypes.fixed(HELD.get(fn, fn))
        if kind == LOGICAL:
            for each in kinds:
                agree(each, self.dtypes.fixed("b8"))
            return self.dtypes.fixed("b8")
        chosen = kinds[1:] if kind == SELECT else kinds
        for other in chosen[1:]:
            agree(chosen[0], other)
        assert kind in (ARITHMETIC, BITS, FLOAT, COMPARE, SELECT)
        if kind == FLOAT:
            says = self.dtypes.floating if agree == self.dtypes.same else self.dtypes.must_float
            says(chosen[0])
        return self.dtypes.fixed("b8") if kind == COMPARE else chosen[0]

    # ---- the template
    def template(self) -> tuple[list[str], str, Any]:
        """Actions that name the values of the template, the text of its root, and the root's dtype."""
        actions: list[str] = []
        local: Local = {}
        *before, (_, root) = self.rule.right.items()
        wanted = self.dtypes.of_variable(list(self.defined)[-1])
        for name, term in before:
            text, kind = self.build(term, local, wanted)
            actions.append(f"(let t_{name} {text})")
            local[name] = f"t_{name}", kind
        return (actions, *self.build(root, local, wanted))

    def build(self, term: c.ValueTerm, local: Local, wanted: Any) -> tuple[str, Any]:
        match term:
            case c.NumberTerm():
                if isinstance(term.value, float) and not term.value.is_integer():
                    self.dtypes.must_float(wanted)
                self.makes[number_text(term.value)] = None
                return f'(Num "{number_text(term.value)}" {self.dtypes.in_template(wanted)})', wanted
            case c.NameTerm():
                if term.name in local:
                    return local[term.name]
                if self.kinds.get(term.name) != "term":
                    raise self.refuse(f"`{term.name}`, which no pattern binds to a value,", term)
                return variable(term.name), self.dtypes.of_variable(term.name)
            case c.MappedTerm() if self.kinds.get(term.map) == "map":
                text, kind = self.build(term.x, local, wanted)
                self.makes["Map"] = None
                return f"(Map {variable(term.map)} {text})", kind
            case c.MappedTerm() | c.ReadTerm():
                raise self.refuse("an index map that no pattern binds", term)
            case c.ReduceTerm():
                axis = self.one_axis(term)
                if term.fn in FUNCTIONS:
                    self.makes[term.fn] = None
                text, kind = self.build(term.x, local, wanted)
                head = f'"{term.fn}"' if term.fn in FUNCTIONS else variable(term.fn)
                return f"(Red {head} {variable(axis.name)} {text})", self.dtypes.reduced(kind)
            case c.FoldTerm():
                return self.made_fold(term, local, wanted)
            case c.CaseTerm(condition=c.NameOf(text=condition)):
                a, b = (self.build(side, local, wanted) for side in (term.a, term.b))
                self.dtypes.require(a[1], b[1])
                self.makes["Case"] = None
                return f"(Case {variable(condition)} {a[0]} {b[0]})", a[1]
            case c.FunctionTerm() if not term.runs and (term.known or self.kinds.get(term.fn) == "fn"):
                return self.made(term, local, wanted)
        raise self.refuse(f"`{getattr(term.node, 'fn', 'this')}` in a template", term)

    def made(self, term: c.FunctionTerm, local: Local, wanted: Any) -> tuple[str, Any]:
        parts = self.operands(term.operands, local, wanted)
        kinds = [kind for _, kind in parts]
        if term.known:
            self.makes[term.fn] = None
            kind = self.typed(term.fn, kinds, self.dtypes.require)
            head = f'"{term.fn}"'
        else:
            *expected, kind = self.functions.get(term.fn, (None,) * (len(parts) + 1))
            if len(expected) != len(parts) or None in expected:
                raise self.refuse(f"`{term.fn}` of other operands than in the pattern", term)
            for have, want in zip(kinds, expected, strict=True):
                self.dtypes.require(have, want)
            head = variable(term.fn)
        return f"(E{len(parts)} {head} {joined(parts)})", kind

    def made_fold(self, term: c.FoldTerm, local: Local, wanted: Any) -> tuple[str, Any]:
        axis = self.one_axis(term)
        if term.part not in PARTS:
            raise self.refuse("a Fold of any part", term)
        self.makes[term.part] = None
        parts = self.operands(term.operands, local, wanted)
        for _, kind in parts[1:]:
            self.dtypes.require(parts[0][1], kind)
        text = f'(F{len(parts)} "{term.part}" {variable(axis.name)} {joined(parts)})'
        return text, self.dtypes.reduced(parts[0][1])

    def operands(self, items: tuple[c.ValueTerm, ...], local: Local, wanted: Any) -> list[tuple[str, Any]]:
        """The operands of a function; numbers take the dtype of what they meet."""
        built: dict[int, tuple[str, Any]] = {}
        places = sorted(range(len(items)), key=lambda place: isinstance(items[place], c.NumberTerm))
        meets = wanted
        for place in places:
            built[place] = self.build(items[place], local, meets)
            meets = built[places[0]][1]
        return [built[place] for place in range(len(items))]


def joined(parts: list[tuple[str, Any]]) -> str:
    """The texts of operands."""
    return " ".join(text for text, _ in parts)


def variable(name: str) -> str:
    """A variable of a rule as a variable of egglog."""
    return f"v_{name}"
