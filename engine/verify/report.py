"""Verdicts for people: a table, what is wrong with a program that shows it, and files that read back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .outcome import ENOUGH, RuleVerdict
from .proofs.outcome import told
from .proofs.rules import available as proving

PINNED = "# parameters: "


def counterexample_text(verdict: RuleVerdict) -> str:
    """A counterexample as a file that `--subject` reads."""
    assert verdict.wrong is not None
    subject = verdict.wrong.subject
    lines = [f"# rule {verdict.rule}: {verdict.wrong.problem}", f"# from {subject.origin}"]
    pinned = {name: value for name, value in subject.pinned.items() if isinstance(value, int | float | str)}
    if pinned:
        lines.append(PINNED + json.dumps(pinned))
    head, _, rest = subject.text.partition("\n")  # the level comes first
    return "\n".join([head, *lines, rest])


def pinned_in(text: str) -> dict[str, Any]:
    """The parameters that a counterexample was found with."""
    found = re.search(rf"^{PINNED}(.*)$", text, re.MULTILINE)
    values: dict[str, Any] = json.loads(found[1]) if found else {}
    return values


def detail(verdict: RuleVerdict, path: Path, rule_files: Sequence[Path]) -> str:
    """What is wrong with a rule, and how to see it again."""
    assert verdict.wrong is not None
    wrong = verdict.wrong
    files = "".join(f" {file}" for file in rule_files)
    lines = [
        f"{verdict.location}: rule `{verdict.rule}` is wrong: {wrong.problem}",
        f"  found near: {wrong.subject.origin}",
    ]
    lines += [f"    {line}" for line in wrong.subject.text.splitlines()]
    lines += [f"  {wrong.details[0]}" if n == 0 else f"    {line}" for n, line in enumerate(wrong.details)]
    lines.append(f"  again: dplc check{files} --rule {verdict.rule} --subject {path}")
    return "\n".join(lines) + "\n"


COLUMNS = ("rule", "level", "subjects", "reached", "firings", "values", "guards", "seconds", "result")


def summary(verdicts: Sequence[RuleVerdict], seconds: float, each: bool) -> str:
    """The table: a line for each rule, or for each file with a line for every rule that is not ok."""
    rows = (
        [_row(v) for v in verdicts] if each else [*_files(verdicts), *(_row(v) for v in verdicts if v.result != "ok")]
    )
    widths = [max(len(row[n]) for row in (COLUMNS, *rows)) for n in range(len(COLUMNS))]
    lines = [_line(row, widths) for row in (COLUMNS, *rows)]
    untested = [f'{v.rule}: no subject violates "{reason}"' for v in verdicts for reason in v.untested]
    shadowed = [
        f"{v.rule}: {other} matches as well, on {count} of {v.reached} subjects"
        for v in verdicts
        for other, count in sorted(v.overlaps.items())
    ]
    for title, notes in (("guards that nothing tested", untested), ("overlaps in one pass", shadowed if each else [])):
        if notes:
            lines += ["", f"{title}:", *(f"  {note}" for note in notes)]
    lines += ["", *_proofs(verdicts, each), _total(verdicts, seconds), ""]
    return "\n".join(lines)


def _proofs(verdicts: Sequence[RuleVerdict], each: bool) -> list[str]:
    if not proving():
        return ["index arithmetic was not proved: Z3 is missing, pip install 'dplc[prove]'", ""]
    lines = told(((v.rule, v.proof) for v in verdicts if v.proof is not None), each)
    return [*lines, ""] if lines else []


def _row(verdict: RuleVerdict) -> tuple[str, ...]:
    guards = f"{len(verdict.guards) - len(verdict.untested)}/{len(verdict.guards)}"
    result = f"{verdict.result} (through {verdict.through})" if verdict.through else verdict.result
    numbers = (verdict.subjects - verdict.discarded, verdict.reached, verdict.firings, len(verdict.parameters))
    return (verdict.rule, verdict.level, *map(str, numbers), guards, f"{verdict.seconds:.1f}", result)


def _files(verdicts: Sequence[RuleVerdict]) -> Iterable[tuple[str, ...]]:
    groups: dict[str, list[RuleVerdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.location.rsplit(":", 1)[0], []).append(verdict)
    for file, group in groups.items():
        ok = sum(v.result == "ok" for v in group)
        guards, tested = sum(len(v.guards) for v in group), sum(len(v.guards) - len(v.untested) for v in group)
        numbers = (
            sum(v.subjects - v.discarded for v in group), sum(v.reached for v in group), sum(v.firings for v in group),
            sum(len(v.parameters) for v in group),
        )  # fmt: skip
        time = f"{sum(v.seconds for v in group):.1f}"
        yield (file, group[0].level, *map(str, numbers), f"{tested}/{guards}", time, f"{ok} of {len(group)} ok")


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if 2 <= n < 8 else cell.ljust(width)
        for n, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _total(verdicts: Sequence[RuleVerdict], seconds: float) -> str:
    counts = {result: sum(v.result == result for v in verdicts) for result in ("ok", "wrong", "vacuous", "thin")}
    firings, subjects = sum(v.firings for v in verdicts), sum(v.subjects - v.discarded for v in verdicts)
    results = f"{counts['ok']} ok, {counts['wrong']} wrong, {counts['vacuous']} reached by no subject"
    results += f", {counts['thin']} thin: fewer than {ENOUGH} distinct subjects" if counts["thin"] else ""
    return f"{len(verdicts)} rules: {results}; {subjects} subjects, {firings} firings compared, {seconds:.1f} s"


def survey_text(found: Iterable[Any]) -> str:
    """What the mutants of rules came to: what was not noticed, and what only an example of the rule noticed."""
    lines, total = [], 0
    counts: Counter[str] = Counter()
    for survey in found:
        total += len(survey.results)
        counts.update(result.how for result in survey.results)
        lines.append(f"{survey.rule}: {survey.caught} of {len(survey.results)} mutants caught")
        for result in survey.results:
            if result.how in ("survives", "example"):
                beyond = f", {result.legal} more firings compared" if result.legal else ""
                how = "survives" if result.how == "survives" else "means the same, an example notices"
                lines.append(f"  {how}: {result.what}{beyond}")
    ways = ", ".join(f"{counts[how]} {said}" for how, said in NOTICED.items() if counts[how])
    return "\n".join([*lines, "", f"{total - counts['survives']} of {total} mutants caught: {ways}", ""])


NOTICED = {
    "wrong": "wrong", "vacuous": "reached by no subject", "refused": "refused", "example": "by an example alone",
    "survives": "survive",
}  # fmt: skip
