"""The best schedules of a search are remembered while it runs: whatever ends the process, they are in the store.

Only what was checked is remembered, and checking takes time: it is done at improvements, as long as no more than a
tenth of the search goes into it. An entry of a search that has not ended says so in its details.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ...ir.diagnostic import DplcError
from ..schedule.space import ScheduleCandidate, Start
from ..store.protocol import Tuned, TuningStore, key_of
from ..store.store import UNFINISHED
from .correctness import Verdict, verdict
from .running import Heard, Runner, SearchProgress
from .search import Tried

SHARE = 0.1  # of the time of a search
FIRST = 0.3  # seconds that the first check is expected to take: a short search checks at its end only


@dataclass
class Keeper:
    """Hears a search, and puts what is fast and right into a store.

    before: what the store had of each kernel.
    """

    runner: Runner
    store: TuningStore
    heard: Heard
    before: dict[Start, Tuned | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began, self._spent, self._expected = time.monotonic(), 0.0, FIRST
        self._waiting: dict[Start, None] = {}
        self._best: dict[Start, float] = {}
        self._verdicts: dict[str, Verdict] = {}

    def __call__(self, run: SearchProgress, tried: Tried) -> None:
        """Something was tried."""
        for candidate, _, score in tried.parts:
            start = candidate.start
            if score.seconds is not None and score.seconds < self._best.get(start, float("inf")):
                self._best[start] = score.seconds
                self._waiting[start] = None
        if self._waiting and self._spent + self._expected <= SHARE * (time.monotonic() - self._began):
            began = time.monotonic()
            for start in list(self._waiting):
                self._write(run, start)
            self._waiting = {}
            self._expected = time.monotonic() - began
            self._spent += self._expected
        self.heard(run, tried)

    def verdict(self, candidate: ScheduleCandidate) -> Verdict:
        """Whether a candidate is right; each is run once."""
        if candidate.key not in self._verdicts:
            self._verdicts[candidate.key] = verdict(candidate)
        return self._verdicts[candidate.key]

    def _write(self, run: SearchProgress, start: Start) -> None:
        """The fastest schedule of a kernel that is right."""
        for seconds, candidate in run.fastest.get(start, []):
            try:
                found = self.verdict(candidate)
            except DplcError:  # the host cannot run it: the end of the search says so
                return
            if found.right:
                self._put(run, candidate, seconds, found.how)
                return

    def _put(self, run: SearchProgress, candidate: ScheduleCandidate, seconds: float, checked: str) -> None:
        start, default = candidate.start, self.runner.score(candidate.space.default()).seconds
        key = key_of(start.kernels[0], candidate.target, candidate.tools.rules)
        if start not in self.before:
            self.before[start] = self.store.get(key)
        if default is None:
            return
        details: dict[str, Any] = {**self.runner.score(candidate).details, UNFINISHED: run.tries}
        tuned = Tuned(
            candidate.schedule, seconds, self.runner.evaluator.basis, default, run.search.name, self.runner.seed,
            run.tries, checked, details,
        )  # fmt: skip
        self.store.put(key, tuned)
