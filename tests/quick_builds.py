"""Kernels of tests are built quickly: a test runs a kernel once or twice, so that g++ takes longer than the kernel."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

from dplc.codegen import build
from dplc.codegen.cache import cache_directory, digest
from dplc.codegen.compiler import CompilerFailure, program_identity, run_compiler

Flags = Callable[[str, bool], tuple[str, ...]]  # of a compiler, in checked mode or not


def build_quickly() -> None:
    """Build the kernels of this process at -O1, with the headers of the emulator precompiled.

    Checked mode keeps -O3: at -O1 g++ starts registers at zero that nothing started.
    """
    build._kernel_flags = functools.partial(_flags, cache_directory(), build._kernel_flags)


def _flags(root: Path, given: Flags, compiler: str, checked: bool) -> tuple[str, ...]:
    flags = tuple("-O1" if flag == "-O3" and not checked else flag for flag in given(compiler, checked))
    if Path(compiler).name != "g++":
        return flags
    identity = digest([*build.emulator_sources(), program_identity(compiler), *flags])
    folder = root / "precompiled" / identity
    if not folder.exists():
        _precompile(compiler, flags, folder)
    return ("-I", str(folder), *flags)


def _precompile(compiler: str, flags: tuple[str, ...], folder: Path) -> None:
    """Make a folder with `prelude.cuh.gch`, which g++ takes if the flags are the same. Nothing is made if g++ fails."""
    kept = [flag for flag in flags if flag not in ("-shared", "-nostdlib")]
    header = ["-x", "c++-header", "-I", str(build.HEADERS), str(build.HEADERS / "prelude.cuh")]
    with contextlib.suppress(OSError, CompilerFailure):  # where another process was quicker, too
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as workshop:
            made = Path(workshop) / "made"
            made.mkdir()
            run_compiler([compiler, *kept, *header, "-o", str(made / "prelude.cuh.gch")])
            made.rename(folder)
