"""`dplc doctor`: what this machine has, and what to do about what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import asdict, dataclass

from .show import print_json, write


@dataclass(frozen=True)
class Finding:
    """One line of the report. state: ok, missing (something works less well) or broken (nothing runs)."""

    what: str
    state: str
    detail: str
    remedy: str = ""


def report(as_json: bool) -> None:
    """Print the findings; exit code 1 if something is broken."""
    findings = examine()
    if as_json:
        print_json([asdict(f) for f in findings])
    else:
        _print(findings)
    if any(f.state == "broken" for f in findings):
        raise SystemExit(1)


def examine() -> list[Finding]:
    """Look at everything dplc can use."""
    return [
        _python(),
        _torch(),
        _host_compiler(),
        _emulator(),
        _device_compiler(),
        _gpu(),
        _launcher(),
        _rules(),
        _cache(),
    ]


def _print(findings: list[Finding]) -> None:
    """A line each, marked in colour on a terminal; what to do about it below."""
    colours = {"ok": "32", "missing": "33", "broken": "31"} if sys.stdout.isatty() else {}
    width = max(len(f.what) for f in findings)
    for f in findings:
        mark = f"\033[{colours[f.state]}m{f.state:7}\033[0m" if colours else f"{f.state:7}"
        write(f"{f.what:{width}}  {mark}  {f.detail}\n")
        if f.remedy:
            write(f"{'':{width}}  {'':7}  {f.remedy}\n")


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} on {platform.machine()} {sys.platform}")


def _torch() -> Finding:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", "broken", "not installed", "pip install 'torch>=2.11,<2.14'")
    tested = (2, 11) <= tuple(int(x) for x in version.split("+")[0].split(".")[:2]) < (2, 14)
    remedy = "" if tested else "dplc is tested with torch 2.11 to 2.13"
    return Finding("torch", "ok" if tested else "missing", version, remedy)


def _host_compiler() -> Finding:
    import os

    from ...codegen.compiler import find_program, program_identity

    name = os.environ.get("CXX", "g++")
    found = find_program(name)
    if found is None:
        return Finding(
            "host compiler",
            "missing",
            f"`{name}` not found: no emulator",
            "install g++ (Debian: apt install g++), or set $CXX",
        )
    return Finding("host compiler", "ok", program_identity(found).splitlines()[0])


def _emulator() -> Finding:
    from ...codegen.build import build_runtime

    try:
        return Finding("emulator", "ok", f"runtime built: {build_runtime().name}")
    except Exception as error:  # whatever is wrong with the compiler, the report goes on
        return Finding("emulator", "missing", str(error).splitlines()[0], "see `host compiler`")


def _device_compiler() -> Finding:
    from ...codegen.compiler import find_program
    from ...codegen.nvrtc import find_nvrtc

    nvrtc, nvcc = find_nvrtc(), find_program("nvcc")
    found = [text for text in (nvrtc.identity if nvrtc else "", f"nvcc {nvcc}" if nvcc else "") if text]
    if not found:
        return Finding(
            "CUDA compiler", "missing", "neither NVRTC nor nvcc", "pip install nvidia-cuda-nvrtc, or the CUDA toolkit"
        )
    return Finding("CUDA compiler", "ok", "; ".join(found))


def _gpu() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("GPU", "missing", "torch is not installed")
    if not torch.cuda.is_available():
        return Finding("GPU", "missing", "none: kernels run on the emulator")
    return Finding("GPU", "ok", f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}")


def _launcher() -> Finding:
    try:
        return Finding("PyCUDA", "ok", importlib.metadata.version("pycuda"))
    except importlib.metadata.PackageNotFoundError:
        return Finding("PyCUDA", "missing", "not installed: no launches on a GPU", "pip install 'dplc[cuda]'")


def _rules() -> Finding:
    from ...ir.diagnostic import DplcError
    from ..rw.rule import load

    try:
        rules = load()
    except DplcError as error:
        return Finding("rules", "broken", error.what, "the built-in rule files do not load; reinstall dplc")
    return Finding("rules", "ok", f"{len(rules.rules)} rules in {len(rules.files)} files, digest {rules.digest[:12]}")


def _cache() -> Finding:
    from ...codegen.cache import cache_directory

    folder = cache_directory()
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) if folder.exists() else 0
    return Finding("cache", "ok", f"{folder} ({size / 1e6:.1f} MB)", "DPLC_CACHE_DIR moves it")
