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
from ...ir.functions import ARITHMETIC, CAST, COMPARE, FLOAT, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.monoid_texts import PARTS
from ...ir.text import syntax as s
from ..language.rule import Rule
from ..rewrite.terms.pattern import constant_of, definitions, fold_part
from ..rewrite.terms.terms import mentions_mat
from .dtypes import Dtypes
from .guards import Guards

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
        self.defined = definitions(rule, rule.match)
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
        self.bind(root, "term", None)
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
    def refuse(self, what: str, node: s.Syntax) -> DplcError:
        return DplcError(f"rule `{self.rule.name}`: {what} has no form in an e-graph", node.span, (), HINT)

    def bind(self, name: str, kind: str, node: s.Syntax | None) -> None:
        """A variable of the pattern."""
        if self.kinds.setdefault(name, kind) != kind:
            assert node is not None
            raise self.refuse(f"`{name}`, which is {self.kinds[name]} here and {kind} there,", node)

    def fresh(self) -> str:
        self.count += 1
        return f"w{self.count}"

    # ---- the pattern
    def pattern(self, node: s.Syntax) -> tuple[str, Any]:
        """The query of a value, and its dtype."""
        value = constant_of(node)
        if value is not None:
            name = self.fresh()
            self.needs[number_text(value)] = None
            return f'(Num "{number_text(value)}" {name})', self.dtypes.of_number(name)
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.pattern(node.items[0])
        if isinstance(node, s.NameOf):
            return self.name(node)
        if isinstance(node, s.Subscript):
            return self.reading(node)
        if isinstance(node, s.Apply):
            return self.operation(node)
        raise self.refuse("this", node)

    def name(self, node: s.NameOf) -> tuple[str, Any]:
        if node.text == "_":
            name = self.fresh()
            return name, self.dtypes.fresh()
        known = node.text in self.kinds
        self.bind(node.text, "term", node)
        if not known and node.text in self.defined:
            text, kind = self.pattern(self.defined[node.text])
            self.query.append(f"(= {variable(node.text)} {text})")
            self.dtypes.of_variable(node.text, kind)
        return variable(node.text), self.dtypes.of_variable(node.text)

    def reading(self, node: s.Subscript) -> tuple[str, Any]:
        if len(node.items) != 1 or not isinstance(node.items[0], s.Run) or not isinstance(node.items[0].base, s.NameOf):
            raise self.refuse("an index map with a form of its own", node)
        name = node.items[0].base.text
        self.bind(name, "map", node)
        self.needs["Map"] = None
        text, kind = self.pattern(node.base)
        return f"(Map {variable(name)} {text})", kind

    def operation(self, node: s.Apply) -> tuple[str, Any]:
        if node.fn == "Reduce":
            fn, axes = self.folded(node)
            text, kind = self.pattern(node.items[-1])
            return f"(Red {fn} {axes} {text})", self.dtypes.reduced(kind)
        if node.fn == "Fold":
            return self.tuple_fold(node)
        if node.fn == "Case" and len(node.items) == 3 and isinstance(node.items[0], s.NameOf):
            self.bind(node.items[0].text, "cond", node)
            self.needs["Case"] = None
            a, b = self.pattern(node.items[1]), self.pattern(node.items[2])
            return f"(Case {variable(node.items[0].text)} {a[0]} {b[0]})", self.dtypes.same(a[1], b[1])
        if node.fn in FUNCTIONS or not node.fn[:1].isupper():
            return self.function(node)
        raise self.refuse(f"`{node.fn}` in a pattern", node)

    def tuple_fold(self, node: s.Apply) -> tuple[str, Any]:
        """One part of a reduction over a tuple."""
        part, given = fold_part(node), node.items[-1]
        if part not in PARTS or not isinstance(given, s.Group):
            raise self.refuse("a Fold of any part", node)
        self.needs[part] = None
        axes = self.axes(node)
        parts = [self.pattern(item) for item in given.items]
        kind = parts[0][1]
        for _, other in parts[1:]:
            kind = self.dtypes.same(kind, other)
        return f'(F{len(parts)} "{part}" {axes} {" ".join(text for text, _ in parts)})', self.dtypes.reduced(kind)

    def folded(self, node: s.Apply) -> tuple[str, str]:
        """The function and the axes of a Reduce."""
        fn = node.items[0]
        if not isinstance(fn, s.NameOf):
            raise self.refuse("a Reduce over a list of axes", node)
        axes = self.axes(node)
        if fn.text in FUNCTIONS:
            self.needs[fn.text] = None
            return f'"{fn.text}"', axes
        self.bind(fn.text, "fn", node)
        return variable(fn.text), axes

    def axes(self, node: s.Apply) -> str:
        """The axes that a reduction folds: `k` is one axis, `ks..` all of them."""
        over = node.items[1:-1]
        if len(over) != 1:
            raise self.refuse("a Reduce over a list of axes", node)
        axis = over[0]
        if isinstance(axis, s.Run) and isinstance(axis.base, s.NameOf):
            name = axis.base.text
            self.bind(name, "axes", node)
        elif isinstance(axis, s.NameOf):
            name = axis.text
            if name not in self.kinds:
                self.query.append(f"(single {variable(name)})")
            self.bind(name, "axis", node)
        else:
            raise self.refuse("a Reduce over a list of axes", node)
        return variable(name)

    def function(self, node: s.Apply) -> tuple[str, Any]:
        if any(isinstance(item, s.Run) for item in node.items) or not 0 < len(node.items) <= MOST_OPERANDS:
            raise self.refuse("a list of operands", node)
        parts = [self.pattern(item) for item in node.items]
        if node.fn in FUNCTIONS:
            self.needs[node.fn] = None
            head, kind = f'"{node.fn}"', self.typed(node.fn, [kind for _, kind in parts], self.dtypes.same)
        else:
            self.bind(node.fn, "fn", node)
            head, kind = variable(node.fn), self.dtypes.fresh()
            self.functions[node.fn] = (*(kind for _, kind in parts), kind)
        return f"(E{len(parts)} {head} {' '.join(text for text, _ in parts)})", kind

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
        assert kind in (ARITHMETIC, FLOAT, COMPARE, SELECT)
        if kind == FLOAT:
            says = self.dtypes.floating if agree == self.dtypes.same else self.dtypes.must_float
            says(chosen[0])
        return self.dtypes.fixed("b8") if kind == COMPARE else chosen[0]

    # ---- the template
    def template(self) -> tuple[list[str], str, Any]:
        """Actions that name the values of the template, the text of its root, and the root's dtype."""
        actions: list[str] = []
        local: dict[str, tuple[str, Any]] = {}
        statements = list(definitions(self.rule, self.rule.rewrite).items())
        for place, (name, node) in enumerate(statements):
            text, kind = self.build(node, local, self.dtypes.of_variable(list(self.defined)[-1]))
            if place == len(statements) - 1:
                return actions, text, kind
            actions.append(f"(let t_{name} {text})")
            local[name] = f"t_{name}", kind
        raise AssertionError("a rule has a template")

    def build(self, node: s.Syntax, local: dict[str, tuple[str, Any]], wanted: Any) -> tuple[str, Any]:
        value = constant_of(node)
        if value is not None:
            if isinstance(value, float) and not value.is_integer():
                self.dtypes.must_float(wanted)
            self.makes[number_text(value)] = None
            return f'(Num "{number_text(value)}" {self.dtypes.in_template(wanted)})', wanted
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.build(node.items[0], local, wanted)
        if isinstance(node, s.NameOf):
            if node.text in local:
                return local[node.text]
            if self.kinds.get(node.text) != "term":
                raise self.refuse(f"`{node.text}`, which no pattern binds to a value,", node)
            return variable(node.text), self.dtypes.of_variable(node.text)
        if isinstance(node, s.Subscript):
            return self.read(node, local, wanted)
        if isinstance(node, s.Apply):
            return self.made(node, local, wanted)
        raise self.refuse("this", node)

    def read(self, node: s.Subscript, local: dict[str, tuple[str, Any]], wanted: Any) -> tuple[str, Any]:
        run = node.items[0] if len(node.items) == 1 else None
        if isinstance(run, s.Run) and isinstance(run.base, s.NameOf) and self.kinds.get(run.base.text) == "map":
            text, kind = self.build(node.base, local, wanted)
            self.makes["Map"] = None
            return f"(Map {variable(run.base.text)} {text})", kind
        raise self.refuse("an index map that no pattern binds", node)

    def made(self, node: s.Apply, local: dict[str, tuple[str, Any]], wanted: Any) -> tuple[str, Any]:
        if node.fn == "Reduce":
            fn, over = node.items[0], node.items[1:-1]
            axis = over[0].base if len(over) == 1 and isinstance(over[0], s.Run) else over[0]
            if len(over) != 1 or not isinstance(axis, s.NameOf) or not isinstance(fn, s.NameOf):
                raise self.refuse("a Reduce over a list of axes", node)
            if fn.text in FUNCTIONS:
                self.makes[fn.text] = None
            text, kind = self.build(node.items[-1], local, wanted)
            head = f'"{fn.text}"' if fn.text in FUNCTIONS else variable(fn.text)
            return f"(Red {head} {variable(axis.text)} {text})", self.dtypes.reduced(kind)
        if node.fn == "Fold":
            return self.made_fold(node, local, wanted)
        if node.fn == "Case" and isinstance(node.items[0], s.NameOf):
            a, b = (self.build(item, local, wanted) for item in node.items[1:])
            self.dtypes.require(a[1], b[1])
            self.makes["Case"] = None
            return f"(Case {variable(node.items[0].text)} {a[0]} {b[0]})", a[1]
        known = node.fn in FUNCTIONS
        if (not known and self.kinds.get(node.fn) != "fn") or any(isinstance(item, s.Run) for item in node.items):
            raise self.refuse(f"`{node.fn}` in a template", node)
        parts = self.operands(node.items, local, wanted)
        kinds = [kind for _, kind in parts]
        if known:
            self.makes[node.fn] = None
            kind = self.typed(node.fn, kinds, self.dtypes.require)
            head = f'"{node.fn}"'
        else:
            *expected, kind = self.functions.get(node.fn, (None,) * (len(parts) + 1))
            if len(expected) != len(parts) or None in expected:
                raise self.refuse(f"`{node.fn}` of other operands than in the pattern", node)
            for have, want in zip(kinds, expected, strict=True):
                self.dtypes.require(have, want)
            head = variable(node.fn)
        return f"(E{len(parts)} {head} {' '.join(text for text, _ in parts)})", kind

    def made_fold(self, node: s.Apply, local: dict[str, tuple[str, Any]], wanted: Any) -> tuple[str, Any]:
        part, given, over = fold_part(node), node.items[-1], node.items[1:-1]
        axis = over[0].base if len(over) == 1 and isinstance(over[0], s.Run) else over[0]
        if part not in PARTS or not isinstance(given, s.Group) or len(over) != 1 or not isinstance(axis, s.NameOf):
            raise self.refuse("a Fold of this form", node)
        self.makes[part] = None
        parts = self.operands(given.items, local, wanted)
        for _, kind in parts[1:]:
            self.dtypes.require(parts[0][1], kind)
        text = " ".join(text for text, _ in parts)
        return f'(F{len(parts)} "{part}" {variable(axis.text)} {text})', self.dtypes.reduced(parts[0][1])

    def operands(
        self, items: tuple[s.Syntax, ...], local: dict[str, tuple[str, Any]], wanted: Any
    ) -> list[tuple[str, Any]]:
        """The operands of a function; numbers take the dtype of what they meet."""
        built: dict[int, tuple[str, Any]] = {}
        places = sorted(range(len(items)), key=lambda place: constant_of(items[place]) is not None)
        meets = wanted
        for place in places:
            built[place] = self.build(items[place], local, meets)
            meets = built[places[0]][1]
        return [built[place] for place in range(len(items))]


def variable(name: str) -> str:
    """A variable of a rule as a variable of egglog."""
    return f"v_{name}"
