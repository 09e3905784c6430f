"""Patterns of values (rules on tensor) to Python.

A name that a line of the pattern defines is matched where it first occurs; the next occurrence is the same value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ....ir import compose
from ....ir.diagnostic import DplcError
from ....ir.expr import Axis, Not
from ....ir.functions import ARITHMETIC, CAST, FLOAT, FUNCTIONS, HELD, LOGICAL, SELECT
from ....ir.monoid_texts import PARTS
from ....ir.tensor import Case, Const, Elementwise, Fold, Index, Input, Reduce, Remap, Term, axes, dtype, postorder
from ....ir.text.read_statements import CONSTANTS
from ...language.core import (
    Apply,
    Assign,
    AxisTerm,
    CaseTerm,
    CastTerm,
    FoldTerm,
    FunctionTerm,
    Guard,
    IndexTerm,
    LetClause,
    MappedTerm,
    MatTerm,
    NameOf,
    NameTerm,
    NumberTerm,
    Operation,
    PickClause,
    Prefix,
    ReadTerm,
    ReduceTerm,
    RunTerm,
    Subscript,
    Syntax,
    ValueTerm,
    bare,
    constant_of,
    term_of,
)
from ...language.evaluate import SITE, Environment, Expressions
from ...language.rule import Rule
from ...language.typed_slots import reads
from ..matcher import Matcher, Rest, Symbol
from ..statements.compiled import NO_PINS, Pinned, PlanExecutor, plan
from ..trace import CHANGES_NOTHING, Evidence

# Fields of a term that name something known, if they do not hold a variable.
_KNOWN: dict[str, Container[object]] = {"fn": FUNCTIONS, "part": PARTS}
# The class of the value that a term matches, and the text that builds it.
_NODES: dict[type, tuple[type, str]] = {
    MappedTerm: (Remap, "remap({}, dict({}))"), CaseTerm: (Case, "case({}, {}, {})"),
    IndexTerm: (Index, "Index({})"), FunctionTerm: (Elementwise, "elementwise({}, {})"),
    ReduceTerm: (Reduce, "reduce({}, ({},), {})"), FoldTerm: (Fold, "fold({}, ({},), ({},))"),
}  # fmt: skip


class TermRuleWriter(Matcher[ValueTerm]):
    """Writer of the functions of one rule: the tests of its pattern, its guards, its template.

    evidence: note refusals, also every failed guard at the site. bind: return the bindings, not a replacement, as
    fusion wants them. near: report near misses. Without them, the caller has checked the class of the root, and its
    function if that is elementwise.
    """

    def __init__(
        self, rule: Rule, parameters: Pinned = NO_PINS, evidence: bool = False, bind: bool = False, near: bool = False
    ):
        super().__init__({
            "Axis": Axis, "Const": Const, "Not": Not, "Remap": Remap, "axes": axes, "leaf": is_leaf,
            "orders": orders_of, "Index": Index, "typed": _typed, "elementwise": compose.elementwise,
            "reduce": compose.reduce, "case": compose.case, "remap": compose.remap, "cast": compose.asked_cast,
            "fold": compose.fold,
        }, "parts" if near else "")  # fmt: skip
        self.rule, self.parameters, self.noted, self.deciding = rule, parameters, evidence, bind
        self.inner = []
        self.read = {*reads((*rule.clauses, *rule.rewrite))}
        self.own: dict[str, str] = {}  # value -> its axes in the order of its left side

    def function_of(self, name: str, given: str, result: Callable[[], str]) -> Any:
        """Return the function `name(t, given)`, which returns a result if the pattern matches at the value t."""
        self.open(f"def {name}(t, {given}):")
        self.definition(list(self.rule.left)[-1], "t", True)
        self.put(f"return {result()}")
        self.close()
        return self.compile(name, self.rule.name)

    def definition(self, name: str, x: str, root: bool = False) -> None:
        first = name not in self.symbols
        self.bind(name, x, "term")
        if first and name in self.rule.left:
            self.value(self.rule.left[name], x)
            if name in self.rule.left_axes:
                self.left(name, x, root)

    # ---- values
    def value(self, term: ValueTerm, x: str) -> None:
        """Emit tests that a value, or an axis, is of this form."""
        with self.at(term.node, x) as x:
            cls, constants = head(term)
            known = x == "t" and not self.reports
            tests = [] if cls is None or known else [f"{x}.__class__ is not {self.constant(cls)}"]
            for name, value in constants.items():
                if name == "value":
                    tests.append(self.no_number(f"{x}.value", value))
                elif not (known and cls is Elementwise):
                    tests.append(self.unlike(f"{x}.{name}", value))
            if tests:
                self.reject(" or ".join(tests))
            self.matched += cls is not None
            match term:
                case NameTerm():
                    self.definition(term.name, x)
                case AxisTerm():
                    self.bind(term.name, x)
                    self.extent(term, x)
                case ReadTerm():
                    self.places(term, x)
                case MatTerm():  # a decision of fusion that is open, no node
                    inner = self.held(f"site.stored({x})")
                    self.reject(f"{inner} is None")
                    self.value(term.x, inner)
                case _ if cls is None:
                    raise self.error("not a pattern over values", term)
                case _ if "value" not in constants:
                    self.fields(term, constants, x)

    def fields(self, term: ValueTerm, constants: Container[str], x: str) -> None:
        """Match the fields of a term, which have the names of those of the node: names and lists before values."""
        waiting = []
        swaps = isinstance(term, FunctionTerm) and term.known and FUNCTIONS[term.fn].commutative and not term.runs
        for name in type(term).__slots__:
            value, place = getattr(term, name), f"{x}.{name}".replace(".operands", ".args")
            if isinstance(value, ValueTerm):
                waiting.append((value, place))
            elif swaps and name == "operands":
                a, b, first, second = (self.local("a") for _ in range(4))
                self.put(f"{a}, {b} = {place}")
                there = next(((x, v) for x, v in zip((a, b), value, strict=True) if self.is_known(v)), None)
                if there is None:
                    self.loop(f"for {first}, {second} in (({a}, {b}), ({b}, {a})):", term.node)
                else:  # no choice: a value that is known is one of the two
                    known = f"{there[0]} is {self.symbols[there[1].name].text}"
                    self.put(f"{first}, {second} = ({a}, {b}) if {known} else ({b}, {a})")
                waiting = [(value[0], first), (value[1], second)]
            elif isinstance(value, tuple):
                self.items(value, self.held(place, "t"), "0")
            elif isinstance(value, Syntax):
                self.arithmetic(value, place)
            elif name not in constants:
                self.bind(value, place, "name" if name == "fn" else "value")
        self.several(waiting)

    def is_known(self, term: ValueTerm) -> bool:
        """Return whether a term is the name of a value that has matched."""
        return isinstance(term, NameTerm) and getattr(self.symbols.get(term.name), "kind", "") == "term"

    def error(self, what: str, term: ValueTerm | Syntax) -> DplcError:
        return DplcError(f"rule `{self.rule.name}`: {what}", term)

    def several(self, waiting: list[tuple[ValueTerm, str]]) -> None:
        """Match sub-patterns, the most selective first: numbers and bound names, operations, variables."""

        def eagerness(pair: tuple[ValueTerm, str]) -> int:
            term = pair[0]
            if isinstance(term, NameTerm):
                return 0 if term.name in self.symbols else 1 if term.name in self.rule.left else 2
            return 0 if isinstance(term, NumberTerm | AxisTerm) else 1

        for term, x in sorted(waiting, key=eagerness):
            self.value(term, x)

    # ---- lists
    def flexible(self, item: ValueTerm) -> bool:
        return isinstance(item, RunTerm)

    def item(self, item: ValueTerm, x: str) -> Iterable[tuple[ValueTerm, str]]:
        return ((item, x),)

    def stretch(self, item: ValueTerm, whole: str, at: str, size: str, rest: Rest) -> str:
        assert isinstance(item, RunTerm)
        return self.run(item.node, item.name, None, whole, at, size, rest)

    # ---- axes
    def extent(self, item: AxisTerm, x: str, there: str = "") -> None:
        """Match the extent of an axis. there: the condition that there is one, if it may be missing."""
        if isinstance(item.extent, int):
            self.reject(f"{there}{x}.extent != {self.constant(item.extent)}")
        elif item.extent is not None:
            self.bind(item.extent, f"{x}.extent")

    def left(self, name: str, x: str, root: bool) -> None:
        """Match `y[i:4, j] = ..`, once its right side has matched: y varies along these axes, in whatever order.

        The root may be stored along more axes than it varies with: a name for such an axis alone is None, and matches.
        """
        items = self.rule.left_axes[name]
        lines = (line.target for line in self.rule.match if isinstance(line, Assign))
        place = next(y for y in lines if isinstance(y, Subscript) and getattr(y.base, "text", "") == name)
        with self.at(place, x) as x:
            known = [item for item in items if item.name in self.symbols]
            free = [item for item in items if item not in known]
            rest = self.held(f"[a for a in axes({x}) if a not in {self.listed(known)}]", "r")
            found = [self.local("a") for _ in free]
            self.reject(f"len({rest}) {'>' if root else '!='} {len(free)}")
            if not root:
                self.reject(f"len(axes({x})) != {len(items)}")
            if len(found) == 1 and not root:
                self.put(f"{found[0]}, = {rest}")
            elif found:
                self.loop(f"for {', '.join(found)}, in orders({rest}, {len(free)}):", place)
            for item, local in zip(free, found, strict=True):
                maybe = item.name not in self.read and not isinstance(item.extent, str)
                if root and not maybe:
                    self.reject(f"{local} is None")
                self.bind(item.name, local)
                self.extent(item, local, f"{local} is not None and " if root and maybe else "")
            for item in known:
                self.extent(item, self.symbols[item.name].text)
        self.own[name] = self.listed(items)

    def listed(self, items: Iterable[AxisTerm]) -> str:
        """Return the text of a tuple of axes that are bound."""
        return f"({''.join(f'{self.symbols[item.name].text}, ' for item in items)})"

    # ---- values read at an index
    def places(self, term: ReadTerm, x: str) -> None:
        """Match `x[i, k + 1]`: every axis of x, in the order of its left side or its own, is read at these indices."""
        if not isinstance(term.x, NameTerm):
            raise self.error("a value is read by its name: `x[i, k]`", term)
        inner, map_ = self.local("m"), self.local("m")
        self.put(f"{inner}, {map_} = ({x}.x, dict({x}.map)) if {x}.__class__ is Remap else ({x}, {{}})")
        self.value(term.x, inner)
        own = self.held(self.own.get(term.x.name, f"axes({inner})"))
        self.reject(f"len({own}) != {len(term.places)}")
        for place, item in enumerate(term.places):
            self.index(item, self.held(f"{map_}.get({own}[{place}], {own}[{place}])"))

    def arithmetic(self, node: Syntax, x: str) -> None:
        """Match the contents of `Index` or `Case`: a variable for all of it, or an expression."""
        if isinstance(node, NameOf) and node.text not in self.rule.left and node.text not in CONSTANTS:
            self.bind(node.text, x)
        else:
            self.index(node, x)

    def index(self, node: Syntax, x: str) -> None:
        """Match an index expression: a name is an axis or a value, and nothing else."""
        with self.at(node, x) as x:
            node, number = bare(node), constant_of(node)
            if number is not None:
                self.reject(self.unlike(x, number))
            elif isinstance(node, Prefix) and node.op == "not":
                self.reject(f"{x}.__class__ is not Not")
                self.index(node.a, f"{x}.a")
            elif isinstance(node, Operation | Prefix):
                self.computed(node, x)
            elif isinstance(node, NameOf | Subscript | Apply):
                self.reject(f"not leaf({x})")
                if not isinstance(node, NameOf) or node.text in self.rule.left:
                    self.reject(f"{x}.__class__ is Axis")
                    return self.value(term_of(node), x)
                if node.text in self.read:  # a template that reads it takes it for an axis
                    self.reject(f"{x}.__class__ is not Axis")
                self.bind(node.text, x)
            else:
                what = "an index in a pattern is arithmetic over axes and values, or `x[is..]` takes any"
                raise self.error(what, node)
        return None

    operand = index

    # ---- the function
    def write(self) -> CompiledTermRule:
        *_, pattern = self.rule.left.values()
        cls, constants = head(pattern)
        root = constants.get("fn", cls) if cls is Elementwise else cls
        run = self.function_of("attempt", "site", self.decided)
        return CompiledTermRule(self.rule, run, root, self.collapses(pattern))

    def collapses(self, pattern: ValueTerm) -> bool:
        *_, value = self.rule.right.values()
        if self.rule.clauses or not isinstance(pattern, FunctionTerm) or not pattern.known:
            return False
        kind = FUNCTIONS[pattern.fn].kind
        operands = pattern.operands[1:] if kind == SELECT else pattern.operands
        kept = isinstance(value, NameTerm) and value.name in [getattr(x, "name", None) for x in operands]
        return kept and kind in (ARITHMETIC, FLOAT, LOGICAL, SELECT)

    # ---- guards
    def decided(self) -> str:
        """Define locals for what clauses and template read, and decide. Return the bindings, or the replacement."""
        rule = self.rule
        decides = bool(rule.clauses or rule.parameters)
        asks = decides or self.deciding or self.noted
        for name, symbol in self.symbols.items():
            if asks or name in self.read:
                symbol.text = self.held(symbol.text)
        if asks:
            site = f"{self.constant(SITE)}: site, {self.constant('target')}: site.target"
            self.put(f"env = {{{self.environment(self.symbols)}, {site}}}")
        if decides:
            decide, pinned = map(self.constant, executor_of(rule, self.parameters, self.noted))
            evidence = f"{self.constant(AtTerm)}({self.constant(rule)}, site, t)" if self.noted else "None"
            self.put(f"env = {decide}(env, {pinned}, {evidence})", f"if env is None: {self.fail}")
        for clause in rule.clauses:
            if isinstance(clause, LetClause):
                self.symbols[clause.name] = Symbol(f"env[{self.constant(clause.name)}]", "value")
        return "env" if self.deciding else self.template()

    # ---- templates
    def template(self) -> str:
        """Define a local for every value of the template. Return that of the last one, if it changes something."""
        unchanged = ""
        if self.noted:
            self.put("site.folded.clear()")
            what = f"{self.constant(self.rule)}, {self.constant(CHANGES_NOTHING)}"
            unchanged = f"site.evidence.refuse({what}, t); "
        for name, term in self.rule.right.items():
            result = self.local("v")
            self.put(f"{result} = {self.build(term)}")
            self.symbols[name] = Symbol(result, "built")
        given = self.symbols.get(term.name) if isinstance(term, NameTerm) else None
        if given is None or given.kind != "term":
            self.put(f"{result} = typed({result}, t)")
        if self.noted:
            self.put("site.bound = env")
        self.put(f"if {result} is t: {unchanged}{self.fail}")
        return result

    def build(self, term: ValueTerm) -> str:
        """Return the text that builds a value, or a piece of one."""
        match term:
            case NumberTerm():
                return self.constant(term.value)
            case NameTerm() | AxisTerm():
                return self.symbols[term.name].text
            case RunTerm():
                return f"*{self.symbols[term.name].text}"
            case CastTerm(dtype=NameOf(text=dtype)):
                return f"cast({self.build(term.x)}, {self.constant(dtype)})"
        if type(term) not in _NODES:
            raise self.error("not a value", term)
        parts = (self.part(name, getattr(term, name)) for name in type(term).__slots__)
        return _NODES[type(term)][1].format(*parts)

    def part(self, field: str, value: str | Syntax | ValueTerm | tuple[ValueTerm, ...]) -> str:
        """Return the text of a field of a term: of a name, a list, a value."""
        if isinstance(value, str):
            return self.constant(value) if value in _KNOWN.get(field, ()) else self.symbols[value].text
        if isinstance(value, tuple):
            return ", ".join(map(self.build, value))
        return self.build(value if isinstance(value, ValueTerm) else term_of(value))


def head(term: ValueTerm) -> tuple[type | None, dict[str, Any]]:
    """Return the class that a value must have, and the required values of its fields."""
    match term:
        case NumberTerm(value=x):
            return Const, {"value": x}
        case FunctionTerm(fn=fn, operands=(NumberTerm(value=x), *_)) if term.known and FUNCTIONS[fn].kind == CAST:
            return Const, {"value": x, "dtype": HELD.get(fn, fn)}  # `f32(2.0)` is a number with its dtype, no cast
    if type(term) not in _NODES:
        return None, {}
    said = ((name, getattr(term, name, None)) for name in _KNOWN)
    return _NODES[type(term)][0], {name: value for name, value in said if value in _KNOWN[name]}


def begins_at(rule: Rule, term: Term) -> bool:
    """Return whether the last operation of a pattern computes a value."""
    cls, constants = head(list(rule.left.values())[-1])
    return term.__class__ is cls and all(v != v or getattr(term, name) == v for name, v in constants.items())


# Functions that generated matchers call.
def is_leaf(value: object) -> bool:
    return isinstance(value, Axis | Term)


def orders_of(rest: list[Axis], number: int) -> Iterable[tuple[Axis | None, ...]]:
    """Return the ways to assign the remaining axes to `number` names, their own order first; None if one is missing."""
    return itertools.permutations([*rest, *[None] * (number - len(rest))])


# A rule on tensor as one Python function: the tests of its pattern, its guards, its template.
#
# There are two variants. The variant with evidence records every failed guard at the site.


@dataclass(frozen=True, slots=True)
class CompiledTermRule:
    """A compiled rule. run(term, site) gives the replacement (the bindings, if compiled to bind), or None.

    root: the class of the root, or its function if that is elementwise; None if the pattern leaves both open.
    collapses: the replacement is an operand of the root, whatever that is, and has its dtype by the laws of the IR.
    """

    rule: Rule
    run: Callable[[Term, Any], Any]
    root: type | str | None
    collapses: bool


class RefusingSite(Protocol):
    """A site that keeps what its rules refused."""

    def refuse(self, rule: Rule, guard: Guard, term: Term, env: Environment, /) -> None:
        """Note the guard that kept a rule away from a term."""


@dataclass
class AtTerm(Evidence):
    """Evidence that reports to a site only the guards that kept a rule away from a term."""

    rule: Rule
    site: RefusingSite
    term: Term

    def guard(self, guard: Guard, depth: int, env: Environment) -> None:
        self.site.refuse(self.rule, guard, self.term, env)

    domain = refuse = undecided = staticmethod(lambda *_: None)  # type: ignore[assignment]


def executor_of(rule: Rule, parameters: Pinned, every: bool = False) -> tuple[Callable[..., Any], Pinned]:
    """Return what decides about matches of a rule on tensor, and the values of its pinned parameters.

    every: the environment that it returns has every let, not only those that the template reads.

    Raises DplcError for a parameter without a default or a value, and for a `pick`.
    """
    pinned: Environment = {}
    for parameter in rule.parameters:
        key = f"{rule.name}.{parameter.name}"
        if key in parameters:
            pinned[parameter.name] = parameters[key]
        elif parameter.default is None:
            raise DplcError(f"rule `{rule.name}`: parameter `{parameter.name}` has no default", parameter)
    for clause in rule.clauses:
        if isinstance(clause, PickClause):
            raise DplcError(f"rule `{rule.name}`: `pick` is not for rules on tensor", clause)
    return PlanExecutor(rule, plan(rule, Expressions("tensor"))).first(every), pinned


def compiled_term_rule(rule: Rule, parameters: Pinned, evidence: bool) -> CompiledTermRule:
    """Return a rule on tensor, compiled once for all sets that share it and set its parameters to the same values."""
    values = (repr(parameters.get(f"{rule.name}.{parameter.name}")) for parameter in rule.parameters)
    return rule.compiled((evidence, *values), lambda: TermRuleWriter(rule, parameters, evidence).write())


def _typed(value: Term | float, like: Term) -> Term:
    """Return a template's result; a number gets the dtype of the value that it replaces."""
    return value if isinstance(value, Term) else compose.const(value, dtype(like))


