"""The mock of the CUDA driver, built for tests. Needs CUDA headers (found through nvcc), g++ and PyCUDA."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

from dplc.codegen.build import HEADERS, build_runtime
from dplc.codegen.cache import cached
from dplc.codegen.compiler import find_program, program_identity, run_compiler

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-Wno-deprecated-declarations", "-Wl,-soname,libcuda.so.1")


def cuda_include() -> str | None:
    """The folder of cuda.h, as nvcc names it."""
    nvcc = find_program("nvcc")
    if nvcc is None:
        return None
    plan = subprocess.run([nvcc, "--dryrun", "-x", "cu", "-c", os.devnull], capture_output=True, text=True, check=False)
    folders: list[str] = re.findall(r'-I([^"]+)"', plan.stderr)
    return next((folder for folder in folders if (Path(folder) / "cuda.h").exists()), None)


def build_driver() -> Path:
    """The folder of the mock libcuda.so.1, built once into the cache. Skips the test where it cannot be built."""
    include, compiler = cuda_include(), find_program("g++")
    if include is None or compiler is None:
        pytest.skip("no CUDA headers (nvcc) or no g++ to build the mock driver with")
    if importlib.util.find_spec("pycuda") is None:
        pytest.skip("PyCUDA is not installed: sh tests/gpu/build_pycuda.sh")
    sources = [HERE / "mock_cuda.cpp", HERE / "mock_graphs.cpp"]

    def build(product: Path) -> None:
        folders = ["-I", include, "-I", str(HEADERS)]
        run_compiler([compiler, *FLAGS, *folders, "-o", str(product), *map(str, sources), "-ldl"])

    shared = [HEADERS / "emulator" / "runtime.cuh", HEADERS / "emulator" / "machine.cuh", HERE / "mock_driver.hpp"]
    texts = [path.read_text() for path in (*sources, *shared)]
    entry = cached("mock-driver", [*texts, program_identity(compiler), *FLAGS], ".so", build)
    folder = entry.with_suffix("")
    folder.mkdir(exist_ok=True)
    link = folder / "libcuda.so.1"
    if not link.exists():
        temporary = folder / f"link-{os.getpid()}"
        temporary.symlink_to(entry)
        temporary.replace(link)
    return folder


def environment(driver: Path) -> dict[str, str]:
    """What a process needs to find the mock before any other libcuda."""
    return {"LD_LIBRARY_PATH": str(driver), "DPLC_MOCK_RUNTIME": str(build_runtime())}
