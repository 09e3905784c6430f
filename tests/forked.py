"""Work in a copy of this process, where torch and the rules are loaded: what it breaks stays there, and it may be killed."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

MOST = 600.0  # seconds that a test waits at most


def started(log: Path, work: Callable[..., object], *arguments: Any) -> BaseProcess:
    """A process that does the work and prints into a file. It ends with 0 if nothing is raised."""
    process = multiprocessing.get_context("fork").Process(target=_printing, args=(log, work, *arguments), daemon=True)
    process.start()
    return process


def done(log: Path, work: Callable[..., object], *arguments: Any) -> tuple[int | None, str]:
    """What a process that does the work ends with, and what it prints."""
    process = started(log, work, *arguments)
    process.join(MOST)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode, log.read_text()


def _printing(log: Path, work: Callable[..., object], *arguments: Any) -> None:
    file = log.open("w", buffering=1)
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(file.fileno(), number)
    sys.stdout = sys.stderr = file
    torch.set_num_threads(1)  # a copy has one thread: OpenMP would wait for those that the first process had
    work(*arguments)
