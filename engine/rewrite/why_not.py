"""Why a rule did not fire: the matcher's own evidence. The deepest wins.

A failed guard or a parameter outside of its domain says that the pattern matched; else the nearest miss of the pattern;
else there is nothing like its first statement. Texts are made only when they are printed.
"""

from __future__ import annotations

from typing import Any

from ...ir.diagnostic import Span
from ...ir.sizes import has_sizes
from ...ir.text.sizes import told_open
from ..language import core as s
from ..language.evaluate import UNDECIDED, Environment
from ..language.rule import Rule
from .statements.expressions import RuleExpressions
from .trace import CHANGES_NOTHING, Called, Refusal, failed_guard, first_line, show


class Evidence:
    """Evidence of one attempt at a rule: its refusals, and the furthest point that the pattern reached."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.nearest: tuple[int, s.Syntax, Any] | None = None
        self._closeness = (0, 0)
        self._wanted: dict[int, tuple[s.Syntax, type | None]] = {}  # of a line of a pattern
        self.left_open: dict[str, None] = {}  # `rule: condition`, of sizes

    # ---- the matcher reports
    def near(self, matched: int, expected: s.Syntax, found: Any) -> None:
        """Note that after `matched` statements the pattern expects `expected` instead of `found` (None: block end)."""
        if (matched, 1) <= self._closeness:  # no nearer, however alike
            return
        wanted = self._wanted.get(id(expected))
        if wanted is None:
            wanted = self._wanted[id(expected)] = (expected, _shape(expected))
        closeness = (matched, int(found is not None and type(found) is wanted[1]))
        if closeness > self._closeness:
            self._closeness = closeness
            self.nearest = (matched, expected, found)

    def guard(self, rule: Rule, guard: s.Guard, depth: int, env: Environment) -> None:
        self.note_open(rule, env.get(UNDECIDED))
        self.refusals.append(failed_guard(rule, guard, env, RuleExpressions, depth))

    def domain(self, rule: Rule, place: s.Parameter, depth: int, which: str, value: Any, domain: Any) -> None:
        def text(called: Called) -> str:
            off = " (no value of it would pay here)" if which else ""
            return f"matched, but {which}{place.name}={show(value)} is not in its domain {_show_domain(domain)}{off}"

        self.refusals.append(Refusal(rule, place.span, text, depth, not which))

    def refuse(self, rule: Rule, depth: int, span: Span, text: str) -> None:
        self.refusals.append(Refusal(rule, span, lambda _: f"matched, but {text}", depth))

    def undecided(self, rule: Rule, span: Span, name: str, condition: Any, depth: int = 0) -> None:
        """Note a let, a domain or a default without a value, because sizes leave it open."""
        self.note_open(rule, condition)
        self.refuse(rule, depth, span, f"`{name}` is undecided: {told_open(condition)}")

    def note_open(self, rule: Rule, condition: Any) -> None:
        """Note a refusal that concrete numbers might avoid."""
        if condition.__class__ is str or has_sizes(condition):
            self.left_open.setdefault(f"{rule.name}: {told_open(condition)}")

    def unchanged(self, rule: Rule) -> None:
        """Note a match whose template returns the value that is there already."""
        self.refuse(rule, len(rule.clauses) + 1, rule.span, CHANGES_NOTHING)

    # ---- what people read
    def all(self, rule: Rule) -> tuple[Refusal, ...]:
        """Return every refusal; the nearest miss if the pattern never matched."""
        return tuple(self.refusals) or (self._miss(rule),)

    def best(self, rule: Rule) -> Refusal:
        return max(self.all(rule), key=lambda refusal: refusal.depth)

    def _miss(self, rule: Rule) -> Refusal:
        nearest = self.nearest
        if nearest is None:
            head = f"nothing here is like its first statement `{_head(rule.match[0])}`"
            return Refusal(rule, rule.span, lambda _: head, -2)
        matched, expected, found = nearest

        def text(called: Called) -> str:
            place = "the end of the block" if found is None else f"`{first_line(found)}`"
            count = f"{matched} statement{'' if matched == 1 else 's'}"
            near = f"nearest miss after {count}: expected {_expected(expected)}, found {place}"
            return f"the pattern matches nowhere; {near}"

        return Refusal(rule, expected.span, text, -1)


def _shape(expected: s.Syntax) -> type | None:
    """Return the class of the statement that a line of a pattern describes; None if it describes none."""
    from ..language.typed_slots import shape_of

    shape = None if isinstance(expected, s.PassStatement) else shape_of(expected)
    return None if shape is None else shape.cls


def _head(node: s.Syntax) -> str:
    """Return the first line of a statement of a rule, as written."""
    return node.span.source.line(node.span.line).split("#")[0].strip()


def _expected(node: s.Syntax) -> str:
    return "the end of the block" if isinstance(node, s.PassStatement) else f"`{_head(node)}`"


def _show_domain(domain: Any) -> str:
    values = list(domain)
    shown = ", ".join(map(show, values[:12]))
    return "{" + shown + (", ..." if len(values) > 12 else "") + "}"
