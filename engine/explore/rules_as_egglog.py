"""Rules on tensor as egglog text.

A rule is an equation between values. Its pattern becomes a query and its template a union. Guards that are true of
every spelling of a value (axes, extents, dtypes, known when loaded) hold inside the e-graph. A guard about one kernel
does not, so its rule is refused with the location of the guard. Such a rule still works where rules are run as
rewrites.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import count
from typing import Any

from ...ir.diagnostic import DplcError, Located
from ...ir.dtypes import COMPUTING_FLOATS
from ...ir.expr import NEGATED
from ...ir.functions import CAST, COMPARE, DTYPES, FLOAT, FUNCTIONS, HELD, LOGICAL, SELECT
from ...ir.monoid_texts import PARTS
from ..kernels.fusion_pass import FusionRules, kind_of
from ..language import core as s
from ..language.evaluate import facts_of
from ..language.rule import Rule
from ..language.typed_slots import calls, without_lets
from ..rewrite.terms.rewriter import mentions_mat

MOST_OPERANDS = 3
# What a guard asks: what that gives (a term or a map may be missing), its text in the e-graph, and what it takes.
FACTS: dict[str, tuple[str, ...]] = {
    "extent": ("number", "(extent {})", "axes"), "element_count": ("number", "(extent {})", "axes"),
    "literal": ("number", "(literal {})", "term"), "dtype": ("dtype", "(dtype {})", "term"),
    "axes": ("axes", "(axes {})", "term"), "common": ("axes", "(& {} {})", "axes", "axes"),
    "source_axes": ("axes", "(source {})", "map"), "image_axes": ("axes", "(image {})", "map"),
    "packed": ("term", "(packed {} {})", "term", "axes"), "packed_places": ("map", "(places {} {})", "term", "axes"),
    "first_along": ("map", "(first {})", "axes"), "one_over": ("condition", "(one_over {} {})", "term", "axes"),
    "known": ("condition", "(known {})", "term"), "not known": ("condition", "(varies {})", "term"),
    "within": ("condition", "(= {0} (& {0} {1}))", "axes", "axes"),
    **dict.fromkeys(("disjoint", "not in"), ("condition", "(= 0 (& {} {}))", "axes", "axes")),
    **dict.fromkeys(("not disjoint", "in"), ("condition", "(!= 0 (& {} {}))", "axes", "axes")),
}  # fmt: skip


def form(head: str, *operands: str) -> str:
    """Return an expression of egglog."""
    return f"({' '.join((head, *operands))})"


@dataclass(eq=False)
class Kind:
    """Dtype of values of a rule. Those that the pattern says are one have the same root.

    text: what gives it; fixed: whether it is the dtype itself; folded: the dtype whose elements a reduction adds up to
    one of this (16-bit floats give f32); sum: the other way round.
    """

    text: str = ""
    fixed: bool = False
    floating: bool = False
    folded: Kind | None = None
    sum: Kind | None = None
    same: Kind | None = None

    def root(self) -> Kind:
        return self if self.same is None else self.same.root()

    def unite(self, other: Kind) -> None:
        """Note that two dtypes are one: the root is the one that is known best."""
        kinds = self.root(), other.root()
        root, rest = sorted(kinds, key=lambda kind: (not kind.fixed, not kind.text, kind.folded is None))
        if root is not rest:
            rest.same = root
            root.floating |= rest.floating

    def spelled(self) -> str:
        """Return a text that gives the dtype."""
        root = self.root()
        assert root.text or root.folded, "a number in a template meets nothing that the pattern binds"
        return form("opmath", root.folded.spelled()) if root.folded and not root.text else root.text


Typed = tuple[str, Kind]  # the text of a value, and its dtype


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
        if rule.level == "tensor" and not mentions_mat(rule):
            writer = RuleText(rule)
            try:
                made.text[rule.name] = writer.write()
                made.constants.update(writer.constants)
            except DplcError as error:
                made.refused.append(error)
    return made


def number_text(value: float) -> str:
    """Return the text of a number in the e-graph: equal numbers have one text, truth values `true` or `false`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if float(value) == value or value != value else str(value)


