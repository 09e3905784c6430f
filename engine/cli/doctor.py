"""`dplc doctor`: report what this machine has, and how to install what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType

from rich.text import Text

from ...ir.diagnostic import DplcError, first_line
from ...ir.node import immutable
from .options import Flags
from .output import print_json, print_rows

TORCH = "torch>=2.11,<2.14"
COLOURS = {"ok": "green", "missing": "yellow", "broken": "red"}


class Unusable(DplcError):
    """A part of the installation is broken without which nothing runs."""


@immutable
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
        lines = ((f.what, Text(f.state, COLOURS[f.state]), f"{f.detail}\n{f.remedy}".strip()) for f in findings)
        print_rows(("", "", ""), lines)
    if any(f.state == "broken" for f in findings):
        raise SystemExit(1)


# Packages that some commands need: the name in the report, the distribution, the extra that brings it, what for.
OPTIONAL = (
    ("transformers", "transformers", "hub", "whole models"),
    ("safetensors", "safetensors", "hub", "weights and artefacts of models"),
    ("huggingface_hub", "huggingface_hub", "hub", "models by their id"),
    ("egglog", "egglog", "explore", "--explore, and candidates in `dplc tune`"),
    ("z3", "z3-solver", "prove", "proofs in `dplc check`"),
    ("hypothesis", "hypothesis", "check", "`dplc check`"),
    ("PyCUDA", "pycuda", "cuda", "launches on a GPU"),
)


def examine() -> list[ReportLine]:
    """Check everything that dplc can use. A check that fails with an exception is a finding too."""
    looks: dict[str, Callable[[], str]] = {
        "python": _python, "torch": _torch, "host compiler": _host_compiler, "emulator": _emulator,
        "CUDA compiler": _device_compiler, "GPU": _gpu, "rules": _rules, "cache": _cache,
        **{name: partial(_optional, *package) for name, *package in OPTIONAL},
    }  # fmt: skip
    found = []
    for what, look in looks.items():
        try:
            line = ReportLine(what, "ok", look())
        except DplcError as error:
            state = "broken" if isinstance(error, Unusable) else "missing"
            line = ReportLine(what, state, ": ".join((error.what, *error.notes[:1])).splitlines()[0], error.hint or "")
        except Exception as error:
            remedy = "what is installed is damaged: install it again"
            line = ReportLine(what, "broken", _named(error), remedy)
        found.append(line)
    return found


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _optional(distribution: str, extra: str, purpose: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise DplcError(f"not installed: {purpose}", hint=f"pip install 'dplc[{extra}]'") from None


def _python() -> str:
    return f"{platform.python_version()} on {platform.machine()} {sys.platform}"


def imported_torch() -> ModuleType:
    """Return torch, which all commands but `doctor` and `rules` need. Raises Unusable if it cannot be imported."""
    try:
        return importlib.import_module("torch")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise Unusable("torch is not installed", hint=f"pip install '{TORCH}'") from None
        remedy = f"pip install --force-reinstall '{TORCH}'"  # a part of it is not there, or is another build's
        raise Unusable("torch cannot be imported", notes=(_named(error),), hint=remedy) from None


def _torch() -> str:
    version = imported_torch().__version__
    if not "2.11.dev" <= version < "2.14.dev":  # torch's class of versions compares as pip does
        raise DplcError(version, hint="dplc is tested with torch 2.11 to 2.13")
    return str(version)


def _host_compiler() -> str:
    from ...codegen.build import host_compiler
    from ...codegen.compiler import program_identity

    return program_identity(host_compiler()).splitlines()[0]


def _emulator() -> str:
    from ...codegen.build import build_runtime

    return f"runtime built: {build_runtime().name}"


def _device_compiler() -> str:
    from ...codegen.compiler import find_nvrtc, find_program

    nvrtc, nvcc = find_nvrtc(), find_program("nvcc")
    found = [nvrtc.identity] if nvrtc else []
    found += [f"nvcc {nvcc}"] if nvcc else []
    if not found:
        raise DplcError("neither NVRTC nor nvcc", hint="pip install nvidia-cuda-nvrtc, or the CUDA toolkit")
    return "; ".join(found)


def _gpu() -> str:
    torch = imported_torch()
    if not torch.cuda.is_available():
        raise DplcError("none: kernels run on the emulator")
    return f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}"


def _rules() -> str:
    from ..language.rule import load

    try:
        rules = load()
    except DplcError as error:
        raise Unusable(error.what, hint="the built-in rule files do not load; reinstall dplc") from None
    return f"{len(rules.rules)} rules in {len(rules.files)} files, digest {rules.digest[:12]}"


def _cache() -> str:
    from ...codegen.cache import cache_directory

    folder = cache_directory()
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    return f"{folder} ({size / 1e6:.1f} MB), which $DPLC_CACHE_DIR moves"
