"""Rules on tensor as egglog text.

A rule is an equation between values, so its pattern becomes a query, its template a union, and guards that are true of
every spelling of a value (axes, extents, dtypes, known when loaded) hold inside the e-graph. What is true of one kernel
only cannot: such a rule is refused with its place, and still works where rules are run as rewrites.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...ir.diagnostic import DplcError, InternalError
from ...ir.functions import ARITHMETIC, BITS, CAST, COMPARE, DTYPES, FLOAT, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.monoid_texts import PARTS
from ..kernels.fusion_pass import FusionRules, kind_of
from ..language import core as c
from ..language import core as s
from ..language.evaluate import facts_of
from ..language.rule import Rule
from ..language.typed_slots import calls
from ..rewrite.terms.rewriter import mentions_mat

# Guards of algebra rules as egglog facts: masks of axes, extents, dtypes, and whether a value is known when loaded.


COMPARED = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
# Facts that answer something that is there: (the function of the e-graph, what the answer is).
ANSWERS = {"packed": ("packed", "term"), "packed_places": ("places", "map")}
PROPERTIES_OF_KERNELS = ("facts.factors", "facts.fusion", "facts.products")  # where such facts are


class GuardWriter(Protocol):
    """What writing guards needs of the text that they become part of (as in `export.RuleText`)."""

    rule: Rule
    kinds: dict[str, str]
    needs: dict[str, None]
    constants: set[int]

    def refuse(self, what: str, node: s.Syntax) -> DplcError: ...


class Guards:
    """Writes the `where` guards of one rule. What a rule prefers is left to extraction, which knows what it costs."""

    def __init__(self, rule: GuardWriter):
        self.rule = rule
        self.lets: dict[str, s.Syntax] = {}
        self.answers: set[str] = set()
        self.numbers = {p.name: p.default for p in rule.rule.parameters}

    def write(self) -> list[str]:
        out: list[str] = []
        for clause in self.rule.rule.clauses:
            if isinstance(clause, s.LetClause):
                out += self.let(clause)
            elif isinstance(clause, s.Guard):
                if clause.kind == "where":
                    out += self.condition(clause.condition)
            else:
                raise self.rule.refuse("`pick`", clause)
        return list(dict.fromkeys(out))

    def let(self, clause: s.LetClause) -> list[str]:
        """A name for what a fact answers, which is there or not; any other name stands for its text."""
        value = clause.value
        if isinstance(value, s.Apply) and value.fn == "first_along" and len(value.items) == 1:
            self.rule.kinds[clause.name] = "map"
            return [f"(= v_{clause.name} (first {self.axes(value.items[0])}))"]
        if isinstance(value, s.Apply) and value.fn in ANSWERS and len(value.items) == 2:
            function, kind = ANSWERS[value.fn]
            w, over = value.items
            self.rule.kinds[clause.name] = kind
            self.answers.add(clause.name)
            self.rule.needs["packed"] = None
            return [f"(= v_{clause.name} ({function} {self.term(w)} {self.axes(over)}))"]
        self.lets[clause.name] = value
        return []

    def condition(self, node: s.Syntax) -> list[str]:
        """The facts that a condition is."""
        if isinstance(node, s.Group) and len(node.items) == 1:
            return self.condition(node.items[0])
        if isinstance(node, s.Operation):
            if node.op == "!=" and _is_none(node.b) and getattr(node.a, "text", None) in self.answers:
                return []  # the fact answers, or the rule does not match
            if node.op == "and":
                return self.condition(node.a) + self.condition(node.b)
            if node.op in ("in", "not in"):
                meet = f"(& {self.axes(node.a)} {self.axes(node.b)})"
                return [f"({'!=' if node.op == 'in' else '='} 0 {meet})"]
            if node.op in COMPARED:
                return [self.compared(node)]
        if isinstance(node, s.Apply):
            return [self.fact(node)]
        if isinstance(node, s.Prefix) and node.op == "not" and isinstance(node.a, s.Apply):
            if node.a.fn == "known":
                return [f"(varies {self.term(node.a.items[0])})"]
            if node.a.fn == "disjoint" and len(node.a.items) == 2:
                a, b = map(self.axes, node.a.items)
                return [f"(!= 0 (& {a} {b}))"]
        raise self.unknown(node)

    def fact(self, node: s.Apply) -> str:
        if node.fn == "known":
            return f"(known {self.term(node.items[0])})"
        if node.fn in ("disjoint", "within") and len(node.items) == 2:
            a, b = map(self.axes, node.items)
            return f"(= 0 (& {a} {b}))" if node.fn == "disjoint" else f"(= {a} (& {a} {b}))"
        if node.fn == "one_over" and len(node.items) == 2:
            return f"(one_over {self.term(node.items[0])} {self.axes(node.items[1])})"
        raise self.unknown(node)

    def compared(self, node: s.Operation) -> str:
        for place, sides in enumerate((self.numbers_of, self.dtypes_of, self.axes_of)):
            both = sides(node.a), sides(node.b)
            if both[0] is not None and both[1] is not None:
                if place > 0 and node.op not in ("==", "!="):
                    break
                return f"({COMPARED[node.op]} {both[0]} {both[1]})"
        raise self.unknown(node)

    # ---- what is compared
    def numbers_of(self, node: s.Syntax) -> str | None:
        node = self.named(node)
        if isinstance(node, s.Number) and isinstance(node.value, int):
            self.rule.constants.add(node.value)
            return str(node.value)
        if isinstance(node, s.Apply) and node.fn in ("extent", "places"):
            return f"(extent {self.axes(node.items[0])})"
        if isinstance(node, s.Apply) and node.fn == "literal":
            return f"(literal {self.term(node.items[0])})"
        return None

    def dtypes_of(self, node: s.Syntax) -> str | None:
        node = self.named(node)
        if isinstance(node, s.NameOf) and node.text in DTYPES:
            return f'"{node.text}"'
        if isinstance(node, s.Apply) and node.fn == "dtype":
            return f"(dtype {self.term(node.items[0])})"
        return None

    def axes_of(self, node: s.Syntax) -> str | None:
        try:
            return self.axes(node)
        except DplcError:
            return None

    def axes(self, node: s.Syntax) -> str:
        """A set of axes as a mask."""
        node = self.named(node)
        if isinstance(node, s.NameOf) and self.rule.kinds.get(node.text) in ("axis", "axes"):
            return f"v_{node.text}"
        if isinstance(node, s.Apply) and node.fn == "axes" and len(node.items) == 1:
            return f"(axes {self.term(node.items[0])})"
        if isinstance(node, s.Apply) and node.fn == "common" and len(node.items) == 2:
            return f"(& {self.axes(node.items[0])} {self.axes(node.items[1])})"
        if isinstance(node, s.Apply) and node.fn in ("source_axes", "image_axes"):
            (item,) = node.items
            if isinstance(item, s.NameOf) and self.rule.kinds.get(item.text) == "map":
                return f"({node.fn.replace('_axes', '')} v_{item.text})"
        if isinstance(node, s.Group) and node.bracket in "[{" and node.items:
            parts = [self.axes(item) for item in node.items]
            while len(parts) > 1:
                parts[:2] = [f"(| {parts[0]} {parts[1]})"]
            return parts[0]
        raise self.unknown(node)

    def term(self, node: s.Syntax) -> str:
        node = self.named(node)
        if isinstance(node, s.NameOf) and self.rule.kinds.get(node.text) == "term":
            return f"v_{node.text}"
        raise self.unknown(node)

    def named(self, node: s.Syntax) -> s.Syntax:
        """What a `let` or a parameter stands for."""
        seen = 0
        while isinstance(node, s.NameOf) and seen < 10:
            following = self.lets.get(node.text) or self.numbers.get(node.text)
            if following is None:
                break
            node, seen = following, seen + 1
        return node

    def unknown(self, node: s.Syntax) -> DplcError:
        """The refusal of a guard: a property of a kernel says so."""
        if isinstance(node, s.Operation) and node.op == "or":
            return self.rule.refuse("`or`", node)
        asked = next((call.fn for call in calls(node) if call.fn in facts_of("tensor")), None)
        if asked is not None and facts_of("tensor")[asked].ask.__module__.endswith(PROPERTIES_OF_KERNELS):
            what = f"rule `{self.rule.rule.name}`: `{asked}` is a property of one kernel, not of a value"
            return DplcError(what, node.span, ("a guard in an e-graph must hold for every spelling of a value",),
                             "the rule still works where it is run as a rewrite")  # fmt: skip
        return self.rule.refuse(f"the fact `{asked}`" if asked else "this guard", node)


def _is_none(node: s.Syntax) -> bool:
    return isinstance(node, s.NameOf) and node.text == "none"


# ---- The dtypes of the values of a rule: what its pattern implies, and what its template needs beyond that.
#
# Operands of a function have one dtype by the laws of the IR, so a pattern says that some values share theirs. Where a
# template brings values together that the pattern does not, the e-graph is asked; so no rule changes a dtype there.


@dataclass(eq=False)
class Kind:
    """A dtype that is not known yet. asked: texts that give it; name: the dtype, where it is fixed; folded: the dtype
    whose elements a reduction adds up to one of this (16-bit floats give f32)."""

    same: Kind | None = None
    asked: list[str] = field(default_factory=list)
    name: str | None = None
    is_float: bool = False
    folded: Kind | None = None

    def root(self) -> Kind:
        kind = self
        while kind.same is not None:
            kind = kind.same
        return kind


class Dtypes:
    """Union-find over the dtypes in one rule."""

    def __init__(self) -> None:
        self.variables: dict[str, Kind] = {}
        self.needed: list[tuple[Kind, Kind]] = []
        self.floats: list[Kind] = []
        self.sums: dict[int, Kind] = {}
        self.asked: dict[str, str] = {}  # what a template asks, and the variable that holds the answer

    def fresh(self) -> Kind:
        return Kind()

    def fixed(self, name: str) -> Kind:
        return Kind(name=name)

    def of_number(self, text: str) -> Kind:
        """The dtype that stands beside a number in the pattern, as the variable `text`."""
        return Kind(asked=[text])

    def of_variable(self, name: str, like: Kind | None = None) -> Kind:
        """The dtype of a value that a variable stands for."""
        kind = self.variables.setdefault(name, Kind(asked=[f"(dtype v_{name})"]))
        return kind.root() if like is None else self.same(kind, like)

    def same(self, a: Kind, b: Kind) -> Kind:
        """Two dtypes are one: the pattern says so."""
        a, b = a.root(), b.root()
        if a is not b:
            b.same = a
            a.asked += b.asked
            a.name = a.name or b.name
            a.is_float |= b.is_float
            a.folded = a.folded or b.folded
        return a

    def reduced(self, kind: Kind) -> Kind:
        """The dtype that a reduction of such elements has."""
        root = kind.root()
        known = self.sums.get(id(root))
        if known is None:
            known = self.sums[id(root)] = Kind(is_float=root.is_float, folded=root)
        return known

    def floating(self, kind: Kind) -> None:
        """The pattern holds a function of floating point of it."""
        kind.root().is_float = True

    def must_float(self, kind: Kind) -> None:
        """The template does."""
        self.floats.append(kind)

    def require(self, a: Kind, b: Kind) -> Kind:
        """The template needs two dtypes to be one."""
        self.needed.append((a, b))
        return a

    def bound(self, kind: Kind) -> str:
        """A text that gives a dtype."""
        kind = kind.root()
        if kind.name is not None:
            return f'"{kind.name}"'
        if not kind.asked and kind.folded is not None:
            return f"(opmath {self.bound(kind.folded)})"
        if not kind.asked:
            raise InternalError("a number in a template meets nothing that the pattern binds")
        return kind.asked[0]

    def in_template(self, kind: Kind) -> str:
        """The same for a number in the template, where nothing can be asked: a variable of the query."""
        text = self.bound(kind)
        return self.asked.setdefault(text, f"d{len(self.asked)}") if text.startswith("(") else text

    def guards(self) -> list[str]:
        """What the e-graph has to be asked."""
        out = [f"(= {name} {text})" for text, name in self.asked.items()]
        for a, b in self.needed:
            left, right = a.root(), b.root()
            if left is not right and not (left.name is not None and left.name == right.name):
                out.append(f"(= {self.bound(left)} {self.bound(right)})")
        for kind in self.floats:
            root = kind.root()
            if not root.is_float and not (root.name or "").startswith(("f", "bf")):
                out.append(f"(floating {self.bound(root)})")
        return list(dict.fromkeys(out))


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


# ---- Fusion rules as edge permissions: which operations may compute what they read.
#
# A rule `op(.., mat(v), ..) => op(.., v, ..)` permits the operation to take in a value that folds something;
# `mat(v) => v` permits every reader to take in a value that does not. Extraction decides where that pays.


CONSTRUCTORS: dict[type[s.ValueTerm], str] = {
    s.ReduceTerm: "Red", s.CaseTerm: "Case", s.FoldTerm: "Fold", s.MappedTerm: "Map", s.ReadTerm: "Map",
    s.FunctionTerm: "E",
}  # fmt: skip


@dataclass(frozen=True)
class Permissions:
    """folding: the constructors that may take in a value with a reduction in it; plain: whether others are inlined."""

    folding: frozenset[str]
    plain: bool

    def allows(self, reader: str, folds: bool) -> bool:
        """Whether an operation may compute an operand, which `folds` something or does not."""
        return reader in self.folding if folds else self.plain

    @classmethod
    def of(cls, fusion: FusionRules) -> Permissions:
        return cls(frozenset(_readers(fusion.rules)), any(kind_of(rule) == "inline" for rule in fusion.rules))


def _readers(rules: Iterable[Rule]) -> Iterable[str]:
    for rule in rules:
        if kind_of(rule) == "fuse":
            yield CONSTRUCTORS[type(list(rule.left.values())[-1])]
