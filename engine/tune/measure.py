"""Measuring candidates on a GPU, in a process of its own (`measure_worker.py`).

A candidate that hangs is killed with that process after a time limit; one that crashes it costs a restart. Both are one
line in its score, and the search goes on. A measured score says of itself, in `details`: gpu, runs, the quartiles, the
state of the L2 cache, clocks and temperature, the error against float64 and how much was compared, the assembler,
registers and spills; and `launches`, instruction counts, which the cost model predicts the time from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from ...codegen.arrays import as_numpy
from ...codegen.build import build_device, device_text
from ...codegen.kernel import CudaKernel, Program
from ...codegen.launch import DeviceError
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel, delivered, supplied
from ..bench.cases import assembler
from ..compiler import bound, buffer
from ..cost.instruction_counts import features, instruction_counts
from ..schedule.space import ScheduleCandidate
from ..store.protocol import Basis, Score
from .measure_protocol import Measure, Measured, Ready, receive, send
from .subject import TuningSubject, subject_of

WARM_UP, RUNS, SECONDS = 3, 30, 0.5
LIMIT = 10.0  # seconds that a candidate may take in all
START_LIMIT = 120.0  # seconds until the process is there: it imports torch
STARTS = 3  # in a row that may fail
WORKER = (sys.executable, "-m", "dplc.engine.tune.measure_worker")
Build = Callable[[CudaKernel, str], bytes]


def measuring(target: Target) -> Measuring | None:
    """What measures candidates for the GPU that is here; None without one, or if it is not the target's kind."""
    if not torch.cuda.is_available() or importlib.util.find_spec("pycuda") is None:
        return None
    major, minor = torch.cuda.get_device_capability()
    return Measuring(target) if major == target.sm // 10 and (major == 9 or minor == target.sm % 10) else None


def cubin(kernel: CudaKernel, arch: str) -> bytes:
    """What the driver loads for a kernel. Raises BuildError. Compilers run beside one another in threads."""
    return build_device(device_text([kernel]), arch)


class Measuring:
    """The evaluator that asks a GPU (`protocol.Evaluator`); `close` ends its process.

    May be called from several threads: they compile at the same time and measure one after the other. worker, build,
    environment: how to start the process and what its driver loads; others than the default are for mock drivers.
    """

    basis: Basis = "measured"

    def __init__(
        self, target: Target, *, limit: float = LIMIT, runs: int = RUNS, seconds: float = SECONDS,
        worker: Sequence[str] = WORKER, build: Build = cubin, environment: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.target, self.limit, self.runs, self.seconds, self.build = target, limit, runs, seconds, build
        self.process = WorkerProcess(worker, environment)
        self._turn = threading.Lock()
        self._subjects: dict[tuple[Kernel, ...], tuple[TuningSubject, Path]] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="dplc-measure-"))

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        """Compile, check against float64, time; with sizes, all of it at their hints.

        Raises DeviceError where no process can be started any more."""
        try:
            loops, kernels, texts = candidate.as_a_rule
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        try:
            images = {text.name: self.build(text, self.target.arch) for text in texts}
        except DplcError as error:
            return Score(None, self.basis, "failed", error.what)
        with self._turn:
            subject, folder = self._subject(loops)
            program = launches(loops, kernels, texts)
            wanted = Measure(program, images, str(folder), WARM_UP, self.runs, self.seconds)
            answer = self.process.ask(wanted, self.limit)
        return self._score(answer, kernels, subject) if isinstance(answer, Measured) else answer

    def _subject(self, program: tuple[Kernel, ...]) -> tuple[TuningSubject, Path]:
        """The inputs and reference values of a program, computed once, in files that the process reads."""
        if program not in self._subjects:
            subject = subject_of(program)
            folder = self._folder / str(len(self._subjects))
            folder.mkdir()
            given = {f"={p.name}": as_numpy(buffer(p), subject.tensors[p.name]) for p in supplied(program)}
            np.savez(folder / "inputs.npz", **given)  # type: ignore[arg-type]
            expected: dict[str, Any] = {}
            for name, (values, where) in subject.expected.items():
                expected |= {f"={name}": values, f"@{name}": where}
            np.savez(folder / "expected.npz", **expected)
            self._subjects[program] = subject, folder
        return self._subjects[program]

    def _score(self, answer: Measured, kernels: tuple[Kernel, ...], subject: TuningSubject) -> Score:
        details: dict[str, Any] = {
            "gpu": answer.gpu, "error": answer.error, "compared": subject.checked, "assembler": assembler(),
            "registers": answer.registers, "spills": answer.spills,
        }  # fmt: skip
        if answer.status != "ok":
            return Score(None, self.basis, answer.status, answer.detail, details)
        low, middle, high = statistics.quantiles(answer.seconds, n=4, method="inclusive")
        counted = [features(instruction_counts(k, n)) for k, n in zip(kernels, answer.registers, strict=True)]
        details |= {
            "runs": len(answer.seconds), "low_us": low * 1e6, "high_us": high * 1e6, "l2": answer.l2,
            "warm_us": statistics.median(answer.warm) * 1e6, "launched": answer.launched,
            "clocks": answer.clocks, "launches": counted,
        }  # fmt: skip
        said = f"median of {len(answer.seconds)}, quartiles {low * 1e6:.4g} to {high * 1e6:.4g} us"
        return Score(middle, self.basis, "ok", said, details)

    def close(self) -> None:
        """End the process and remove its files."""
        self.process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Measuring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def launches(loops: tuple[Kernel, ...], kernels: tuple[Kernel, ...], texts: tuple[CudaKernel, ...]) -> Program:
    """A candidate without sizes as a launch plan; texts stay here, images go."""
    inputs, outputs = supplied(loops), delivered(loops)
    known = {param.name for param in (*inputs, *outputs)}
    between = {p.name: p for kernel in kernels for p in (*kernel.ins, *kernel.outs) if p.name not in known}
    bindings = tuple(bound(kernel, made) for kernel, made in zip(kernels, texts, strict=True))
    bare = tuple(dataclasses.replace(text, text="", comment="") for text in texts)
    given, made, beside = (tuple(map(buffer, params)) for params in (inputs, outputs, between.values()))
    return Program(bare, given, made, (), beside, bindings)


