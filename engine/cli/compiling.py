"""What compile, run and rewrite share: a text and options become rules, a target, a captured program, a compilation."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ...codegen.target import Target
from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.dtypes import DTYPES, FLOATS
from ..api import choose_device, target_for
from ..capture.capture import Capture
from ..capture.text import capture_text
from ..compiler import STAGES, Compilation, Explore, compile_captured
from ..explore.ways import remembered
from ..rewrite.pinned import tell_unheard
from ..rewrite.trace import Trace
from ..ruleset import Toolchain, read_settings, toolchain
from ..schedule.recorded import StoredSchedules, stored_schedules
from .show import print_note, print_text, progress

TOLD = 4  # kernels whose schedules are told one by one


@dataclass(frozen=True)
class Database:
    """`--db FILE` and `--no-db`: the store whose schedules a compile replays."""

    path: Path | None = None
    asked: bool = True

    def schedules(self, tools: Toolchain) -> StoredSchedules | None:
        """The store, where there is one. Raises UsageError for a file that was named and is not there."""
        if self.asked and self.path is not None and not self.path.is_file():
            raise UsageError(f"--db {self.path}: there is no such file", hint="`dplc tune --db` makes one")
        return stored_schedules(tools, self.path, self.asked)


@dataclass(frozen=True)
class Request:
    """What the options that `-c` commands share say. dtype: of floats whose dtype the text does not name."""

    text: str
    seed: int = 0
    dtype: str | None = None
    rules: tuple[Path, ...] = ()
    settings: tuple[str, ...] = ()
    target: str | None = None
    verbose: int = 0
    database: Database = Database()
    explore: bool = False


def compile_text(request: Request, device: str | None = None) -> Compilation:
    """Compile a `-c` text for the target asked for, by default the device's; `-v` and `-vv` keep what the rules did."""
    tools = tools_for(list(request.rules), list(request.settings))
    machine = tools.on(machine_for(request.target, device))
    schedules = request.database.schedules(tools)
    captured, elapsed = captured_text(request.text, request.seed, request.dtype)
    with progress("compiling"):
        choose = best_candidate(tools, machine, schedules) if request.explore else None
        choose = remembered(schedules, tools, machine, choose, lambda line: print_note(f"note: {line}"))
        trace = Trace() if request.verbose else None
        compilation = compile_captured(captured, tools, machine, trace, elapsed, schedules=schedules, explore=choose)
    tell_unheard(compilation.unheard, lambda line: print_note(f"warning: {line}"))
    return compilation


def best_candidate(tools: Toolchain, machine: Target, schedules: StoredSchedules | None = None) -> Explore:
    """What `--explore` asks for; notes say where egglog is not here, or the search failed."""
    from ..explore.exploring import chosen

    return chosen(tools, machine, schedules=schedules, tell=lambda note: print_note(f"note: {note}"))


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
    return target_for(choose_device(device), target)


def float_named(name: str | None) -> str | None:
    """A dtype of `--dtype`, by our name or torch's. Raises UsageError."""
    known = {DTYPES[ours].torch: ours for ours in FLOATS} | {ours: ours for ours in FLOATS}
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
    """On standard error, since the result has the other: the trace of `-v` and `-vv`, and where schedules come from."""
    if verbose and compilation.trace is not None:
        print_text(compilation.trace.render(verbose), "diff", error=True)
    told = [origin for origin in compilation.origins if origin.source != "default"]
    for origin in told[:TOLD]:
        print_note(f"note: schedule of `{origin.kernel}`: {origin.text}")
    if len(told) > TOLD:
        print_note(f"note: and of {len(told) - TOLD} more kernels out of the store (-v lists them)")
