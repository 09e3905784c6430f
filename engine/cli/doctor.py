"""`dplc doctor`: report what this machine has, and how to install what is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.text import Text

from .options import Flags
from .output import print_json, print_rows

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


# Packages that some commands need: the module, the extra that brings it, what for.
OPTIONAL = (
    ("transformers", "hub", "whole models"),
    ("safetensors", "hub", "weights and artefacts of models"),
    ("huggingface_hub", "hub", "models by their id"),
    ("egglog", "explore", "--explore, and candidates in `dplc tune`"),
    ("z3", "prove", "proofs in `dplc check`"),
    ("hypothesis", "check", "the pytest plugin"),
    ("ray", "ray", "`dplc tune --executor ray`"),
    ("pycuda", "cuda", "launches on a GPU"),
)
TITLES = {"pycuda": "PyCUDA"}


def examine() -> list[ReportLine]:
    """Check everything that dplc can use. A check that fails with an exception is a finding too."""
    looks: dict[str, Callable[[], Found]] = {
        "python": _python, "torch": _torch, "host compiler": _host_compiler, "emulator": _emulator,
        "CUDA compiler": _device_compiler, "GPU": _gpu, "rules": _rules, "cache": _cache,
        **{TITLES.get(package[0], package[0]): partial(_optional, *package) for package in OPTIONAL},
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


def _optional(module: str, extra: str, purpose: str) -> Found:
    try:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError
        names = importlib.metadata.packages_distributions().get(module, [module])
        return "ok", importlib.metadata.version(names[0])
    except (ImportError, ValueError, importlib.metadata.PackageNotFoundError):
        return "missing", f"not installed: {purpose}", f"pip install 'dplc[{extra}]'"


def _python() -> Found:
    return "ok", f"{platform.python_version()} on {platform.machine()} {sys.platform}"


def _torch() -> Found:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "broken", "not installed", "pip install 'torch>=2.11,<2.14'"
    try:
        importlib.import_module("torch")
    except Exception as error:  # a part of it is not there, or is another build's
        remedy = "pip install --force-reinstall 'torch>=2.11,<2.14'"
        return "broken", f"{version} cannot be imported: {_first_line(error)}", remedy
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
    from ...ir.diagnostic import DplcError
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
