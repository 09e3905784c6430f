"""Many kernels to tune: the cases of a suite, or a text at a grid of sizes. Distinct kernels once, several at a time.

Where they run is an executor's matter: in this process, in processes of this machine (`--jobs N`), or on a Ray cluster
(`--executor ray`). A job is data and a function by name, so that any of them can carry it out; one that fails, or whose
process dies, is a line in its outcome, and the others go on.
"""

from __future__ import annotations

import functools
import itertools
import math
import multiprocessing
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.program import Kernel
from ...ir.text.programs import print_program
from ..bench.suites import BenchCase, Suite, subject_of
from ..capture.capture import Capture
from ..capture.text import capture_text
from ..compiler import CompileOptions, values_of
from ..explore.candidates import Fusing
from ..kernels.sharing import key
from ..ruleset import Toolchain
from .job import Job, JobOutcome, TuneOne, guarded, name_of, run_named
from .running import Heard

LARGEST_GRID = 10_000
Where = Literal["processes", "ray"]


# ---- what there is to tune


@dataclass(frozen=True)
class TuningProgram:
    """A case: its name, and the kernels that each way of fusing it launches. 0 is what the rules decide."""

    name: str
    fusing: Fusing
    ways: Mapping[int, tuple[Kernel, ...]]


def program_of(
    name: str, captured: Capture, tools: Toolchain, target: Target, top: int = 1,
    tensors: Callable[[], Mapping[str, Any]] = dict,
) -> TuningProgram:  # fmt: skip
    """A program with so many ways of fusing at most. tensors: makes those that the capture does not hold.

    Raises DplcError for what the rules cannot compile.
    """
    fusing = Fusing(values_of(captured, CompileOptions(tools, target)), tools, target, top, tensors)
    built: dict[int, tuple[Kernel, ...]] = {}
    for way, named in enumerate(fusing.ways()):
        try:
            built[way] = tuple(named.kernels())
        except DplcError:  # it cannot be lowered, or is an earlier one again
            if way == 0:
                raise
    return TuningProgram(name, fusing, built)


def of_suite(
    suite: Suite, cases: Iterable[BenchCase], tools: Toolchain, target: Target, top: int = 1
) -> Iterator[TuningProgram]:
    """The cases of a suite. Raises DplcError for one that cannot be compiled."""
    for case in cases:
        subject = subject_of(suite, case)
        yield program_of(case.name, subject.capture(), tools, target, top, subject.inputs)


def of_grid(
    text: str, grid: Sequence[str], tools: Toolchain, target: Target, top: int = 1,
    capture: Callable[[str], Capture] = capture_text,
) -> Iterator[TuningProgram]:  # fmt: skip
    """A `-c` text at every point of a grid: `M=1,8,64` binds M in it. Raises UsageError for what is not a grid."""
    for point in points(grid):
        bound = "".join(f"{name} = {value}\n" for name, value in point.items())
        name = ",".join(f"{name}={value}" for name, value in point.items())
        yield program_of(name or "it", capture(bound + text), tools, target, top)


def points(grid: Sequence[str]) -> Iterator[dict[str, int]]:
    """The points of `["M=1,8", "N=64"]`, the last name fastest. Raises UsageError."""
    axes: dict[str, list[int]] = {}
    for written in grid:
        found = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+(?:\s*,\s*\d+)*)\s*", written)
        if found is None:
            raise UsageError(f"--grid {written}: write NAME=1,8,64")
        if found[1] in axes:
            raise UsageError(f"--grid {written}: `{found[1]}` has its values already")
        axes[found[1]] = list(dict.fromkeys(int(value) for value in found[2].split(",")))
    if math.prod(map(len, axes.values())) > LARGEST_GRID:
        raise UsageError(f"--grid has more than {LARGEST_GRID} points")
    yield from (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


def distinct(programs: Iterable[TuningProgram], base: Job) -> list[Job]:
    """A job for every kernel, once for each structure, in the order they are met. base: what all jobs share."""
    first: dict[str, Kernel] = {}
    names: dict[str, list[str]] = {}
    for program in programs:
        for kernel in (kernel for kernels in program.ways.values() for kernel in kernels):
            first.setdefault(key(kernel), kernel)
            name = f"{program.name}:{kernel.name}"
            if name not in names.setdefault(key(kernel), []):  # several ways may launch it
                names[key(kernel)].append(name)
    return [
        msgspec.structs.replace(base, kernel=print_program((kernel,), "loop"), names=tuple(names[k]))
        for k, kernel in first.items()
    ]


# ---- carrying them out


def carry_out(
    jobs: Sequence[Job], tune_one: TuneOne, count: int = 1, where: Where = "processes", heard: Heard | None = None
) -> Iterator[tuple[Job, JobOutcome]]:
    """Outcomes as they come. tune_one: a function of a module, found again by its name. count: jobs at a time.

    heard: is told of every try of a job in this process.
    """
    if where == "ray":
        from .jobs_ray import on_ray

        return on_ray(jobs, name_of(tune_one), count)
    if count <= 1:
        one = tune_one if heard is None else functools.partial(tune_one, heard=heard)
        return ((job, guarded(one, job)) for job in jobs)
    return _in_processes(jobs, name_of(tune_one), min(count, len(jobs)))


def _in_processes(jobs: Sequence[Job], name: str, count: int) -> Iterator[tuple[Job, JobOutcome]]:
    """Every slot is one process with a job at a time, so that a process that dies takes one job with it."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Job, JobOutcome]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    stop = threading.Event()
    for _ in range(count):
        threading.Thread(target=_slot, args=(name, waiting, done, stop), daemon=True).start()
    try:
        for _ in jobs:
            yield done.get()
    finally:
        stop.set()


def _slot(name: str, waiting: Any, done: Any, stop: threading.Event) -> None:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context)
    while not stop.is_set():
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        try:
            answer = pool.submit(run_named, name, msgspec.msgpack.encode(job)).result()
            outcome = msgspec.msgpack.decode(answer, type=JobOutcome)
        except BrokenProcessPool:
            outcome = JobOutcome(failed="its process died")
            pool.shutdown(wait=False)
            pool = ProcessPoolExecutor(1, context)
        done.put((job, outcome))
    pool.shutdown(wait=False, cancel_futures=True)


def summary(outcomes: Mapping[str, JobOutcome]) -> str:
    """One line over all jobs: how many, how much faster than the default order, on what basis."""
    tuned = [one.tuned for one in outcomes.values() if one.tuned is not None]
    failed = sum(bool(one.failed) for one in outcomes.values())
    parts = [f"{len(outcomes)} kernels" + (f", {failed} failed" if failed else "")]
    for basis in ("measured", "predicted"):
        gains = [math.log(one.default_seconds / one.seconds) for one in tuned if one.basis == basis]
        if gains:
            parts.append(f"{len(gains)} {basis}: {math.exp(sum(gains) / len(gains)):.2f}x of the default order")
    return "; ".join(parts)
