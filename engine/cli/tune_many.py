"""`dplc tune SUITE` and `dplc tune -c EXPR --grid`: every distinct kernel of many programs, several at a time."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...ir.diagnostic import DplcError
from ..suite.suite_file import read_suite
from ..toolchain import Toolchain
from ..tune.job import Job, Outcome
from ..tune.jobs import Program, Where, carry_out, distinct, of_grid, of_suite
from ..tune.store import default_path, open_store
from ..tune.tune_job import tune_one
from .compiling import machine_for, tools_for
from .show import bars, print_json, write
from .tune_command import Asked


def _keep(outcome: Outcome, db: Path | None, tools: Toolchain) -> None:
    """Remember here what was found elsewhere."""
    if outcome.key is None:
        return
    with contextlib.closing(open_store(db, tools.rules)) as store:
        store.record(outcome.key, outcome.attempts)
        if outcome.tuned is not None:
            store.put(outcome.key, outcome.tuned)


def tune_many(asked: Asked, suite: Path | None, only: str | None, grid: list[str], count: int, where: Where) -> None:
    """Tune the kernels of a suite's cases, or of a text at the points of a grid."""
    tools, machine = tools_for(asked.rules, asked.settings), machine_for(asked.target)
    programs: list[Program]
    if suite is not None:
        found = read_suite(suite)
        programs = list(of_suite(found, found.select(only), tools, machine))
    else:
        programs = list(of_grid(asked.text, grid, tools, machine))
    budget = asked.budget
    wishes = {
        "search": asked.search, "seed": asked.seed, "tries": budget.tries, "programs": budget.programs,
        "seconds": budget.seconds, "patience": budget.patience, "free": asked.free, "predict": asked.predict,
        "assemble": asked.assemble,
    }  # fmt: skip
    db = (asked.db or default_path()).absolute() if asked.keep else None
    brought = db is not None and where == "ray"  # from other machines, which do not see our store
    rules = tuple(str(path) for path in asked.rules)
    given = None if db is None or brought else str(db)
    base = Job("", (), asked.target or machine.arch, rules, tuple(asked.settings), given, wishes)
        "",
        (),
        asked.target or machine.arch,
        rules,
        tuple(asked.settings),
        None if db is None or brought else str(db),
        wishes,
    )
    jobs = distinct(programs, base)
    told, failed = [], []
    with bars() as show:
        for done, (job, outcome) in enumerate(carry_out(jobs, tune_one, count, where), 1):
            show(job.names[0], done, len(jobs))
            if brought:
                _keep(outcome, db, tools)
            told.append({"kernels": job.names, "about": outcome.line, "failed": outcome.failed})
            if outcome.failed:
                failed.append(f"{job.names[0]}: {outcome.failed}")
            if not asked.as_json:
                more = f" (and {len(job.names) - 1} more)" if len(job.names) > 1 else ""
                write(f"{job.names[0]}{more}: {outcome.failed or outcome.line}\n")
    if asked.as_json:
        print_json({"target": machine.name, "jobs": told})
    if failed:
        raise DplcError(f"{len(failed)} of {len(jobs)} kernels could not be tuned", notes=failed[:10])
