"""Rules on tensor as egglog text.

A rule is an equation between values. Its pattern becomes a query and its template a union. Guards that are true of
every spelling of a value (axes, extents, dtypes, known when loaded) hold inside the e-graph. A guard about one kernel
does not, so its rule is refused with the location of the guard. Such a rule still works where rules are run as
rewrites.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...ir.diagnostic import DplcError, InternalError
from ...ir.functions import CAST, COMPARE, DTYPES, FLOAT, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.monoid_texts import PARTS
from ..kernels.fusion_pass import FusionRules, kind_of
from ..language import core as s
from ..language.evaluate import facts_of
from ..language.rule import Rule
from ..language.typed_slots import calls
from ..rewrite.terms.rewriter import mentions_mat

COMPARED = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
# Facts whose answer may be missing: the function of the e-graph, and what the answer is.
ANSWERS = {"packed": ("packed", "term"), "packed_places": ("places", "map"), "first_along": ("first", "map")}
HINT = "the rule still works where it is run as a rewrite"
MOST_OPERANDS = 3


# ---- The dtypes of the values of a rule: what its pattern implies, and what its template needs beyond that.
#
# Operands of a function have one dtype by the laws of the IR, so a pattern says that some values share theirs. Where a
# template brings values together that the pattern does not, the e-graph is queried; so no rule changes a dtype there.


@dataclass(eq=False)
class Kind:
    """Dtype that is not known yet.

    The first list holds texts that give it. name: the dtype, if it is fixed; folded: the dtype whose elements a
    reduction adds up to one of this (16-bit floats give f32).
    """

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


Typed = tuple[str, Kind]  # the text of a value, and its dtype


class Dtypes:
    """Union-find over the dtypes in one rule. building: whether the template is written."""

    def __init__(self) -> None:
        self.building = False
        self.variables: dict[str, Kind] = {}
        self.needed: list[tuple[Kind, Kind]] = []
        self.floats: list[Kind] = []
        self.sums: dict[Kind, Kind] = {}
        self.asked: dict[str, str] = {}  # a query of a template, and the variable that holds the answer

    def of_variable(self, name: str) -> Kind:
        """Return the dtype of the value of a variable."""
        return self.variables.setdefault(name, Kind(asked=[f"(dtype v_{name})"])).root()

    def agree(self, a: Kind, b: Kind) -> Kind:
        """Note that two dtypes are one: the pattern says so, the template needs it."""
        if self.building:
            self.needed.append((a, b))
            return a
        a, b = a.root(), b.root()
        if a is not b:
            b.same = a
            a.asked += b.asked
            a.name = a.name or b.name
            a.is_float |= b.is_float
            a.folded = a.folded or b.folded
        return a

    def floating(self, kind: Kind) -> None:
        """Note a function of floating point of this dtype."""
        if self.building:
            self.floats.append(kind)
        else:
            kind.root().is_float = True

    def reduced(self, kind: Kind) -> Kind:
        """Return the dtype of a reduction of such elements."""
        root = kind.root()
        return self.sums.setdefault(root, Kind(is_float=root.is_float, folded=root))

    def bound(self, kind: Kind) -> str:
        """Return a text that gives a dtype."""
        kind = kind.root()
        if kind.name is not None:
            return f'"{kind.name}"'
        if not kind.asked and kind.folded is not None:
            return f"(opmath {self.bound(kind.folded)})"
        if not kind.asked:
            raise InternalError("a number in a template meets nothing that the pattern binds")
        return kind.asked[0]

    def of_number(self, kind: Kind) -> str:
        """Return the dtype of a number in the template, which cannot query it: a variable of the query holds it."""
        text = self.bound(kind)
        return self.asked.setdefault(text, f"d{len(self.asked)}") if text.startswith("(") else text

    def guards(self) -> list[str]:
        """Return the conditions on dtypes that the e-graph has to check."""
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


@dataclass(frozen=True)
class RuleTexts:
    """Rules as egglog text, by name. constants: the numbers that they compare extents with."""

    text: dict[str, str] = field(default_factory=dict)
    constants: set[int] = field(default_factory=set)
    refused: list[DplcError] = field(default_factory=list)


def export(rules: Iterable[Rule]) -> RuleTexts:
    """Return the algebra among some rules, exported."""
    made = RuleTexts()
    for rule in rules:
        if rule.level != "tensor" or mentions_mat(rule):
            continue
        writer = RuleText(rule)
        try:
            made.text[rule.name] = writer.write()
        except DplcError as error:
            made.refused.append(error)
            continue
        made.constants.update(writer.constants)
    return made


def number_text(value: Any) -> str:
    """Return the text of a number in the e-graph: equal numbers have one text, truth values `true` or `false`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if float(value) == value or value != value else str(value)


