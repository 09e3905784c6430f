"""The results of checking a rule: of one program, of all its programs, and as text for people."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...codegen.arrays import Array
from ...ir.diagnostic import DplcError
from ..language.evaluate import Environment
from . import proofs

T = TypeVar("T")
Arrays = dict[str, Array]  # of numpy or torch, by name
# What a wrong rule, or a program without a meaning, may raise on its way.
ERRORS = (DplcError, LookupError, ValueError, ArithmeticError, TypeError, AttributeError, AssertionError)
# How far floats may be apart, as a share of the largest: of sums in another order, and of equations of real numbers.
REORDERED, REAL = 1e-12, 1e-9
ENOUGH = 20  # distinct subjects on which a rule fired, for its verdict to mean something


@dataclass(eq=False)
class Dice:
    """Choices. The lowest number, the first option and False are the simplest.

    number: chooses a number from `low` to `high`. named: the numbers that the text of the rule names, and their
    neighbours.
    """

    number: Callable[[int, int], int]
    named: Sequence[int | float]

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def change_one(self, items: tuple[T, ...], change: Callable[[T], T]) -> tuple[T, ...]:
        """Return some items with one of them changed."""
        if not items:
            return items
        at = self.number(0, len(items) - 1)
        return (*items[:at], change(items[at]), *items[at + 1 :])

    def changed(self, program: T, changes: Sequence[Callable[[T, Dice], T]]) -> T:
        """Return a program after one to three changes."""
        for _ in range(self.number(1, 3)):
            program = self.pick(changes)(program, self)
        return program

    def often(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent


class PlainDice(Dice):
    """Choices of a plain generator."""

    def __init__(self, seed: object, named: Sequence[int | float] = ()):
        super().__init__(random.Random(repr(seed)).randint, named)

    def often(self, percent: int) -> bool:
        return self.number(0, 99) < percent


NAMED = 30  # of a hundred numbers, how many are those that the rule names


def numeral(dice: Dice, options: Sequence[int], low: int, high: int) -> int:
    """Return a whole number: one of the options, or one from `low` to `high` that the rule names."""
    named = [n for n in dice.named if type(n) is int and low <= n <= high]
    return dice.pick(named if named and dice.often(NAMED) else options)


def constant(dice: Dice, options: Sequence[float]) -> float:
    """Return a number that a program may hold: one of the options, or one that the rule names."""
    return dice.pick(dice.named if dice.named and dice.often(NAMED) else options)


def agree(want: Array, have: Array, tolerance: float) -> Array:
    """Return the elements at which two arrays agree.

    Elements agree if they are equal, or both NaN, or if they are floats that differ by at most `tolerance` times the
    largest finite magnitude, or times 1 if that is smaller.
    """
    with np.errstate(all="ignore"):
        same = (want == have) | ((want != want) & (have != have))
        if tolerance and want.dtype.kind == "f":
            scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
            same |= np.abs(want - have) <= tolerance * scale  # never of what is not finite
    return same


def unlike(name: str, want: Array, have: Array, tolerance: float, where: Array = True) -> str | None:
    """Return the first difference of two arrays, in words, or None. where: the elements that are compared."""
    same = agree(want, have, tolerance) | ~np.asarray(where)
    if same.all():
        return None
    at = tuple(int(n) for n in np.argwhere(~same)[0])
    rounded = tolerance < REAL and (agree(want, have, REAL) | ~np.asarray(where)).all()
    why = ": they differ by rounding alone, which `@approx` allows" if rounded else ""
    return f"{name}{list(at)} is {have[at]}, not {want[at]}{why}"


def said(error: Exception) -> str:
    """Return an error in one line: ours without its location, any other with its class."""
    return error.what if isinstance(error, DplcError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Subject:
    """A program that a rule is tried on. value: what the level's checker works with; origin: where it comes from."""

    text: str
    value: Any = field(compare=False, repr=False)
    origin: str = ""
    pinned: Environment = field(default_factory=dict, compare=False)

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
    locals: set[str] = field(default_factory=set)


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
    proof: proofs.Proof | None = None  # where Z3 is there
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
        self.locals |= outcome.locals

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

    @property
    def counts(self) -> tuple[int, ...]:
        """Subjects with a meaning, those reached, firings, values of parameters, guards, and tested guards."""
        guards = len(self.guards)
        subjects, tested = self.subjects - self.discarded, guards - len(self.untested)
        return subjects, self.reached, self.firings, len(self.parameters), guards, tested

    def record(self) -> dict[str, Any]:
        """Return the record for `--json`."""
        plain = ("rule", "level", "location", "result", "subjects", "discarded", "reached", "firings")
        found = {name: getattr(self, name) for name in plain} | {
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
    pinned = {name: value for name, value in subject.pinned.items() if isinstance(value, int | float | str)}
    head, _, rest = subject.text.partition("\n")  # the level comes first
    comments = [f"# rule {verdict.rule}: {verdict.wrong.problem}", f"# from {subject.origin}"]
    return "\n".join([head, *comments, *([PINNED + json.dumps(pinned)] if pinned else ()), rest])


def pinned_in(text: str) -> Environment:
    """Return the parameters that a counterexample was found with."""
    found = re.search(rf"^{PINNED}(.*)$", text, re.MULTILINE)
    return json.loads(found[1]) if found else {}


def detail(verdict: RuleVerdict, path: Path, rule_files: Sequence[Path]) -> str:
    """Describe the fault of a rule, and how to reproduce it."""
    assert verdict.wrong is not None
    wrong = verdict.wrong
    lines = [
        f"{verdict.location}: rule `{verdict.rule}` is wrong: {wrong.problem}",
        f"  found near: {wrong.subject.origin}",
        *(f"    {line}" for line in wrong.subject.text.splitlines()),
        *(f"  {line}" for line in wrong.details[:1]),
        *(f"    {line}" for line in wrong.details[1:]),
        " ".join(("  again: dplc check", *map(str, rule_files), "--rule", verdict.rule, "--subject", str(path))),
    ]
    return "\n".join(lines) + "\n"


COLUMNS = ("rule", "level", "subjects", "reached", "firings", "values", "guards", "seconds", "result")
LEGEND = (
    "reached: subjects on which the rule fired; values: values of its parameters that fired; "
    "guards: those that some subject violates, of all"
)
ALIGNED = "<<>>>>>><"  # the columns, left or right


def summary(verdicts: Sequence[RuleVerdict], seconds: float, each: bool) -> str:
    """Return the table: a line for each rule, or for each file with a line for every rule that is not ok."""
    files: dict[str, list[RuleVerdict]] = {}
    for v in () if each else verdicts:
        files.setdefault(v.location.rsplit(":", 1)[0], []).append(v)
    groups = [(file, of, f"{sum(v.result == 'ok' for v in of)} of {len(of)} ok") for file, of in files.items()]
    for v in verdicts:
        if each or v.result != "ok":
            groups.append((v.rule, [v], f"{v.result} (through {v.through})" if v.through else v.result))
    rows: list[tuple[str, ...]] = [COLUMNS]
    for name, of, result in groups:
        *counts, guards, tested = _sums(of)
        time = f"{sum(v.seconds for v in of):.1f}"
        rows.append((name, of[0].level, *map(str, counts), f"{tested}/{guards}", time, result))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(map("{:{}{}}".format, row, ALIGNED, widths)).rstrip() for row in rows]
    lines += ["", LEGEND]
    untested = [f'{v.rule}: no subject violates "{reason}"' for v in verdicts for reason in v.untested]
    shadowed = [
        f"{v.rule}: {other} matches as well, on {count} of {v.reached} subjects"
        for v in (verdicts if each else ())
        for other, count in sorted(v.overlaps.items())
    ]
    for title, notes in (("guards that nothing tested", untested), ("overlaps in one pass", shadowed)):
        if notes:
            lines += ["", f"{title}:", *(f"  {note}" for note in notes)]
    if proofs.solver_module() is None:
        lines += ["", "index arithmetic was not proved: Z3 is missing, pip install 'dplc[prove]'"]
    elif proved := proofs.proof_lines(((v.rule, v.proof) for v in verdicts if v.proof is not None), each):
        lines += ["", *proved]
    ends = Counter(v.result for v in verdicts)
    results = f"{ends['ok']} ok, {ends['wrong']} wrong, {ends['vacuous']} reached by no subject"
    results += f", {ends['thin']} thin: fewer than {ENOUGH} distinct subjects" if ends["thin"] else ""
    subjects, _, firings, *_ = _sums(verdicts)
    total = f"{len(verdicts)} rules: {results}; {subjects} subjects, {firings} firings compared, {seconds:.1f} s"
    return "\n".join([*lines, "", total, ""])


