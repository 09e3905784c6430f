"""One job carried out: what `dplc tune` does for one of many kernels, in whatever process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ...codegen.target import target
from ...ir.text.read import read_program
from ..toolchain import read_settings, toolchain
from . import job as jobs
from .evaluating import evaluator_for
from .protocol import Attempt, Tuned, TuningKey, key_of
from .running import DEFAULT_SEARCH, Budget
from .store import open_store
from .tuning import Outcome, Wishes, tune_kernel


class JobWishes(msgspec.Struct, frozen=True):
    """The options of a search as a job carries them; see `dplc tune --help`."""

    search: str = DEFAULT_SEARCH
    seed: int = 0
    tries: int | None = 200
    programs: int | None = None
    seconds: float | None = None
    patience: int | None = None
    free: tuple[str, ...] = ()
    predict: bool = False
    assemble: bool = False


class _Carried:
    """A store that remembers everything until the outcome takes it along: the real one is on another machine."""

    def __init__(self) -> None:
        self.tuned: Tuned | None = None
        self.attempts: list[Attempt] = []

    def get(self, key: TuningKey) -> Tuned | None:
        return self.tuned

    def put(self, key: TuningKey, tuned: Tuned) -> bool:
        self.tuned = tuned
        return True

    def record(self, key: TuningKey, attempts: Any) -> None:
        self.attempts += attempts

    def close(self) -> None: ...


def tune_one(job: jobs.Job) -> jobs.Outcome:
    """Tune the kernel of a job. Raises DplcError."""
    asked = msgspec.convert(job.wishes, JobWishes)
    rules = toolchain(job.rules)
    tools = toolchain(rules.rules, read_settings(job.settings, rules.rules)) if job.settings else rules
    (kernel, *_), machine = read_program(job.kernel)[1], target(job.target)
    budget = Budget(asked.tries, asked.programs, asked.seconds, asked.patience)
    wishes = Wishes(asked.search, asked.seed, budget, frozenset(asked.free) or None)
    carried = _Carried()
    store = carried if job.db is None else open_store(Path(job.db), tools.rules)
    try:
        with evaluator_for(machine, asked.predict, asked.assemble) as evaluator:
            outcome = tune_kernel(kernel, tools, machine, evaluator, wishes, store)  # type: ignore[arg-type]
        key = key_of(kernel, machine, tools.rules)  # type: ignore[arg-type]
        tuned = carried.tuned if job.db is None else store.get(key)
    finally:
        store.close()
    return jobs.Outcome(key, tuned, tuple(carried.attempts), line(outcome))


def line(outcome: Outcome) -> str:
    """A kernel in one line."""
    before, after = ("-" if s is None else f"{s * 1e6:.2f}" for s in (outcome.run.default.seconds, outcome.seconds))
    wrong = f", {len(outcome.wrong)} WRONG schedules found: a defect of a rule" if outcome.wrong else ""
    return (
        f"{before} us by default, {after} us tuned, {outcome.gain:.2f}x, {outcome.run.default.basis}; "
        f"checked: {outcome.checked or 'no'}{wrong}"
    )
