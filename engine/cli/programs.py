"""What compile, run and rewrite share: a text and options become rules, a target, a captured program, a compilation."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...codegen.target import Target
from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.dtypes import COMPUTING_FLOATS, FLOAT_NAMES
from ...ir.expr import Size
from ...ir.sizes import hints, sizes_in
from ..api import choose_device, target_for
from ..capture.capture import Capture
from ..capture.dynamic_shapes import Dim, range_of
from ..capture.text import capture_text
from ..compiler import STAGES, Compilation, Compiler, Explore
from ..rewrite.statements.driver import tell_unheard
from ..rewrite.trace import Trace
from ..ruleset import Toolchain, exactly, read_settings, toolchain
from ..run.dispatch import Row, at_binding, narrowed
from ..schedule.stored import StoredSchedules, stored_schedules
from .options import Flags
from .output import print_note, print_remark, print_text, progress, write

TOLD = 4  # kernels whose schedules are told one by one


def compile_text(flags: Flags, device: str | None = None, values: bool = True) -> Compilation:
    """Compile a `-c` text for the target asked for, by default the device's; `-v` and `-vv` keep what the rules did.

    values: whether it will be run, and compared with what eager makes of it.
    """
    given = compile_options(flags, device)
    captured, elapsed = captured_text(flags, values)
    with progress("compiling"):
        compilation = given.compile(captured, elapsed)
    tell_compilation(compilation)
    return compilation


def tell_compilation(compilation: Compilation) -> None:
    """Warn of settings without effect, and name the schedules that are out of a store. Raises UsageError."""
    tell_unheard(compilation.unheard, lambda line: print_note(f"warning: {line}"))
    print_schedules(compilation)


def compile_options(flags: Flags, device: str | None = None) -> Compiler:
    """What the flags of a command say that a compile depends on."""
    tools, machine = tools_for(flags, device), machine_for(flags, device)
    schedules = schedules_for(flags, tools)
    return Compiler(tools, machine, trace_for(flags), schedules, fusing_for(flags, tools, machine, schedules))


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
    from ..explore.candidates import chosen, remembered

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


# ---- --size


MOST_RUNS = 1000


def bindings(sizes: Mapping[str, Size], subject: str, asked: Sequence[str] | None) -> list[dict[str, int]]:
    """The numbers of the sizes of a program: of `--size`, every combination; else hints, and a note says so.

    asked: what `--size` says; subject: what declares them, for messages. Raises UsageError for what is no size of it.
    """
    given: dict[str, list[int]] = {}
    for written in asked or ():
        name, _, numbers = (part.strip() for part in written.partition("="))
        if not re.fullmatch(r"\d{1,15}(\s*,\s*\d{1,15})*", numbers):
            raise UsageError(f"--size {written}: write NAME=7 or NAME=1,7,100")
        if name not in sizes:
            has = f"it has {', '.join(sizes)}" if sizes else "it has none"
            raise UsageError(
                f"--size {written}: {subject} has no size `{name}`", notes=(has,), hint=did_you_mean(name, sizes)
            )
        given[name] = list(dict.fromkeys(map(int, numbers.split(","))))
    for name, size in sizes.items():
        if name not in given:
            print_remark(f"`{name}` is {size.hint}, its hint; --size {name}=N for another number")
    values = [given.get(name, [size.hint]) for name, size in sizes.items()]
    if math.prod(map(len, values)) > MOST_RUNS:
        raise UsageError(f"--size: more than {MOST_RUNS} combinations")
    return [dict(zip(sizes, point, strict=True)) for point in itertools.product(*values)]


def each_binding(found: Sequence[dict[str, int]], single: str = "") -> Iterator[dict[str, int]]:
    """Yield bindings, each named on standard output where there are several.

    single: why one binding alone is wanted. Raises UsageError.
    """
    if single and len(found) > 1:
        raise UsageError(f"{single}: give one number of each size")
    for binding in found:
        if len(found) > 1:
            write(", ".join(f"{name}={value}" for name, value in binding.items()) + ":\n")
        yield binding


def at_each_binding(
    compilation: Compilation, flags: Flags, single: str, values: bool = True
) -> Iterator[tuple[Compilation, Capture]]:
    """Yield a compiled text at each binding of its sizes, with the text evaluated there; itself without sizes."""
    if not (compilation.sizes or flags.sizes):
        yield compilation, compilation.captured
        return
    for binding in each_binding(bindings(compilation.sizes, "the text", flags.sizes), single):
        drawn, _ = captured_text(flags, values, binding)
        tensors = {**compilation.captured.tensors, **drawn.tensors}
        captured = replace(compilation.captured, tensors=tensors, reference=drawn.reference)
        yield at_binding(compilation, binding, captured), drawn


# ---- --row


_WRITTEN = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*=\s*)?(\d{1,9})(?:\s*\.\.\s*(\d{1,9}))?(?:\s*:\s*(\d{1,9}))?\s*")


def row_of(asked: Sequence[str] | None, sizes: Mapping[str, Size]) -> Row:
    """What `--row` says of the sizes of a program, each at most once: a row of lengths, of which the greatest is the
    usual one if none is named. Raises UsageError."""
    found: dict[str, Dim] = {}
    for written in asked or ():
        parts = _WRITTEN.fullmatch(written)
        if parts is None:
            hint = "NAME=A..B where there are several sizes, A..B:N for N as a rule"
            raise UsageError(f"--row {written}: write A..B, as 129..512", hint=hint)
        name, low = parts[1] or _only(written, sizes), int(parts[2])
        if name not in sizes:
            notes = (f"its sizes are {', '.join(sizes)}",)
            raise UsageError(f"--row {written}: `{name}` is no size", notes=notes, hint=did_you_mean(name, sizes))
        if name in found:
            raise UsageError(f"--row {written}: `{name}` has its row already")
        found[name] = _part(written, sizes[name], low, int(parts[3] or low), parts[4])
    return tuple(found.values())


def _only(written: str, sizes: Mapping[str, Size]) -> str:
    if len(sizes) == 1:
        return next(iter(sizes))
    if not sizes:
        hint = "`dim(s, 1..4096)` in -c, or --seq-len 1..4096 of a model"
        raise UsageError(f"--row {written}: nothing in it is a size", hint=hint)
    first = next(iter(sizes))
    raise UsageError(
        f"--row {written}: its sizes are {', '.join(sizes)}", hint=f"say of which: --row {first}={written}"
    )


def _part(written: str, whole: Size, low: int, high: int, hint: str | None) -> Dim:
    """Raises UsageError for what is no part of the range."""
    if not whole.low <= low <= high <= whole.high:
        raise UsageError(f"--row {written}: `{whole.name}` is {range_of(whole)}, and a row is a part of that")
    part = Dim(whole.name, low, high, whole.multiple, int(hint) if hint else None)
    part.size()  # refuses a hint that is not in it
    return part


def captured_row(flags: Flags, values: bool = True, binding: Mapping[str, int] = MappingProxyType({})) -> Capture:
    """The text of `-c` captured, where its sizes are those of `--row`; what it draws has the lengths of their hints.

    values, binding: as of `captured_text`.
    """
    captured, _ = captured_text(flags, values, binding)
    sizes = sizes_in(captured.graph)
    row = row_of(flags.row, sizes)
    if not row:
        return captured
    made = narrowed(captured, row, sizes)
    usual = hints(captured.graph) | {dim.name: dim.size().hint for dim in row}
    if usual != hints(captured.graph):
        drawn, _ = captured_text(flags, values, usual)
        made = replace(made, tensors={**captured.tensors, **drawn.tensors}, reference=drawn.reference)
    return made


def tell_lengths(captured: Capture) -> None:
    """What a search takes lengths for that are known at a call."""
    for size in sizes_in(captured.graph).values():
        print_remark(f"`{size.name}` is {range_of(size)}; times are those of {size.hint}")
