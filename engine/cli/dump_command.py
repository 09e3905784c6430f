"""compile and run of a dump: FILE.ir, of any level."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from pathlib import Path

from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.text.read import sizes_of
from ..api import choose_device
from ..compiler import Compilation
from .commands import check_arrays, print_compilation, report_run
from .compiling import machine_for, print_trace, stage_named, tools_for, trace_for
from .continuing import Dump, compile_dump, read_dump, read_text, reference_of
from .options import Options
from .show import print_remark, progress, write

MOST_RUNS = 1000


def compile_file(path: Path, options: Options, ir: str | None) -> None:
    """`dplc compile FILE.ir`"""
    stage_named(ir or "cuda")
    found = bindings(path, options)
    if len(found) > 1:
        raise UsageError("a compile is for one number of each size", hint="`dplc run` takes several")
    _, compilation = _compiled(path, options, None, found[0])
    print_compilation(compilation, options, ir)


def run_file(path: Path, options: Options, device: str | None, out: Path | None) -> None:
    """`dplc run FILE.ir`: on drawn inputs, compared with the meaning of the text, at each binding of its sizes."""
    check_arrays(out)
    found = bindings(path, options)
    if len(found) > 1 and (out is not None or options.as_json):
        raise UsageError("--out and --json are of one run: give one number of each size")
    for binding in found:
        if len(found) > 1:
            write(", ".join(f"{name}={value}" for name, value in binding.items()) + ":\n")
        _run(path, options, device, out, binding)


def _run(path: Path, options: Options, device: str | None, out: Path | None, binding: Mapping[str, int]) -> None:
    chosen = choose_device(device)
    if chosen == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    dump, compilation = _compiled(path, options, chosen, binding)
    print_trace(compilation, options)
    with progress("computing what it means"):
        references = reference_of(dump, compilation.captured.tensors)
    report_run(compilation, chosen, out, options.as_json, references)


def bindings(path: Path, options: Options) -> list[dict[str, int]]:
    """The numbers of the sizes that a dump declares: of `--size`, every combination; else hints, and a note says so.

    Raises UsageError for what is no size of it.
    """
    sizes = sizes_of(read_text(path), str(path))
    given: dict[str, list[int]] = {}
    for written in options.sizes or ():
        name, _, numbers = (part.strip() for part in written.partition("="))
        if not re.fullmatch(r"\d{1,15}(\s*,\s*\d{1,15})*", numbers):
            raise UsageError(f"--size {written}: write NAME=7 or NAME=1,7,100")
        if name not in sizes:
            has = f"it has {', '.join(sizes)}" if sizes else "it has none"
            raise UsageError(
                f"--size {written}: {path} has no size `{name}`", notes=(has,), hint=did_you_mean(name, sizes)
            )
        given[name] = list(dict.fromkeys(map(int, numbers.split(","))))
    for name, size in sizes.items():
        if name not in given:
            print_remark(f"`{name}` is {size.hint}, its hint; --size {name}=N for another number")
    values = [given.get(name, [size.hint]) for name, size in sizes.items()]
    if math.prod(map(len, values)) > MOST_RUNS:
        raise UsageError(f"--size: more than {MOST_RUNS} combinations")
    return [dict(zip(sizes, point, strict=True)) for point in itertools.product(*values)]


def _compiled(path: Path, options: Options, device: str | None, binding: Mapping[str, int]) -> tuple[Dump, Compilation]:
    dump, tools, machine = read_dump(path, binding), tools_for(options), machine_for(options, device)
    with progress("compiling"):
        return dump, compile_dump(dump, tools, machine, trace_for(options), options.seed)
