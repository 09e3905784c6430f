"""`dplc check`: compare rules on generated programs, report, and write files that reproduce wrong results."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # subjects are odd on purpose: torch need not warn about each

from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ..language.check import for_every_device, require
from ..language.rule import BUILT_IN, Rule, RuleSet, built_in_files, load
from ..ruleset import all_rule_files
from ..verify.mutants import survey
from ..verify.outcome import ENOUGH, RuleVerdict, Wrong, counterexample_text, detail, pinned_in, summary, survey_text
from ..verify.run import ALL, CheckOptions, check_rules, check_subject, failed
from .options import Flags
from .output import COUNTEREXAMPLE, bars, print_json, print_note, write, write_file, write_lines


def check(flags: Flags) -> None:
    """Check the rules of some files (by default the built-in ones), some of them by name."""
    paths, part, as_json = flags.files or [], flags.part, flags.as_json
    options = CheckOptions(flags.examples, flags.seed)
    rules = load([path for path in paths if not is_built_in(path)])
    unnamed = {file.source.name for file in built_in_files()} - named_files(paths)  # by our tests
    for warning in require(rules, {rule.span.source.name for rule in rules.rules.values()} - unnamed):
        print_note(warning.render())
    every = [(each, choose(each, paths, flags.rule or (), flags.levels or ())) for each in for_every_device(rules)]
    if not any(chosen for _, chosen in every):
        raise UsageError("no rule is left to check")
    every = [(each, part_of(chosen, part)) for each, chosen in every]
    chosen = every[0][1]
    if flags.subject.is_dump:
        check_file(rules, chosen, flags.subject.path)
        return
    started = time.monotonic()
    if flags.guards or flags.mutate:
        with bars() as show:

            def report(text: str) -> None:
                if sys.stderr.isatty():
                    show(text, 0, len(chosen))
                else:
                    print_note(text)

            found = [survey(rules, rule, options, report, flags.guards) for rule in chosen]
        if as_json:
            print_json([one.record() for one in found])
        else:
            write(survey_text(found))
        return
    done = itertools.count(1)
    count, verdicts = sum(len(some) for _, some in every), list[RuleVerdict]()
    with bars() as show:
        for each, some in every:
            if some:
                verdicts += check_rules(each, some, options, lambda v: show(v.rule, next(done), count))
    wrong = [verdict for verdict in verdicts if verdict.result == "wrong"]
    files = {verdict.rule: save(verdict, flags.out or Path()) for verdict in wrong}
    seconds = time.monotonic() - started
    if as_json:
        records = [verdict.record() for verdict in verdicts]
        print_json({"rules": records, "seconds": seconds, "files": {k: str(p) for k, p in files.items()}})
    else:
        for verdict in wrong:
            write_lines(detail(verdict, files[verdict.rule], paths))
        write(summary(verdicts, seconds, flags.verbose > 0 or len(verdicts) <= 60))
        write(f"seed {options.seed}, part {part}: every run with these is the same\n")
    if bad := failed(verdicts, ALL if flags.allow_thin else frozenset(flags.few or ())):
        vacuous, few = (sum(v.result == result for v in bad) for result in ("vacuous", "thin"))
        said = f"{len(wrong)} rules are wrong, {vacuous} are reached by no subject, {few} by fewer than {ENOUGH}"
        hint = "an example that can vary gives more; `--allow-thin` accepts a few" if few and not wrong else None
        raise DplcError(said, hint=hint)


def choose(rules: RuleSet, paths: Sequence[Path], names: Sequence[str], levels: Sequence[str]) -> list[Rule]:
    """Return the rules that `--rule`, `--level` and the files select.

    If the rule set has a device, only the rules for that device are selected. Raises UsageError, with the closest name,
    for an unknown rule.
    """
    files, names = named_files(paths), [*map(rules.plain, names)]
    chosen = [rule for rule in rules.rules.values() if not files or rule.span.source.name in files]
    for name in names:
        if not any(_called(rule, name) for rule in rules.rules.values()):
            raise UsageError(f"there is no rule `{name}`", hint=did_you_mean(name, rules.rules))
    if names:
        chosen = [rule for rule in rules.rules.values() if any(_called(rule, name) for name in names)]
    if levels:
        chosen = [rule for rule in chosen if rule.level in levels]
    return [rule for rule in chosen if rules.device is None or rule.device is not None]


def named_files(paths: Sequence[Path]) -> set[str]:
    """Return the names of the rule files in some files and folders, as the spans of rules name them."""
    return set(map(_source, all_rule_files(paths)))


def part_of(chosen: list[Rule], part: str) -> list[Rule]:
    """Return every N-th rule from the K-th for `K/N`. Raises UsageError for any other text."""
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--part {part} is not a part: 2/4 is the second of four")
    return chosen[int(found[1]) - 1 :: int(found[2])]


def is_built_in(path: Path) -> bool:
    """Return whether a file or folder is a built-in one, whose rules are loaded already."""
    return path.resolve().is_relative_to(BUILT_IN.resolve())


def _source(path: Path) -> str:
    """Return the name of a file, as its rules report it."""
    return str(path.resolve().relative_to(BUILT_IN.resolve().parent)) if is_built_in(path) else str(path)


def _called(rule: Rule, name: str) -> bool:
    return name in (rule.name, rule.family, rule.file)


def check_file(rules: RuleSet, chosen: Sequence[Rule], path: Path) -> None:
    """Check one rule on the program in a file. Raises DplcError if the rule is wrong."""
    if len(chosen) != 1:
        raise UsageError("--subject needs one rule: --rule NAME")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    try:
        outcome = check_subject(rules, chosen[0], text, str(path), pinned_in(text))
    except Wrong as wrong:
        write_lines(*wrong.details)
        raise DplcError(f"rule `{chosen[0].name}` is wrong: {wrong.problem}", chosen[0].span) from None
    if not outcome.valid:
        raise DplcError(f"{path}: the program has no single meaning to compare with")
    write(f"rule {chosen[0].name}: {outcome.firings} firings compared, nothing wrong\n")


def save(verdict: RuleVerdict, folder: Path) -> Path:
    """Write the counterexample of a rule to a file in the folder. Return its path."""
    path = folder / f"{verdict.rule}.ir"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DplcError(f"cannot write {path}: {error.strerror}") from None
    write_file(path, counterexample_text(verdict), COUNTEREXAMPLE)
    return path
