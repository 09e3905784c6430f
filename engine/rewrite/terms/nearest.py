"""Where a rule on tensor nearly matched: the value that its pattern follows furthest, and where the two part.

Only operations are followed. What the compiled pattern asks of axes, places and dtypes is not asked again: a value
that has all operations of a pattern, and did not match, parts there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ....ir.functions import FUNCTIONS
from ....ir.tensor import Case, Const, Elementwise, Fold, Index, Input, Mat, Reduce, Remap, Term, postorder
from ...language import core as c
from ...language.rule import Rule

LEAVES = (Input, Const, Index)


@dataclass(frozen=True)
class NearMiss:
    """followed: operations of the pattern that are there; expected: what the pattern has next, None if it has no more
    (then axes, places or dtypes differ); found: the value that stands there; root: where the pattern was held against
    the program.
    """

    rule: Rule
    followed: int
    expected: c.ValueTerm | None
    found: Term
    root: Term


def nearest_miss(rule: Rule, roots: Iterable[Term]) -> NearMiss | None:
    """The furthest that a pattern comes in a program; None where no value is made by its last operation."""
    pattern = list(rule.left.values())[-1]
    best: NearMiss | None = None
    for term in postorder(tuple(roots)):
        follow = _Follow(rule)
        complete = follow.value(pattern, term)
        if follow.followed and (best is None or follow.furthest > best.followed or complete):
            expected, found = (None, term) if complete else follow.parts
            best = NearMiss(rule, follow.furthest, expected, found, term)
            if complete:
                break
    return best


def begins_at(rule: Rule, term: Term) -> bool:
    """Whether a value is made by the last operation of a pattern."""
    return _Follow(rule).operation(list(rule.left.values())[-1], term)


class _Follow:
    """One attempt. furthest: the operations that were there where it came furthest; parts: what differs there."""

    def __init__(self, rule: Rule):
        self.defined, self.bound = rule.left, dict[str, Any]()
        self.followed = self.furthest = 0
        self.parts: tuple[c.ValueTerm | None, Any] = (None, None)

    def value(self, pattern: c.ValueTerm, term: Term) -> bool:
        if isinstance(pattern, c.NameTerm):
            return self._name(pattern, term)
        if isinstance(pattern, c.ReadTerm):
            return self.value(pattern.x, term.x if isinstance(term, Remap) else term)
        if isinstance(pattern, c.FunctionTerm) and pattern.number is not None:
            pattern = pattern.number
        if not self.operation(pattern, term):
            return self._parts_at(pattern, term)
        self.followed += 1
        self.furthest = max(self.furthest, self.followed)
        return self._below(pattern, term)

    def _parts_at(self, pattern: c.ValueTerm, term: Term) -> bool:
        tie = self.followed == self.furthest and not isinstance(term, LEAVES)  # an operation tells more than an input
        if self.parts[0] is None or self.followed > self.furthest or tie:
            self.furthest = max(self.furthest, self.followed)
            self.parts = pattern, term
        return False

    def _name(self, pattern: c.NameTerm, term: Term) -> bool:
        name = pattern.name
        if name == "_":
            return True
        if name in self.bound:
            return self.bound[name] is term or self._parts_at(pattern, term)
        self.bound[name] = term
        return name not in self.defined or self.value(self.defined[name], term)

    def operation(self, pattern: c.ValueTerm, term: Any) -> bool:
        match pattern:
            case c.NumberTerm(value=value):
                return isinstance(term, Const) and (term.value == value or value != value)
            case c.FunctionTerm():
                return isinstance(term, Elementwise) and (not pattern.known or term.fn == pattern.fn)
            case c.ReduceTerm():
                return isinstance(term, Reduce) and (pattern.fn not in FUNCTIONS or term.fn == pattern.fn)
            case c.FoldTerm():
                return isinstance(term, Fold)
            case c.MappedTerm():
                return isinstance(term, Remap)
            case c.MatTerm():
                return isinstance(term, Mat)
            case c.CaseTerm():
                return isinstance(term, Case)
            case c.IndexTerm():
                return isinstance(term, Index)
        return False

    def _below(self, pattern: c.ValueTerm, term: Any) -> bool:
        match pattern:
            case c.FunctionTerm(operands=(first, second)) if pattern.known and FUNCTIONS[pattern.fn].commutative:
                bound, followed = dict(self.bound), self.followed
                if self._each((first, second), term.args):
                    return True
                self.bound, self.followed = bound, followed
                return self._each((second, first), term.args)
            case c.FunctionTerm():
                return self._each(pattern.operands, term.args)
            case c.FoldTerm():
                return self._each(pattern.operands, term.args)
            case c.ReduceTerm() | c.MappedTerm() | c.MatTerm():
                return self.value(pattern.x, term.x)
            case c.CaseTerm():
                return self._each((pattern.a, pattern.b), (term.a, term.b))
        return True

    def _each(self, patterns: tuple[c.ValueTerm, ...], terms: tuple[Any, ...]) -> bool:
        if any(isinstance(pattern, c.RunTerm) for pattern in patterns):
            return True  # which operands a run takes is not followed
        return len(patterns) == len(terms) and all(map(self.value, patterns, terms))
