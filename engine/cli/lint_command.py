"""`dplc rules lint`: what rules may be better without."""

from __future__ import annotations

from pathlib import Path

from ...codegen.target import target as target_named
from ...ir.diagnostic import DplcError
from ..language.check import check, errors, for_every_device, load_facts
from ..language.findings import Finding
from ..language.lint import lint_rule
from ..language.rule import RuleSet, load
from .show import print_json, print_note, write


def lint_rules(paths: list[Path], subjects: bool, as_json: bool) -> None:
    """Print every finding with its place. Raises DplcError if there is one, or the files do not pass their checks."""
    load_facts()
    rules = load(paths, copies=True)
    names = {str(p) for path in paths for p in (path.rglob("*.rw") if path.is_dir() else (path,))}
    chosen = [rule for rule in rules.rules.values() if not names or rule.span.source.name in names]
    if names and (wrong := errors(check(rules, names))):
        raise DplcError(wrong[0].what, wrong[0].span, wrong[0].notes, wrong[0].hint)
    found = list(_findings(rules, names))
    if subjects:
        from ..rewrite.statements.driver import Engine
        from ..verify.unviolated import unviolated

        found += unviolated(Engine(rules), chosen, target_named())
    if as_json:
        print_json([_record(finding) for finding in found])
    else:
        for finding in found:
            print_note(finding.render())
        write(f"{len(chosen)} rules, {len(found)} findings\n")
    if found:
        raise DplcError("the rules can be made shorter or clearer")


def _findings(rules: RuleSet, names: set[str]) -> list[Finding]:
    """What the texts say, in their order; the members of a family share theirs."""
    found: dict[object, Finding] = {}
    for each in for_every_device(rules):
        for file in each.files:
            if names and file.source.name not in names:
                continue
            for declared in file.rules:
                rule = each.rules.get(declared.name)
                if rule is not None and rule.span == declared.span:
                    for finding in lint_rule(rule, each):
                        found.setdefault((finding.check, finding.span), finding)
    return list(found.values())


def _record(finding: Finding) -> dict[str, object]:
    place = finding.span.location if finding.span is not None else ""
    return {
        "place": place,
        "check": finding.check,
        "what": finding.what,
        "notes": list(finding.notes),
        "help": finding.hint,
    }
