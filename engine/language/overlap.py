"""Rules that an earlier rule leaves nothing: the same pattern, and the earlier rule always fires."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.text import syntax as s
from .findings import ERROR, WARNING, Finding
from .pipeline import pipelines
from .positions import is_variable, parts
from .rule import Rule, RuleSet, pass_name
from .subject import CheckedRule


def shadowed(subject: CheckedRule) -> Iterator[Finding]:
    """A rule with the pattern of an earlier rule that has no guard.

    Earlier in its pass; on torch and tensor, where all rules are tried at every place, in any file (a warning).
    """
    rule = subject.rule
    position = _positions(subject.rules)
    for earlier in _unguarded(subject.rules).get(_pattern_key(rule), ()):
        if position[earlier.name] >= position.get(rule.name, 0) or not _tried_together(earlier, rule):
            continue
        same_file = earlier.file == rule.file
        what = f"can never fire: `{earlier.name}` matches everything it matches, without a guard"
        hint = "put the special rule first"
        if not same_file:
            hint = f"say `pass {pass_name(rule.file)} before {pass_name(earlier.file)} ..` in a pipeline"
        place = rule.span if same_file else rule.match[-1].span
        notes = (f"`{earlier.name}` is at {earlier.location}",)
        yield subject.finding(what, place, notes, hint, ERROR if same_file else WARNING)
        return


def _pattern_key(rule: Rule) -> Any:
    """The pattern with numbered variables, the level, and the file or level whose rules are tried in order."""
    numbers: dict[str, str] = {}

    def key(value: Any, owner: type | None = None) -> Any:
        if isinstance(value, tuple):
            return tuple(key(item) for item in value)
        if isinstance(value, s.NameOf):
            return key(value.text)
        if isinstance(value, s.Syntax):
            return (type(value).__name__, *(key(getattr(value, name), type(value)) for name in parts(type(value))))
        if not isinstance(value, str) or value == "_" or not is_variable(value) or owner in _FIELDS_OF_TEXT:
            return value
        if owner is s.Apply and value[:1].isupper():
            return value
        return numbers.setdefault(value, f"{len(numbers)}")

    return rule.level if rule.level in ("torch", "tensor") else rule.file, rule.level, key(rule.match)


_FIELDS_OF_TEXT = (s.Keyword, s.Member, s.Text)  # names of fields, texts


@functools.lru_cache(maxsize=4)
def _unguarded(rules: RuleSet) -> dict[Any, list[Rule]]:
    """The rules that fire wherever they match, by pattern."""
    found: dict[Any, list[Rule]] = {}
    for rule in rules.rules.values():
        if not rule.parameters and not any(isinstance(c, s.Guard | s.PickClause) for c in rule.clauses):
            found.setdefault(_pattern_key(rule), []).append(rule)
    return found


@functools.lru_cache(maxsize=4)
def _positions(rules: RuleSet) -> dict[str, int]:
    """In which order rules are tried: that of the pipelines, and of declaration where these are not sound."""
    try:
        steps = [step for steps in pipelines(rules).values() for step in steps]
    except DplcError:
        steps = []
    named = [rule.name for step in steps for rule in step.rules] or list(rules.rules)
    return {name: n for n, name in enumerate(dict.fromkeys((*named, *rules.rules)))}


def _tried_together(a: Rule, b: Rule) -> bool:
    """Both are tried by the pass, or both by the canonical fixpoint; local and unstable rules are not tried at all."""
    reach = ({"local", "canonical", "unstable"} & rule.attributes for rule in (a, b))
    return all(found in (set(), {"canonical"}) for found in reach) and ("canonical" in a.attributes) is (
        "canonical" in b.attributes
    )
