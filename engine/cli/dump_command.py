"""compile and run of a dump: FILE.ir, of any level."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...ir.diagnostic import UsageError
from ...ir.text.read import sizes_of
from ..api import choose_device
from ..compiler import Compilation, CompileOptions
from .bindings import bindings, told
from .commands import check_arrays, print_compilation, report_run
from .compiling import machine_for, print_trace, stage_named, tools_for, trace_for
from .continuing import Dump, compile_dump, read_dump, read_text, reference_of
from .options import Flags
from .show import progress, write


def compile_file(path: Path, flags: Flags, ir: str | None) -> None:
    """`dplc compile FILE.ir`"""
    stage_named(ir or "cuda")
    found = bindings(sizes_of(read_text(path), str(path)), str(path), flags.sizes)
    if len(found) > 1:
        raise UsageError("a compile is for one number of each size", hint="`dplc run` takes several")
    _, compilation = _compiled(path, flags, None, found[0])
    print_compilation(compilation, flags, ir)


def run_file(path: Path, flags: Flags, device: str | None, out: Path | None) -> None:
    """`dplc run FILE.ir`: on drawn inputs, compared with the meaning of the text, at each binding of its sizes."""
    check_arrays(out)
    found = bindings(sizes_of(read_text(path), str(path)), str(path), flags.sizes)
    if len(found) > 1 and (out is not None or flags.as_json):
        raise UsageError("--out and --json are of one run: give one number of each size")
    for binding in found:
        if len(found) > 1:
            write(told(binding))
        _run(path, flags, device, out, binding)


def _run(path: Path, flags: Flags, device: str | None, out: Path | None, binding: Mapping[str, int]) -> None:
    chosen = choose_device(device)
    if chosen == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    dump, compilation = _compiled(path, flags, chosen, binding)
    print_trace(compilation, flags)
    with progress("computing what it means"):
        references = reference_of(dump, compilation.captured.tensors)
    report_run(compilation, chosen, out, flags.as_json, references)


def _compiled(path: Path, flags: Flags, device: str | None, binding: Mapping[str, int]) -> tuple[Dump, Compilation]:
    dump, tools, machine = read_dump(path, binding), tools_for(flags, device), machine_for(flags, device)
    with progress("compiling"):
        return dump, compile_dump(dump, CompileOptions(tools, machine, trace_for(flags)), flags.seed)
