"""The processes that measure, as the runner of a pack sees them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from ...ir.diagnostic import DplcError
from .contents import OpenPack
from .results import PackItem


class WorkerGone(Exception):
    """The process that measured has ended, or was killed after its time; the message says how."""

    def __init__(self, how: str, killed: bool = False) -> None:
        super().__init__(how)
        self.killed = killed


class WorkerHandle:
    """A worker: asked for one case at a time."""

    def __init__(self, pack: OpenPack, memory: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            worker_command(pack, memory), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=environment(), text=True, start_new_session=True,
        )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self._process.stdout:
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def answer(self, limit: float, key: str) -> dict[str, Any]:
        """The next message that has a key. Raises WorkerGone, after `limit` seconds too."""
        until = time.monotonic() + limit
        while True:
            try:
                found = self._answers.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise WorkerGone(f"no answer after {limit:.0f} seconds: killed", killed=True) from None
            if found is None:
                raise WorkerGone(f"the process {self._end()}")
            if "unusable" in found:
                raise DplcError(f"nothing can be measured here: {found['unusable']}")
            if key in found:
                return found

    def ask(self, item: PackItem, limit: float) -> dict[str, Any]:
        """Return the result of an item. Raises WorkerGone."""
        assert self._process.stdin is not None
        try:
            print(json.dumps({"do": item.do, "case": item.case.number}), file=self._process.stdin, flush=True)
        except OSError:
            raise WorkerGone(f"the process {self._end()}") from None
        return self.answer(limit, "ended")

    def _end(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.poll()
        self.kill()
        how = "hung" if code is None else f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f"{how}: {lines[-1][:300]}" if lines else how

    def kill(self) -> None:
        """End the process, and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def worker_command(pack: OpenPack, *arguments: str) -> list[str]:
    """Return the command that starts a worker."""
    return [sys.executable, "-P", "-m", "dplc.codegen.pack.worker", str(pack.path), *arguments]


def pack_of_this() -> str | None:
    """The pack that this module was imported from; None where it was installed."""
    found: str | None = getattr(__spec__.loader, "archive", None)
    return found


def environment() -> dict[str, str]:
    """Return the environment of a worker, in which the modules of a pack are importable."""
    archive = pack_of_this()
    if archive is None:
        return dict(os.environ)
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join((archive, others)) if others else archive}


def run_limited(command: list[str], limit: float) -> tuple[int | None, str]:
    """The exit code of a command and what it printed; None where it was killed, with its children, after `limit`
    seconds."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment(),
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None, ""
    return process.returncode, printed