class RuleText:
    """Writes one rule: its pattern, its `require` guards, then its template by the same methods.

    What a rule prefers is left to extraction, which knows what it costs.
    """

    def __init__(self, rule: Rule):
        self.rule = rule
        self.defined = rule.left
        self.query: list[str] = []
        self.kinds: dict[str, str] = {}  # variable -> term, axis, axes, fn, map, cond
        self.dtypes = Dtypes()
        self.constants: set[int] = set()
        self.functions: dict[str, tuple[Kind, ...]] = {}  # function variable -> dtypes of its operands and result
        self.count = 0
        self.lets: dict[str, Any] = {p.name: p.default for p in rule.parameters}  # names and their text
        self.answers: set[str] = set()
        self.local: dict[str, Typed] = {}  # the values that the template has defined

    def write(self) -> str:
        root = list(self.defined)[-1]
        self.bind(root, "term", self.rule)
        text, kind = self.value(self.defined[root])
        self.query.append(f"(= {variable(root)} {text})")
        self.dtypes.agree(self.dtypes.of_variable(root), kind)
        guards = self.guards()
        self.dtypes.building = True
        *before, (_, made) = self.rule.right.items()
        wanted, actions = self.dtypes.of_variable(root), list[str]()
        for name, term in before:
            text, result = self.value(term, wanted)
            actions.append(f"(let t_{name} {text})")
            self.local[name] = f"t_{name}", result
        text, result = self.value(made, wanted)
        self.dtypes.agree(result, kind)
        query = " ".join((*self.query, *guards, *self.dtypes.guards()))
        return (
            f"(rule ({query}) ({' '.join((*actions, f'(union {variable(root)} {text})'))}) "
            f':ruleset rule_{self.rule.name} :name "{self.rule.name}")'
        )

    def refuse(self, what: str, node: Any) -> DplcError:
        return DplcError(f"rule `{self.rule.name}`: {what} has no form in an e-graph", node.span, (), HINT)

    def bind(self, name: str, kind: str, node: Any) -> str:
        """Return a variable of the pattern, or one that it has bound."""
        if self.dtypes.building and name not in self.kinds:
            raise self.refuse(f"`{name}`, which no pattern binds to a value,", node)
        if self.kinds.setdefault(name, kind) != kind:
            raise self.refuse(f"`{name}`, which is {self.kinds[name]} here and {kind} there,", node)
        return variable(name)

    def fresh(self) -> str:
        self.count += 1
        return f"w{self.count}"

    # ---- values of the pattern and of the template
    def value(self, term: s.ValueTerm, wanted: Any = None) -> Typed:
        """Return a value and its dtype. wanted: the dtype of a number in the template."""
        match term:
            case s.NumberTerm():
                return self.number(term, wanted)
            case s.NameTerm():
                return self.name(term)
            case s.MappedTerm():
                at = self.bind(term.map, "map", term)
                text, kind = self.value(term.x, wanted)
                return f"(Map {at} {text})", kind
            case s.ReduceTerm() | s.FoldTerm():
                return self.reduction(term, wanted)
            case s.CaseTerm(cond=s.NameOf(text=condition)):
                chosen = self.bind(condition, "cond", term)
                a, b = self.value(term.a, wanted), self.value(term.b, wanted)
                return f"(Case {chosen} {a[0]} {b[0]})", self.dtypes.agree(a[1], b[1])
            case s.FunctionTerm():
                return self.function(term, wanted)
        where = "a template" if self.dtypes.building else "a pattern"
        raise self.refuse(f"`{getattr(term.node, 'fn', 'this')}` in {where}", term)

    def number(self, term: s.NumberTerm, wanted: Kind) -> Typed:
        text = f'"{number_text(term.value)}"'
        if not self.dtypes.building:
            name = self.fresh()
            return f"(Num {text} {name})", Kind(asked=[name])
        if isinstance(term.value, float) and not term.value.is_integer():
            self.dtypes.floating(wanted)
        return f"(Num {text} {self.dtypes.of_number(wanted)})", wanted

    def name(self, term: s.NameTerm) -> Typed:
        name = term.name
        if name in self.local:
            return self.local[name]
        if name == "_":
            return self.fresh(), Kind()
        known = name in self.kinds
        self.bind(name, "term", term)
        if not known and name in self.defined:
            text, kind = self.value(self.defined[name])
            self.query.append(f"(= {variable(name)} {text})")
            self.dtypes.agree(self.dtypes.of_variable(name), kind)
        return variable(name), self.dtypes.of_variable(name)

    def reduction(self, term: s.ReduceTerm | s.FoldTerm, wanted: Any) -> Typed:
        """Return a reduction, or one part of a reduction over a tuple; `k` is one axis, `ks..` all of them."""
        axis = term.over[0]
        if len(term.over) != 1 or (isinstance(axis, s.AxisTerm) and axis.extent is not None):
            raise self.refuse("a reduction over a list of axes, or one of this extent,", term)
        if isinstance(axis, s.AxisTerm) and axis.name not in self.kinds:
            self.query.append(f"(single {variable(axis.name)})")
        over = self.bind(axis.name, "axis" if isinstance(axis, s.AxisTerm) else "axes", term)
        if isinstance(term, s.ReduceTerm):
            fn = f'"{term.fn}"' if term.fn in FUNCTIONS else self.bind(term.fn, "fn", term)
            text, kind = self.value(term.x, wanted)
            return f"(Red {fn} {over} {text})", self.dtypes.reduced(kind)
        if term.part not in PARTS:
            raise self.refuse("a Fold of any part", term)
        texts, kinds = self.operands(term.args, wanted)
        for other in kinds[1:]:
            self.dtypes.agree(kinds[0], other)
        return f'(F{len(kinds)} "{term.part}" {over} {texts})', self.dtypes.reduced(kinds[0])

    def function(self, term: s.FunctionTerm, wanted: Any) -> Typed:
        if term.runs or not 0 < len(term.operands) <= MOST_OPERANDS:
            raise self.refuse("a list of operands", term)
        texts, kinds = self.operands(term.operands, wanted)
        if term.known:
            head, kind = f'"{term.fn}"', self.result(term.fn, kinds)
        else:
            head, kind = self.bind(term.fn, "fn", term), Kind()
            if not self.dtypes.building:
                self.functions[term.fn] = *kinds, kind
            *expected, kind = self.functions.get(term.fn, ())
            if len(expected) != len(kinds):
                raise self.refuse(f"`{term.fn}` of other operands than in the pattern", term)
            for have, want in zip(kinds, expected, strict=True):
                self.dtypes.agree(have, want)
        return f"(E{len(kinds)} {head} {texts})", kind

    def operands(self, items: tuple[s.ValueTerm, ...], wanted: Any) -> tuple[str, list[Kind]]:
        """Return the operands of a function. The numbers of a template take the dtype of what they meet."""
        built: dict[int, Typed] = {}
        last = self.dtypes.building
        for place in sorted(range(len(items)), key=lambda place: last and isinstance(items[place], s.NumberTerm)):
            meets = next(iter(built.values()))[1] if built else wanted
            built[place] = self.value(items[place], meets)
        return " ".join(built[place][0] for place in sorted(built)), [built[place][1] for place in sorted(built)]

    def result(self, fn: str, kinds: list[Kind]) -> Kind:
        """Return the dtype of a function's result."""
        kind, agree = FUNCTIONS[fn].kind, self.dtypes.agree
        if kind == CAST:
            return Kind(name=HELD.get(fn, fn))
        if kind == LOGICAL:
            for each in kinds:
                agree(each, Kind(name="b8"))
            return Kind(name="b8")
        chosen = kinds[1:] if kind == SELECT else kinds
        for other in chosen[1:]:
            agree(chosen[0], other)
        if kind == FLOAT:
            self.dtypes.floating(chosen[0])
        return Kind(name="b8") if kind == COMPARE else chosen[0]

    # ---- guards: masks of axes, extents, dtypes, and whether a value is known when loaded
    def guards(self) -> list[str]:
        out: list[str] = []
        for clause in self.rule.clauses:
            if isinstance(clause, s.LetClause):
                out += self.let(clause)
            elif not isinstance(clause, s.Guard):
                raise self.refuse("`pick`", clause)
            elif clause.kind == "require":
                out += self.condition(clause.condition)
        return list(dict.fromkeys(out))

    def let(self, clause: s.LetClause) -> list[str]:
        """Bind a name to the result of a fact, which may be missing, or record the text of any other name."""
        name, value = clause.name, clause.value
        if not isinstance(value, s.Apply) or value.fn not in ANSWERS:
            self.lets[name] = value
            return []
        function, self.kinds[name] = ANSWERS[value.fn]
        *of, over = value.items
        if of:
            self.answers.add(name)
        return [f"(= v_{name} ({' '.join((function, *map(self.term, of), self.axes(over)))}))"]

    def condition(self, node: s.Syntax) -> list[str]:
        """Return a condition as facts of the e-graph."""
        match node:
            case s.Group(items=(inner,)):
                return self.condition(inner)
            case s.Operation(op="!=", a=s.NameOf(text=name), b=s.NameOf(text="none")) if name in self.answers:
                return []  # the fact answers, or the rule does not match
            case s.Operation(op="and", a=a, b=b):
                return self.condition(a) + self.condition(b)
            case s.Operation(op="in" | "not in", a=a, b=b):
                return [f"({'!=' if node.op == 'in' else '='} 0 (& {self.axes(a)} {self.axes(b)}))"]
            case s.Operation() if node.op in COMPARED:
                return [self.compared(node)]
            case s.Apply(fn="known", items=(x,)):
                return [f"(known {self.term(x)})"]
            case s.Prefix(op="not", a=s.Apply(fn="known", items=(x,))):
                return [f"(varies {self.term(x)})"]
            case s.Apply(fn="disjoint", items=(a, b)):
                return [f"(= 0 (& {self.axes(a)} {self.axes(b)}))"]
            case s.Prefix(op="not", a=s.Apply(fn="disjoint", items=(a, b))):
                return [f"(!= 0 (& {self.axes(a)} {self.axes(b)}))"]
            case s.Apply(fn="within", items=(a, b)):
                return [f"(= {self.axes(a)} (& {self.axes(a)} {self.axes(b)}))"]
            case s.Apply(fn="one_over", items=(x, over)):
                return [f"(one_over {self.term(x)} {self.axes(over)})"]
        raise self.unknown(node)

    def compared(self, node: s.Operation) -> str:
        for read in (self.number_of, self.dtype_of, self.axes_of):
            a, b = read(node.a), read(node.b)
            if a is not None and b is not None and (read == self.number_of or node.op in ("==", "!=")):
                return f"({COMPARED[node.op]} {a} {b})"
        raise self.unknown(node)

    def number_of(self, node: s.Syntax) -> str | None:
        match self.named(node):
            case s.Number(value=int(value)):
                self.constants.add(value)
                return str(value)
            case s.Apply(fn="extent" | "places", items=(over,)):
                return f"(extent {self.axes(over)})"
            case s.Apply(fn="literal", items=(x,)):
                return f"(literal {self.term(x)})"
        return None

    def dtype_of(self, node: s.Syntax) -> str | None:
        match self.named(node):
            case s.NameOf(text=name) if name in DTYPES:
                return f'"{name}"'
            case s.Apply(fn="dtype", items=(x,)):
                return f"(dtype {self.term(x)})"
        return None

    def axes_of(self, node: s.Syntax) -> str | None:
        try:
            return self.axes(node)
        except DplcError:
            return None

    def axes(self, node: s.Syntax) -> str:
        """Return a set of axes as a mask."""
        node = self.named(node)
        match node:
            case s.NameOf(text=name) if self.kinds.get(name) in ("axis", "axes"):
                return variable(name)
            case s.Apply(fn="axes", items=(x,)):
                return f"(axes {self.term(x)})"
            case s.Apply(fn="common", items=(a, b)):
                return f"(& {self.axes(a)} {self.axes(b)})"
            case s.Apply(fn="source_axes" | "image_axes", items=(s.NameOf(text=name),)) if (
                self.kinds.get(name) == "map"
            ):
                return f"({node.fn.replace('_axes', '')} {variable(name)})"
            case s.Group(bracket="[" | "{", items=(first, *rest)):
                mask = self.axes(first)
                for item in rest:
                    mask = f"(| {mask} {self.axes(item)})"
                return mask
        raise self.unknown(node)

    def term(self, node: s.Syntax) -> str:
        match self.named(node):
            case s.NameOf(text=name) if self.kinds.get(name) == "term":
                return variable(name)
        raise self.unknown(node)

    def named(self, node: s.Syntax) -> Any:
        """Return the text that the name of a `let` or of a parameter is bound to."""
        for _ in range(10):
            following = self.lets.get(node.text) if isinstance(node, s.NameOf) else None
            if following is None:
                break
            node = following
        return node

    def unknown(self, node: s.Syntax) -> DplcError:
        """Return the refusal of a guard: a property of a kernel says so."""
        if isinstance(node, s.Operation) and node.op == "or":
            return self.refuse("`or`", node)
        asked = next((call.fn for call in calls(node) if call.fn in facts_of("tensor")), None)
        if asked is not None and facts_of("tensor")[asked].ask.__module__.endswith("facts.fusion"):
            what = f"rule `{self.rule.name}`: `{asked}` is a property of one kernel, not of a value"
            return DplcError(what, node.span, ("a guard in an e-graph must hold for every spelling of a value",), HINT)
        return self.refuse(f"the fact `{asked}`" if asked else "this guard", node)