class WorkerProcess:
    """The process that measures: started when first asked, again after it was killed or died."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self.command, self.environment = tuple(command), environment
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[Any] = queue.Queue()
        self._errors: Any = None

    def ask(self, wanted: Measure, limit: float) -> Measured | Score:
        """The answer, or the score of a candidate that gave none. Raises DeviceError where nothing can be started."""
        try:
            self.start()
            assert self._process is not None and self._process.stdin is not None
            send(self._process.stdin, wanted)
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            self.kill()
            return Score(None, "measured", "timeout", f"no result after {limit:g} seconds: killed")
        except OSError:
            answer = None
        if not isinstance(answer, Measured):
            return Score(None, "measured", "failed", f"the process that ran it {self._end()}")
        if answer.over:
            self._end()
        return answer

    def start(self) -> None:
        """A process that is ready. Raises DeviceError where it says that it cannot be, or ends before it is."""
        if self._process is not None and self._process.poll() is None:
            return
        said = ""
        for _ in range(STARTS):
            ready = self._started()
            if isinstance(ready, Ready) and not ready.wrong:
                return
            said = ready.wrong if isinstance(ready, Ready) else f"the process for it {self._end()}"
            self.kill()
            if isinstance(ready, Ready):
                break
        raise DeviceError(f"nothing can be measured here: {said}")

    def _started(self) -> Any:
        """Start a process: the first thing that it says, None if it says nothing."""
        self.kill()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=None if self.environment is None else {**os.environ, **self.environment}, start_new_session=True,
        )  # fmt: skip
        self._answers = queue.Queue()
        threading.Thread(target=_listen, args=(self._process, self._answers), daemon=True).start()
        try:
            return self._answers.get(timeout=START_LIMIT)
        except queue.Empty:
            return None

    def _end(self) -> str:
        """Make sure that the process has ended; how, with the last line that it printed."""
        if self._process is None:
            return "was never there"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        self.kill()
        line = self._last_line()
        how = "hung" if code is None else f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"{how}: {line}" if line else how

    def _last_line(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def kill(self) -> None:
        """End the process immediately, and what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            self._process = None


def _listen(process: subprocess.Popen[bytes], answers: queue.Queue[Any]) -> None:
    """Hand on what a process says; None at its end, or where it says what it should not."""
    kind: type[Any] = Ready
    try:
        while (message := receive(process.stdout, kind)) is not None:  # type: ignore[arg-type]
            answers.put(message)
            kind = Measured
    except (OSError, ValueError, msgspec.MsgspecError):
        pass
    answers.put(None)
