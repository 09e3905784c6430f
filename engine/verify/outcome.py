"""The results of checking a rule: of one program, of all its programs, and as text for people."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...ir.diagnostic import DplcError
from .proofs.integers import Proof, told
from .proofs.rules import available as proving

T = TypeVar("T")
# What a wrong rule, or a program without a meaning, may raise on its way.
ERRORS = (DplcError, LookupError, ValueError, ArithmeticError, TypeError, AttributeError, AssertionError)
# How far floats may be apart, as a share of the largest: of sums in another order, and of equations of real numbers.
REORDERED, REAL = 1e-12, 1e-9
ENOUGH = 20  # distinct subjects on which a rule fired, for its verdict to mean something


class HypothesisDice:
    """Choices that Hypothesis draws and shrinks. The lowest number, the first option and False are the simplest.

    named: the numbers that the text of the rule names, and their neighbours.
    """

    def __init__(self, data: Any, named: Sequence[int | float] = ()):
        from hypothesis import strategies

        self.data, self.integers, self.named = data, strategies.integers, named

    def number(self, low: int, high: int) -> int:
        return int(self.data.draw(self.integers(low, high)))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def often(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent


class PlainDice:
    """Choices of a plain generator."""

    def __init__(self, seed: object, named: Sequence[int | float] = ()):
        self.random, self.named = random.Random(repr(seed)), named

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def often(self, percent: int) -> bool:
        return self.random.randrange(100) < percent


Dice = HypothesisDice | PlainDice
NAMED = 30  # of a hundred numbers, how many are those that the rule names


def numeral(dice: Dice, options: Sequence[int], low: int, high: int) -> int:
    """Return a whole number: one of the options, or one from `low` to `high` that the rule names."""
    named = [n for n in dice.named if type(n) is int and low <= n <= high]
    return dice.pick(named) if named and dice.often(NAMED) else dice.pick(options)


def constant(dice: Dice, options: Sequence[Any]) -> Any:
    """Return a number that a program may hold: one of the options, or one that the rule names."""
    return dice.pick(dice.named) if dice.named and dice.often(NAMED) else dice.pick(options)


def agree(want: Any, have: Any, tolerance: float) -> Any:
    """Return the elements at which two arrays agree.

    Elements agree if they are equal, or both NaN, or if they are floats that differ by at most `tolerance` times the
    largest finite magnitude, or times 1 if that is smaller.
    """
    with np.errstate(all="ignore"):
        same = (want == have) | ((want != want) & (have != have))
        if tolerance and want.dtype.kind == "f":
            finite = np.isfinite(want) & np.isfinite(have)
            scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
            same |= finite & (np.abs(np.where(finite, want - have, 0)) <= tolerance * scale)
    return same


def unlike(name: str, want: Any, have: Any, tolerance: float, where: Any = True) -> str | None:
    """Return the first difference of two arrays, in words, or None. where: the elements that are compared."""
    same = agree(want, have, tolerance) | ~np.asarray(where)
    if same.all():
        return None
    at = tuple(int(n) for n in np.argwhere(~same)[0])
    return f"{name}{list(at)} is {have[at]}, not {want[at]}"


def said(error: Exception) -> str:
    """Return an error in one line: ours without its location, any other with its class."""
    return error.what if isinstance(error, DplcError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Subject:
    """A program that a rule is tried on. value: what the level's checker works with; origin: where it comes from."""

    level: str
    text: str
    value: Any = field(compare=False, repr=False)
    origin: str = ""
    pinned: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """The text without the name of its program: what two subjects that are the same share."""
        return re.sub(r"^graph \w+\(", "graph (", self.text, flags=re.MULTILINE)

    @property
    def seed(self) -> int:
        """Seed of its inputs: a hash of the text, so that a file always has the same inputs."""
        return zlib.crc32(self.text.encode())


class Wrong(Exception):
    """A rule changed the meaning of a subject, or broke it. details: more lines for people."""

    def __init__(self, subject: Subject, problem: str, details: Sequence[str] = ()):
        super().__init__(problem)
        self.subject, self.problem, self.details = subject, problem, tuple(details)


@dataclass(kw_only=True)
class Outcome:
    """Outcome of one subject. valid: it has a meaning to compare with; firings: ways to fire that were compared."""

    valid: bool = True
    firings: int = 0
    parameters: set[str] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    overlaps: Counter[str] = field(default_factory=Counter)
    locals: Counter[str] = field(default_factory=Counter)


