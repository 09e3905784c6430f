"""Domains of parameters that need no program to be known: `{1, 2, 4}`, `pow2(2, 64)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.text import syntax as s
from ...ir.text.print_statements import print_value
from .evaluate import Expressions
from .rule import Rule
from .sorts import ANY, PARAMETER_SORTS, fits, sort_of_value


def constant(level: str, node: s.Syntax) -> Any:
    """The value of an expression that needs no site and no variable, else None."""
    try:
        return Expressions(level).compile(node)({})
    except Exception:  # unbound, or a fact that looks at the site: not constant
        return None


def admits(rule: Rule, name: str, value: Any) -> bool:
    """Whether a parameter may have a value, as far as its domain is known without a program."""
    domain = _domain(rule, name)
    return domain is None or value in domain


def wrong_kind(rule: Rule, name: str, value: Any) -> tuple[str, str | None] | None:
    """Describe a value of another kind than its parameter (a float, true or a list for an integer), and
    what to write; None where nothing is."""
    parameter = next(p for p in rule.parameters if p.name == name)
    wanted, given = PARAMETER_SORTS.get(parameter.sort or "any", ANY), sort_of_value(value)
    if fits(given, wanted):
        return None
    hint = f"a list of one is written `[{value}]`" if wanted.many and not given.many else None
    listed = tuple(value) if isinstance(value, list) else value
    written = f'"{value}"' if isinstance(value, str) else print_value(listed)
    return f"`{name}` is {wanted}, and {written} is {given}", hint


def shown(rule: Rule, name: str) -> str:
    """The domain of a parameter as text."""
    return in_braces(_domain(rule, name) or ())


def in_braces(values: Iterable[Any]) -> str:
    """Values as a set, the first dozen of them."""
    every = tuple(values)
    return "{" + ", ".join(map(str, every[:12])) + (", ..." if len(every) > 12 else "") + "}"


def _domain(rule: Rule, name: str) -> tuple[Any, ...] | None:
    parameter = next(p for p in rule.parameters if p.name == name)
    known = None if parameter.domain is None else constant(rule.level, parameter.domain)
    return known if isinstance(known, tuple) else None
