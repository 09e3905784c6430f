"""`dplc check`: compare rules on generated programs, report, and write files that reproduce wrong results."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # subjects are odd on purpose: torch need not warn about each

from ...ir.diagnostic import DplcError, UsageError
from ..language.check import require, rules_in_force
from ..language.rule import LEVELS, Rule, RuleSet
from ..prove.labels import label, label_lines
from ..verify.mutants import survey
from ..verify.outcome import ENOUGH, RuleVerdict, Wrong, counterexample_text, detail, pinned_in, summary, survey_text
from ..verify.run import ALL, CheckOptions, check_rules, check_subject, failed
from .options import Flags, check_known
from .output import COUNTEREXAMPLE, bars, print_json, print_note, write, write_file, write_lines
from .programs import read_text
from .rules import loaded


def check(flags: Flags) -> None:
    """Check the rules of some files (by default the built-in ones), some of them by name."""
    paths, options = flags.files, CheckOptions(flags.examples, flags.seed, more=0 if flags.prove else CheckOptions.more)
    rules, files = loaded(paths)
    for warning in require(rules, files):
        print_note(warning.render())
    every = [(each, choose(each, chosen, flags)) for each, chosen in rules_in_force(rules, () if flags.rule else files)]
    if not any(chosen for _, chosen in every):
        raise UsageError("no rule is left to check")
    every = [(each, part_of(chosen, flags.part)) for each, chosen in every]
    _, chosen = every[0]
    if flags.subject.is_dump:
        check_file(rules, chosen, flags.subject.path)
        return
    if flags.guards:
        with bars() as show:
            report = (lambda text: show(text, 0, len(chosen))) if sys.stderr.isatty() else print_note
            surveys = [survey(rules, rule, options, report) for rule in chosen]
        if flags.as_json:
            print_json([one.record() for one in surveys])
        else:
            write(survey_text(surveys))
        return
    started, done, count = time.monotonic(), itertools.count(1), sum(len(some) for _, some in every)
    verdicts = list[RuleVerdict]()
    with bars() as show:
        for each, some in every:
            verdicts += check_rules(each, some, options, lambda verdict: show(verdict.rule, next(done), count))
    folder = flags.out or Path()
    saved = [(one, folder / f"{one.rule}.ir") for one in verdicts if one.result == "wrong"]
    for wrong, path in saved:
        write_file(path, counterexample_text(wrong), COUNTEREXAMPLE)
    seconds = time.monotonic() - started
    labels = [*map(label, (rule for _, some in every for rule in some), verdicts)] if flags.prove else []
    if flags.as_json:
        print_json(
            {
                "rules": [verdict.record() for verdict in verdicts], "seconds": seconds,
                "proofs": [*map(asdict, labels)],
                "files": {wrong.rule: str(path) for wrong, path in saved},
            }
        )  # fmt: skip
    else:
        for wrong, path in saved:
            write_lines(detail(wrong, path, paths))
        if flags.prove:
            write_lines(*label_lines(labels))
        else:
            write(summary(verdicts, seconds, flags.verbose > 0 or len(verdicts) <= 60))
        write(f"seed {options.seed}, part {flags.part}: every run with these is the same\n")
    if bad := failed(verdicts, ALL if flags.allow_thin or flags.prove else frozenset(flags.few)):
        ends = Counter(verdict.result for verdict in bad)
        said = f"{ends['wrong']} rules are wrong, {ends['vacuous']} are reached by no subject, "
        said += f"{ends['thin']} by fewer than {ENOUGH}"
        hint = "an example that can vary gives more; `--allow-thin` accepts a few"
        raise DplcError(said, hint=hint if ends["thin"] and not saved else None)


def choose(rules: RuleSet, chosen: Sequence[Rule], flags: Flags) -> list[Rule]:
    """Return those of some rules that `--rule` and `--level` select.

    Raises UsageError, with the closest name, for an unknown rule.
    """
    named = set[str]()
    for level in flags.levels:
        check_known("level", level, LEVELS)
    for name in map(rules.plain, flags.rule):
        called = {rule.name for rule in rules.rules.values() if name in (rule.name, rule.family, rule.file)}
        if not called:
            raise rules.missing(name)
        named |= called
    return [
        rule
        for rule in chosen
        if (not named or rule.name in named) and (not flags.levels or rule.level in flags.levels)
    ]


def part_of(chosen: list[Rule], part: str) -> list[Rule]:
    """Return every N-th rule from the K-th for `K/N`. Raises UsageError for any other text."""
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--part {part} is not a part", hint="write 2/4 for the second of four")
    return chosen[int(found[1]) - 1 :: int(found[2])]


def check_file(rules: RuleSet, chosen: Sequence[Rule], path: Path) -> None:
    """Check one rule on the program in a file. Raises DplcError if the rule is wrong."""
    if len(chosen) != 1:
        raise UsageError("--subject needs one rule: --rule NAME")
    (rule,) = chosen
    text = read_text(path)
    try:
        outcome = check_subject(rules, rule, text, str(path), pinned_in(text))
    except Wrong as wrong:
        write_lines(*wrong.details)
        raise DplcError(f"rule `{rule.name}` is wrong: {wrong.problem}", rule.span) from None
    if not outcome.valid:
        raise DplcError(f"{path}: the program has no single meaning to compare with")
    write(f"rule {rule.name}: {outcome.firings} firings compared, nothing wrong\n")