@dataclass
class RuleVerdict(Outcome):
    """One rule over all its subjects."""

    rule: str
    level: str
    location: str
    subjects: int = 0
    discarded: int = 0
    reached: int = 0  # distinct ones: what differs in the name of its program alone is one
    drawn: bool = True  # whether subjects were drawn at all
    seconds: float = 0.0
    guards: tuple[str, ...] = ()
    wrong: Wrong | None = None
    proof: Proof | None = None  # where Z3 is there
    through: str | None = None  # for a @local rule: the rule that it fired through

    def add(self, outcome: Outcome) -> None:
        """Count one subject that was not counted before."""
        self.subjects += 1
        self.discarded += not outcome.valid
        self.reached += outcome.firings > 0
        self.firings += outcome.firings
        self.parameters |= outcome.parameters
        self.refusals += outcome.refusals
        self.overlaps += outcome.overlaps
        self.locals += outcome.locals

    @property
    def result(self) -> str:
        """Verdict: ok, wrong, vacuous, or thin (too few programs reached)."""
        if self.wrong is not None:
            return "wrong"
        if self.through:
            return "ok"
        if not self.firings:
            return "vacuous"
        return "thin" if self.drawn and self.reached < ENOUGH else "ok"

    @property
    def untested(self) -> tuple[str, ...]:
        """The `require` guards that no subject violated."""
        return tuple(reason for reason in self.guards if not self.refusals[reason])

    def record(self) -> dict[str, Any]:
        """Return the record for `--json`."""
        found = {
            "rule": self.rule, "level": self.level, "location": self.location, "result": self.result,
            "subjects": self.subjects, "discarded": self.discarded, "reached": self.reached, "firings": self.firings,
            "parameters": sorted(self.parameters), "guards": len(self.guards), "untested_guards": list(self.untested),
            "overlaps": dict(self.overlaps), "seconds": round(self.seconds, 3),
        }  # fmt: skip
        if self.through:
            found["through"] = self.through
        if self.proof is not None and self.proof.result != "none":
            found["proof"] = self.proof.record()
        if self.wrong is not None:
            subject = self.wrong.subject
            found["counterexample"] = {
                "problem": self.wrong.problem, "details": list(self.wrong.details), "subject": subject.text,
                "origin": subject.origin,
            }  # fmt: skip
        return found


# ---- Verdicts for people: a table, what is wrong with a program that shows it, and files that read back.


PINNED = "# parameters: "


def counterexample_text(verdict: RuleVerdict) -> str:
    """Return a counterexample as a file that `--subject` reads."""
    assert verdict.wrong is not None
    subject = verdict.wrong.subject
    lines = [f"# rule {verdict.rule}: {verdict.wrong.problem}", f"# from {subject.origin}"]
    pinned = {name: value for name, value in subject.pinned.items() if isinstance(value, int | float | str)}
    if pinned:
        lines.append(PINNED + json.dumps(pinned))
    head, _, rest = subject.text.partition("\n")  # the level comes first
    return "\n".join([head, *lines, rest])


def pinned_in(text: str) -> dict[str, Any]:
    """Return the parameters that a counterexample was found with."""
    found = re.search(rf"^{PINNED}(.*)$", text, re.MULTILINE)
    values: dict[str, Any] = json.loads(found[1]) if found else {}
    return values


def detail(verdict: RuleVerdict, path: Path, rule_files: Sequence[Path]) -> str:
    """Describe the fault of a rule, and how to reproduce it."""
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
    """Return the table: a line for each rule, or for each file with a line for every rule that is not ok."""
    files: dict[str, list[RuleVerdict]] = {}
    for v in verdicts if not each else ():
        files.setdefault(v.location.rsplit(":", 1)[0], []).append(v)
    rows = [
        _row(file, group, f"{sum(v.result == 'ok' for v in group)} of {len(group)} ok") for file, group in files.items()
    ]
    for v in verdicts:
        if each or v.result != "ok":
            rows.append(_row(v.rule, [v], f"{v.result} (through {v.through})" if v.through else v.result))
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


def _row(name: str, verdicts: Sequence[RuleVerdict], result: str) -> tuple[str, ...]:
    """Return the cells of a rule, or of the rules of a file."""
    guards, untested = sum(len(v.guards) for v in verdicts), sum(len(v.untested) for v in verdicts)
    numbers = (
        sum(v.subjects - v.discarded for v in verdicts), sum(v.reached for v in verdicts),
        sum(v.firings for v in verdicts), sum(len(v.parameters) for v in verdicts),
    )  # fmt: skip
    tested, time = f"{guards - untested}/{guards}", f"{sum(v.seconds for v in verdicts):.1f}"
    return (name, verdicts[0].level, *map(str, numbers), tested, time, result)


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
    """Return the results of mutants: those that survive, and those that only an example of the rule detects."""
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
