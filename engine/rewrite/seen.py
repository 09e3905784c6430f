"""What a guard saw that did not hold: its text, names in it, facts that it compares, numbers of the policy."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ...ir import expr as e
from ...ir.compose import Folded
from ...ir.diagnostic import DplcError
from ...ir.expr import Undecided
from ...ir.node import Node, nodes
from ...ir.program import Kernel
from ...ir.sizes import at_the_hints
from ...ir.tensor import Index, Term
from ...ir.text.print_statements import print_expr, print_statement, print_value
from ...ir.text.programs import print_unit
from ...ir.text.sizes import told_open
from ..language import core as s
from ..language.evaluate import Expressions
from ..language.positions import names_in, walk
from ..language.questions import MISTAKES
from ..language.rule import Rule
from .loops import written as one_line

CHANGES_NOTHING = "it changes nothing: what it gives is what stands there"
DIGITS = 4  # of a number that was computed
BOUND = 240  # characters of what a pattern bound
LENGTH = 60  # characters of a value; what is longer is left out
Called = Mapping[Any, str]  # what values are called in the program
NAMELESS: Called = MappingProxyType({})
_ALONE = (s.NameOf, s.Number, s.Text, s.Group, s.Comprehension)  # whose value its text or its names tell


def what_it_saw(
    guard: s.Guard, env: dict[str, Any], expressions: Expressions, undecided: Any = None, called: Called = NAMELESS
) -> str:
    """`[size(axes) <= most; most=4, size(axes)=7]`. undecided: the condition that sizes leave open."""
    condition = guard.condition
    seen = {name: env[name] for name in sorted(names_in(condition)) if name in env}
    told = {name: show(value) for name, value in seen.items() if _short(value)}
    told |= {name: called[value] for name, value in seen.items() if isinstance(value, Node) and value in called}
    told |= {name: show(value) for name, value in policy_in(condition).items()}
    with at_the_hints() if guard.kind == "prefer" else contextlib.nullcontext():
        told |= {text: value for text, value in compared(condition, env, expressions).items() if text not in told}
    values = "; " + ", ".join(f"{name}={value}" for name, value in told.items()) if told else ""
    open_ = f"; undecided: {told_open(undecided)}" if undecided is not None else ""
    return f"[{written(condition)}{values}{open_}]"


def held(rule: Rule, env: dict[str, Any], expressions: Expressions, called: Called = NAMELESS) -> tuple[str, ...]:
    """The guards of a rule that fired, each with what it saw: `where size(axes) <= most; most=4, size(axes)=3`."""
    return tuple(f"{g.kind} {what_it_saw(g, env, expressions, None, called)[1:-1]}" for g in rule.guards)


def compared(condition: s.Syntax, env: dict[str, Any], expressions: Expressions) -> dict[str, str]:
    """What stands on the sides of comparisons, each with its value; what has none here is left out."""
    found: dict[str, str] = {}
    for side in _sides(condition):
        try:
            value = show(_rounded(expressions.compile(side)(dict(env))))
        except (Undecided, DplcError, *MISTAKES):
            continue
        if len(value) <= LENGTH:
            found[written(side)] = value
    return found


def _sides(node: s.Syntax, among: bool = False) -> list[s.Syntax]:
    """The operands of the comparisons in a condition, and questions that stand beside others."""
    if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
        return _sides(node.items[0], among)
    if isinstance(node, s.Prefix) and node.op == "not":
        return _sides(node.a, among)
    if isinstance(node, s.Operation) and node.op in ("and", "or"):
        return _sides(node.a, True) + _sides(node.b, True)
    if isinstance(node, s.Operation) and (node.op in e.COMPARISONS or node.op in ("in", "not in")):
        return [side for side in (node.a, node.b) if not isinstance(side, _ALONE)]
    return [node] if among and not isinstance(node, _ALONE) else []


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


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


def first_line(node: Any) -> str:
    """A statement or a kernel as one line."""
    text = print_unit(node) if isinstance(node, Kernel) else print_statement(node)
    return text.split("\n")[0].strip()


def _short(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str | e.Var)


def bound(env: Mapping[str, Any], parameters: Collection[str] = ()) -> dict[str, str]:
    """What a pattern and its `let`s bound, as texts: `KO=64`, `body=(a = load x[i], ..)`. Parameters stand apart."""
    hidden = {*parameters, "target", "true", "false"}
    found = {name: show(value) for name, value in env.items() if name.isidentifier() and name not in hidden}
    named = {name: text for name, text in found.items() if "?" not in text}  # places of a torch rule have no names
    return {name: text if len(text) <= BOUND else f"{text[: BOUND - 2]}.." for name, text in named.items()}


def folds(folded: Iterable[Folded]) -> list[str]:
    """What canonical forms took away: `multiply(2, 3) to 6`, each once."""
    told = (f"{one.fn}({', '.join(map(_term, one.args))}) to {_term(one.result)}" for one in folded)
    return list(dict.fromkeys(told))


def _term(value: Any) -> str:
    if isinstance(value, Index):
        return f"Index({print_expr(value.expr)})" if not any(nodes(value.expr, Term)) else "Index(..)"
    return one_line(value) if isinstance(value, Term) else show(value)


def show(value: Any) -> str:
    """A value of a rule as text: numbers, names, lists, statements."""
    if isinstance(value, tuple | set | frozenset):
        return "(" + ", ".join(map(show, value)) + ")"
    if isinstance(value, Node):
        return first_line(value) if "body" in type(value).by_name or hasattr(value, "dst") else print_value(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return print_value(value)
    return str(getattr(value, "name", None) or getattr(value, "buf", None) or type(value).__name__)
