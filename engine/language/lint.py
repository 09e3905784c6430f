"""Findings that `dplc rules lint` and editors report, but no compile: the rule is legal, and a part has no effect."""

from __future__ import annotations

from collections.abc import Iterator

from ...codegen.target import devices, load_device
from ...ir.diagnostic import Span, did_you_mean
from ...ir.text import syntax as s
from .rule import Rule, RuleSet, constant
from .rule_scope import WARNING, CheckedRule, Finding
from .spelling import expression
from .typed_slots import every


def lint_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Return the parts of one rule that have no effect."""
    subject = CheckedRule(rule, rules)
    found = []
    for lint in (unused_local, idle_guards, unknown_devices):
        for what, span, hint in lint(subject):
            found.append(subject.finding(what, span, (), hint, WARNING))
            found[-1].check = lint.__name__
    return found


Lint = Iterator[tuple[str, Span, str | None]]


def unused_local(subject: CheckedRule) -> Lint:
    """Report a @local rule that no rule uses."""
    rule = subject.rule
    if not subject.local:
        return
    users = (other for other in subject.rules.rules.values() if other is not rule)
    if not any(node.call.fn == rule.name for other in users for node in every(other.rewrite, s.UseRule)):
        yield "no rule says `with rule " + rule.name + "(..)`", rule.span, "use it, or take it out"


def idle_guards(subject: CheckedRule) -> Lint:
    """Report a guard that has the same value for all programs."""
    for guard in subject.rule.guards:
        value = constant(subject.rule.level, guard.condition)
        if value is not None:
            holds = "always holds: no program violates it" if value else "never holds: the rule cannot fire"
            hint = "leave it out" if value else "ask something of the program"
            yield f"`{expression(guard.condition)}` {holds}", guard.condition.span, hint


def unknown_devices(subject: CheckedRule) -> Lint:
    """Report a text that is compared with `target.name` or `target.arch`, and that no device file has."""
    for node in every((subject.rule.clauses, subject.rule.parameters), s.Operation):
        sides = (node.a, node.b) if node.op in ("==", "!=", "in", "not in") else ()
        fields = [
            side.field
            for side in sides
            if isinstance(side, s.Member) and (isinstance(side.base, s.NameOf) and side.base.text == "target")
        ]
        known = {getattr(load_device(name), field) for name in devices() for field in fields if field in _TEXTS}
        for text in every(sides, s.Text) if known else ():
            if text.value not in known:
                what = f'no device has the {fields[0]} "{text.value}": the comparison is never equal'
                yield what, text.span, did_you_mean(text.value, sorted(known))


_TEXTS = ("name", "arch")
