"""Run a compiler and explain its failures; NVRTC, the compiler that runs in this process."""

from __future__ import annotations

import errno
import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from ctypes import CDLL, byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from functools import cache
from pathlib import Path

from ..ir.diagnostic import USER, DplcError

MAX_DIAGNOSTIC_LINES = 8
COMPILE_SECONDS = 600


class BuildError(DplcError):
    """A kernel, or the emulator itself, could not be built.

    `what` failed; `why`, in the compiler's or the system's words; `fix`, what the user can do about it.
    """

    def __init__(self, what: str, why: str, fix: str, exit_code: int = USER):
        super().__init__(what, notes=why.splitlines(), hint=fix)
        self.exit_code = exit_code


class CompilerFailure(Exception):
    """A compiler rejected its input, or did not run; the message is what it printed."""


def find_program(name: str) -> str | None:
    """Return the full path of a program on PATH, or None."""
    return shutil.which(name)


@cache
def program_identity(path: str) -> str:
    """Return text that distinguishes this compiler from others of the same name: its path and reported version."""
    try:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        version = "unknown"  # a real run will report what is wrong with it
    return f"{path}\n{version}"


def run_compiler(command: Sequence[str]) -> str:
    """Run a compiler and return everything it printed. Raises CompilerFailure."""
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
    """Return lines of a compiler's output that blame the system, not the text, such as a full disk, or None."""
    causes = [
        os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOMEM, errno.EIO)
    ]
    lines = [line for line in printed.splitlines() if any(cause in line for cause in causes)]
    return "\n".join(lines[:MAX_DIAGNOSTIC_LINES]) or None


def diagnose(printed: str, sources: Mapping[str, str]) -> str:
    """Return the first lines of a compiler's output that matter, and the source line of the first error."""
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


# ---- NVRTC through ctypes: compiles to a cubin in tens of milliseconds, without CUDA headers


# Newest first; the unversioned name is what a full toolkit installs for linking.
LIBRARY_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
WHEEL_FOLDERS = ("cu13/lib", "cuda_nvrtc/lib")


class Nvrtc:
    """A loaded NVRTC library."""

    def __init__(self, library: CDLL, path: str):
        self._library = library
        self._library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(), c_int()
        self._check(library.nvrtcVersion(byref(major), byref(minor)))
        self.version = major.value, minor.value
        self.identity = f"nvrtc {major.value}.{minor.value} {path}"

    @functools.cached_property
    def architectures(self) -> frozenset[int]:
        """The compute capabilities it compiles for: 80, 90, 120, ..."""
        count = c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(byref(count)))
        found = (c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(found))
        return frozenset(found)

    def knows(self, target: str) -> bool:
        """Return whether it compiles for a target such as "sm_90a"."""
        number = re.fullmatch(r"sm_(\d+)[a-z]?", target)
        return number is not None and int(number[1]) in self.architectures

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Return the cubin of `text` (`name` in diagnostics), and the log. Raises CompilerFailure with the log."""
        program = c_void_p()
        create = self._library.nvrtcCreateProgram
        self._check(create(byref(program), text.encode(), name.encode(), 0, None, None))
        try:
            encoded = [option.encode() for option in options]
            result = self._library.nvrtcCompileProgram(program, len(encoded), (c_char_p * len(encoded))(*encoded))
            log = self._fetch(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if result != 0:
                raise CompilerFailure(log or self._reason(result))
            return self._fetch(program, "CUBIN"), log
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _fetch(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, byref(size)))
        buffer = create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, result: int) -> None:
        if result != 0:
            raise CompilerFailure(self._reason(result))

    def _reason(self, result: int) -> str:
        reason: bytes = self._library.nvrtcGetErrorString(result)
        return reason.decode()


def find_nvrtc() -> Nvrtc | None:
    """Return the newest NVRTC here, None without one."""
    return next(iter(find_all()), None)


@functools.cache
def find_all() -> tuple[Nvrtc, ...]:
    """Return every NVRTC that can be loaded, of installed wheels and of the system, the newest first."""
    found: dict[tuple[int, int], Nvrtc] = {}
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    wheels = [Path(root) / folder / name for root in roots for folder in WHEEL_FOLDERS for name in LIBRARY_NAMES]
    for candidate in (*(str(path) for path in wheels if path.exists()), *LIBRARY_NAMES):
        try:
            one = Nvrtc(CDLL(candidate), candidate)
        except (OSError, AttributeError, CompilerFailure):
            continue
        found.setdefault(one.version, one)
    return tuple(found[version] for version in sorted(found, reverse=True))


def suited(driver: int, target: str) -> tuple[Nvrtc, ...]:
    """Return the compilers that know a target, in the order to try them for a driver of a CUDA version (12080 is 12.8).

    A driver accepts the output of any compiler of its own major version, and of older ones; a newer one is the last
    resort.
    """
    known = [one for one in find_all() if one.knows(target)]
    return tuple(sorted(known, key=lambda one: one.version[0] > driver // 1000))
