"""Static checks of rules: at load for users' files, in the tests for ours. Nothing in a rule is executed.

Each check is a function of a `CheckedRule` (one rule, laid out) in vocabulary.py, scope.py, axes.py, clauses.py or
overlap.py; its name is the name of its findings. Errors stop a file from loading, warnings do not.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator

from ...ir.diagnostic import Diagnostics, DplcError, did_you_mean
from ...ir.text import syntax as s
from ...ir.text.syntax import words_in
from . import axes, clauses, growth, overlap, scope, vocabulary
from .facts import facts_of
from .findings import ERROR, WARNING, Finding
from .rule import Rule, RuleSet, built_in_files
from .sorts import TARGET, Inference, sort_of
from .subject import CheckedRule

Check = Callable[[CheckedRule], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    vocabulary.placed,
    vocabulary.closed_names,
    vocabulary.known_calls,
    vocabulary.argument_counts,
    vocabulary.local_rules,
    vocabulary.changed_fields,
    vocabulary.parameter_sorts,
    vocabulary.torch_forms,
    vocabulary.torch_ignored,
    scope.words_of_the_language,
    scope.unbound,
    scope.wildcards,
    scope.substitutions,
    scope.root_defined,
    scope.unreached,
    scope.unused_variables,
    scope.unused_clauses,
    scope.unused_parameters,
    scope.bound_twice,
    scope.dropped_runs,
    scope.reset_fields,
    scope.reads_itself,
    scope.bare_tensors,
    scope.made_in_order,
    axes.dangling_axes,
    axes.whole_axes,
    clauses.sort_clashes,
    clauses.unique_reasons,
    clauses.defaults_in_domains,
    clauses.alternatives,
    clauses.attributes,
    clauses.examples_enough,
    clauses.refusals_known,
    clauses.example_parameters,
    clauses.example_programs,
    growth.grown_values,
    overlap.shadowed,
    scope.changes_nothing,
)

# Where facts are registered: modules, and packages with all that is in them.
FACT_MODULES = (
    "engine.facts",
    "engine.rewrite.statements.names",
)


@functools.cache
def load_facts() -> None:
    """Import the modules that register facts."""
    root = __package__.removesuffix(".engine.language")
    for name in FACT_MODULES:
        module = importlib.import_module(f"{root}.{name}")
        for inner in pkgutil.iter_modules(getattr(module, "__path__", ())):
            importlib.import_module(f"{module.__name__}.{inner.name}")


def check_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Everything that is wrong with one rule, errors and warnings, in the order of the text."""
    subject = CheckedRule(rule, rules)
    found: dict[object, Finding] = {}
    for check in CHECKS:
        for finding in check(subject):
            finding.check, finding.rule = check.__name__, rule.family or rule.name
            found.setdefault(
                (finding.span, finding.severity), finding
            )  # one place, one problem: the first says it best
    return sorted(found.values(), key=_place)


def check(rules: RuleSet, only: Iterable[str] | None = None) -> list[DplcError]:
    """Everything that is wrong with the rules. only: names of source files; None means all of them.

    The members of a family share their text, hence their findings: each is reported once.
    """
    load_facts()
    wanted = None if only is None else set(only)
    found: dict[object, DplcError] = {}
    for each in for_every_device(rules):
        _check(each, wanted, found)
    return list(found.values())


def for_every_device(rules: RuleSet) -> tuple[RuleSet, ...]:
    """The rules, and the same with what is declared for each device that some declaration names."""
    return (rules, *(rules.on_device(name) for name in rules.devices if name != rules.device))


def _check(rules: RuleSet, wanted: set[str] | None, found: dict[object, DplcError]) -> None:
    for number in unread_numbers(rules, wanted):
        found[number.span] = number
    for kind in kinds_of_facts(rules, wanted):
        found.setdefault(kind.span, kind)
    for rule in rules.rules.values():
        if wanted is None or rule.span.source.name in wanted:
            for finding in check_rule(rule, rules):
                key = finding.what.replace(f"`{rule.name}`", "") if rule.family else finding.what
                found.setdefault((finding.check, finding.span, key), finding)


def kinds_of_facts(rules: RuleSet, wanted: set[str] | None) -> Iterator[Finding]:
    """Facts of files that give another sort than they say."""
    found: list[Finding] = []
    for fact in rules.facts.values():
        if wanted is None or fact.span.source.name in wanted:
            scope = {"target": TARGET, **{p.name: sort_of(p.sort or "any") for p in fact.parameters}}

            def report(what: str, node: s.Syntax, hint: str | None = None, name: str = fact.name) -> None:
                found.append(Finding(f"fact `{name}`: {what}", node.span, (), hint))

            Inference(facts_of("tile"), report).want(fact.value, sort_of(fact.result), scope, "what it gives")
    return iter(found)


def unread_numbers(rules: RuleSet, wanted: set[str] | None) -> Iterator[Finding]:
    """Numbers and facts of users' files that nothing reads. Python reads some numbers of ours, in copies too."""
    ours = {number.name for file in built_in_files() for number in file.numbers}
    written = {word for file in rules.files for rule in file.rules for word in rule.words}
    written |= {word for file in rules.files for fact in file.facts for word in words_in(fact.value)}
    for name, fact in rules.facts.items():
        if wanted and fact.span.source.name in wanted and name not in written:
            yield Finding(f"fact `{name}` is never asked", fact.span, (), "ask it in a rule, or take it out")
    written |= {word for number in rules.numbers.values() for word in words_in(number.declared.value)}
    for name, number in rules.numbers.items():
        span = number.declared.span
        if wanted and span.source.name in wanted and number.overrides is None and name not in written | ours:
            hint = did_you_mean(name, [known for known in rules.numbers if known != name])
            yield Finding(f"number `{name}` is never read", span, (), hint or "name it in a rule, or take it out")


def errors(findings: Iterable[DplcError], enforce: Iterable[str] = ()) -> list[DplcError]:
    """The findings that forbid loading. enforce: checks whose warnings count too, or `all`."""
    strict = set(enforce)
    return [
        f for f in findings if not isinstance(f, Finding) or f.severity == ERROR or f.check in strict or "all" in strict
    ]


def warnings(findings: Iterable[DplcError]) -> list[DplcError]:
    return [f for f in findings if isinstance(f, Finding) and f.severity == WARNING]


def require(rules: RuleSet, only: Iterable[str] | None = None, enforce: Iterable[str] = ()) -> list[DplcError]:
    """Check; raise every error in one go; return the warnings."""
    findings = check(rules, only)
    broken = errors(findings, enforce)
    if broken:
        raise broken[0] if len(broken) == 1 else Diagnostics(broken)
    return warnings(findings)


def _place(finding: Finding) -> tuple[int, int]:
    return (finding.span.line, finding.span.column) if finding.span else (0, 0)
