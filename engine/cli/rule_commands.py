"""`dplc rules list|show|test`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...codegen.target import load_device
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ..kernels import examples as term_examples
from ..language.check import check, errors, for_every_device, load_facts, warnings
from ..language.core import words_in
from ..language.findings import Finding
from ..language.format import format_fact, format_number, format_rule
from ..language.numbers import PolicyNumber, format_value
from ..language.pipeline import PassStep, describe, pipelines, taken_out
from ..language.rule import RuleSet, built_in_files, load
from ..rewrite.statements.driver import Engine
from ..rewrite.statements.examples import Failure, run_examples
from ..rewrite.torch_rules import examples as torch_examples
from .show import print_json, print_note, print_text, write

# Whose examples each level's runner tests is known once these are imported.
RUNNERS = (torch_examples, term_examples)


def list_rules(paths: list[Path], as_json: bool) -> None:
    """The passes of every pipeline in order."""
    rules = load(paths)
    if not as_json:
        print_text(describe(rules), "rw")
        return
    record: dict[str, Any] = {name: [_record(step) for step in listed] for name, listed in pipelines(rules).items()}
    record["without"] = [
        {
            "name": written.name,
            "pipeline": name,
            "location": f"{written.span.source.name}:{written.span.line}",
            "because": written.reason,
        }
        for name, out in taken_out(rules).items()
        for written in out
    ]
    print_json(record)


def _record(step: PassStep) -> dict[str, Any]:
    return {
        "pass": step.name,
        "numbered": step.numbered or None,
        "as": step.label,
        "rules": [rule.name for rule in step.rules],
        "overrides": {rule.name: rule.location for rule in step.rules if rule.override},
        "location": step.location,
        "group": step.group,
        "because": step.reason,
    }


def show_rule(name: str, paths: list[Path]) -> None:
    """A rule, a whole pass, or the members of a family."""
    rules = load(paths)
    name = rules.plain(name)
    if name in rules.rules:
        found = list(dict.fromkeys(each.rules[name] for each in for_every_device(rules)))
    else:
        found = list(rules.passes.get(name, ())) or [r for r in rules.rules.values() if name in (r.family, r.file)]
    if not found and name in rules.numbers:
        for number in {each.numbers[name].location: each.numbers[name] for each in for_every_device(rules)}.values():
            show_number(number, rules)
    elif not found and name in rules.facts:
        show_fact(name, rules)
    elif not found:
        options = (
            *rules.numbers,
            *rules.facts,
            *rules.rules,
            *rules.passes,
            *(rule.file for rule in rules.rules.values()),
        )
        raise UsageError(f"there is no rule, pass, number or fact `{name}`", hint=did_you_mean(name, options))
    for rule in found:
        print_text(f"# {rule.location}\n{format_rule(rules.written.get(rule.name, rule))}\n", "rw")


def show_number(number: PolicyNumber, rules: RuleSet) -> None:
    """A number of the policy, what it overrides, and the rules that read it."""
    lines = [f"# {number.location}", format_number(number.declared).rstrip()]
    if number.overrides is not None:
        lines.append(f"# overrides {format_value(number.overrides.value)}, {number.overrides.location}")
    read = readers(number.name, rules)
    read += [other.name for other in rules.numbers.values() if number.name in words_in(other.declared.value)]
    lines.append(f"# read by {', '.join(read)}" if read else "# read by facts and searches only")
    print_text("\n".join(lines) + "\n", "rw")


def show_fact(name: str, rules: RuleSet) -> None:
    """A fact that is an expression, and the rules that ask it."""
    for declared in [fact for file in rules.files for fact in file.facts if fact.name == name]:
        place = f"# {declared.span.source.name}:{declared.span.line}"
        print_text(f"{place}\n{format_fact(declared)}# asked by {', '.join(readers(name, rules))}\n", "rw")


def readers(name: str, rules: RuleSet) -> list[str]:
    """Who names a number or a fact: rules, and facts."""
    found = [rule.name for rule in rules.rules.values() if name in rule.words]
    return found + [f.name for file in rules.files for f in file.facts if name in words_in(f.value)]


def accept_examples(paths: list[Path]) -> None:
    """Write what the rules of some files give into their examples. Raises UsageError without a file."""
    if not paths:
        raise UsageError("--accept rewrites examples: say which files", hint="dplc rules test --accept FILE")
    from .accept_command import accept, fill, kept_if_refused, require_answers

    load_facts()
    named = [p for path in paths for p in (sorted(path.rglob("*.rw")) if path.is_dir() else (path,))]
    files = [file for file in named if file.is_file()]
    with kept_if_refused(files):
        filled = {file: fill(file) for file in files}
        rules = load(paths, copies=True)
        sources = set(map(str, named))
        failures = [failure for _, _, failed in _examples(rules, sources, set()) for failure in failed]
        require_answers(failures, filled)
        print_note(f"note: {accept(failures)} examples rewritten: read what they say now")


def test_rules(paths: list[Path]) -> None:
    """Static checks and examples of the given files, or of all built-in rules. A file may be a built-in one, edited."""
    rules = load(paths, copies=True)
    pipelines(rules)  # a line that names no pass is an error of the file
    for file in {file.source.name for file in built_in_files()} - {file.source.name for file in rules.files}:
        print_note(f"note: tested in the place of {file}")
    sources = {str(p) for path in paths for p in (path.rglob("*.rw") if path.is_dir() else (path,))}
    found = check(rules, sources or None)
    doubtful, wrong = warnings(found), errors(found)
    for told in (*doubtful, *wrong):  # errors last: they stand right above the prompt
        print_note(told.render())
    broken = {told.rule for told in wrong if isinstance(told, Finding)}  # what they do with an example says nothing
    ran = list(_examples(rules, sources, broken))
    failures = [failure for _, _, unmet in ran for failure in unmet]
    for failure in failures:
        print_note(failure.render())
    failed = f"{len(failures)} failed, {len(wrong)} errors, {len(doubtful)} warnings"
    write(f"{sum(n for n, _, _ in ran)} rules, {sum(n for _, n, _ in ran)} examples, {failed}\n")
    if wrong or failures:
        raise DplcError("the rules do not pass")


def _examples(rules: RuleSet, sources: set[str], broken: set[str]) -> Iterator[tuple[int, int, list[Failure]]]:
    """(rules, examples that ran, those that failed) of the files of these names, of all files if there are none: of
    rules for every device, then of those for one, on that device. broken: rules whose examples do not run."""
    for each in for_every_device(rules):
        named = (rule for rule in each.rules.values() if not sources or rule.span.source.name in sources)
        chosen = [rule for rule in named if each.device is None or rule.device is not None]
        sound = [rule for rule in chosen if (rule.family or rule.name) not in broken]
        devices = [load_device(rule.device.text) for rule in chosen if rule.device is not None]
        yield len(chosen), *run_examples(Engine(each, check=True), sound, devices[0] if devices else None)
