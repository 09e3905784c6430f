"""`dplc tune SUITE` and `dplc tune --grid`: many kernels, each distinct one once, several at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError
from ..bench.suite_file import read_suite
from ..ruleset import Toolchain
from ..store.store import default_path, open_store
from ..tune.job import Job, JobOutcome
from ..tune.jobs import TuningProgram, Where, carry_out, distinct, of_grid, of_suite, summary
from ..tune.tuning_job import tune_job
from .compiling import machine_for, tools_for
from .show import print_json, progress, write
from .tune_command import Asked, check_search


@dataclass(frozen=True)
class Many:
    """What is to be tuned, and how many at a time: a suite (and which of its cases), or a text over a grid."""

    suite: Path | None
    only: str | None
    grid: list[str]
    jobs: int
    where: Where


def tune_many(asked: Asked, many: Many) -> bool:
    """Tune every distinct kernel; whether it was interrupted. Raises DplcError where a job failed."""
    check_search(asked.search)
    tools = tools_for(asked.rules, asked.settings)
    machine = tools.on(machine_for(asked.target))
    with progress("capturing"):
        jobs = distinct(_programs(asked, many, tools, machine), _base(asked, many, machine))
    told: dict[str, tuple[Job, JobOutcome]] = {}
    interrupted = False
    try:
        for job, outcome in carry_out(jobs, tune_job, many.jobs, many.where):
            told[job.kernel] = job, outcome
            _keep(asked, job, outcome, tools)
            if not asked.as_json:
                write(f"{_named(job)}: {outcome.failed or outcome.line}\n")
    except KeyboardInterrupt:
        interrupted = True
    outcomes = {name: outcome for name, (_, outcome) in told.items()}
    if asked.as_json:
        print_json({"target": machine.name, "kernels": [_record(job, one) for job, one in told.values()]})
    else:
        write(f"{machine.name}: {summary(outcomes)}\n")
    failed = [_named(job) for job, outcome in told.values() if outcome.failed]
    if failed:
        raise DplcError(f"{len(failed)} of {len(jobs)} kernels were not tuned", notes=failed[:10])
    return interrupted


def _programs(asked: Asked, many: Many, tools: Toolchain, machine: Target) -> Iterator[TuningProgram]:
    if many.suite is not None:
        suite = read_suite(many.suite)
        return of_suite(suite, suite.select(many.only), tools, machine)
    return of_grid(asked.text, many.grid, tools, machine)


def _base(asked: Asked, many: Many, machine: Target) -> Job:
    """What all jobs share. Jobs on a cluster write to no store: it is here."""
    if asked.html is not None:
        raise UsageError("--html shows one search: it goes with -c alone")
    here = str(asked.db or default_path()) if asked.keep and many.where == "processes" else None
    wishes = {
        "search": asked.search, "seed": asked.seed, "tries": asked.budget.tries, "programs": asked.budget.programs,
        "seconds": asked.budget.seconds, "patience": asked.budget.patience, "free": asked.free,
        "predict": asked.predict, "assemble": asked.assemble,
    }  # fmt: skip
    rules = tuple(str(path.resolve()) for path in asked.rules)
    return Job("", (), asked.target or machine.arch, rules, tuple(asked.settings), here, wishes)


def _keep(asked: Asked, job: Job, outcome: JobOutcome, tools: Toolchain) -> None:
    """Store what a job brought along."""
    if not asked.keep or job.db is not None or outcome.key is None:
        return
    with open_store(asked.db, tools.rules) as store:
        if outcome.attempts:
            store.record(outcome.key, outcome.attempts)
        if outcome.tuned is not None:
            store.put(outcome.key, outcome.tuned)


def _named(job: Job) -> str:
    """A kernel by the first case that needs it."""
    more = len(job.names) - 1
    return job.names[0] + (f" and {more} more" if more else "")


def _record(job: Job, outcome: JobOutcome) -> dict[str, Any]:
    tuned = None if outcome.tuned is None else msgspec.to_builtins(outcome.tuned)
    return {"names": list(job.names), "failed": outcome.failed or None, "about": outcome.line, "tuned": tuned}
