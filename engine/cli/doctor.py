"""`dplc doctor`: report what this machine has, and how to install what is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.text import Text

from ...ir.diagnostic import DplcError
from .options import Flags
from .output import print_json, print_rows

TORCH = "torch>=2.11,<2.14"
COLOURS = {"ok": "green", "missing": "yellow", "broken": "red"}


Found = tuple[str, ...]  # state, detail and remedy of a line


@dataclass(frozen=True)
class ReportLine:
    """One line of the report. state: ok, missing (something works less well) or broken (nothing runs)."""

    what: str
    state: str
    detail: str
    remedy: str = ""


def report(flags: Flags) -> None:
    """Print the findings, each with a remedy below it, in colour on a terminal.

    The exit code is 1 if something is broken.
    """
    findings = examine()
    if flags.as_json:
        print_json(findings)
    else:
        lines = (((f.what, Text(f.state, COLOURS[f.state]), f.detail), ("", "", f.remedy)) for f in findings)
        print_rows(("", "", ""), (row for pair in lines for row in pair if any(row)))
    if any(f.state == "broken" for f in findings):
        raise SystemExit(1)


# Packages that some commands need: the name in the report, the distribution, the extra that brings it, what for.
OPTIONAL = (
    ("transformers", "transformers", "hub", "whole models"),
    ("safetensors", "safetensors", "hub", "weights and artefacts of models"),
    ("huggingface_hub", "huggingface_hub", "hub", "models by their id"),
    ("egglog", "egglog", "explore", "--explore, and candidates in `dplc tune`"),
    ("z3", "z3-solver", "prove", "proofs in `dplc check`"),
    ("hypothesis", "hypothesis", "check", "the pytest plugin"),
    ("ray", "ray", "ray", "`dplc tune --executor ray`"),
    ("PyCUDA", "pycuda", "cuda", "launches on a GPU"),
)


def examine() -> list[ReportLine]:
    """Check everything that dplc can use. A check that fails with an exception is a finding too."""
    looks: dict[str, Callable[[], Found]] = {
        "python": _python, "torch": _torch, "host compiler": _host_compiler, "emulator": _emulator,
        "CUDA compiler": _device_compiler, "GPU": _gpu, "rules": _rules, "cache": _cache,
        **{name: partial(_optional, *package) for name, *package in OPTIONAL},
    }  # fmt: skip
    found = []
    for what, look in looks.items():
        try:
            line = look()
        except Exception as error:
            line = "broken", _first_line(error), "what is installed is damaged: install it again"
        found.append(ReportLine(what, *line))
    return found


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def _optional(distribution: str, extra: str, purpose: str) -> Found:
    try:
        return "ok", importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "missing", f"not installed: {purpose}", f"pip install 'dplc[{extra}]'"


def _python() -> Found:
    return "ok", f"{platform.python_version()} on {platform.machine()} {sys.platform}"


def torch_problem() -> DplcError | None:
    """Return the error of importing torch, which all commands but `doctor` and `rules` need; None if it works."""
    try:
        importlib.import_module("torch")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return DplcError("torch is not installed", hint=f"pip install '{TORCH}'")
        remedy = f"pip install --force-reinstall '{TORCH}'"  # a part of it is not there, or is another build's
        return DplcError("torch cannot be imported", notes=(_first_line(error),), hint=remedy)
    return None


def _torch() -> Found:
    if problem := torch_problem():
        return "broken", ": ".join((problem.what, *problem.notes)), problem.hint or ""
    version = importlib.metadata.version("torch")
    if (2, 11) <= tuple(int(x) for x in version.split("+")[0].split(".")[:2]) < (2, 14):
        return "ok", version
    return "missing", version, "dplc is tested with torch 2.11 to 2.13"


def _host_compiler() -> Found:
    import os

    from ...codegen.compiler import find_program, program_identity

    name = os.environ.get("CXX", "g++")
    found = find_program(name)
    if found is None:
        return "missing", f"`{name}` not found: no emulator", "install g++ (Debian: apt install g++), or set $CXX"
    return "ok", program_identity(found).splitlines()[0]


def _emulator() -> Found:
    from ...codegen.build import build_runtime

    try:
        return "ok", f"runtime built: {build_runtime().name}"
    except Exception as error:  # whatever is wrong with the compiler, the report goes on
        return "missing", str(error).splitlines()[0], "see `host compiler`"


def _device_compiler() -> Found:
    from ...codegen.compiler import find_nvrtc, find_program

    nvrtc, nvcc = find_nvrtc(), find_program("nvcc")
    found = [nvrtc.identity] if nvrtc else []
    found += [f"nvcc {nvcc}"] if nvcc else []
    if not found:
        return "missing", "neither NVRTC nor nvcc", "pip install nvidia-cuda-nvrtc, or the CUDA toolkit"
    return "ok", "; ".join(found)


def _gpu() -> Found:
    try:
        import torch
    except Exception:  # said above
        return "missing", "not looked for: torch cannot be imported"
    if not torch.cuda.is_available():
        return "missing", "none: kernels run on the emulator"
    return "ok", f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}"


def _rules() -> Found:
    from ..language.rule import load

    try:
        rules = load()
    except DplcError as error:
        return "broken", error.what, "the built-in rule files do not load; reinstall dplc"
    return "ok", f"{len(rules.rules)} rules in {len(rules.files)} files, digest {rules.digest[:12]}"


def _cache() -> Found:
    from ...codegen.cache import cache_directory

    folder = cache_directory()
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    return "ok", f"{folder} ({size / 1e6:.1f} MB)", "DPLC_CACHE_DIR moves it"
