"""Patterns over Tensor IR terms, compiled to Python functions.

A rule becomes one function `attempt(term, site)`: nested loops, one per choice (the order of a commutative function, the split of
a run), tests that skip to the next choice, then the guards, then the template. Only code that is written here is executed:
every name and constant of a rule is an object in the function's scope, and its variables are numbered locals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir import compose
from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.expr import Var
from ...ir.functions import FUNCTIONS
from ...ir.tensor import Case, Const, Elementwise, Index, Mat, Reduce, Remap, Term, axes, dtype
from ...ir.text import syntax as s
from ..rw.evaluate import CONSTANTS, SITE, Expressions, holds
from ..rw.rule import Rule

OPERATIONS = ("Reduce", "Case", "Index", "mat")


def definitions(rule: Rule, block: tuple[s.Syntax, ...]) -> dict[str, s.Syntax]:
    """The statements of a pattern or template by the name that each defines, in order; the last one is the root."""
    found: dict[str, s.Syntax] = {}
    for statement in block:
        target = statement.target if isinstance(statement, s.Assign) else None
        if isinstance(target, s.Subscript):
            target = target.base  # left axes are derived; a text copied from a dump may have them
        if not isinstance(statement, s.Assign) or not isinstance(target, s.NameOf):
            raise DplcError(f"rule `{rule.name}`: a rule on tensor has statements `name = value`", statement.span)
        found[target.text] = statement.value
    return found


def constant_of(node: s.Syntax) -> Any:
    """The number that a literal is, else None."""
    if isinstance(node, s.Number):
        return node.value
    if isinstance(node, s.NameOf) and CONSTANTS.get(node.text) is not None:
        return CONSTANTS[node.text]
    if isinstance(node, s.Prefix) and node.op == "-":
        inner = constant_of(node.a)
        return None if inner is None else -inner
    return None


@dataclass
class Attempt:
    """A compiled rule. attempt(term, site) gives the replacement, or the bindings where the rule was compiled to bind; else None."""

    rule: Rule
    run: Callable[[Any, Any], Any]
    root: type | None
    fn: str | None  # the function of an Elementwise root; None if the pattern leaves it open
    source: str


class Writer:
    """Writes the function of one rule. `evidence` adds what tracing needs; `bind` returns bindings instead of a replacement."""

    def __init__(self, rule: Rule, parameters: dict[str, Any], evidence: bool = False, bind: bool = False):
        self.rule, self.parameters, self.evidence, self.bind = rule, parameters, evidence, bind
        self.lines: list[str] = []
        self.depth = 1
        self.scope: dict[str, Any] = {
            "Const": Const, "Elementwise": Elementwise, "Reduce": Reduce, "Remap": Remap, "Case": Case, "Index": Index, "Mat": Mat,
            "Term": Term, "Var": Var, "holds": holds, "elementwise": compose.elementwise, "reduce": compose.reduce, "case": compose.case,
            "remap": compose.remap, "as_term": compose.as_term, "typed": _typed, "axes": axes,
        }  # fmt: skip
        self.bound: dict[str, str] = {}
        self.kinds: dict[str, str] = {}  # variable -> term, axis, axes, fn, terms, map, expr
        self.count = 0
        self.defined = definitions(rule, rule.match)

    # ---- text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def keep(self, value: Any) -> str:
        """An object of the rule, by a name of ours."""
        self.count += 1
        name = f"k{self.count}"
        self.scope[name] = value
        return name

    @property
    def fail(self) -> str:
        return "continue" if self.depth > 1 else "return None"

    def test(self, condition: str) -> None:
        """Skip to the next choice if the condition holds."""
        self.line(f"if {condition}: {self.fail}")

    def loop(self, header: str) -> None:
        self.line(header)
        self.depth += 1

    # ---- the function
    def write(self) -> Attempt:
        name, pattern = list(self.defined.items())[-1]
        self.bound[name], self.kinds[name] = "t", "term"
        root, fn = self.pattern(pattern, "t", True)
        self.clauses()
        if not self.bind:
            result = self.template()
            self.test(f"{result} is t")
            self.line(f"return {result}")
        else:
            self.line("return env")
        if self.depth > 1:
            self.depth = 1
            self.line("return None")
        source = "def attempt(t, site):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<{self.rule.name}>", "exec"), self.scope)  # names and constants of the rule are in scope, never text
        return Attempt(self.rule, self.scope["attempt"], root, fn, source)

    # ---- patterns
    def pattern(self, node: s.Syntax, at: str, root: bool = False) -> tuple[type | None, str | None]:
        """Tests that the term in local `at` is of this form. Gives the class and function it must have."""
        value = constant_of(node)
        if value is not None:
            truth = "is not" if isinstance(value, bool) else "is"
            self.test(f"{at}.__class__ is not Const or {at}.value != {self.keep(value)} or {at}.value.__class__ {truth} bool")
            return Const, None
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.pattern(node.items[0], at, root)
        if isinstance(node, s.NameOf):
            return self.name(node.text, at)
        if isinstance(node, s.Subscript):
            return self.reading(node, at)
        if isinstance(node, s.Apply):
            return self.operation(node, at, root)
        raise DplcError(f"rule `{self.rule.name}`: not a pattern over values", node.span)

    def name(self, name: str, at: str) -> tuple[type | None, str | None]:
        if name == "_":
            return None, None
        if name in self.bound:
            self.test(f"{at} is not {self.bound[name]}")
            return None, None
        self.bound[name], self.kinds[name] = at, "term"
        return self.pattern(self.defined[name], at) if name in self.defined else (None, None)

    def capture(self, name: str, value: str, kind: str) -> None:
        """Binds a variable that is no term: equal if it was bound before."""
        if name == "_":
            return
        if name in self.bound:
            self.test(f"{value} != {self.bound[name]}")
            return
        local = self.fresh()
        self.line(f"{local} = {value}")
        self.bound[name], self.kinds[name] = local, kind

    def reading(self, node: s.Subscript, at: str) -> tuple[type | None, str | None]:
        """`x[is..]`: x under any index map."""
        if len(node.items) != 1 or not isinstance(node.items[0], s.Run) or not isinstance(node.items[0].base, s.NameOf):
            raise DplcError(f"rule `{self.rule.name}`: write `x[is..]` for a value read under an index map", node.span)
        self.test(f"{at}.__class__ is not Remap")
        self.capture(node.items[0].base.text, f"{at}.map", "map")
        inner = self.fresh()
        self.line(f"{inner} = {at}.x")
        self.pattern(node.base, inner)
        return Remap, None

    def operation(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        if node.fn == "mat":
            inner = self.fresh()
            if self.bind:  # on fusion's tables a `mat` is a decision still open, not a node
                self.line(f"{inner} = site.stored({at})")
                self.test(f"{inner} is None")
            else:
                self.test(f"{at}.__class__ is not Mat")
                self.line(f"{inner} = {at}.x")
            self.pattern(self.single(node), inner)
            return Mat, None
        if node.fn == "Reduce":
            return self.reduction(node, at, root)
        if node.fn == "Case":
            return self.cases(node, at, root)
        if node.fn == "Index":
            self.test(f"{at}.__class__ is not Index")
            variable = self.single(node)
            if not isinstance(variable, s.NameOf):
                raise DplcError(f"rule `{self.rule.name}`: write `Index(e)`", node.span)
            self.capture(variable.text, f"{at}.expr", "expr")
            return Index, None
        if node.fn[:1].isupper():
            raise DplcError(f"rule `{self.rule.name}`: no operation `{node.fn}` on tensor", node.span, (), did_you_mean(node.fn, OPERATIONS))
        return self.function(node, at, root)

    def single(self, node: s.Apply) -> s.Syntax:
        if len(node.items) != 1:
            raise DplcError(f"rule `{self.rule.name}`: `{node.fn}` takes one operand", node.span)
        return node.items[0]

    def reduction(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        if len(node.items) < 3 or not isinstance(node.items[0], s.NameOf):
            raise DplcError(f"rule `{self.rule.name}`: write `Reduce(fn, axes.., value)`", node.span)
        if not root:
            self.test(f"{at}.__class__ is not Reduce")
        fn = node.items[0].text
        if fn in FUNCTIONS:
            self.test(f"{at}.fn != {self.keep(fn)}")
        else:
            self.capture(fn, f"{at}.fn", "fn")
        self.sequence(node.items[1:-1], f"{at}.over", "axis", node)
        inner = self.fresh()
        self.line(f"{inner} = {at}.x")
        self.pattern(node.items[-1], inner)
        return Reduce, fn if fn in FUNCTIONS else None

    def cases(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        if len(node.items) != 3 or not isinstance(node.items[0], s.NameOf):
            raise DplcError(f"rule `{self.rule.name}`: write `Case(condition, a, b)` with a variable for the condition", node.span)
        if not root:
            self.test(f"{at}.__class__ is not Case")
        self.capture(node.items[0].text, f"{at}.cond", "expr")
        a, b = self.fresh(), self.fresh()
        self.line(f"{a} = {at}.a; {b} = {at}.b")
        self.several(((node.items[1], a), (node.items[2], b)))
        return Case, None

    def function(self, node: s.Apply, at: str, root: bool) -> tuple[type | None, str | None]:
        known = node.fn in FUNCTIONS
        if not root:
            self.test(f"{at}.__class__ is not Elementwise" + (f" or {at}.fn != {self.keep(node.fn)}" if known else ""))
        if not known:
            self.capture(node.fn, f"{at}.fn", "fn")
        fn = node.fn if known else None
        if known and not any(isinstance(item, s.Run) for item in node.items) and len(node.items) != FUNCTIONS[node.fn].arity:
            raise DplcError(f"rule `{self.rule.name}`: `{node.fn}` takes {FUNCTIONS[node.fn].arity} operands", node.span)
        if known and FUNCTIONS[node.fn].commutative and len(node.items) == 2 and not any(isinstance(i, s.Run) for i in node.items):
            a, b = self.fresh(), self.fresh()
            self.line(f"{a}, {b} = {at}.args")
            if self.specific(node.items[0]) or self.specific(node.items[1]):  # two plain variables: one order says it all
                x, y = self.fresh(), self.fresh()
                self.loop(f"for {x}, {y} in (({a}, {b}), ({b}, {a})):")
                a, b = x, y
            self.several(((node.items[0], a), (node.items[1], b)))
        else:
            self.sequence(node.items, f"{at}.args", "term", node)
        return Elementwise, fn

    def specific(self, node: s.Syntax) -> bool:
        return not isinstance(node, s.NameOf) or node.text in self.defined or node.text in self.bound or constant_of(node) is not None

    def several(self, pairs: tuple[tuple[s.Syntax, str], ...]) -> None:
        """Sub-patterns, the one that refuses soonest first: numbers, then what is bound, then operations, then variables."""

        def eagerness(pair: tuple[s.Syntax, str]) -> int:
            node = pair[0]
            if constant_of(node) is not None or isinstance(node, s.NameOf) and node.text in self.bound:
                return 0
            return 1 if self.specific(node) else 2

        for node, at in sorted(pairs, key=eagerness):
            self.pattern(node, at)

    def sequence(self, items: tuple[s.Syntax, ...], values: str, kind: str, node: s.Apply) -> None:
        """A list of items with runs among them: a loop over every run's end but the last one's, which is determined."""
        runs = [place for place, item in enumerate(items) if isinstance(item, s.Run)]
        found = self.fresh()
        self.line(f"{found} = {values}")
        fixed = len(items) - len(runs)
        self.test(f"len({found}) {'<' if runs else '!='} {fixed}")
        position, waiting = "0", []
        for place, item in enumerate(items):
            if isinstance(item, s.Run):
                after = len(items) - place - 1 - sum(1 for run in runs if run > place)
                end = self.fresh()
                if place == runs[-1]:
                    self.line(f"{end} = len({found}) - {after}")
                else:
                    self.loop(f"for {end} in range({position}, len({found}) - {after} + 1):")
                if not isinstance(item.base, s.NameOf):
                    raise DplcError(f"rule `{self.rule.name}`: a run is a variable", item.span)
                self.capture(item.base.text, f"{found}[{position}:{end}]", "terms" if kind == "term" else "axes")
                position = end
                continue
            local = self.fresh()
            self.line(f"{local} = {found}[{position}]")
            position = str(int(position) + 1) if position.isdigit() else f"{position} + 1"
            waiting.append((item, local))
        if kind == "term":
            self.several(tuple(waiting))
            return
        for item, local in waiting:
            if not isinstance(item, s.NameOf):
                raise DplcError(f"rule `{self.rule.name}`: an axis is a variable", item.span)
            self.capture(item.text, local, "axis")

    # ---- guards
    def clauses(self) -> None:
        clauses, parameters = self.rule.clauses, {p.name: p for p in self.rule.parameters}
        needs = bool(clauses) or self.bind or self.open_template()
        if not needs:
            return
        pairs = [f"{self.keep(n)}: {f'Var({v})' if self.kinds[n] == 'fn' else v}" for n, v in self.bound.items()]
        self.line(f"env = {{{', '.join(pairs)}{', ' if pairs else ''}{self.keep(SITE)}: site, {self.keep('target')}: site.target}}")
        for name, parameter in parameters.items():
            given = self.parameters.get(f"{self.rule.name}.{name}")
            if given is None and parameter.default is None:
                raise DplcError(f"rule `{self.rule.name}`: parameter `{name}` has no default", parameter.span)
            value = Expressions("tensor").compile(parameter.default) if given is None else lambda env, given=given: given  # type: ignore[arg-type]
            self.line(f"env[{self.keep(name)}] = {self.keep(value)}(env)")
        for place, clause in enumerate(clauses):
            if isinstance(clause, s.LetClause):
                self.line(f"env[{self.keep(clause.name)}] = {self.keep(Expressions('tensor').compile(clause.value))}(env)")
                self.kinds[clause.name] = "let"
            elif isinstance(clause, s.Guard):
                guard = self.keep(Expressions("tensor").compile(clause.condition))
                refuse = f"site.refuse({self.keep(self.rule)}, {self.keep(clause)}, t, env); " if self.evidence else ""
                self.line(f"if not holds({guard}, env): {refuse}{self.fail}")
            else:
                raise DplcError(f"rule `{self.rule.name}`: `pick` is not for rules on tensor", clause.span, (str(place),))

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
                raise DplcError(f"rule `{self.rule.name}`: unbound variable `{node.text}`", node.span, (), did_you_mean(node.text, local))
            return local[node.text]
        if isinstance(node, s.Run):
            return f"*{self.build(node.base, local)}"
        if isinstance(node, s.Subscript) and len(node.items) == 1 and isinstance(node.items[0], s.Run):
            return f"remap({self.build(node.base, local)}, dict({self.build(node.items[0].base, local)}))"
        if isinstance(node, s.Apply):
            return self.build_apply(node, local)
        raise DplcError(f"rule `{self.rule.name}`: not a value", node.span)

    def build_apply(self, node: s.Apply, local: dict[str, str]) -> str:
        if node.fn == "Reduce":
            fn, over, x = node.items[0], node.items[1:-1], self.build(node.items[-1], local)
            name = self.keep(fn.text) if isinstance(fn, s.NameOf) and fn.text in FUNCTIONS else self.build(fn, local)
            axes_ = ", ".join(self.build(axis, local) for axis in over)
            return f"reduce({name}, ({axes_},), {x})"
        items = ", ".join(self.build(item, local) for item in node.items)
        if node.fn == "Case":
            return f"case({items})"
        if node.fn in ("Index", "mat"):
            return f"{node.fn.capitalize()}({items})"
        if node.fn in FUNCTIONS:
            return f"elementwise({self.keep(node.fn)}, {items})"
        if self.kinds.get(node.fn) == "fn":
            return f"elementwise({local[node.fn]}, {items})"
        raise DplcError(f"rule `{self.rule.name}`: unknown function `{node.fn}`", node.span, (), did_you_mean(node.fn, (*FUNCTIONS, *OPERATIONS)))


def _typed(value: Any, like: Any) -> Any:
    """A template's result; a number takes the dtype of what it replaces."""
    return value if isinstance(value, Term) else compose.const(value, dtype(like))