class RuleText:
    """Writes one rule: its pattern, its `require` guards, then its template by the same methods.

    What a rule prefers is left to extraction, which knows what it costs. Operands of a function have one dtype by the
    laws of the IR, so a pattern says that some values share theirs. Where a template brings values together that the
    pattern does not, the e-graph is queried; so no rule changes a dtype there.
    """

    def __init__(self, rule: Rule):
        self.rule = rule
        self.building = False  # the template, not the pattern
        self.query: list[str] = []
        self.roles: dict[str, str] = {}  # variable -> term, axes, fn, map, cond
        self.values: dict[str, Typed] = {}  # of the pattern, and those that the template has defined
        self.constants: set[int] = set()
        self.functions: dict[str, Sequence[Kind]] = {}  # function variable -> dtypes of its operands and result
        self.fresh = (f"w{number}" for number in count(1))
        self.lets: dict[str, Any] = {p.name: p.default for p in rule.parameters}  # names and their text
        # What the template needs: variables for dtypes of its numbers, dtypes that are one, floating ones.
        self.asked: dict[str, str] = {}
        self.needed: list[str] = []
        self.floats: list[str] = []

    def write(self) -> str:
        name = self.rule.name
        root, kind = self.variable([*self.rule.left][-1], self.rule)
        self.guards()
        self.building = True
        actions = []
        for defined, term in self.rule.right.items():
            text, result = self.value(term, kind)
            actions.append(form("let", f"t_{defined}", text))
            self.values[defined] = f"t_{defined}", result
        actions[-1] = form("union", root, text)
        self.agree(result, kind)
        asked = (form("=", variable, dtype) for dtype, variable in self.asked.items())
        query = dict.fromkeys((*self.query, *asked, *self.needed, *self.floats))
        return f'(rule {form(*query)} {form(*actions)} :ruleset rule_{name} :name "{name}")'

    def refuse(self, what: str, node: Located) -> DplcError:
        return DplcError(
            f"rule `{self.rule.name}`: {what} has no form in an e-graph",
            node,
            "the rule still works where it is run as a rewrite",
        )

    def bind(self, name: str, role: str, node: Located) -> str:
        """Return a variable of the pattern, or one that it has bound."""
        bound = self.roles.get(name) if self.building else self.roles.setdefault(name, role)
        if bound != role:
            raise self.refuse(f"`{name}`, which is {bound or 'nothing'} in the pattern and {role} here,", node)
        return f"v_{name}"

    # ---- dtypes: what the pattern implies, and what the template needs beyond that
    def agree(self, kind: Kind, *others: Kind) -> None:
        """Note that dtypes are one: the pattern says so, the template needs it."""
        for other in others:
            if not self.building:
                kind.unite(other)
            elif kind.root() is not other.root() and kind.spelled() != other.spelled():
                self.needed.append(form("=", kind.spelled(), other.spelled()))

    def floating(self, kind: Kind) -> None:
        """Note a function of floating point of this dtype."""
        root = kind.root()
        if not self.building:
            root.floating = True
        elif not root.floating:
            self.floats.append(form("floating", root.spelled()))

    # ---- values of the pattern and of the template
    def value(self, term: s.ValueTerm, wanted: Kind) -> Typed:
        """Return a value and its dtype. wanted: the dtype of a number in the template."""
        match term:
            case s.NumberTerm():
                return self.number(term.value, wanted)
            case s.NameTerm(name="_"):
                return next(self.fresh), Kind()
            case s.NameTerm(name=name):
                return self.variable(name, term)
            case s.MappedTerm():
                text, kind = self.value(term.x, wanted)
                return form("Map", self.bind(term.map, "map", term), text), kind
            case s.ReduceTerm():
                return self.reduction("Red", self.named_function(term.fn, term), term, (term.x,), wanted)
            case s.FoldTerm(part=part, args=args) if part in PARTS:
                return self.reduction(f"F{len(args)}", f'"{part}"', term, args, wanted)
            case s.CaseTerm(cond=s.NameOf(text=condition)):
                text, (kind, other) = self.operands((term.a, term.b), wanted)
                self.agree(kind, other)
                return form("Case", self.bind(condition, "cond", term), text), kind
            case s.FunctionTerm(fn=fn, operands=operands):
                if term.runs or not 0 < len(operands) <= MOST_OPERANDS:
                    raise self.refuse("a list of operands", term)
                text, kinds = self.operands(operands, wanted)
                kind = self.result(fn, kinds) if term.known else self.result_of_variable(term, kinds)
                return form(f"E{len(operands)}", self.named_function(fn, term), text), kind
        what = getattr(term.node, "fn", "this")
        raise self.refuse(f"`{what}` in {'a template' if self.building else 'a pattern'}", term)

    def number(self, value: float, wanted: Kind) -> Typed:
        text = f'"{number_text(value)}"'
        if not self.building:
            dtype = next(self.fresh)
            return form("Num", text, dtype), Kind(dtype)
        if isinstance(value, float) and not value.is_integer():
            self.floating(wanted)
        dtype = wanted.spelled()
        if dtype.startswith("("):  # a template cannot query it: a variable of the query holds it
            dtype = self.asked.setdefault(dtype, f"d{len(self.asked)}")
        return form("Num", text, dtype), wanted

    def variable(self, name: str, node: Located) -> Typed:
        """Return the value of a variable. The first time the query asks for its definition in the pattern."""
        if name not in self.values:
            text, kind = self.values[name] = self.bind(name, "term", node), Kind(f"(dtype v_{name})")
            if not self.building and name in self.rule.left:
                made, result = self.value(self.rule.left[name], kind)
                self.query.append(form("=", text, made))
                kind.unite(result)
        return self.values[name]

    def named_function(self, name: str, node: Located) -> str:
        return f'"{name}"' if name in FUNCTIONS else self.bind(name, "fn", node)

    def reduction(
        self, head: str, fn: str, term: s.ReduceTerm | s.FoldTerm, args: Sequence[s.ValueTerm], wanted: Kind
    ) -> Typed:
        """Return a reduction, or one part of a reduction over a tuple; `k` is one axis, `ks..` all of them."""
        axis, *others = term.over
        if others or getattr(axis, "extent", None) is not None:
            raise self.refuse("a reduction over a list of axes, or one of this extent,", term)
        if isinstance(axis, s.AxisTerm) and not self.building:
            self.query.append(form("single", f"v_{axis.name}"))
        over = self.bind(axis.name, "axes", term)
        text, kinds = self.operands(args, wanted)
        self.agree(*kinds)
        root = kinds[0].root()
        root.sum = root.sum or Kind(floating=root.floating, folded=root)
        return form(head, fn, over, text), root.sum

    def operands(self, items: Sequence[s.ValueTerm], wanted: Kind) -> tuple[str, list[Kind]]:
        """Return the operands of a function. The numbers of a template take the dtype of what they meet."""
        built: dict[int, Typed] = {}
        last = self.building
        for place in sorted(range(len(items)), key=lambda place: last and isinstance(items[place], s.NumberTerm)):
            built[place] = _, wanted = self.value(items[place], wanted)
        texts, kinds = zip(*(built[place] for place in sorted(built)), strict=True)
        return " ".join(texts), list(kinds)

    def result_of_variable(self, term: s.FunctionTerm, kinds: list[Kind]) -> Kind:
        """Return the dtype of the result of a variable for a function."""
        if not self.building:
            self.functions[term.fn] = *kinds, Kind()
        *expected, kind = self.functions.get(term.fn, (Kind(),))
        if len(expected) != len(kinds):
            raise self.refuse(f"`{term.fn}` of other operands than in the pattern", term)
        for have, want in zip(kinds, expected, strict=True):
            self.agree(have, want)
        return kind

    def result(self, fn: str, kinds: list[Kind]) -> Kind:
        """Return the dtype of a function's result."""
        kind, truth = FUNCTIONS[fn].kind, Kind('"b8"', fixed=True)
        if kind == CAST:
            name = HELD.get(fn, fn)
            return Kind(f'"{name}"', fixed=True, floating=name in COMPUTING_FLOATS)
        if kind == LOGICAL:
            for each in kinds:
                self.agree(each, truth)
            return truth
        first, *others = kinds[1:] if kind == SELECT else kinds
        self.agree(first, *others)
        if kind == FLOAT:
            self.floating(first)
        return truth if kind == COMPARE else first

    # ---- guards: masks of axes, extents, dtypes, and whether a value is known when loaded
    def guards(self) -> None:
        for clause in self.rule.clauses:
            match clause:
                case s.LetClause(name=name, value=value):
                    gives, *_ = FACTS.get(getattr(value, "fn", ""), ("",))
                    if gives in ("term", "map"):
                        self.query.append(form("=", f"v_{name}", self.text(value, gives)))
                        self.roles[name] = gives
                    else:
                        self.lets[name] = self.named(value)
                case s.Guard(kind="require"):
                    self.condition(clause.condition)
                case s.PickClause():
                    raise self.refuse("`pick`", clause)

    def condition(self, node: s.Syntax) -> None:
        """Query for what a condition says."""
        match s.bare(self.named(node)):
            case s.Operation(op="!=", a=s.NameOf(text=name), b=s.NameOf(text="none")) if name in self.roles:
                pass  # the fact answers, or the rule does not match
            case s.Operation(op="and", a=a, b=b):
                self.condition(a)
                self.condition(b)
            case s.Operation(op="or"):
                raise self.refuse("`or`", node)
            case bare:
                self.query.append(self.text(bare, "condition"))

    def text(self, node: s.Syntax, sort: str) -> str:
        """Return the text of what a guard says or asks; a set of axes is a mask."""
        node = self.named(node)
        asked, operands = "", tuple[s.Syntax, ...]()
        match node:
            case s.NameOf(text=name) if self.roles.get(name) == sort:
                return f"v_{name}"
            case s.NameOf(text=name) if sort == "dtype" and name in DTYPES:
                return f'"{name}"'
            case s.Number(value=int(value)) if sort == "number":
                self.constants.add(value)
                return str(value)
            case s.Group(bracket="[" | "{", items=(_, *_)) if sort == "axes":
                return reduce(partial(form, "|"), [self.text(item, sort) for item in node.items])
            case s.Apply():
                asked, operands = node.fn, node.items
            case s.Prefix(op="not", a=s.Apply(fn=fn, items=operands)):
                asked = f"not {fn}"
            case s.Operation():
                asked, operands = node.op, (node.a, node.b)
        gives, text, *takes = FACTS.get(asked, ("", ""))
        if gives == sort:
            return text.format(*map(self.text, operands, takes))
        for compared in ("number", "dtype", "axes") if asked in NEGATED else ():
            if compared == "number" or asked in ("==", "!="):
                with suppress(DplcError):
                    return form("=" if asked == "==" else asked, *(self.text(item, compared) for item in operands))
        raise self.unknown(node)

    def named(self, node: s.Syntax) -> Any:
        """Return what the name of a `let` or of a parameter is bound to; other syntax without its own `let`s."""
        if isinstance(node, s.LetExpression):
            return without_lets(node)
        return self.lets.get(node.text, node) if isinstance(node, s.NameOf) else node

    def unknown(self, node: s.Syntax) -> DplcError:
        """Return the refusal of a guard: a property of a kernel says so."""
        facts = facts_of("tensor")
        for fn in (call.fn for call in calls(node) if call.fn in facts):
            of_kernel = facts[fn].ask.__module__.endswith("facts.fusion")
            return self.refuse(f"`{fn}` is a property of one kernel: it" if of_kernel else f"the fact `{fn}`", node)
        return self.refuse("this guard", node)


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
        kinds = [(kind_of(rule), type([*rule.left.values()][-1])) for rule in fusion.rules]
        folding = frozenset(CONSTRUCTORS[made] for kind, made in kinds if kind == "fuse")
        return cls(folding, any(kind == "inline" for kind, _ in kinds))
