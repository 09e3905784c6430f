"""Measure a pack within a number of minutes: `python FILE.dplc [--minutes 8] [--plan] [-o results.json]`.

This process keeps the clock and the results; it imports neither torch nor numpy before a worker has begun. Each group
of cases is measured by a process of its own (`worker.py`): one that hangs is killed, one that a kernel takes down is
started again after the faulty case. Results are written after every case, so that whatever stops this loses nothing.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any

from ...ir.diagnostic import DplcError
from .contents import OpenPack, PackedCase
from .worker import serve_pack

# ---- the tasks of a pack, their results, and the file that is written after every case


RESULTS_FORMAT = "dplc results 1"
TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer
STEPS = ("measure", "compile", "candidates", *TOOLS)
START = 8.0  # seconds until a worker has imported torch, as expected
START_LIMIT = 120.0  # the same, at most
STARTS = 3  # failures in a row before giving up


@dataclass(frozen=True)
class PackItem:
    """Something to do with a case: measure it, time torch.compile (compile), or run one of TOOLS on it."""

    do: str
    case: PackedCase

    @property
    def seconds(self) -> float:
        """Return the expected seconds."""
        if self.do in TOOLS:
            return 3.0
        case, run = self.case, self.case.predicted_us * 1e-6
        flush = 80e-6
        timing = 0.035 + min(60 * (run + flush), 0.4) + 60 * run
        made = case.nbytes / 20e9  # inputs drawn, widened, compared
        if self.do == "compile":
            return 1.2 + 0.2 * len(case.program.kernels) + timing + made
        return 0.08 + 6 * made + 10 * run + (1 if case.candidate is not None else 2.5) * timing


@dataclass(frozen=True)
class PackGroup:
    """Items of one process. step: one of STEPS; first: whether they belong to what must be measured first."""

    step: str
    name: str
    items: tuple[PackItem, ...]
    first: bool

    @property
    def seconds(self) -> float:
        start = 0.0 if self.items[0].do in TOOLS else START
        return start + sum(item.seconds for item in self.items)


@dataclass
class ResultsFile:
    """Results so far, and the file that they are written to."""

    pack: OpenPack
    path: Path
    device: dict[str, Any] = field(default_factory=dict)
    cases: dict[int, dict[str, Any]] = field(default_factory=dict)
    sanitizer: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    left: int = 0
    began: float = field(default_factory=monotonic)

    def note(self, item: PackItem, found: dict[str, Any], clock: Deadline, speeds: dict[str, float]) -> None:
        """Take down and print what came of an item, and write everything. speeds: of the GPU, if it was measured."""
        if failed(found):
            self.faults.append(f"{item.case.name} ({item.do}): {found['status']}: {found['detail']}")
            if item.do == "compile":
                found = {"torch_compile_failed": found["detail"]}
        tell(item, found, clock)
        if item.do in TOOLS:
            self.sanitizer.append({"tool": item.do, "suite": item.case.suite, "name": item.case.name, **found})
        else:
            self.cases.setdefault(item.case.number, {}).update(found)
            if speeds and item.do == "measure":
                self.cases[item.case.number]["clocks"] = speeds
        self.write()

    def check(self) -> None:
        """Raise DplcError where a file is that is not of results, or where none can be written."""
        try:
            start = self.path.read_bytes()[:100].lstrip(b"{\n ") if self.path.exists() else None
            if start is not None and not start.startswith(b'"format": "dplc results'):
                raise DplcError(f"{self.path} is there and holds no results", hint="-o names another file")
            self.write()
        except OSError as error:
            raise DplcError(f"cannot write {self.path}: {error.strerror}") from None

    def write(self) -> None:
        """Replace the file: it is whole at any time."""
        kept = ("suite", "name", "dtype", "rules", "same", "candidate", "predicted_us", "least_us", "launches", "texts")
        listed, by_name = [], dict[tuple[str, str], dict[str, Any]]()
        for case in self.pack.cases:
            found = self.cases.get(case.number) or (by_name.get((case.suite, case.same)) if case.same else None)
            if found is not None:
                if case.candidate is None:
                    by_name.setdefault((case.suite, case.name), found)
                listed.append({**{name: case.about[name] for name in kept}, **found})
        head = {name: value for name, value in self.pack.about.items() if name != "cases"}
        whole = {
            "format": RESULTS_FORMAT, "pack": head, "device": self.device,
            "seconds": round(monotonic() - self.began, 1), "left": self.left, "faults": self.faults,
            "sanitizer": self.sanitizer, "cases": listed,
        }  # fmt: skip
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        partial.write_text(json.dumps(whole))
        partial.replace(self.path)


# ---- worker processes


class WorkerGone(Exception):
    """The process that measured has ended, or was killed after its time; the message says how."""

    def __init__(self, how: str, killed: bool = False):
        super().__init__(how)
        self.killed = killed


class WorkerProcess:
    """Process that measures: started at the first request, and again after it was killed or died.

    serve: the work of the process, as `worker.serve` does it; context: makes the process. about: what the process says
    of its machine.
    """

    def __init__(self, serve: Callable[[Connection], None], context: SpawnContext | ForkServerContext):
        self.serve, self._context = serve, context
        self.about: dict[str, Any] = {}
        self._process: BaseProcess | None = None
        self._pipe: Connection
        self._printed = tempfile.NamedTemporaryFile(prefix="dplc-worker-")  # noqa: SIM115 - it lives as long as this

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def ask(self, request: object, limit: float) -> Any:
        """Return the answer to a request. Raises WorkerGone, after `limit` seconds too; DplcError if none can start."""
        self.start()
        try:
            self._pipe.send(request)
            if not self._pipe.poll(limit):
                self.kill()
                raise WorkerGone(f"no result after {limit:g} seconds: killed", killed=True)
            answer, lost = self._pipe.recv()
        except (OSError, EOFError):
            raise WorkerGone(f"the process that ran it {self._end()}") from None
        if lost:
            self._end()
        return answer

    def start(self) -> None:
        """Start the process unless it runs. Raises DplcError with its reason if it cannot measure."""
        if self.running:
            return
        for _ in range(STARTS):
            self.kill()
            self._printed.truncate(0)
            self._pipe, other = multiprocessing.Pipe()
            arguments = self.serve, other, self._printed.name
            self._process = self._context.Process(target=_run, args=arguments, daemon=True)
            self._process.start()
            other.close()
            with suppress(OSError, EOFError):
                if self._pipe.poll(START_LIMIT):
                    problem, self.about = self._pipe.recv()
                    break
            problem = f"the process for it {self._end()}"
        if problem:
            self.kill()
            raise DplcError(f"nothing can be measured here: {problem}")

    def _end(self) -> str:
        """Make sure that the process has ended. Return how, with the last line that it printed."""
        assert self._process is not None
        self._process.join(10.0)
        code = self._process.exitcode
        self.kill()
        return how_it_ended(code, Path(self._printed.name).read_text(errors="replace"))

    def kill(self) -> None:
        """End the process immediately, with the processes that it started."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid or 0, signal.SIGKILL)
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _run(work: Callable[[Connection], None], pipe: Connection, printed: str) -> None:
    """Run in the process: a group of its own, so that Ctrl-C does not reach it; its prints go to a file."""
    os.setsid()
    file = os.open(printed, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    with suppress(EOFError, OSError):  # the parent has ended
        work(pipe)


def how_it_ended(code: int | None, printed: str) -> str:
    """Return how a process ended, with the last line that it printed. code: None if it did not end by itself."""
    how = "hung" if code is None else f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return f"{how}: {lines[-1][:300]}" if lines else how


def pack_of_this() -> str | None:
    """Return the pack that this module was imported from; None where it was installed."""
    found: str | None = getattr(__spec__.loader, "archive", None)
    return found


def run_limited(command: list[str], limit: float) -> tuple[int | None, str]:
    """Return the exit code of a command and its output.

    The code is None if the command was killed, with its children, after `limit` seconds.
    """
    paths = filter(None, (pack_of_this(), os.environ.get("PYTHONPATH")))  # the command imports the modules of a pack
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None, ""
    return process.returncode, printed


FIRST = 3  # suites of a pack that are measured, next to torch.compile too, before everything else
SANITIZED = 10  # cases of the first suite that compute-sanitizer looks at
LIMIT = {"measure": 40.0, "compile": 120.0, **dict.fromkeys(TOOLS, 60.0)}  # seconds of a case, at most
SANITIZER_ERROR_CODE = 86  # exit code of compute-sanitizer that found something
CLOCK_SECONDS = 10.0  # clocks are read again after this time


def groups(pack: OpenPack) -> Iterator[PackGroup]:
    """Yield all groups, in the order of worth."""
    parts = pack.about["parts"]
    chosen: dict[str, list[PackedCase]] = {name: [] for name in parts}
    candidates = []
    for case in pack.cases:
        if case.candidate is not None:
            candidates.append(case)
        elif not case.same:
            chosen[case.about["part"]].append(case)

    def group(do: str, name: str, cases: Sequence[PackedCase], first: bool) -> Iterator[PackGroup]:
        if cases:
            step = name if name == "candidates" else do
            yield PackGroup(step, f"{name}, {do}", tuple(PackItem(do, case) for case in cases), first)

    looked = chosen[parts[0]][:: max(1, len(chosen[parts[0]]) // SANITIZED)][:SANITIZED]
    for place, name in enumerate(parts[:FIRST]):
        yield from group("measure", name, chosen[name], True)
        if place == 0:
            yield from group(TOOLS[0], name, looked, True)
    for name in parts[1:FIRST]:
        yield from group("compile", name, chosen[name], True)
    yield from group("measure", "candidates", candidates, False)
    for tool in TOOLS[1:]:
        yield from group(tool, parts[0], looked, False)
    for name in parts[FIRST:]:
        yield from group("measure", name, chosen[name], False)
    for name in (*parts[:1], *parts[FIRST:]):
        yield from group("compile", name, chosen[name], False)


def plan(pack: OpenPack, steps: Sequence[str] = STEPS) -> str:
    """Return the groups with the seconds that they are expected to take."""
    rows, total, first = [], 0.0, 0.0
    for group in groups(pack):
        if group.step not in steps:
            continue
        total += group.seconds
        first = total if group.first else first
        rows.append(f"{group.name:40} {len(group.items):5} cases {group.seconds:7.0f} s {total:7.0f} s in all")
    both = f"the first {FIRST} suites {first / 60:.1f} minutes, everything {total / 60:.1f}"
    rows.append(f"expected, not measured: {both}")
    return "\n".join(rows)


class Deadline:
    """When to stop."""

    def __init__(self, minutes: float):
        self._end = monotonic() + 60 * minutes

    @property
    def left(self) -> float:
        """Seconds."""
        return self._end - monotonic()


def gpu_speeds() -> dict[str, float]:
    """Return megahertz, degrees and watts of the first GPU, read every few seconds; empty without nvidia-smi."""
    return _speeds(int(monotonic() / CLOCK_SECONDS))


@functools.lru_cache(1)
def _speeds(period: int) -> dict[str, float]:
    asked = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "degrees": "temperature.gpu", "watts": "power.draw"}
    command = ["nvidia-smi", f"--query-gpu={','.join(asked.values())}", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        return dict(zip(asked, map(float, done.stdout.splitlines()[0].split(",")), strict=True))
    return {}


def run_group(group: PackGroup, results: ResultsFile, clock: Deadline, memory: str, limit: float | None) -> None:
    """Work on a group as long as there is time. Raises DplcError where no worker can be started."""
    items, serve = list(group.items), functools.partial(serve_pack, results.pack.path, memory)
    process = WorkerProcess(serve, multiprocessing.get_context("spawn"))
    try:
        while items:
            item = items[0]
            if clock.left < item.seconds + (0 if process.running else START):
                break
            process.start()
            results.device, whole = process.about, limit or LIMIT[item.do]
            most = min(whole, max(clock.left, 5.0))
            try:
                found = process.ask((item.do, item.case.number), most)
            except WorkerGone as gone:
                if gone.killed and most < whole:  # the minutes are over, which says nothing of the case
                    break
                found = {"status": "timeout" if gone.killed else "failed", "detail": str(gone)}
            items.pop(0)
            results.note(item, found, clock, gpu_speeds())
    finally:
        results.left += len(items)
        process.kill()


def sanitize(group: PackGroup, results: ResultsFile, clock: Deadline, limit: float | None) -> None:
    """Run a tool of compute-sanitizer on cases, where it is installed."""
    root, name = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")), "compute-sanitizer"
    installed = (str(path) for path in (root / "bin" / name, root / name / name) if path.is_file())
    program = shutil.which(name) or next(installed, None)  # on the path, or in the toolkit
    if program is None:
        results.faults.append(f"{group.name}: compute-sanitizer is not here")
        return
    for place, item in enumerate(group.items):
        most = min(limit or LIMIT[item.do], clock.left)
        if most < item.seconds:
            results.left += len(group.items) - place
            return
        worker = [sys.executable, "-P", "-m", "dplc.codegen.pack.worker"]
        alone = [*worker, str(results.pack.path), str(item.case.number)]
        found = sanitized([program, "--tool", item.do, "--error-exitcode", str(SANITIZER_ERROR_CODE), *alone], most)
        results.note(item, found, clock, {})
        if found["status"] == "unusable":
            return


def sanitized(command: list[str], limit: float) -> dict[str, str]:
    """Run compute-sanitizer on a command. Returns ok, wrong, failed, timeout, or unusable on this machine."""
    try:
        code, printed = run_limited(command, limit)
    except OSError as error:
        return {"status": "unusable", "detail": str(error)}
    lines = [line.strip("= \n") for line in printed.splitlines() if line.strip("= \n")]
    if code is None:
        return {"status": "timeout", "detail": f"no result after {limit:.0f} seconds: killed"}
    if "Device not supported" in printed:
        return {"status": "unusable", "detail": "Device not supported"}
    if code == 0:
        return {"status": "ok", "detail": lines[-1][:200] if lines else ""}
    return {"status": "wrong" if code == SANITIZER_ERROR_CODE else "failed", "detail": " | ".join(lines[:8])[:1000]}


def failed(found: dict[str, Any]) -> bool:
    """Return whether a record is of an item that failed. The times of torch.compile have no status."""
    return found.get("status") not in ("ok", None)


def tell(item: PackItem, found: dict[str, Any], clock: Deadline) -> None:
    """Print a line for a case that is done."""
    times = [(name, found[name]["median_us"]) for name in ("dplc", "eager", "torch_compile") if name in found]
    said = ", ".join(f"{name} {value:.1f} us" for name, value in times)
    wrong = f" {found['status']}: {found['detail']}" if failed(found) else ""
    number = "" if item.case.candidate is None else f" candidate {item.case.candidate}"
    print(f"[{clock.left:5.0f} s] {item.do:8} {item.case.name}{number} {said}{wrong}", flush=True)


# ---- the command ---------------------------------------------------------------------------------


def measure(
    path: Path,
    minutes: float,
    out: Path,
    memory: str = "cuda",
    limit: float | None = None,
    steps: Sequence[str] = STEPS,
) -> ResultsFile:
    """Measure a pack and write `out` after every case. limit: seconds of a case, instead of LIMIT; steps: of STEPS.

    Raises DplcError for a file that is not a pack, and if nothing can be measured.
    """
    clock, pack = Deadline(minutes), OpenPack(path)
    results = ResultsFile(pack, out)
    results.check()
    for group in groups(pack):
        if group.step not in steps:
            continue
        if group.step in TOOLS:
            sanitize(group, results, clock, limit)
        else:
            run_group(group, results, clock, memory, limit)
    results.write()
    return results


def summary(results: ResultsFile) -> str:
    """Summarise the results in a few lines."""
    known = [one for one in results.cases.values() if "status" in one]
    right = sum(one["status"] == "ok" for one in known)
    lines = [f"{right} of {len(known)} cases right, {results.left} left undone; {results.path}"]
    return "\n".join([*lines, *results.faults[:20]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of a pack. Return 0, or 1 if a case was wrong or nothing could be measured."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Measure a pack of dplc on the GPU that is here.")
    archive = pack_of_this()
    if archive is None:
        parser.add_argument("pack", type=Path, help="what `dplc bench --pack` wrote")
    parser.add_argument("--minutes", type=float, default=8.0, help="when to stop (default 8)")
    parser.add_argument("--plan", action="store_true", help="print what would be done, and the time for it")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("results.json"), help="the results (default results.json)"
    )
    parser.add_argument("--limit", type=float, help="seconds of a case, at most")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=STEPS, help="steps to run (default all)")
    parser.add_argument("--memory", default="cuda", help=argparse.SUPPRESS)  # "cpu": for a mock driver
    wanted = parser.parse_args(given)
    path = Path(archive) if archive is not None else wanted.pack
    try:
        if wanted.plan:
            print(plan(OpenPack(path), wanted.only))
            return 0
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # no worker is left
        results = measure(path.resolve(), wanted.minutes, wanted.out, wanted.memory, wanted.limit, wanted.only)
    except DplcError as error:
        print(error.render(), file=sys.stderr)
        return 1
    print(summary(results))
    wrong = any(map(failed, results.cases.values())) or any(one["status"] == "wrong" for one in results.sanitizer)
    return int(wrong)