# Near misses of a rule on tensor: the value that its pattern matches furthest, and the first difference.
#
# The pattern's own matcher reports them in its variant with evidence.


LEAVES = (Input, Const, Index)


class NearMiss(NamedTuple):
    """Furthest partial match of a pattern.

    followed: the number of operations of the pattern that are there. expected: the next part of the pattern, None if
    all of it is there. found: the value there. root: the value where the match began.
    """

    followed: int
    expected: Syntax | None
    found: Term | Axis | float | None
    root: Term


def nearest_miss(rule: Rule, roots: Iterable[Term]) -> NearMiss | None:
    """Return the furthest partial match of a pattern in a program; None if no value has its last operation."""
    match = rule.compiled("near", lambda: TermRuleWriter(rule, near=True).function_of("match", "near", lambda: "True"))
    best: NearMiss | None = None
    for term in postorder(tuple(roots)):
        if not begins_at(rule, term):
            continue
        misses: list[tuple[int, Syntax, Term | Axis | float | None]] = []
        if match(term, lambda *miss, misses=misses: misses.append(miss)):
            return NearMiss(best.followed if best is not None else 1, None, term, term)
        miss = NearMiss(*max(misses, key=lambda miss: (miss[0], _tells(miss[2]))), term)
        if best is None or miss.followed > best.followed:
            best = miss
    return best


def _tells(found: object) -> bool:
    """Return whether a value is an operation: it is more informative than an input, wherever that is read."""
    return not isinstance(found.x if isinstance(found, Remap) else found, LEAVES)
