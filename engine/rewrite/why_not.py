"""Why a rule did not fire: the matcher's own evidence. The deepest wins.

A failed guard or a parameter outside of its domain says that the pattern matched; else the nearest miss of the pattern;
else there is nothing like its first statement. Texts are made only when they are printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir import expr as e
from ...ir.diagnostic import Span
from ...ir.node import Node
from ...ir.program import Kernel
from ...ir.sizes import has_sizes
from ...ir.text.print import print_unit
from ...ir.text.print_statements import print_statement, print_value
from ...ir.text.sizes import told_open
from ..language import core as s
from ..language.asking import UNDECIDED
from ..language.positions import walk
from ..language.rule import Rule
from .statements.affine import names_in


@dataclass(frozen=True)
class Refusal:
    """One reason. depth: how many clauses were passed; -1 where the pattern itself does not match.

    outside: a value that the user set is not in the domain of its parameter here.
    """

    rule: Rule
    depth: int
    span: Span
    text: Callable[[], str]
    outside: bool = False

    def render(self) -> str:
        """`file:line: rule: reason`"""
        return f"{self.span.source.name}:{self.span.line}: {self.rule.name}: {self.text()}"


class Evidence:
    """What one attempt at a rule found out: its refusals, and the point where the pattern came furthest."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.nearest: tuple[int, s.Syntax, Any] | None = None
        self._closeness = (0, 0)
        self.left_open: dict[str, None] = {}  # `rule: condition`, of sizes

    # ---- the matcher reports
    def near(self, matched: int, expected: s.Syntax, found: Any) -> None:
        """After `matched` statements the pattern wants `expected`, the program has `found` (None: the block ends)."""
        if matched < self._closeness[0]:
            return
        closeness = (matched, int(_alike(expected, found)))
        if closeness > self._closeness:
            self._closeness = closeness
            self.nearest = (matched, expected, found)

    def guard(self, rule: Rule, guard: s.Guard, depth: int, env: dict[str, Any]) -> None:
        shown = {name: env[name] for name in sorted(names_in(guard.condition)) if _short(env.get(name))}

        def text() -> str:
            preferred = "not preferred: " if guard.kind == "prefer" else ""
            told = {**shown, **policy_in(guard.condition)}
            values = "; " + ", ".join(f"{name}={show(value)}" for name, value in told.items()) if told else ""
            open_ = f"; undecided: {told_open(undecided)}" if undecided is not None else ""
            return f'{preferred}matched, but "{guard.reason}" [{written(guard.condition)}{values}{open_}]'

        undecided = env.pop(UNDECIDED, None)
        self.note_open(rule, undecided)
        self.refusals.append(Refusal(rule, depth, guard.span, text))

    def domain(self, rule: Rule, place: s.Parameter, depth: int, which: str, value: Any, domain: Any) -> None:
        def text() -> str:
            off = " (no value of it would pay here)" if which else ""
            return f"matched, but {which}{place.name}={show(value)} is not in its domain {_show_domain(domain)}{off}"

        self.refusals.append(Refusal(rule, depth, place.span, text, outside=not which))

    def refuse(self, rule: Rule, depth: int, span: Span, text: str) -> None:
        self.refusals.append(Refusal(rule, depth, span, lambda: f"matched, but {text}"))

    def undecided(self, rule: Rule, span: Span, name: str, condition: Any, depth: int = 0) -> None:
        """A let, a domain or a default that has no value, for sizes leave it open."""
        self.note_open(rule, condition)
        self.refusals.append(
            Refusal(rule, depth, span, lambda: f"matched, but `{name}` is undecided: {told_open(condition)}")
        )

    def note_open(self, rule: Rule, condition: Any) -> None:
        """A refusal that numbers might not have met."""
        if condition.__class__ is str or has_sizes(condition):
            self.left_open.setdefault(f"{rule.name}: {told_open(condition)}")

    # ---- what people read
    def all(self, rule: Rule) -> tuple[Refusal, ...]:
        """Every refusal; the nearest miss if the pattern never matched."""
        return tuple(self.refusals) or (self._miss(rule),)

    def best(self, rule: Rule) -> Refusal:
        return max(self.all(rule), key=lambda refusal: refusal.depth)

    def _miss(self, rule: Rule) -> Refusal:
        nearest = self.nearest
        if nearest is None:
            return Refusal(
                rule, -2, rule.span, lambda: f"nothing here is like its first statement `{_head(rule.match[0])}`"
            )
        matched, expected, found = nearest

        def text() -> str:
            place = "the end of the block" if found is None else f"`{_first_line(found)}`"
            count = f"{matched} statement{'' if matched == 1 else 's'}"
            near = f"nearest miss after {count}: expected {_expected(expected)}, found {place}"
            return f"the pattern matches nowhere; {near}"

        return Refusal(rule, -1, expected.span, text)


def _alike(expected: s.Syntax, found: Any) -> bool:
    from ..language.statements import shape_of

    if found is None or isinstance(expected, s.PassStatement):
        return False
    shape = shape_of(expected)
    return shape is not None and type(found) is shape.cls


def written(node: s.Syntax) -> str:
    """The text of a piece of a rule, on one line."""
    span = node.span
    lines = [span.source.line(number) for number in range(span.line, span.end_line + 1)]
    if len(lines) == 1:
        return lines[0][span.column : span.end_column]
    lines = [lines[0][span.column :], *lines[1:-1], lines[-1][: span.end_column]]
    return " ".join(line.strip() for line in lines)


def policy_in(node: s.Syntax) -> dict[str, Any]:
    """The numbers of the policy that a condition was written with: a value stands where the text has a name."""
    found: dict[str, Any] = {}
    for part in walk(node):
        if isinstance(part, s.Number | s.Group) and (name := written(part)).isidentifier():
            items = part.items if isinstance(part, s.Group) else ()
            found[name] = part.value if isinstance(part, s.Number) else tuple(getattr(i, "value", i) for i in items)
    return found


def _head(node: s.Syntax) -> str:
    """The first line of a statement of a rule, as it stands there."""
    return node.span.source.line(node.span.line).split("#")[0].strip()


def _expected(node: s.Syntax) -> str:
    return "the end of the block" if isinstance(node, s.PassStatement) else f"`{_head(node)}`"


def _first_line(node: Any) -> str:
    text = print_unit(node) if isinstance(node, Kernel) else print_statement(node)
    return text.split("\n")[0].strip()


def _short(value: Any) -> bool:
    return isinstance(value, int | float | str | e.Var)


def show(value: Any) -> str:
    """A value of a rule as text: numbers, names, lists, statements."""
    if isinstance(value, tuple | set | frozenset):
        return "(" + ", ".join(map(show, value)) + ")"
    if isinstance(value, Node):
        return _first_line(value) if "body" in type(value).by_name or hasattr(value, "dst") else print_value(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return print_value(value)
    return str(getattr(value, "name", None) or getattr(value, "buf", None) or type(value).__name__)


def _show_domain(domain: Any) -> str:
    values = list(domain)
    shown = ", ".join(map(show, values[:12]))
    return "{" + shown + (", ..." if len(values) > 12 else "") + "}"
