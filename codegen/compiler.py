"""Running a compiler, and saying clearly why it gave nothing."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache

from ..ir.diagnostic import USER, DplcError

MAX_DIAGNOSTIC_LINES = 8
COMPILE_SECONDS = 600


class BuildError(DplcError):
    """A kernel, or the emulator itself, could not be built.

    `what` failed; `why`, in the compiler's or the system's words; `fix`, what the user can do about it.
    """

    def __init__(self, what: str, why: str, fix: str, exit_code: int = USER) -> None:
        super().__init__(what, notes=why.splitlines(), hint=fix)
        self.exit_code = exit_code


class CompilerFailure(Exception):
    """A compiler rejected its input, or did not run; the message is what it printed."""


def find_program(name: str) -> str | None:
    """The full path of a program on PATH, or None."""
    return shutil.which(name)


@cache
def program_identity(path: str) -> str:
    """What distinguishes this compiler from another of the same name: its path and the version it reports."""
    try:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        version = "unknown"  # a real run will report what is wrong with it
    return f"{path}\n{version}"


def run_compiler(command: Sequence[str]) -> str:
    """Runs a compiler and returns everything it printed. Raises CompilerFailure."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", timeout=COMPILE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CompilerFailure(f"{command[0]} ran for more than {COMPILE_SECONDS} seconds") from error
    except OSError as error:
        raise CompilerFailure(f"could not run {command[0]}: {error.strerror or error}") from error
    printed = done.stdout + done.stderr
    if done.returncode != 0:
        raise CompilerFailure(printed.strip() or f"{command[0]} ended with {done.returncode}")
    return printed


def system_reason(printed: str) -> str | None:
    """What the system, not the text, is to blame for: lines of a compiler's output that say so, as of a full disk."""
    causes = [
        os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOMEM, errno.EIO)
    ]
    lines = [line for line in printed.splitlines() if any(cause in line for cause in causes)]
    return "\n".join(lines[:MAX_DIAGNOSTIC_LINES]) or None


def diagnose(printed: str, sources: Mapping[str, str]) -> str:
    """The first lines of a compiler's output that matter, and the source line of the first error."""
    lines = [line for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    shown = (errors or lines)[:MAX_DIAGNOSTIC_LINES]
    text = "\n".join(shown)
    place = re.search(r"([\w.+-]+\.cu)[:(](\d+)", errors[0]) if errors else None
    if place and place[1] in sources:
        source = sources[place[1]].splitlines()
        number = int(place[2])
        if 1 <= number <= len(source):
            text += f"\n{place[1]} line {number}: {source[number - 1].strip()}"
    return text
