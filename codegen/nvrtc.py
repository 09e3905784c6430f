"""NVIDIA's runtime compiler, through ctypes: CUDA text to a cubin in tens of milliseconds, without CUDA headers."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from .compiler import CompilerFailure

# Newest first; the unversioned name is what a full toolkit installs for linking.
LIBRARY_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
WHEEL_FOLDERS = ("cu13/lib", "cuda_nvrtc/lib")


class Nvrtc:
    """A loaded NVRTC library."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self._library = library
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.identity = f"nvrtc {major.value}.{minor.value} {path}"

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes, str]:
        """The cubin of `text` (`name` in diagnostics), and the log. Raises CompilerFailure with the log."""
        program = ctypes.c_void_p()
        create = self._library.nvrtcCreateProgram
        self._check(create(ctypes.byref(program), text.encode(), name.encode(), 0, None, None))
        try:
            encoded = [option.encode() for option in options]
            result = self._library.nvrtcCompileProgram(
                program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
            )
            log = self._fetch(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if result != 0:
                raise CompilerFailure(log or self._reason(result))
            return self._fetch(program, "CUBIN"), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, result: int) -> None:
        if result != 0:
            raise CompilerFailure(self._reason(result))

    def _reason(self, result: int) -> str:
        reason: bytes = self._library.nvrtcGetErrorString(result)
        return reason.decode()


@lru_cache(maxsize=1)
def find_nvrtc() -> Nvrtc | None:
    """The NVRTC of an installed wheel, else the system's, else None."""
    for candidate in (*_wheel_libraries(), *LIBRARY_NAMES):
        try:
            return Nvrtc(ctypes.CDLL(candidate), candidate)
        except (OSError, AttributeError, CompilerFailure):
            continue
    return None


def _wheel_libraries() -> list[str]:
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    paths = [Path(root) / folder / name for root in roots for folder in WHEEL_FOLDERS for name in LIBRARY_NAMES]
    return [str(path) for path in paths if path.exists()]
