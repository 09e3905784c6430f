"""A job carried out: one kernel tuned, by the options that came with it, in whatever process it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...codegen.target import Target
from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.program import Kernel
from ...ir.text.programs import read_program
from ..bench.cases import assembler
from ..ruleset import exactly, read_settings, toolchain
from ..store.protocol import Attempt, Evaluator, Tuned, TuningKey, TuningStore, key_of
from ..store.store import open_store
from .assembling import AssemblingEvaluator
from .job import Job, JobOutcome
from .measure import measuring
from .predicting import PredictingEvaluator
from .running import Heard
from .tuning import SearchOptions, tune_kernel


@dataclass
class Kept:
    """A store that only collects (`protocol.TuningStore`): where the real one is on another machine."""

    tuned: Tuned | None = None
    attempts: list[Attempt] = field(default_factory=list)

    def get(self, key: TuningKey) -> Tuned | None:
        return self.tuned

    def put(self, key: TuningKey, tuned: Tuned) -> bool:
        self.tuned = tuned
        return True

    def record(self, key: TuningKey, attempts: Sequence[Attempt]) -> None:
        self.attempts += attempts

    def close(self) -> None:
        pass


def tune_job(job: Job, heard: Heard = lambda run, tried: None) -> JobOutcome:
    """Tune the kernel of a job (`job.TuneOne`). heard: is told of every try. Raises DplcError."""
    tools = toolchain([Path(path) for path in job.rules])
    rules = exactly(tools.rules) if job.exact else tools.rules
    tools, machine = toolchain(rules, read_settings(job.settings, rules)), find_target(job.target)
    tools, machine = tools.at(machine), tools.on(machine)
    _, (kernel,) = read_program(job.kernel, "the kernel of a job", None)
    if not isinstance(kernel, Kernel):
        raise UsageError("a job is a kernel of Loop IR")
    kept = Kept()
    store: TuningStore = kept if job.db is None else open_store(Path(job.db), tools.rules)
    try:
        options = msgspec.convert(job.wishes, SearchOptions)
        with evaluator_for(machine, options) as evaluator:
            outcome = tune_kernel(kernel, tools, machine, evaluator, options, store, heard)
    finally:
        store.close()
    key = key_of(kernel, machine, tools.rules)
    tuned = kept.tuned if job.db is None else _read(Path(job.db), tools.rules, key)
    basis, default = outcome.run.default.basis, outcome.run.default.seconds
    times = "nothing can be launched"
    if outcome.seconds is not None and default is not None:
        times = f"{default * 1e6:.4g} us by default, {outcome.seconds * 1e6:.4g} us tuned, {outcome.gain:.2f}x, {basis}"
    wrong = f"; {len(outcome.wrong)} schedules gave wrong results" if outcome.wrong else ""
    line = f"{times}; {outcome.run.tries} tries, checked: {outcome.checked or 'no'}{wrong}"
    return JobOutcome(key, tuned, tuple(kept.attempts), line, interrupted=outcome.run.interrupted)


def _read(path: Path, rules: Any, key: TuningKey) -> Tuned | None:
    with open_store(path, rules) as store:
        return store.get(key)


@contextmanager
def evaluator_for(machine: Target, options: SearchOptions) -> Iterator[Evaluator]:
    """A GPU of this kind if there is one and predictions are not asked for, else the model."""
    found = None if options.predict or options.assemble else measuring(machine)
    if found is None:
        if options.assemble and not assembler():
            raise DplcError("--assemble needs an assembler", hint="pip install nvidia-cuda-nvrtc, or nvcc on the PATH")
        yield AssemblingEvaluator() if options.assemble else PredictingEvaluator()
        return
    with found as evaluator:
        yield evaluator
