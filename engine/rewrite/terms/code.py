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
from ....ir.text import syntax as s
from ...language.evaluate import SITE, Expressions, holds
from ...language.rule import Rule
from .pattern import OPERATIONS, Patterns, constant_of, definitions, fold_part


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
            "reduce": compose.reduce, "case": compose.case, "remap": compose.remap, "cast": compose.cast,
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
            result = self.template()
            self.test(f"{result} is t")
            self.line(f"return {result}")
        else:
            self.line("return env")
        self.close()
        source = "def attempt(t, site):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<{self.rule.name}>", "exec"), self.scope)  # our text; the rule's names are in its scope
        return CompiledTermRule(self.rule, self.scope["attempt"], root, fn, source, self.collapses(pattern))

    def collapses(self, pattern: s.Syntax) -> bool:
        last = self.rule.rewrite[-1]
        value = last.value if isinstance(last, s.Assign) else None
        if self.rule.clauses or not isinstance(value, s.NameOf) or not isinstance(pattern, s.Apply):
            return False
        kind = FUNCTIONS[pattern.fn].kind if pattern.fn in FUNCTIONS else None
        operands = pattern.items[1:] if kind == SELECT else pattern.items
        kept = any(isinstance(item, s.NameOf) and item.text == value.text for item in operands)
        return kept and kind in (ARITHMETIC, FLOAT, LOGICAL, SELECT)

    # ---- guards
    def clauses(self) -> None:
        clauses, parameters = self.rule.clauses, {p.name: p for p in self.rule.parameters}
        needs = bool(clauses) or self.bind or self.open_template()
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
            self.line(f"env[{self.keep(name)}] = {self.keep(value)}(env)")
        for place, clause in enumerate(clauses):
            if isinstance(clause, s.LetClause):
                self.line(
                    f"env[{self.keep(clause.name)}] = {self.keep(Expressions('tensor').compile(clause.value))}(env)"
                )
                self.kinds[clause.name] = "let"
            elif isinstance(clause, s.Guard):
                guard = self.keep(Expressions("tensor").compile(clause.condition))
                refuse = f"site.refuse({self.keep(self.rule)}, {self.keep(clause)}, t, env); " if self.evidence else ""
                self.line(f"if not holds({guard}, env): {refuse}{self.fail}")
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
        for name, node in definitions(self.rule, self.rule.rewrite).items():
            result = self.fresh()
            self.line(f"{result} = {self.build(node, local)}")
            local[name] = result
            self.kinds[name] = "built"
        if not (isinstance(node, s.NameOf) and self.kinds.get(node.text) == "term"):
            self.line(f"{result} = typed({result}, t)")
        return result

    def build(self, node: s.Syntax, local: dict[str, str]) -> str:
        value = constant_of(node)
        if value is not None:
            return self.keep(value)
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.build(node.items[0], local)
        if isinstance(node, s.NameOf):
            if self.kinds.get(node.text) == "let":
                return f"env[{self.keep(node.text)}]"
            if node.text not in local:
                raise DplcError(
                    f"rule `{self.rule.name}`: unbound variable `{node.text}`",
                    node.span,
                    (),
                    did_you_mean(node.text, local),
                )
            return local[node.text]
        if isinstance(node, s.Run):
            return f"*{self.build(node.base, local)}"
        if isinstance(node, s.Subscript) and len(node.items) == 1 and isinstance(node.items[0], s.Run):
            return f"remap({self.build(node.base, local)}, dict({self.build(node.items[0].base, local)}))"
        if isinstance(node, s.Apply):
            return self.build_apply(node, local)
        raise DplcError(f"rule `{self.rule.name}`: not a value", node.span)

    def build_fold(self, node: s.Apply, local: dict[str, str]) -> str:
        part, given = fold_part(node), node.items[-1]
        assert isinstance(given, s.Group)
        over = ", ".join(self.build(axis, local) for axis in node.items[1:-1])
        args = ", ".join(self.build(x, local) for x in given.items)
        return f"fold({self.keep(part) if part in PARTS else local[str(part)]}, ({over},), ({args},))"

    def build_apply(self, node: s.Apply, local: dict[str, str]) -> str:
        if node.fn == "Reduce":
            fn, over, x = node.items[0], node.items[1:-1], self.build(node.items[-1], local)
            name = self.keep(fn.text) if isinstance(fn, s.NameOf) and fn.text in FUNCTIONS else self.build(fn, local)
            axes_ = ", ".join(self.build(axis, local) for axis in over)
            return f"reduce({name}, ({axes_},), {x})"
        if node.fn == "Fold":
            return self.build_fold(node, local)
        if node.fn == "cast" and len(node.items) == 2 and isinstance(node.items[1], s.NameOf):
            return f"cast({self.build(node.items[0], local)}, {self.keep(node.items[1].text)})"
        items = ", ".join(self.build(item, local) for item in node.items)
        if node.fn == "Case":
            return f"case({items})"
        if node.fn in ("Index", "mat"):
            return f"{node.fn.capitalize()}({items})"
        if node.fn in FUNCTIONS:
            return f"elementwise({self.keep(node.fn)}, {items})"
        if self.kinds.get(node.fn) == "fn":
            return f"elementwise({local[node.fn]}, {items})"
        raise DplcError(
            f"rule `{self.rule.name}`: unknown function `{node.fn}`",
            node.span,
            (),
            did_you_mean(node.fn, (*FUNCTIONS, *OPERATIONS)),
        )


def _typed(value: Any, like: Any) -> Any:
    """A template's result; a number takes the dtype of what it replaces."""
    return value if isinstance(value, Term) else compose.const(value, dtype(like))
