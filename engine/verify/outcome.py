"""What checking says: about one subject, and about one rule over all its subjects."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from ...ir.diagnostic import DplcError
from .proofs.outcome import Proof

T = TypeVar("T")
ENOUGH = 20  # distinct subjects on which a rule fired, for its verdict to mean something


class Dice(Protocol):
    """Where generated subjects take their choices from: Hypothesis, or a plain random generator."""

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included; `low` is the simplest."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        ...

    def often(self, percent: int) -> bool:
        """True in so many cases of a hundred; False is the simplest."""
        ...

    @property
    def named(self) -> Sequence[int | float]:
        """The numbers that the text of the rule names, and their neighbours."""
        ...


NAMED = 30  # of a hundred numbers, how many are those that the rule names


def numeral(dice: Dice, options: Sequence[int], low: int, high: int) -> int:
    """A whole number: one of the options, or one from `low` to `high` that the rule names."""
    named = [n for n in dice.named if type(n) is int and low <= n <= high]
    return dice.pick(named) if named and dice.often(NAMED) else dice.pick(options)


def constant(dice: Dice, options: Sequence[Any]) -> Any:
    """A number that a program may hold: one of the options, or one that the rule names."""
    return dice.pick(dice.named) if dice.named and dice.often(NAMED) else dice.pick(options)


def agree(want: Any, have: Any, tolerance: float) -> Any:
    """Where two arrays agree: the same, both NaN, or floats as near as a share of the largest finite value, 1 at
    least."""
    with np.errstate(all="ignore"):
        same = (want == have) | ((want != want) & (have != have))
        if tolerance and want.dtype.kind == "f":
            finite = np.isfinite(want) & np.isfinite(have)
            scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
            same |= finite & (np.abs(np.where(finite, want - have, 0)) <= tolerance * scale)
    return same


def said(error: Exception) -> str:
    """What is wrong, in a line: ours without its place, any other with its class."""
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
        """What decides its inputs: the text, so that a file gives the same ones."""
        return zlib.crc32(self.text.encode())


class Wrong(Exception):
    """A rule changed the meaning of a subject, or broke it. details: more lines for people."""

    def __init__(self, subject: Subject, problem: str, details: Sequence[str] = ()):
        super().__init__(problem)
        self.subject, self.problem, self.details = subject, problem, tuple(details)


@dataclass
class Outcome:
    """What came of one subject. valid: it has a meaning to compare with; firings: ways to fire that were compared."""

    valid: bool = True
    firings: int = 0
    parameters: set[str] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    overlaps: Counter[str] = field(default_factory=Counter)
    locals: Counter[str] = field(default_factory=Counter)


@dataclass
class RuleVerdict:
    """One rule over all its subjects."""

    rule: str
    level: str
    location: str
    subjects: int = 0
    discarded: int = 0
    reached: int = 0  # distinct ones: what differs in the name of its program alone is one
    drawn: bool = True  # whether subjects were drawn at all
    firings: int = 0
    seconds: float = 0.0
    parameters: set[str] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    overlaps: Counter[str] = field(default_factory=Counter)
    locals: Counter[str] = field(default_factory=Counter)
    guards: tuple[str, ...] = ()
    wrong: Wrong | None = None
    proof: Proof | None = None  # where Z3 is there
    through: str | None = None  # for a @local rule: the rule that it fired through

    def add(self, outcome: Outcome) -> None:
        """Count one subject, which is none that was counted before."""
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
        """ok, wrong, vacuous, or thin: too few programs to say much."""
        if self.wrong is not None:
            return "wrong"
        if self.through:
            return "ok"
        if not self.firings:
            return "vacuous"
        return "thin" if self.drawn and self.reached < ENOUGH else "ok"

    @property
    def untested(self) -> tuple[str, ...]:
        """The `where` guards that no subject violated."""
        return tuple(reason for reason in self.guards if not self.refusals[reason])

    def record(self) -> dict[str, Any]:
        """For --json."""
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
