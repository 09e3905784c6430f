"""What compile, run and rewrite share: a text and options become rules, a target, a captured program, a compilation."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from types import MappingProxyType

from ...codegen.target import Target
from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.dtypes import COMPUTING_FLOATS, FLOAT_NAMES
from ..api import choose_device, target_for
from ..capture.capture import Capture
from ..capture.text import capture_text
from ..compiler import STAGES, Compilation, CompileOptions, Explore, compile_captured
from ..rewrite.pinned import tell_unheard
from ..rewrite.trace import Trace
from ..ruleset import Toolchain, exactly, read_settings, toolchain
from ..schedule.recorded import StoredSchedules, stored_schedules
from .options import Flags
from .show import print_note, print_remark, print_text, progress

TOLD = 4  # kernels whose schedules are told one by one


def compile_text(flags: Flags, device: str | None = None, values: bool = True) -> Compilation:
    """Compile a `-c` text for the target asked for, by default the device's; `-v` and `-vv` keep what the rules did.

    values: whether it will be run, and compared with what eager makes of it.
    """
    given = compile_options(flags, device)
    captured, elapsed = captured_text(flags, values)
    with progress("compiling"):
        compilation = compile_captured(captured, given, elapsed)
    tell_compilation(compilation)
    return compilation


def tell_compilation(compilation: Compilation) -> None:
    """Warn of settings without effect, and name the schedules that are out of a store. Raises UsageError."""
    tell_unheard(compilation.unheard, lambda line: print_note(f"warning: {line}"))
    print_schedules(compilation)


def compile_options(flags: Flags, device: str | None = None) -> CompileOptions:
    """What the flags of a command say that a compile depends on."""
    tools, machine = tools_for(flags, device), machine_for(flags, device)
    schedules = schedules_for(flags, tools)
    return CompileOptions(tools, machine, trace_for(flags), schedules, fusing_for(flags, tools, machine, schedules))


def captured_text(
    flags: Flags, values: bool = True, sizes: Mapping[str, int] = MappingProxyType({})
) -> tuple[Capture, float]:
    """A text captured, and the milliseconds it took. What it prints goes to standard error: ours is for results.

    values, sizes: as of `capture_text`.
    """
    start = time.perf_counter()
    with progress("capturing"), contextlib.redirect_stdout(sys.stderr):
        captured = capture_text(flags.text, flags.seed, float_named(flags.dtype), values, sizes)
    return captured, (time.perf_counter() - start) * 1e3


def tools_for(flags: Flags, device: str | None = None) -> Toolchain:
    """The rules of `--rules` with the parameters of `--set` and `--prefer`; of `--exact`, less what is @approx. What
    they declare for one device is in force where the target is that device."""
    tools, settings = toolchain(flags.rules), flags.pinned
    rules = exactly(tools.rules) if flags.exact else tools.rules
    tools = toolchain(rules, read_settings(settings, rules)) if settings or flags.exact else tools
    return tools.at(target_for(choose_device(device), flags.target))


def machine_for(flags: Flags, device: str | None = None) -> Target:
    """The target of `--target`; by default the GPU that is present (unless another device is asked for), else sm_80.
    With it goes what the rules override of the policy."""
    return tools_for(flags, device).on(target_for(choose_device(device), flags.target))


def schedules_for(flags: Flags, tools: Toolchain) -> StoredSchedules | None:
    """The store whose schedules a compile replays. Raises UsageError for a file that was named and is not there."""
    if not flags.no_db and flags.db is not None and not flags.db.is_file():
        raise UsageError(f"--db {flags.db}: there is no such file", hint="`dplc tune --db` makes one")
    return stored_schedules(tools, flags.db, not flags.no_db)


def fusing_for(flags: Flags, tools: Toolchain, machine: Target, schedules: StoredSchedules | None) -> Explore | None:
    """What chooses how a program is fused: the store if it knows the program, else `--explore`, else the rules."""
    if schedules is None and not flags.explore:
        return None
    from ..explore.candidates import (
        chosen,  # forty modules, which most compiles have no use for
        remembered,
    )

    choose = chosen(tools, machine, schedules=schedules, tell=print_remark) if flags.explore else None
    return remembered(schedules, tools, machine, choose, print_remark)


def trace_for(flags: Flags) -> Trace | None:
    """What the rules do, where `-v` or `--why-not` asks for it."""
    return Trace(asked=frozenset(flags.why_not or ())) if flags.verbose or flags.why_not else None


def float_named(name: str | None) -> str | None:
    """A dtype of `--dtype`, by our name or torch's. Raises UsageError."""
    if name is not None and name not in FLOAT_NAMES:
        raise UsageError(
            f"--dtype {name}: not a dtype for floats",
            notes=(f"dtypes are {', '.join(COMPUTING_FLOATS)}",),
            hint=did_you_mean(name, tuple(FLOAT_NAMES)),
        )
    return None if name is None else FLOAT_NAMES[name]


def stage_named(name: str) -> str:
    """A stage of `--ir`. Raises UsageError."""
    if name not in STAGES:
        raise UsageError(
            f"--ir {name}: there is no such stage",
            notes=(f"stages are {', '.join(STAGES)}",),
            hint=did_you_mean(name, STAGES),
        )
    return name


def print_stage(compilation: Compilation, stage: str) -> None:
    """A program at a stage."""
    print_text(compilation.ir(stage), "cuda" if stage == "cuda" else "ir")


def print_trace(compilation: Compilation, flags: Flags) -> None:
    """The trace of `-v`, `-vv` and `--why-not`, on standard error, since the result has the other."""
    if compilation.trace and not flags.as_json:
        print_text(compilation.trace.render(flags.verbose), "diff", error=True)


def print_schedules(compilation: Compilation) -> None:
    """Whenever a store decides: which schedules are out of it."""
    told = [origin.line for origin in compilation.origins if origin.line]
    for line in told[:TOLD]:
        print_remark(line)
    if len(told) > TOLD:
        print_note(f"note: and of {len(told) - TOLD} more kernels out of the store (-v lists them)")
