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
from ...ir.text import syntax as s
from ..language.check import load_facts
from ..language.evaluate import Closure, Expressions, holds
from ..language.rule import Rule, RuleSet
from ..rewrite.terms.code import TermRuleWriter
from ..rewrite.terms.pattern import definitions
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

    def refused(self, first: Any, second: Any, site: Any) -> s.Guard | None:
        """The guard that keeps two stored values apart, or None if they may share a kernel."""
        a, v, b, w = self.names
        env = {a: first, v: first, b: second, w: second, "@site": site, "target": site.target}
        for name, default in self.defaults.items():
            given = self.parameters.get(f"{self.rule.name}.{name}")
            env[name] = default(env) if given is None else given
        return next((guard for guard, closure in self.guards if not holds(closure, env)), None)


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


def _spell(node: s.Syntax, defined: dict[str, s.Syntax]) -> Spelling:
    """A value as nested tuples, the names of other statements written out."""
    if isinstance(node, s.NameOf):
        return _spell(defined[node.text], defined) if node.text in defined else node.text
    if isinstance(node, s.Apply):
        return (node.fn, *(_spell(item, defined) for item in node.items))
    if isinstance(node, s.Run):
        return ("..", _spell(node.base, defined))
    if isinstance(node, s.Group):
        return ("()", *(_spell(item, defined) for item in node.items))
    if isinstance(node, s.Member):
        return (".", _spell(node.base, defined), node.field)
    if isinstance(node, s.Subscript):
        return ("[]", _spell(node.base, defined), *(_spell(item, defined) for item in node.items))
    return getattr(node, "value", repr(node))


def _stripped(spelling: Spelling) -> Spelling:
    """The spelling less every `mat`."""
    if not isinstance(spelling, tuple):
        return spelling
    return _stripped(spelling[1]) if spelling[0] == "mat" else tuple(map(_stripped, spelling))


def _mats(spelling: Spelling) -> int:
    return (spelling[0] == "mat") + sum(map(_mats, spelling)) if isinstance(spelling, tuple) else 0


def kind_of(rule: Rule) -> str:
    """inline, fuse, climb, share or siblings. Raises DplcError for a rule that does not only move a `mat`."""
    if len(rule.rewrite) == 1 and isinstance(rule.rewrite[0], s.Assign) and isinstance(rule.rewrite[0].target, s.Group):
        return "siblings"
    sides = []
    for block in (rule.match, rule.rewrite):
        defined = definitions(rule, block)
        sides.append(_spell(list(defined.values())[-1], defined))
    before, after = sides
    counts = _mats(before), _mats(after)
    if _stripped(before) == _stripped(after):
        outside = isinstance(after, tuple) and after[0] == "mat"
        if counts == (1, 0):
            return "inline" if before[0] == "mat" else "fuse"
        if counts == (1, 1) and outside and before[0] != "mat":
            return "climb"
        if counts == (0, 1) and outside:
            return "share"
    raise DplcError(
        f"rule `{rule.name}`: a fusion rule changes nothing but a `mat`", rule.span,
        ("its right side is its left side less one `mat`, or with the `mat` moved to the root, or with one put there",),
    )  # fmt: skip


def _pair(rule: Rule) -> tuple[str, str, str, str]:
    """The names in `a = mat(v)`, `b = mat(w)`."""
    names: list[str] = []
    for name, value in definitions(rule, rule.match).items():
        if not isinstance(value, s.Apply) or value.fn != "mat" or not isinstance(value.items[0], s.NameOf):
            raise DplcError(
                f"rule `{rule.name}`: a rule of two kernels matches `a = mat(v)` and `b = mat(w)`", value.span
            )
        names += [name, value.items[0].text]
    if len(names) != 4:
        raise DplcError(f"rule `{rule.name}`: a rule of two kernels matches two stored values", rule.span)
    return names[0], names[1], names[2], names[3]