def _sums(verdicts: Iterable[RuleVerdict]) -> list[int]:
    """Return the numbers of some rules together, as in `RuleVerdict.counts`."""
    return list(map(sum, zip((0,) * 6, *(v.counts for v in verdicts), strict=True)))


def survey_text(found: Sequence[Any]) -> str:
    """Return the results of mutants: those that survive, and those that only an example of the rule detects."""
    lines: list[str] = []
    for survey in found:
        caught = f"{survey.caught} of {len(survey.results)} mutants caught"
        lines.append(f"{survey.rule}: {caught if survey.results else NO_GUARDS}")
        for result in survey.results:
            if result.how in QUIET:
                beyond = f", {result.legal} more firings compared" if result.legal else ""
                lines.append(f"  {QUIET[result.how]}: {result.what}{beyond}")
    counts = Counter(result.how for survey in found for result in survey.results)
    ways = ", ".join(f"{counts[how]} {said}" for how, said in NOTICED.items() if counts[how])
    total = f"{counts.total() - counts['survives']} of {counts.total()} mutants caught: {ways}"
    return "\n".join([*lines, *(["", total] if ways else ()), *([IDLE] if counts["survives"] else ()), ""])


NO_GUARDS = "no mutants, for it has no `require` to leave out"
IDLE = "  help: no program and no example needs what survives: remove it or add an example"
QUIET = {"survives": "survives", "example": "means the same, an example notices"}
NOTICED = {
    "wrong": "wrong", "vacuous": "reached by no subject", "refused": "refused", "example": "by an example alone",
    "survives": "survive",
}  # fmt: skip
