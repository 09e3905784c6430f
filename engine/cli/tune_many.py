"""`dplc tune SUITE`, `MODEL` and `--grid`: many kernels, each distinct one once, several at a time."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.sizes import hints, sizes_in, value_of
from ..bench.suite_file import read_suite
from ..capture.capture import Capture
from ..models import weights
from ..models.capturing import capture_results
from ..models.inputs import drawn
from ..models.module import build
from ..ruleset import Toolchain
from ..run.rows import narrowed
from ..store.store import default_path, open_store
from ..tune.choosing import ChosenWay, choose
from ..tune.job import Job, JobOutcome
from ..tune.jobs import TuningProgram, Where, carry_out, distinct, of_grid, of_suite, program_of, summary
from ..tune.running import SearchProgress
from ..tune.search import Tried
from ..tune.tuning import SearchOptions
from ..tune.tuning_job import tune_job
from ..tune.tuning_program import CANDIDATE
from .compiling import machine_for, tools_for
from .model_commands import shape_of, source_of
from .narrowing import captured_row, row_of, tell_lengths
from .options import Flags
from .show import bars, print_json, print_note, progress, write
from .subjects import Subject
from .tune_command import CHECK, Candidates, check_search, ended_by, searching


@dataclass(frozen=True)
class Many:
    """What is to be tuned, and how many at a time: a suite (and which of its cases), a model, or a text over a grid.

    top: candidates of fusion of each program.
    """

    subject: Subject
    only: str | None
    grid: list[str]
    jobs: int
    where: Where
    top: int = 1


def tune_many(flags: Flags, search: SearchOptions, many: Many) -> bool:
    """Tune every distinct kernel; whether it was interrupted. Raises DplcError where a job failed."""
    check_search(search.search)
    tools, machine = tools_for(flags), machine_for(flags)
    with progress("capturing"):
        programs = list(_programs(flags, search, many, tools, machine))
        jobs = distinct(programs, _base(flags, search, many, machine))
    told: dict[str, tuple[Job, JobOutcome]] = {}
    interrupted = _carried_out(flags, many, jobs, told, tools)
    outcomes = {name: outcome for name, (_, outcome) in told.items()}
    choices = [] if interrupted else _chosen(flags, programs, outcomes, tools)
    if flags.as_json:
        kernels = [_record(job, one) for job, one in told.values()]
        print_json({"target": machine.name, "kernels": kernels, "programs": [msgspec.to_builtins(c) for c in choices]})
    else:
        write("".join(f"{choice.name}: {choice.line}\n" for choice in choices if choice.right))
        write(f"{machine.name}: {summary(outcomes)}\n")
    failed = [_named(job) for job, outcome in told.values() if outcome.failed]
    if failed:
        raise DplcError(f"{len(failed)} of {len(jobs)} kernels were not tuned", notes=failed[:10])
    if wrong := [f"{choice.name}: {choice.wrong[choice.way]}" for choice in choices if not choice.right]:
        what = f"{len(wrong)} of {len(programs)} programs are wrong in every way of computing them"
        raise DplcError(what, notes=wrong[:10], hint=CHECK)
    return interrupted


def _carried_out(
    flags: Flags, many: Many, jobs: list[Job], told: dict[str, tuple[Job, JobOutcome]], tools: Toolchain
) -> bool:
    """Tune kernel after kernel, each told when it is done; whether the user ended it. What was found is kept."""
    with bars() as show, ended_by(signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        candidates: dict[int, Candidates] = {}  # of each job

        def heard(run: SearchProgress, tried: Tried) -> None:
            candidates.setdefault(len(told), Candidates(flags.verbose)).heard(run, tried)
            show(f"{_named(jobs[len(told)])}: {searching(run)}", len(told), len(jobs))

        show("tuning", 0, len(jobs))
        try:
            for job, outcome in carry_out(jobs, tune_job, many.jobs, many.where, heard):
                told[job.kernel] = job, outcome
                _keep(flags, job, outcome, tools)
                if not flags.as_json:
                    write(f"{_named(job)}: {outcome.failed or outcome.line}\n")
                show(f"{_named(job)}: tuned", len(told), len(jobs))
                if outcome.interrupted:
                    return True
        except KeyboardInterrupt:
            return True
    return False


def _programs(
    flags: Flags, search: SearchOptions, many: Many, tools: Toolchain, machine: Target
) -> Iterator[TuningProgram]:
    top = many.top if search.free is None or CANDIDATE in search.free else 1
    if many.subject.kind == "text":
        return of_grid(flags.text, many.grid, tools, machine, top, lambda text: _row(replace(flags, text=text)))
    if many.subject.kind == "model":
        return iter([_of_model(many.subject.name, flags, tools, machine, top)])
    suite = read_suite(many.subject.path)
    return of_suite(suite, suite.select(many.only), tools, machine, top)


def _row(flags: Flags) -> Capture:
    captured = captured_row(flags)
    tell_lengths(captured)
    return captured


def _of_model(model: str, flags: Flags, tools: Toolchain, machine: Target, top: int) -> TuningProgram:
    """A model as `dplc compile MODEL` compiles it; tokens and weights are made up where it is run as a whole."""
    source, shape = source_of(model), shape_of(flags)
    found = capture_results(build(source, shape.dtype, shape.layers), shape.length, shape.batch)
    sizes = sizes_in(found.captured.graph)
    captured = narrowed(found.captured, row_of(flags.row, sizes), sizes)
    tell_lengths(captured)
    usual = hints(captured.graph)
    given = [p for p in captured.graph.ins if p.name in captured.inputs]
    kinds = {p.name: (p.dtype, [value_of(n, usual) for n in p.shape]) for p in given}

    def tensors() -> dict[str, Any]:
        return {**weights.make(found.weights), **drawn(kinds, source.config)}

    return program_of(source.name, captured, tools, machine, top, tensors)


def _chosen(
    flags: Flags, programs: list[TuningProgram], outcomes: Mapping[str, JobOutcome], tools: Toolchain
) -> list[ChosenWay]:
    """The way of fusing of every program that has several."""
    tuned = {one.key.kernel: one.tuned for one in outcomes.values() if one.key is not None and one.tuned is not None}
    kept = contextlib.nullcontext() if flags.no_db else open_store(flags.db, tools.rules)
    with kept as store:
        found = [choose(program, tuned, store) for program in programs]
    for choice in filter(None, found):
        for way, why in choice.wrong.items():
            label = f"candidate {way}" if way else "what the rules decide"
            print_note(f"defect: {choice.name}, {label} gave a wrong result and was not kept: {why}")
    return [choice for choice in found if choice is not None]


def _base(flags: Flags, search: SearchOptions, many: Many, machine: Target) -> Job:
    """What all jobs share. Jobs on a cluster write to no store: it is here."""
    here = str(flags.db or default_path()) if not flags.no_db and many.where == "processes" else None
    rules = tuple(str(path.resolve()) for path in flags.rules or ())
    wishes = msgspec.to_builtins(search)
    return Job("", (), flags.target or machine.arch, rules, tuple(flags.pinned), here, wishes, flags.exact)


def _keep(flags: Flags, job: Job, outcome: JobOutcome, tools: Toolchain) -> None:
    """Store what a job brought along."""
    if flags.no_db or job.db is not None or outcome.key is None:
        return
    with open_store(flags.db, tools.rules) as store:
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