def variable(name: str) -> str:
    """Return a variable of a rule as a variable of egglog."""
    return f"v_{name}"


# ---- Fusion rules as edge permissions: which operations may compute what they read.
#
# A rule `op(.., mat(v), ..) => op(.., v, ..)` permits the operation to absorb a value that contains a reduction;
# `mat(v) => v` permits every reader to absorb a value that does not. Extraction decides where that pays.


CONSTRUCTORS: dict[type[s.ValueTerm], str] = {
    s.ReduceTerm: "Red", s.CaseTerm: "Case", s.FoldTerm: "Fold", s.MappedTerm: "Map", s.ReadTerm: "Map",
    s.FunctionTerm: "E",
}  # fmt: skip


@dataclass(frozen=True)
class Permissions:
    """Permissions of the fusion rules.

    folding: the constructors that may absorb a value with a reduction in it; plain: whether others are inlined.
    """

    folding: frozenset[str]
    plain: bool

    @classmethod
    def of(cls, fusion: FusionRules) -> Permissions:
        kinds = [(kind_of(rule), type(list(rule.left.values())[-1])) for rule in fusion.rules]
        folding = frozenset(CONSTRUCTORS[made] for kind, made in kinds if kind == "fuse")
        return cls(folding, any(kind == "inline" for kind, _ in kinds))
