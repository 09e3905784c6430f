"""Kernel text to something that runs: a cubin for a GPU, or a shared library for the emulator.

Both are built once and cached.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..ir.diagnostic import INTERNAL, USER
from .cache import cached
from .compiler import (
    BuildError,
    CompilerFailure,
    Nvrtc,
    diagnose,
    find_nvrtc,
    find_program,
    program_identity,
    run_compiler,
    system_reason,
)
from .kernel import CudaKernel

HEADERS = Path(__file__).parent
EMULATOR = HEADERS / "emulator"
INCLUDE = '#include "prelude.cuh"\n'

# -ffp-contract=off: the same bits on every host. -fstack-clash-protection: a frame larger than a guard page must not
# step over it. -nostdlib: the runtime brings the C library along; linking takes half the time. -fno-builtin-*: a value
# that the compiler knows is rounded as any other, by the C library.
KERNEL_FLAGS = """
    -std=c++17 -O3 -w -fPIC -shared -nostdlib -fno-strict-aliasing -fno-exceptions -fno-math-errno -ffp-contract=off
    -fstack-clash-protection
"""
INEXACT_FUNCTIONS = """
    acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 expm1 hypot j0 j1 lgamma log log10 log1p log2
    pow sin sinh tan tanh tgamma y0 y1
"""  # which C libraries do not round to the nearest
# g++ heeds no `#pragma unroll`. Told to unroll short loops by itself it keeps register tiles in registers: a matmul
# runs five times as fast as at -O1 and builds in 0.1 s more.
GCC_KERNEL_FLAGS = ("--param=max-completely-peeled-insns=500", "--param=max-completely-peel-times=64")
# _FORTIFY_SOURCE would take a jump from one fiber to another for stack corruption.
RUNTIME_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-U_FORTIFY_SOURCE")

FIX_KERNEL = "the code generator wrote invalid CUDA C++: this is a bug in dplc, or in a rule that wrote the text"
FIX_SYSTEM = "make room or give way there; TMPDIR moves the compiler's own files, DPLC_CACHE_DIR what is built"
FIX_NO_HOST = "install g++ (Debian: apt install g++), or set $CXX to a C++17 compiler"
FIX_NO_DEVICE = "install NVRTC (pip install nvidia-cuda-nvrtc) or the CUDA toolkit, or run with --device emulator"
FIX_OLD_DEVICE = "install a newer one: pip install -U nvidia-cuda-nvrtc"


# ---- texts ---------------------------------------------------------------------------------------


def device_text(kernels: Sequence[CudaKernel]) -> str:
    """Return one translation unit for the GPU. Diagnostics count lines from the start of each kernel's text."""
    return INCLUDE + "".join(f'#line 1 "{kernel.name}.cu"\n{kernel.text.rstrip()}\n' for kernel in kernels)


def host_text(kernels: Sequence[CudaKernel]) -> str:
    """Return one translation unit for the emulator.

    It is the same text, and an entry point per kernel to unpack its arguments. Kernels are renamed on the way: one
    called `select` or `index` would be bound to the C library's function instead.
    """
    renamed = "".join(f"#define {kernel.name} dplc_kernel_{kernel.name}\n" for kernel in kernels)
    text = device_text(kernels).removeprefix(INCLUDE)
    return INCLUDE + renamed + text + "".join(_entry_point(kernel) for kernel in kernels)


def _entry_point(kernel: CudaKernel) -> str:
    forms = {"tensor_map": "*static_cast<const TensorMap*>(a[{0}])"}
    arguments = ", ".join(
        forms.get(param.role, "dplc_argument{{a[{0}]}}").format(index) for index, param in enumerate(kernel.params)
    )
    sizes = range(len(kernel.params), len(kernel.params) + len(kernel.values))
    arguments = ", ".join([arguments, *(f"*static_cast<const int*>(a[{index}])" for index in sizes)])
    entry = f"dplc_enter_{kernel.name}(void* const* a) {{ dplc_kernel_{kernel.name}({arguments}); }}"
    maps = "".join(str(int(param.role == "tensor_map")) for param in kernel.params) + "2" * len(kernel.values)
    about = f'extern "C" const char dplc_maps_{kernel.name}[] = "{maps}";\n'
    if kernel.cluster > 1:  # as a cubin has it
        about += f'extern "C" const unsigned dplc_cluster_{kernel.name} = {kernel.cluster};\n'
    return f'extern "C" void {entry}\n{about}'


