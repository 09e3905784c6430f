"""A rule on tensor as one Python function: the tests of its pattern, its guards, its template.

Two variants: without evidence a guard that fails is a skip and nothing else; with evidence it is noted at the site.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....ir import compose
from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.functions import ARITHMETIC, FLOAT, FUNCTIONS, LOGICAL, SELECT
from ....ir.monoid_texts import PARTS
from ....ir.tensor import Index, Mat, Term, dtype
from ...language import core as c
from ...language.evaluate import Expressions
from ...language.questions import SITE, Environment
from ...language.rule import Rule
from ..statements.clauses import PlanRunner
from ..statements.planning import plan
from .pattern import ValueMatcher, head


@dataclass
class CompiledTermRule:
    """A compiled rule. run(term, site) gives the replacement (the bindings, if compiled to bind), or None.

    collapses: the replacement is an operand of the root, whatever that is, and has its dtype by the laws of the IR.
    """

    rule: Rule
    run: Callable[[Any, Any], Any]
    root: type | None
    fn: str | None  # the function of an Elementwise root; None if the pattern leaves it open
    source: str
    collapses: bool = False


class AtTerm:
    """Tells a site of the guards that kept a rule away from a term."""

    __slots__ = ("site", "term")

    def __init__(self, site: Any, term: Any):
        self.site, self.term = site, term

    def guard(self, rule: Rule, guard: c.Guard, depth: int, env: Environment) -> None:
        self.site.refuse(rule, guard, self.term, env)

    def domain(self, *_: Any) -> None:
        pass

    refuse = undecided = domain


def runner_of(rule: Rule, parameters: dict[str, Any]) -> tuple[PlanRunner, dict[str, Any]]:
    """What decides about matches of a rule on tensor, and the values that are given to its parameters."""
    keys = {p.name: f"{rule.name}.{p.name}" for p in rule.parameters}
    pinned = {name: parameters[key] for name, key in keys.items() if key in parameters}
    for parameter in rule.parameters:
        if parameter.default is None and parameter.name not in pinned:
            raise DplcError(f"rule `{rule.name}`: parameter `{parameter.name}` has no default", parameter.span)
    for clause in rule.clauses:
        if isinstance(clause, c.PickClause):
            raise DplcError(f"rule `{rule.name}`: `pick` is not for rules on tensor", clause.span)
    return PlanRunner(rule, plan(rule, Expressions("tensor"))), pinned


class TermRuleWriter(ValueMatcher):
    """Writes the function of one rule. noted: note refusals; bind: give the bindings, not a replacement."""

    def __init__(self, rule: Rule, parameters: dict[str, Any], evidence: bool = False, bind: bool = False):
        super().__init__(rule, deciding=bind, known=True)
        self.parameters, self.noted = parameters, evidence
        self.scope |= {
            "Index": Index, "Mat": Mat, "typed": _typed, "elementwise": compose.elementwise,
            "reduce": compose.reduce, "case": compose.case, "remap": compose.remap, "cast": compose.asked_cast,
            "fold": compose.fold,
        }  # fmt: skip

    def keep(self, value: Any) -> str:
        """An object of the rule, by a name of ours."""
        return self.constant(value) if value.__class__ in (str, int, float, bool) else self.object(value)

    # ---- the function
    def write(self) -> CompiledTermRule:
        self.open("def attempt(t, site):")
        self.root()
        self.bindings()
        self.clauses()
        if not self.deciding:
            if self.noted:
                self.put("site.folded.clear()")
            result = self.template()
            if self.noted:
                self.put("site.bound = env")
            same = f"site.unchanged({self.keep(self.rule)}, t); " if self.noted else ""
            self.put(f"if {result} is t: {same}{self.fail}")
            self.put(f"return {result}")
        else:
            self.put("return env")
        self.close()
        cls, constants = head(list(self.rule.left.values())[-1])
        run, collapses = self.compile("attempt", self.rule.name), self.collapses(list(self.rule.left.values())[-1])
        return CompiledTermRule(self.rule, run, cls, constants.get("fn"), self.text(), collapses)

    def bindings(self) -> None:
        """Locals for what clauses and template read, and for everything where it is put into an environment."""
        self.asks = bool(self.rule.clauses or self.rule.parameters) or self.deciding or self.noted
        for name, symbol in self.symbols.items():
            if self.asks or name in self.read:
                symbol.text = self.held(symbol.text)
        self.kinds = {name: symbol.kind for name, symbol in self.symbols.items()}

    def collapses(self, pattern: c.ValueTerm) -> bool:
        value = list(self.rule.right.values())[-1]
        if self.rule.clauses or not isinstance(value, c.NameTerm) or not isinstance(pattern, c.FunctionTerm):
            return False
        kind = FUNCTIONS[pattern.fn].kind if pattern.known else None
        operands = pattern.operands[1:] if kind == SELECT else pattern.operands
        kept = any(isinstance(x, c.NameTerm) and x.name == value.name for x in operands)
        return kept and kind in (ARITHMETIC, FLOAT, LOGICAL, SELECT)

    # ---- guards
    def clauses(self) -> None:
        if not self.asks:
            return
        site = f", {self.keep(SITE)}: site, {self.keep('target')}: site.target}}"
        self.put(f"env = {self.environment(self.symbols, '')[:-1]}{site}")
        if self.rule.clauses or self.rule.parameters:
            runner, pinned = runner_of(self.rule, self.parameters)
            told = f"{self.keep(AtTerm)}(site, t)" if self.noted else "None"
            self.put(f"env = {self.keep(runner.first(self.noted))}(env, {self.keep(pinned)}, {told})")
            self.put(f"if env is None: {self.fail}")
            self.kinds |= {clause.name: "let" for clause in self.rule.clauses if isinstance(clause, c.LetClause)}

    # ---- templates
    def template(self) -> str:
        local = {name: symbol.text for name, symbol in self.symbols.items()}
        result = ""
        for name, term in self.rule.right.items():
            result = self.local("v")
            self.put(f"{result} = {self.build(term, local)}")
            local[name] = result
            self.kinds[name] = "built"
        if not (isinstance(term, c.NameTerm) and self.kinds.get(term.name) == "term"):
            self.put(f"{result} = typed({result}, t)")
        return result

    def build(self, term: c.ValueTerm, local: dict[str, str]) -> str:
        """The text that makes a value, or a piece of one."""
        match term:
            case c.NumberTerm():
                return self.keep(term.value)
            case c.NameTerm() | c.AxisTerm():
                return self.look(term.name, term, local)
            case c.RunTerm():
                return f"*{self.look(term.name, term, local)}"
            case c.MappedTerm():
                return f"remap({self.build(term.x, local)}, dict({self.look(term.map, term, local)}))"
            case c.ReduceTerm():
                fn = self.keep(term.fn) if term.fn in FUNCTIONS else self.look(term.fn, term, local)
                return f"reduce({fn}, ({self.listed(term.over, local)},), {self.build(term.x, local)})"
            case c.FoldTerm():
                part = self.keep(term.part) if term.part in PARTS else local[term.part]
                return f"fold({part}, ({self.listed(term.over, local)},), ({self.listed(term.operands, local)},))"
            case c.CastTerm(dtype=c.NameOf(text=dtype)):
                return f"cast({self.build(term.x, local)}, {self.keep(dtype)})"
            case c.CaseTerm():
                return f"case({self.listed((c.term_of(term.condition), term.a, term.b), local)})"
            case c.IndexTerm():
                return f"Index({self.build(c.term_of(term.e), local)})"
            case c.MatTerm():
                return f"Mat({self.build(term.x, local)})"
            case c.FunctionTerm():
                return f"elementwise({self.function_named(term, local)}, {self.listed(term.operands, local)})"
        raise DplcError(f"rule `{self.rule.name}`: not a value", term.span)

    def listed(self, items: tuple[c.ValueTerm, ...], local: dict[str, str]) -> str:
        return ", ".join(self.build(item, local) for item in items)

    def look(self, name: str, term: c.ValueTerm, local: dict[str, str]) -> str:
        if self.kinds.get(name) == "let":
            return f"env[{self.keep(name)}]"
        if name not in local:
            what = f"rule `{self.rule.name}`: unbound variable `{name}`"
            raise DplcError(what, term.span, (), did_you_mean(name, local))
        return local[name]

    def function_named(self, term: c.FunctionTerm, local: dict[str, str]) -> str:
        if term.known:
            return self.keep(term.fn)
        if self.kinds.get(term.fn) == "name":
            return local[term.fn]
        hint = did_you_mean(term.fn, (*FUNCTIONS, *c.OPERATIONS))
        raise DplcError(f"rule `{self.rule.name}`: unknown function `{term.fn}`", term.span, (), hint)


def _typed(value: Any, like: Any) -> Any:
    """A template's result; a number takes the dtype of what it replaces."""
    return value if isinstance(value, Term) else compose.const(value, dtype(like))
