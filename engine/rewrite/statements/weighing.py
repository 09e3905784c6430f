"""What each `choose` of a rule weighed where it fired: for traces, so nobody pays for it else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....ir.expr import Undecided
from ....ir.sizes import at_the_hints
from ...language import core as s
from ...language.positions import walk
from ...language.questions import MISTAKES, Closure, Environment
from ...language.rule import Rule
from ..seen import show, written
from .expressions import RuleExpressions

SHOWN = 6  # alternatives of a line


@dataclass(frozen=True)
class WeighedChoice:
    """One `choose`. name: of the parameter or `let`; cost: its text; alternatives: each with its cost, the winner
    first; set_to: the value that somebody set instead."""

    name: str
    cost: str
    most: bool
    alternatives: tuple[tuple[str, str], ...]
    set_to: str | None = None

    def line(self) -> str:
        """`N = 4 costs 12, 2 costs 14 (minimising stall(n))`"""
        says = "is worth" if self.most else "costs"
        told = [f"{value} {says} {cost}" for value, cost in self.alternatives[:SHOWN]]
        if len(self.alternatives) > SHOWN:
            told.append(f"{len(self.alternatives) - SHOWN} more")
        weighed = ", ".join(told) or "nothing to choose from"
        instead = f"; set to {self.set_to}" if self.set_to is not None else ""
        return f"{self.name} = {weighed} ({'maximising' if self.most else 'minimising'} {self.cost}){instead}"

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name, "cost": self.cost, "maximising": self.most, "set": self.set_to,
            "alternatives": [{"value": value, "cost": cost} for value, cost in self.alternatives],
        }  # fmt: skip


@dataclass(frozen=True)
class Weigher:
    """A `choose` of a rule, compiled. parameter: its value is the default of this parameter."""

    name: str
    node: s.Chosen
    weigh: Closure
    parameter: bool

    def weighed(self, env: Environment) -> WeighedChoice:
        found = sorted(self.weigh(env), key=lambda pair: pair[1], reverse=self.node.most)  # stable, in both directions
        told = tuple((show(value), show(cost)) for value, cost in found)
        winner = found[0][0] if found else 0
        other = show(env[self.name]) if self.parameter and env.get(self.name) != winner else None
        return WeighedChoice(self.name, written(self.node.costs.element), self.node.most, told, other)


def weighers(rule: Rule, expressions: RuleExpressions) -> tuple[Weigher, ...]:
    """Every `choose` of a rule that stands by itself, in the order of the text."""
    found = [(p.name, p.default, True) for p in rule.parameters]
    found += [(clause.name, clause.value, False) for clause in rule.clauses if isinstance(clause, s.LetClause)]
    return tuple(
        Weigher(name, node, expressions.weighing(node), default and node is value)
        for name, value, default in found
        for node in _outermost(value)
    )


def weighed(found: tuple[Weigher, ...], env: Environment) -> tuple[WeighedChoice, ...]:
    """What they weighed at a match; but for those that nobody asked there."""
    told = []
    for weigher in found:
        try:
            with at_the_hints():
                told.append(weigher.weighed(env))
        except (Undecided, *MISTAKES):
            continue
    return tuple(told)


def _outermost(node: Any) -> Iterator[s.Chosen]:
    """Those that no comprehension holds: what a comprehension binds, they may read."""
    inner = {id(below) for found in walk(node) if isinstance(found, s.Comprehension) for below in walk(found)}
    return (found for found in walk(node) if isinstance(found, s.Chosen) and id(found) not in inner)
