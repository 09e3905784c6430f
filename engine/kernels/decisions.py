"""What fusion decided, as data: which values are stored, by which rules, and why others did not fire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.facts.dataflow import Dataflow
from ...ir.tensor import Elementwise, Input, Reduce, TensorGraph, Term
from ..language import core as s
from ..language.asking import UNDECIDED
from ..language.evaluate import Expressions
from ..language.rule import Rule
from ..rewrite.seen import NAMELESS, Called, held, what_it_saw
from ..rewrite.terms.terms import GuardRefusal


@dataclass(frozen=True)
class Stored:
    """Why a value is stored: the value, the operation that could not take it in, and the guard that said so; of a rule
    that stored it, what its names are bound to and the values in its guards, if the plan records them."""

    value: Term
    reader: Term | None
    reason: str
    location: str = ""
    bound: Mapping[str, Any] = field(default_factory=dict, compare=False)
    held: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Fused:
    """A rule that fired: the value whose `mat` was dropped (or climbed), and the operation that took it in; None where
    it was dropped for all that read it. bound: what its names are bound to, if the plan records it; held: the
    guards with their values, if the rule is in `asked`. They are kept at once: the site changes later.
    """

    rule: Rule
    value: Term
    reader: Term | None
    bound: Mapping[str, Any] = field(default_factory=dict, compare=False)
    held: tuple[str, ...] = field(default=(), compare=False)


@dataclass
class FusionDecisions:
    """The program as a flow, its stored values, and the record of why.

    groups: stored values that share a kernel, where that is decided; None leaves it to the rules for siblings. told:
    whether to record why; asked: names of rules, or of their files, whose guards are recorded when they hold.
    """

    flow: Dataflow
    stored: set[Any]
    groups: Sequence[Sequence[Any]] | None = None
    why: dict[Any, Stored] = field(default_factory=dict)
    refusals: list[GuardRefusal] = field(default_factory=list)
    firings: list[Fused] = field(default_factory=list)
    told: bool = False
    asked: frozenset[str] = frozenset()


def guards_of(rule: Rule, env: dict[str, Any], asked: frozenset[str], called: Called | None) -> tuple[str, ...]:
    """Return the guards of a rule that fired, with their values, if the rule is in `asked`."""
    if asked.isdisjoint((rule.name, rule.file, rule.family)):
        return ()
    return held(rule, env, Expressions("tensor"), called or NAMELESS)


def refusal(rule: Rule, guard: s.Guard, value: Term, env: dict[str, Any], called: Called | None) -> GuardRefusal:
    """Return the guard that did not hold, with its values, if the plan records them (called: the names of values). They
    are read at once: the site changes later.
    """
    undecided, where = env.pop(UNDECIDED, None), f"{guard.span.source.name}:{guard.span.line}"
    saw = "" if called is None else what_it_saw(guard, env, Expressions("tensor"), undecided, called)
    return GuardRefusal(rule, guard.reason, guard.kind, where, value, lambda names: saw)


def called_in(graph: TensorGraph) -> dict[Any, str]:
    """What the values of a program are called."""
    named: dict[Any, str] = {x: x.name for x in graph.ins if isinstance(x, Input)}
    return named | {n.value: n.name for n in graph.names} | {out.value: out.name for out in graph.outs}


def called(value: Term, names: Mapping[Term, str]) -> str:
    """What a value is called; one without a name by its operation: `multiply(..)`."""
    made = value.fn if isinstance(value, Elementwise) else type(value).__name__
    inside = f"{value.fn}, .." if isinstance(value, Reduce) else ".."
    return names.get(value) or f"{made}({inside})"
