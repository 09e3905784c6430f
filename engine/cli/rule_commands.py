"""`dplc rules list|show|test`."""

from __future__ import annotations

from pathlib import Path

from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ..front import examples as torch_examples
from ..match import term_examples
from ..match.driver import Engine
from ..match.examples import run_examples
from ..rw.check import check, errors, warnings
from ..rw.format import format_rule
from ..rw.pipeline import describe, pipelines
from ..rw.rule import built_in_files, load
from .show import print_json, print_note, print_text, write

# Whose examples each level's runner tests is known once these are imported.
RUNNERS = (torch_examples, term_examples)


def list_rules(paths: list[Path], as_json: bool) -> None:
    """The passes of every pipeline in order."""
    steps = pipelines(load(paths))
    if not as_json:
        print_text(describe(steps), "rw")
        return
    record = {
        name: [
            {
                "pass": s.name,
                "as": s.label,
                "rules": [r.name for r in s.rules],
                "location": s.location,
                "group": s.group,
                "because": s.reason,
            }
            for s in listed
        ]
        for name, listed in steps.items()
    }
    print_json(record)


def show_rule(name: str, paths: list[Path]) -> None:
    """A rule, a whole pass, or the members of a family."""
    rules = load(paths)
    if name in rules.rules:
        found = [rules.rules[name]]
    else:
        found = list(rules.passes.get(name, ())) or [r for r in rules.rules.values() if name in (r.family, r.file)]
    if not found:
        options = (*rules.rules, *rules.passes, *(rule.file for rule in rules.rules.values()))
        raise UsageError(f"there is no rule or pass `{name}`", hint=did_you_mean(name, options))
    for rule in found:
        print_text(f"# {rule.location}\n{format_rule(rule)}\n", "rw")


def test_rules(paths: list[Path]) -> None:
    """Static checks and examples of the given files, or of all built-in rules. A file may be a built-in one, edited."""
    rules = load(paths, copies=True)
    pipelines(rules)  # a line that names no pass is an error of the file
    for file in {file.source.name for file in built_in_files()} - {file.source.name for file in rules.files}:
        print_note(f"note: tested in the place of {file}")
    sources = {str(p) for path in paths for p in (path.rglob("*.rw") if path.is_dir() else (path,))}
    found = check(rules, sources or None)
    doubtful = warnings(found)
    for warning in doubtful:
        print_note(warning.render())
    wrong = errors(found)
    for error in wrong:
        print_note(error.render())
    chosen = [rule for rule in rules.rules.values() if not sources or rule.span.source.name in sources]
    count, failures = run_examples(Engine(rules, check=True), chosen)
    for failure in failures:
        print_note(failure.render())
    failed = f"{len(failures)} failed, {len(wrong)} errors, {len(doubtful)} warnings"
    write(f"{len(chosen)} rules, {count} examples, {failed}\n")
    if wrong or failures:
        raise DplcError("the rules do not pass")
