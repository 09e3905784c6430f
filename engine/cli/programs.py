"""Compile a text under the options of a command: rules, target, captured program, compilation."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.dtypes import COMPUTING_FLOATS, FLOAT_NAMES
from ...ir.expr import Size
from ...ir.sizes import hints, sizes_in
from ..api import choose_device, target_for
from ..capture.capture import Capture
from ..capture.dynamic_shapes import Dim, range_of
from ..capture.text import capture_text
from ..compiler import STAGES, Compilation, Compiler
from ..rewrite.statements.driver import tell_unheard
from ..rewrite.trace import Trace
from ..ruleset import toolchain
from ..run.dispatch import Row, narrowed
from ..schedule.scheduling import stored_schedules
from .options import Flags
from .output import print_note, print_remark, print_text, progress, write

TOLD = 4  # kernels whose schedules are listed one by one


def compile_text(flags: Flags, device: str | None = None, values: bool = True) -> Compilation:
    """Compile a `-c` text for the requested target, by default that of the device. `-v` and `-vv` record a trace.

    values: whether the program will run, and be compared with the eager results.
    """
    given = compile_options(flags, device)
    captured, elapsed = captured_text(flags, values)
    with progress("compiling"):
        compilation = given.compile(captured, elapsed)
    tell_compilation(compilation)
    return compilation


def tell_compilation(compilation: Compilation) -> None:
    """Warn of settings without effect, and list the schedules that come from a store. Raises UsageError."""
    tell_unheard(compilation.unheard, lambda line: print_note(f"warning: {line}"))
    print_schedules(compilation)


def compile_options(flags: Flags, device: str | None = None) -> Compiler:
    """Return the compiler that the flags of a command describe. Raises UsageError if the store of `--db` is missing.

    The store decides the fusion if it has an entry for the program, else `--explore`, else the rules.
    """
    compiler = compiler_for(flags, device)
    if not flags.no_db and flags.db is not None and not flags.db.is_file():
        raise UsageError(f"--db {flags.db}: there is no such file", hint="`dplc tune --db` makes one")
    schedules = stored_schedules(compiler.tools, flags.db, not flags.no_db)
    fusing = None
    if schedules is not None or flags.explore:
        from ..explore.candidates import best, remembered

        fusing = remembered(partial(best, tell=print_remark) if flags.explore else None, print_remark)
    trace = Trace(asked=frozenset(flags.why_not or ())) if flags.verbose or flags.why_not else None
    return replace(compiler, trace=trace, schedules=schedules, explore=fusing)


def compiler_for(flags: Flags, device: str | None = None) -> Compiler:
    """Return a compiler without a store: with the rules and the target that the flags select.

    The rules are those of `--rules` with the parameters of `--set` and `--prefer`, with `--exact` without @approx
    rules. The target is that of `--target`, else the GPU of this machine unless another device is requested, else
    sm_80. Rules and policy numbers for one device are in force only if the target is that device.
    """
    tools = toolchain(flags.rules, flags.pinned, flags.exact)
    return Compiler(tools, target_for(choose_device(device), flags.target))


def captured_text(
    flags: Flags, values: bool = True, sizes: Mapping[str, int] = MappingProxyType({})
) -> tuple[Capture, float]:
    """Capture the `-c` text. Return the capture and its duration in milliseconds.

    Prints of the text go to standard error, because standard output is for results. values, sizes: see `capture_text`.
    """
    start = time.perf_counter()
    with progress("capturing"), contextlib.redirect_stdout(sys.stderr):
        captured = capture_text(flags.text, flags.seed, float_named(flags.dtype), values, sizes)
    return captured, (time.perf_counter() - start) * 1e3


def check_known(
    option: str, name: str, known: Collection[str], problem: str, kinds: str, shown: Sequence[str] = ()
) -> None:
    """Raise UsageError for an unknown value of an option. problem, kinds, shown: parts of the message."""
    if name not in known:
        notes = (f"{kinds} are {', '.join(shown or known)}",)
        raise UsageError(f"{option} {name}: {problem}", notes=notes, hint=did_you_mean(name, known))


def float_named(name: str | None) -> str | None:
    """Return the dtype of `--dtype`, named as in dplc or PyTorch. Raises UsageError."""
    if name is None:
        return None
    check_known("--dtype", name, FLOAT_NAMES, "not a dtype for floats", "dtypes", COMPUTING_FLOATS)
    return FLOAT_NAMES[name]


def stage_named(name: str) -> str:
    """Return the stage of `--ir`. Raises UsageError."""
    check_known("--ir", name, STAGES, "there is no such stage", "stages")
    return name


def print_stage(compilation: Compilation, stage: str) -> None:
    """Print a program at a stage."""
    print_text(compilation.ir(stage), "cuda" if stage == "cuda" else "ir")


def print_trace(compilation: Compilation, flags: Flags) -> None:
    """Print the trace of `-v`, `-vv` and `--why-not` to standard error, because the result goes to standard output."""
    if compilation.trace and not flags.as_json:
        print_text(compilation.trace.render(flags.verbose), "diff", error=True)


def print_schedules(compilation: Compilation) -> None:
    """Print which schedules come from the store."""
    lines = [origin.line for origin in compilation.origins if origin.line]
    for line in lines[:TOLD]:
        print_remark(line)
    if len(lines) > TOLD:
        print_note(f"note: and of {len(lines) - TOLD} more kernels out of the store (-v lists them)")


# ---- numbers, lists and ranges on the command line


_RANGE = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*=\s*)?(\d{1,9})(?:\s*\.\.\s*(\d{1,9}))?(?:\s*:\s*(\d{1,9}))?\s*")
_NUMBERS = re.compile(r"\s*\d{1,15}(\s*,\s*\d{1,15})*\s*")
MOST_RUNS = 1000


def numbers_of(text: str) -> list[int]:
    """Read `1,7,100`. Returns no numbers for anything else."""
    return [int(number) for number in text.split(",")] if _NUMBERS.fullmatch(text) else []


def range_written(text: str) -> tuple[str | None, int, int | None, int | None] | None:
    """Read `[NAME=]A[..B][:HINT]`. Returns None for anything else."""
    found = _RANGE.fullmatch(text)
    return found and (found[1], int(found[2]), found[3] and int(found[3]), found[4] and int(found[4]))  # type: ignore[return-value]


def tokens_of(text: str, words: int | None) -> list[int]:
    """Read the token ids of `--ids` from a vocabulary of `words` tokens. Raises UsageError."""
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdigit() and (words is None or int(part) < words) for part in parts):
        raise UsageError(f"--ids {text}: numbers from 0 {'up' if words is None else f'to {words - 1}'} are expected")
    return [int(part) for part in parts]


def bindings(
    sizes: Mapping[str, Size], subject: str, asked: Sequence[str] | None, single: str = ""
) -> list[dict[str, int]]:
    """Return every combination of the numbers that `--size` gives to the symbolic dimensions of a program.

    A dimension without numbers has its example value, and a note says so. subject: the program, for messages; single:
    the reason why only one combination is allowed, "" for none. Raises UsageError for several in that case, and for an
    unknown dimension.
    """
    given: dict[str, list[int]] = {}
    for written in asked or ():
        name, _, numbers = (part.strip() for part in written.partition("="))
        given[name] = list(dict.fromkeys(numbers_of(numbers)))
        if not given[name]:
            raise UsageError(f"--size {written}: write NAME=7 or NAME=1,7,100")
        if name not in sizes:
            notes = (f"it has {', '.join(sizes) or 'none'}",)
            what = f"--size {written}: {subject} has no size `{name}`"
            raise UsageError(what, notes=notes, hint=did_you_mean(name, sizes))
    for name, size in sizes.items():
        if name not in given:
            print_remark(f"`{name}` is {size.hint}, its hint; --size {name}=N for another number")
    values = [given.get(name, [size.hint]) for name, size in sizes.items()]
    if math.prod(map(len, values)) > MOST_RUNS:
        raise UsageError(f"--size: more than {MOST_RUNS} combinations")
    found = [dict(zip(sizes, point, strict=True)) for point in itertools.product(*values)]
    if single and len(found) > 1:
        raise UsageError(f"{single}: give one number of each size")
    return found


def each_binding(found: Sequence[dict[str, int]]) -> Iterator[dict[str, int]]:
    """Yield bindings. Print each to standard output if there are several."""
    for binding in found:
        if len(found) > 1:
            write(", ".join(f"{name}={value}" for name, value in binding.items()) + ":\n")
        yield binding


def row_of(asked: Sequence[str] | None, sizes: Mapping[str, Size]) -> Row:
    """Read `--row` for the symbolic dimensions of a program, each at most once.

    The result is a bucket of lengths. Its largest length is the example value unless another is named. Raises
    UsageError.
    """
    found: dict[str, Dim] = {}
    for written in asked or ():
        parts = range_written(written)
        if parts is None:
            hint = "NAME=A..B where there are several sizes, A..B:N for N as a rule"
            raise UsageError(f"--row {written}: write A..B, as 129..512", hint=hint)
        named, low, high, hint_length = parts
        if named is None and len(sizes) != 1:
            what = (
                f"--row {written}: its sizes are {', '.join(sizes)}"
                if sizes
                else f"--row {written}: nothing in it is a size"
            )
            hint = "`dim(s, 1..4096)` in -c, or --seq-len 1..4096 of a model"
            raise UsageError(what, hint=f"say of which: --row {next(iter(sizes))}={written}" if sizes else hint)
        name = named or next(iter(sizes))
        if name not in sizes:
            notes = (f"its sizes are {', '.join(sizes)}",)
            raise UsageError(f"--row {written}: `{name}` is no size", notes=notes, hint=did_you_mean(name, sizes))
        if name in found:
            raise UsageError(f"--row {written}: `{name}` has its row already")
        whole, high = sizes[name], high or low
        if not whole.low <= low <= high <= whole.high:
            raise UsageError(f"--row {written}: `{name}` is {range_of(whole)}, and a row is a part of that")
        found[name] = Dim(name, low, high, whole.multiple, hint_length)
    return tuple(found.values())


def captured_row(flags: Flags) -> Capture:
    """Capture the text of `-c` for the lengths of `--row`. Random inputs have the example lengths of the bucket."""
    captured, _ = captured_text(flags)
    sizes = sizes_in(captured.graph)
    row = row_of(flags.row, sizes)
    if row:
        made = narrowed(captured, row, sizes)
        usual = hints(captured.graph) | {dim.name: dim.size().hint for dim in row}
        if usual != hints(captured.graph):
            drawn, _ = captured_text(flags, sizes=usual)
            made = replace(made, tensors={**captured.tensors, **drawn.tensors}, reference=drawn.reference)
        captured = made
    tell_lengths(captured)
    return captured


def tell_lengths(captured: Capture) -> None:
    """Print the lengths that a search assumes for symbolic dimensions."""
    for size in sizes_in(captured.graph).values():
        print_remark(f"`{size.name}` is {range_of(size)}; times are those of {size.hint}")
