"""Asking the clauses of a rule: what must hold is proved; what pays is asked of sizes as they are as a rule."""

from __future__ import annotations

from ...ir.diagnostic import InternalError
from ...ir.expr import Undecided
from ...ir.node import Node
from ...ir.sizes import at_hint, at_the_hints
from .questions import Closure, Environment

UNDECIDED = "@undecided"  # why a guard does not hold: the condition that sizes leave open


def pays(guard: Closure, env: Environment) -> bool:
    """Whether a `prefer` is true: sizes are what they are as a rule."""
    with at_the_hints():
        return holds(guard, env)


def gives(env: Environment, name: str, value: Closure, only_pays: bool = False) -> bool:
    """Whether a `let` or a default has a value, which is then in the environment."""
    try:
        if only_pays:
            with at_the_hints():
                env[name] = at_hint(value(env))
        else:
            env[name] = value(env)
    except Undecided as undecided:
        env[UNDECIDED] = undecided.condition
        return False
    return True


def holds(guard: Closure, env: Environment) -> bool:
    """Whether a guard is true; a comparison that cannot be decided does not hold."""
    try:
        result = guard(env)
    except Undecided as undecided:
        env[UNDECIDED] = undecided.condition
        return False
    if result is True or result is False:
        return result
    if isinstance(result, Node):
        return False
    raise InternalError(f"a guard gave {result!r}, which is neither true nor false")
