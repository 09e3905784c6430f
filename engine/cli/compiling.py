"""What compile, run and rewrite share: a text and options become rules, a target, a captured program, a compilation."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from ...codegen.target import Target
from ...codegen.target import target as find_target
from ...ir.diagnostic import UsageError, did_you_mean
from ..api import choose_device, default_target_name
from ..compiler import STAGES, Compilation, compile_captured
from ..front.capture import Capture
from ..front.text import capture_text
from ..match.trace import Trace
from ..toolchain import Toolchain, read_settings, toolchain
from .show import print_text, progress

FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def compile_text(
    text: str,
    seed: int,
    rules: list[Path],
    settings: list[str],
    machine: Target,
    verbose: int,
    dtype: str | None = None,
) -> Compilation:
    """Compile a `-c` text; `-v` and `-vv` keep what the rules did."""
    tools = tools_for(rules, settings)
    captured, elapsed = captured_text(text, seed, dtype)
    with progress("compiling"):
        return compile_captured(captured, tools, machine, Trace() if verbose else None, elapsed)


def captured_text(text: str, seed: int, dtype: str | None = None) -> tuple[Capture, float]:
    """A text captured, and the milliseconds it took. What it prints goes to standard error: ours is for results."""
    start = time.perf_counter()
    with progress("capturing"), contextlib.redirect_stdout(sys.stderr):
        captured = capture_text(text, seed, float_named(dtype))
    return captured, (time.perf_counter() - start) * 1e3


def tools_for(rules: list[Path], settings: list[str]) -> Toolchain:
    """The rules of `--rules` with the parameters of `--set`."""
    tools = toolchain(rules)
    return toolchain(tools.rules, read_settings(settings, tools.rules)) if settings else tools


def machine_for(target: str | None, device: str | None = None) -> Target:
    """The target of `--target`; by default the GPU that is present (unless another device is asked for), else sm_80."""
    return find_target(target or default_target_name(choose_device(device)))


def float_named(name: str | None) -> str | None:
    """A dtype of `--dtype`, by our name or torch's. Raises UsageError."""
    known = {FLOATS[ours]: ours for ours in FLOATS} | {ours: ours for ours in FLOATS}
    if name is not None and name not in known:
        raise UsageError(
            f"--dtype {name}: not a dtype for floats",
            notes=(f"dtypes are {', '.join(FLOATS)}",),
            hint=did_you_mean(name, tuple(known)),
        )
    return None if name is None else known[name]


def stage_named(name: str) -> str:
    """A stage of `--ir`. Raises UsageError."""
    if name not in STAGES:
        raise UsageError(
            f"--ir {name}: there is no such stage",
            notes=(f"stages are {', '.join(STAGES)}",),
            hint=did_you_mean(name, STAGES),
        )
    return name


def print_trace(compilation: Compilation, verbose: int) -> None:
    """What `-v` and `-vv` print."""
    if verbose and compilation.trace is not None:
        print_text(compilation.trace.render(verbose), "diff")
