"""Fusion rules, told apart by what they do with `mat`. A rule is recognised by its two sides; there is no other way in.

h = mat(v)                          =>  h = v                        inline: not worth storing for any reader
y = op(.., mat(v), ..)              =>  y = op(.., v, ..)            fuse: y's kernel computes v
y = op(.., mat(x), ..)              =>  y = mat(op(.., x, ..))       climb: store the epilogue instead
y = op(..)                          =>  y = mat(op(..))              share: store what several kernels compute
a = mat(v), b = mat(w)              =>  (a, b) = mat(v, w)           siblings: one kernel stores both
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...ir.diagnostic import DplcError
from ..language import core as s
from ..language.asking import UNDECIDED, gives, holds, pays
from ..language.check import load_facts
from ..language.evaluate import Expressions
from ..language.questions import Closure
from ..language.rule import Rule, RuleSet
from ..language.spelling import expression
from ..rewrite.terms.code import TermRuleWriter
from ..rewrite.terms.terms import Table, mentions_mat

Spelling = Any


class Siblings:
    """A two-root rule: guards over a pair of stored values."""

    def __init__(self, rule: Rule, names: tuple[str, str, str, str], parameters: dict[str, Any]):
        self.rule, self.names, self.parameters = rule, names, parameters
        expressions = Expressions("tensor")
        self.guards: list[tuple[s.Guard, Closure]] = []
        for clause in rule.clauses:
            if not isinstance(clause, s.Guard):
                raise DplcError(f"rule `{rule.name}`: a rule of two kernels has guards only", clause.span)
            self.guards.append((clause, expressions.compile(clause.condition)))
        self.defaults = {p.name: expressions.compile(p.default) for p in rule.parameters if p.default is not None}

    def names_of(self, first: Any, second: Any) -> dict[str, Any]:
        """What the names of the pattern stand for."""
        a, v, b, w = self.names
        return {a: first, v: first, b: second, w: second}

    def environment(self, first: Any, second: Any, site: Any) -> dict[str, Any]:
        """Return the environment of the guards of a pair, with parameters. UNDECIDED stands for a default."""
        env = {**self.names_of(first, second), "@site": site, "target": site.target}
        for name, default in self.defaults.items():
            env[name] = self.parameters.get(f"{self.rule.name}.{name}")
            if env[name] is None:
                gives(env, name, default, only_pays=True)
        return env

    def refused(self, first: Any, second: Any, site: Any) -> tuple[s.Guard, dict[str, Any]] | None:
        """The guard that keeps two stored values apart and what it was asked of; None if they may share a kernel."""
        env = self.environment(first, second, site)
        if UNDECIDED in env:
            return self.guards[0][0], env
        ask = {"where": holds, "prefer": pays}
        return next(((guard, env) for guard, closure in self.guards if not ask[guard.kind](closure, env)), None)


class FusionRules:
    """The rules of rules/fusion, compiled, by kind."""

    def __init__(self, rules: Iterable[Rule], parameters: dict[str, Any] | None = None):
        load_facts()
        found: dict[str, list[Any]] = {"inline": [], "fuse": [], "climb": [], "share": []}
        self.siblings: list[Siblings] = []
        self.rules = tuple(rules)
        for rule in self.rules:
            kind = kind_of(rule)
            if kind == "siblings":
                self.siblings.append(Siblings(rule, _pair(rule), parameters or {}))
                continue
            if kind == "inline":  # the root is the value itself: readers of mat(v) read v
                rule = replace(rule, match=(_without_mat(rule.match[-1]),))
            found[kind].append(TermRuleWriter(rule, parameters or {}, evidence=True, bind=True).write())
        self.inline, self.fuse = Table(found["inline"]), Table(found["fuse"])
        self.climb, self.share = Table(found["climb"]), Table(found["share"])

    @classmethod
    def of(cls, rules: RuleSet, parameters: dict[str, Any] | None = None) -> FusionRules:
        """The fusion of a rule set: its rules on tensor that move a `mat`."""
        return cls((rule for rule in rules.at("tensor") if mentions_mat(rule)), parameters)


def _without_mat(statement: Any) -> s.Syntax:
    """`h = v` for `h = mat(v)`."""
    return s.Assign(statement.span, statement.target, statement.value.items[0])


def _spell(value: Any, defined: dict[str, s.ValueTerm]) -> Spelling:
    """A value as nested tuples, the names of other statements written out."""
    if isinstance(value, s.NameTerm):
        return _spell(defined[value.name], defined) if value.name in defined else value.name
    if isinstance(value, s.ValueTerm):
        return (type(value).__name__, *(_spell(getattr(value, field), defined) for field in type(value).__slots__))
    if isinstance(value, tuple):
        return tuple(_spell(item, defined) for item in value)
    return expression(value) if isinstance(value, s.Syntax) else value


def _stripped(spelling: Spelling) -> Spelling:
    """The spelling less every `mat`."""
    if not isinstance(spelling, tuple):
        return spelling
    return _stripped(spelling[1]) if _is_mat(spelling) else tuple(map(_stripped, spelling))


def _is_mat(spelling: Spelling) -> bool:
    return isinstance(spelling, tuple) and spelling[:1] == (s.MatTerm.__name__,)


def _mats(spelling: Spelling) -> int:
    return _is_mat(spelling) + sum(map(_mats, spelling)) if isinstance(spelling, tuple) else 0


def kind_of(rule: Rule) -> str:
    """inline, fuse, climb, share or siblings. Raises DplcError for a rule that does not only move a `mat`."""
    if len(rule.rewrite) == 1 and isinstance(rule.rewrite[0], s.Assign) and isinstance(rule.rewrite[0].target, s.Group):
        return "siblings"
    before, after = (_spell(list(defined.values())[-1], defined) for defined in (rule.left, rule.right))
    counts = _mats(before), _mats(after)
    if _stripped(before) == _stripped(after):
        if counts == (1, 0):
            return "inline" if _is_mat(before) else "fuse"
        if counts == (1, 1) and _is_mat(after) and not _is_mat(before):
            return "climb"
        if counts == (0, 1) and _is_mat(after):
            return "share"
    raise DplcError(
        f"rule `{rule.name}`: a fusion rule changes nothing but a `mat`", rule.span,
        ("its right side is its left side less one `mat`, or with the `mat` moved to the root, or with one put there",),
    )  # fmt: skip


def _pair(rule: Rule) -> tuple[str, str, str, str]:
    """The names in `a = mat(v)`, `b = mat(w)`."""
    names: list[str] = []
    for name, value in rule.left.items():
        if not isinstance(value, s.MatTerm) or not isinstance(value.x, s.NameTerm):
            raise DplcError(
                f"rule `{rule.name}`: a rule of two kernels matches `a = mat(v)` and `b = mat(w)`", value.span
            )
        names += [name, value.x.name]
    if len(names) != 4:
        raise DplcError(f"rule `{rule.name}`: a rule of two kernels matches two stored values", rule.span)
    return names[0], names[1], names[2], names[3]
