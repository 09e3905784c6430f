"""Facts that are asked with values: of one, of two, and what is said where there is no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.expr import Undecided
from ...ir.sizes import has_sizes
from ...ir.text import syntax as s

Environment = dict[str, Any]
Closure = Callable[[Environment], Any]
SITE = "@site"

# What Python raises for arithmetic, or a question, that has no answer for these values.
MISTAKES = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class NotComputed(DplcError, ValueError):
    """A clause that has no value here, at its place. A domain or a default without one is a refusal, no error."""


def mistaken(node: s.Syntax, error: Exception, given: Any = ()) -> Exception:
    """The error of a fact or an operator that gives nothing here, at its place.

    given: what it was asked about. A fact that only knows numbers decides nothing of sizes.
    """
    if isinstance(error, NotComputed):
        return error
    if isinstance(error, TypeError | AttributeError | ValueError) and has_sizes(given):
        return Undecided(f"{getattr(node, 'fn', 'this')} of a size")
    why = "division by zero" if isinstance(error, ZeroDivisionError) else str(error) or type(error).__name__
    return NotComputed(f"this cannot be evaluated: {why}", node.span)


def ask_one(node: s.Syntax, ask: Callable[..., Any], a: Closure, name: str | None = None) -> Closure:
    """A fact of one argument, as most are: no tuple is built for it. name: of a variable that is the argument."""

    def question(env: Environment) -> Any:
        given = env[name] if name in env else a(env)
        try:
            return ask(env.get(SITE), given)
        except MISTAKES as error:
            raise mistaken(node, error, given) from error

    return question


def ask_two(node: s.Syntax, ask: Callable[..., Any], a: Closure, b: Closure) -> Closure:
    """A fact of two arguments."""

    def question(env: Environment) -> Any:
        first, second = a(env), b(env)
        try:
            return ask(env.get(SITE), first, second)
        except MISTAKES as error:
            raise mistaken(node, error, (first, second)) from error

    return question
