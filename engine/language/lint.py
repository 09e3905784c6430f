"""What a rule may be better without: names that nobody reads, guards that ask nothing, rules behind other rules,
examples that show the same twice.

None of it is an error: the rule means the same. `dplc rules lint` and editors say it, a compile does not ask. (Binders
that a rule reads nowhere are errors: scope.py.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...codegen.target import devices, load_device
from ...ir.diagnostic import Span, did_you_mean
from ...ir.text import syntax as s
from .domains import constant
from .findings import WARNING, Finding
from .overlap import behind_guards
from .positions import calls, every, is_variable, names_in, parts, plain, walk
from .rule import Rule, RuleSet
from .spelling import block, expression
from .subject import CheckedRule

Lint = Callable[[CheckedRule], Iterator[Finding]]


def lint_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """What may be left out of one rule, read off its text."""
    subject = CheckedRule(rule, rules)
    found = []
    for lint in LINTS:
        for finding in lint(subject):
            finding.check = lint.__name__
            found.append(finding)
    return found


def _said(subject: CheckedRule, what: str, span: Span, notes: Iterable[str] = (), hint: str | None = None) -> Finding:
    return subject.finding(what, span, notes, hint, WARNING)


# ---- dead binders


def unread_elements(subject: CheckedRule) -> Iterator[Finding]:
    """`each x in xs:` whose block does not read x: it says the same for every element."""
    for node in every(subject.rule.rewrite, s.EachBlock):
        read = names_in(node.body) | {call.fn for call in calls(node.body)} | set(_texts(node.body))
        for name in node.names:
            if name not in read and name != "_":
                yield _said(subject, f"`each {name}`: its block does not read `{name}`", node.span, (), "write `_`")


def one_value(subject: CheckedRule) -> Iterator[Finding]:
    """A parameter with a domain of one value: there is nothing to choose."""
    for parameter in subject.rule.parameters:
        domain = None if parameter.domain is None else constant(subject.rule.level, parameter.domain)
        if isinstance(domain, tuple) and len(domain) == 1:
            what = f"parameter `{parameter.name}` can only be {domain[0]}"
            yield _said(
                subject, what, parameter.span, (), "write the value, or a number of the policy, where it is read"
            )


def unused_local(subject: CheckedRule) -> Iterator[Finding]:
    """A @local rule that no rule uses."""
    rule = subject.rule
    if not subject.local:
        return
    users = (other for other in subject.rules.rules.values() if other is not rule)
    if not any(node.call.fn == rule.name for other in users for node in every(other.rewrite, s.UseRule)):
        yield _said(subject, "no rule says `with rule " + rule.name + "(..)`", rule.span, (), "use it, or take it out")


def _texts(node: Any) -> Iterator[str]:
    """Names that the grammar keeps as bare text."""
    for found in walk(node):
        yield from (value for part in parts(type(found)) if isinstance(value := getattr(found, part), str))


# ---- guards


def idle_guards(subject: CheckedRule) -> Iterator[Finding]:
    """A guard that says the same for all programs."""
    for guard in subject.rule.guards:
        value = constant(subject.rule.level, guard.condition)
        if value is not None:
            holds = "always holds: no program violates it" if value else "never holds: the rule cannot fire"
            hint = "leave it out" if value else "ask something of the program"
            yield _said(subject, f"`{expression(guard.condition)}` {holds}", guard.condition.span, (), hint)


def unknown_devices(subject: CheckedRule) -> Iterator[Finding]:
    """A text that is compared with `target.name` or `target.arch`, and that no device file has."""
    for node in every((subject.rule.clauses, subject.rule.parameters), s.Operation):
        sides = (node.a, node.b) if node.op in ("==", "!=", "in", "not in") else ()
        fields = [side.field for side in sides if isinstance(side, s.Member) and _is_target(side.base)]
        known = {getattr(load_device(name), field) for name in devices() for field in fields if field in _TEXTS}
        for text in every(sides, s.Text) if known else ():
            if text.value not in known:
                what = f'no device has the {fields[0]} "{text.value}": the comparison is never equal'
                yield _said(subject, what, text.span, (), did_you_mean(text.value, sorted(known)))


_TEXTS = ("name", "arch")


def _is_target(node: s.Syntax) -> bool:
    return isinstance(node, s.NameOf) and node.text == "target"


def asked_before(subject: CheckedRule) -> Iterator[Finding]:
    """A guard that an earlier one has asked: its reason is never given."""
    seen: dict[Any, s.Guard] = {}
    for guard in subject.rule.guards:
        for condition in _conjuncts(guard.condition):
            earlier = seen.setdefault(plain(condition), guard)
            if earlier is not guard and not (earlier.kind == "prefer" and guard.kind == "where"):
                what = f"`{expression(condition)}` holds where this is asked"
                notes = (f"line {earlier.span.line} asks it",)
                yield _said(subject, what, condition.span, notes, "leave it out")


def _conjuncts(node: s.Syntax) -> Iterator[s.Syntax]:
    if isinstance(node, s.Operation) and node.op == "and":
        yield from _conjuncts(node.a)
        yield from _conjuncts(node.b)
    else:
        yield node


def behind_another(subject: CheckedRule) -> Iterator[Finding]:
    """A rule that an earlier one leaves nothing: it matches the same and asks no more."""
    earlier = behind_guards(subject)
    if earlier is not None:
        what = f"can never fire: `{earlier.name}` matches everything it matches and asks nothing more"
        notes = (f"`{earlier.name}` is at {earlier.location}",)
        yield _said(subject, what, subject.rule.span, notes, "put the special rule first, or take it out")


# ---- examples


def repeated_examples(subject: CheckedRule) -> Iterator[Finding]:
    """Two examples of one rule with the same outcome and, but for names, the same program."""
    seen: dict[Any, s.Example] = {}
    for example in subject.rule.examples:
        outcome = example.gives if isinstance(example.gives, str) else None
        key = outcome, tuple(map(plain, example.arguments)), shape_of(example.before)
        first = seen.setdefault(key, example)
        if first is not example and first.span != example.span:
            what = f'example "{example.title}" repeats "{first.title}"'
            place = f"the other is at {first.span.location}"
            hint = "take one out, or show another case"
            yield _said(subject, what, example.span, (place, "the programs differ in names at most"), hint)


_WORD = re.compile(r"(?<![.\w])([A-Za-z_]\w*)(?![\w(])(?!=)")
_KEPT = re.compile(r"weight|[fiu]\d+$|bf16$|bool$")


def shape_of(program: Sequence[s.Syntax]) -> str:
    """The text of a program, variables numbered as they come."""
    numbers: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        word = match[1]
        if not is_variable(word) or word[:1].isupper() or _KEPT.match(word):
            return word
        return numbers.setdefault(word, f"v{len(numbers)}")

    text = "\n".join(block(tuple(program), 0))
    return _WORD.sub(renamed, re.sub(r"^(graph|kernel) \w+\(", r"\1(", text, flags=re.MULTILINE))


LINTS: tuple[Lint, ...] = (
    unread_elements,
    one_value,
    unused_local,
    idle_guards,
    unknown_devices,
    asked_before,
    behind_another,
    repeated_examples,
)
