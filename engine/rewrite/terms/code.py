"""A rule on tensor as one Python function: the tests of its pattern, its guards, its template.

Two variants: without evidence a guard that fails is a skip and nothing else; with evidence it is noted at the site.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....ir import compose
from ....ir.diagnostic import DplcError, did_you_mean
from ....ir.expr import Var
from ....ir.functions import ARITHMETIC, FLOAT, FUNCTIONS, LOGICAL, SELECT
from ....ir.monoid_texts import PARTS
from ....ir.tensor import Term, dtype
from ...language import core as c
from ...language.asking import gives, holds, pays
from ...language.evaluate import Expressions
from ...language.questions import SITE
from ...language.rule import Rule
from .pattern import Patterns


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


class TermRuleWriter(Patterns):
    """Writes the function of one rule. evidence: note refusals; bind: give the bindings, not a replacement."""

    def __init__(self, rule: Rule, parameters: dict[str, Any], evidence: bool = False, bind: bool = False):
        super().__init__(rule, bind)
        self.parameters, self.evidence = parameters, evidence
        self.scope |= {
            "Term": Term, "Var": Var, "holds": holds, "typed": _typed, "elementwise": compose.elementwise,
            "reduce": compose.reduce, "case": compose.case, "remap": compose.remap, "cast": compose.asked_cast,
            "fold": compose.fold,
        }  # fmt: skip

    # ---- the function
    def write(self) -> CompiledTermRule:
        name, pattern = list(self.defined.items())[-1]
        self.bound[name], self.kinds[name] = "t", "term"
        root, fn = self.pattern(pattern, "t", True)
        self.left(name, "t", True)
        self.clauses()
        if not self.bind:
            if self.evidence:
                self.line("site.folded.clear()")
            result = self.template()
            if self.evidence:
                self.line("site.bound = env")
            same = f"site.unchanged({self.keep(self.rule)}, t); " if self.evidence else ""
            self.line(f"if {result} is t: {same}{self.fail}")
            self.line(f"return {result}")
        else:
            self.line("return env")
        self.close()
        source = "def attempt(t, site):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<{self.rule.name}>", "exec"), self.scope)  # our text; the rule's names are in its scope
        return CompiledTermRule(self.rule, self.scope["attempt"], root, fn, source, self.collapses(pattern))

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
        clauses, parameters = self.rule.clauses, {p.name: p for p in self.rule.parameters}
        needs = bool(clauses) or self.bind or self.evidence or self.open_template()
        if not needs:
            return
        pairs = [f"{self.keep(n)}: {f'Var({v})' if self.kinds[n] == 'fn' else v}" for n, v in self.bound.items()]
        pairs += [f"{self.keep(SITE)}: site", f"{self.keep('target')}: site.target"]
        self.line(f"env = {{{', '.join(pairs)}}}")
        for name, parameter in parameters.items():
            given = self.parameters.get(f"{self.rule.name}.{name}")
            if given is None and parameter.default is None:
                raise DplcError(f"rule `{self.rule.name}`: parameter `{name}` has no default", parameter.span)
            default = None if parameter.default is None else Expressions("tensor").compile(parameter.default)
            value = default if given is None else lambda env, given=given: given
            self.line(f"if not {self.keep(gives)}(env, {self.keep(name)}, {self.keep(value)}, True): {self.fail}")
        for place, clause in enumerate(clauses):
            if isinstance(clause, c.LetClause):
                value = Expressions("tensor").compile(clause.value)
                self.line(f"if not {self.keep(gives)}(env, {self.keep(clause.name)}, {self.keep(value)}): {self.fail}")
                self.kinds[clause.name] = "let"
            elif isinstance(clause, c.Guard):
                guard = self.keep(Expressions("tensor").compile(clause.condition))
                refuse = f"site.refuse({self.keep(self.rule)}, {self.keep(clause)}, t, env); " if self.evidence else ""
                ask = "holds" if clause.kind == "where" else self.keep(pays)
                self.line(f"if not {ask}({guard}, env): {refuse}{self.fail}")
            else:
                raise DplcError(
                    f"rule `{self.rule.name}`: `pick` is not for rules on tensor", clause.span, (str(place),)
                )

    # ---- templates
    def open_template(self) -> bool:
        """Whether the template computes with more than bound terms."""
        return bool(self.rule.parameters)

    def template(self) -> str:
        local = dict(self.bound)
        result = ""
        for name, term in self.rule.right.items():
            result = self.fresh()
            self.line(f"{result} = {self.build(term, local)}")
            local[name] = result
            self.kinds[name] = "built"
        if not (isinstance(term, c.NameTerm) and self.kinds.get(term.name) == "term"):
            self.line(f"{result} = typed({result}, t)")
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
        if self.kinds.get(term.fn) == "fn":
            return local[term.fn]
        hint = did_you_mean(term.fn, (*FUNCTIONS, *c.OPERATIONS))
        raise DplcError(f"rule `{self.rule.name}`: unknown function `{term.fn}`", term.span, (), hint)


def _typed(value: Any, like: Any) -> Any:
    """A template's result; a number takes the dtype of what it replaces."""
    return value if isinstance(value, Term) else compose.const(value, dtype(like))