def _sources(text: str) -> dict[str, str]:
    pieces = re.split(r'^#line 1 "([^"]*)"\n', text, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def _names(text: str) -> str:
    names = [name.removesuffix(".cu") for name in _sources(text)]
    return f"kernel {names[0]}" if len(names) == 1 else f"{len(names)} kernels" if names else "the CUDA text"


# ---- for the emulator ----------------------------------------------------------------------------


def build_host(text: str, checked: bool = False) -> Path:
    """Return the shared library of a host translation unit (see `host_text`). Raises BuildError.

    It takes its symbols from the runtime, which must be loaded first.
    """
    compiler = host_compiler()
    flags = _kernel_flags(compiler, checked)

    def build(product: Path) -> None:
        source = product.with_name("kernels.cpp")
        source.write_text(text)
        try:
            run_compiler([compiler, *flags, "-I", str(HEADERS), "-o", str(product), str(source)])
        except CompilerFailure as failure:
            raise _rejected(f"{_names(text)} for the emulator", failure, _sources(text)) from failure

    return cached("host", [text, *emulator_sources(), program_identity(compiler), *flags], ".so", build)


def _kernel_flags(compiler: str, checked: bool) -> tuple[str, ...]:
    own = () if "clang" in program_identity(compiler) else GCC_KERNEL_FLAGS
    called = [f"-fno-builtin-{name}{kind}" for name in INEXACT_FUNCTIONS.split() for kind in ("", "f")]
    flags = (*KERNEL_FLAGS.split(), *called, *own)
    return (*flags, "-DDPLC_CHECKED") if checked else flags


def build_runtime() -> Path:
    """Return the emulator's runtime as a shared library. Raises BuildError."""
    compiler = host_compiler()
    sources = sorted(EMULATOR.glob("*.cpp"))

    def build(product: Path) -> None:
        try:
            run_compiler([compiler, *RUNTIME_FLAGS, "-o", str(product), *map(str, sources), "-lm"])
        except CompilerFailure as failure:
            fix = f"{compiler} must know C++17; {FIX_NO_HOST}"
            raise _rejected("the emulator's runtime", failure, fix=fix, exit_code=USER) from failure

    return cached("runtime", [*emulator_sources(), program_identity(compiler), *RUNTIME_FLAGS], ".so", build)


def host_compiler() -> str:
    """Return the path of the C++ compiler for the emulator. Raises BuildError without one."""
    name = os.environ.get("CXX") or "g++"
    path = find_program(name)
    if path is None:
        raise BuildError("no C++ compiler for the emulator", f"`{name}` is not on PATH", FIX_NO_HOST)
    return path


@lru_cache(maxsize=1)
def emulator_sources() -> tuple[str, ...]:
    """Return all that a kernel includes, and the runtime's sources.

    They decide a build as much as its own text does.
    """
    files = sorted([*HEADERS.glob("*.cuh"), *EMULATOR.glob("*.cuh"), *EMULATOR.glob("*.cpp")])
    return tuple(part for file in files for part in (file.name, file.read_text()))


# ---- for the GPU ---------------------------------------------------------------------------------


def build_device(text: str, target: str, nvrtc: Nvrtc | None = None) -> bytes:
    """Return the cubin of a device translation unit (see `device_text`) for a target such as "sm_90a".

    nvrtc: the compiler to use; by default the newest that can be loaded, else nvcc. Raises BuildError.
    """
    nvrtc, nvcc = nvrtc or find_nvrtc(), find_program("nvcc")
    identity = nvrtc.identity if nvrtc else program_identity(nvcc) if nvcc else "none"

    def build(product: Path) -> None:
        product.write_bytes(_compile(text, target, nvrtc)[0])

    return cached("cubin", [text, *emulator_sources(), identity, target], ".cubin", build).read_bytes()


@dataclass(frozen=True)
class Resources:
    """The resources of one kernel on one target, as ptxas reports them: 32-bit registers per thread, and bytes."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_smem: int


_REPORTED = (  # of each field of Resources, in order
    r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads", r"(\d+) bytes stack frame",
    r"(\d+) bytes smem",
)  # fmt: skip
_ADVICE = re.compile(r"ptxas warning|\(C\d{4}\)")  # C7510: products that wait for each other


@dataclass(frozen=True)
class Assembly:
    """A cubin, the resources of each of its kernels, by name, and what the assembler warned of."""

    cubin: bytes
    kernels: dict[str, Resources]
    warnings: tuple[str, ...] = ()


def assemble(text: str, arch: str) -> Assembly:
    """Build a device translation unit afresh, with resource usage; for tests and benches. Raises BuildError."""
    cubin, log = _compile(text, arch, find_nvrtc(), verbose=True)
    warnings = tuple(line.strip() for line in log.splitlines() if _ADVICE.search(line))
    return Assembly(cubin, _resources(log), warnings)


def _compile(text: str, target: str, nvrtc: Nvrtc | None, verbose: bool = False) -> tuple[bytes, str]:
    """Return the cubin and the compiler's log. nvcc compiles if NVRTC is missing."""
    if nvrtc is not None and not nvrtc.knows(target):
        raise BuildError(f"no CUDA compiler for {target}", f"{nvrtc.identity} does not know it", FIX_OLD_DEVICE)
    try:
        if nvrtc is None:
            return _compile_with_nvcc(text, target, verbose)
        options = [f"--gpu-architecture={target}", f"--include-path={HEADERS}", "--std=c++17"]
        return nvrtc.compile(text, "kernels.cu", [*options, "--ptxas-options=-v"] if verbose else options)
    except CompilerFailure as failure:
        raise _rejected(f"{_names(text)} for {target}", failure, _sources(text)) from failure


def _compile_with_nvcc(text: str, target: str, verbose: bool) -> tuple[bytes, str]:
    nvcc = find_program("nvcc")
    if nvcc is None:
        raise BuildError(
            f"no CUDA compiler for {target}", "neither the NVRTC library nor nvcc was found", FIX_NO_DEVICE
        )
    with tempfile.TemporaryDirectory(prefix="dplc-nvcc-") as folder:
        source, product = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        source.write_text(text)
        command = [nvcc, "-cubin", "-std=c++17", f"-arch={target}", "-I", str(HEADERS), "-o", str(product), str(source)]
        log = run_compiler([*command, "-Xptxas=-v"] if verbose else command)
        return product.read_bytes(), log


def _rejected(
    what: str, failure: CompilerFailure, sources: Mapping[str, str] = {}, fix: str = FIX_KERNEL,
    exit_code: int = INTERNAL,
) -> BuildError:  # fmt: skip
    """Return the error about a text that did not compile. sources: {file: its text}."""
    what, printed = f"could not compile {what}", str(failure)
    if reason := system_reason(printed):
        return BuildError(what, reason, FIX_SYSTEM)
    return BuildError(what, diagnose(printed, sources), fix, exit_code)


def _resources(log: str) -> dict[str, Resources]:
    kernels = {}
    for report in re.split(r"Compiling entry function '", log)[1:]:
        found = (re.search(pattern, report) for pattern in _REPORTED)
        kernels[report.split("'", 1)[0]] = Resources(*(int(one[1]) if one else 0 for one in found))
    return kernels
