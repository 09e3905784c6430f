"""Guards of algebra rules as egglog facts: masks of axes, extents, dtypes, and whether a value is known when loaded."""

from __future__ import annotations

from typing import Protocol

from ...ir.diagnostic import DplcError
from ...ir.functions import DTYPES
from ..language import core as s
from ..language.facts import facts_of
from ..language.positions import calls
from ..language.rule import Rule

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
