"""compile and run of a dump: FILE.ir, of any level."""

from __future__ import annotations

from pathlib import Path

from ...ir.diagnostic import UsageError
from ..api import choose_device
from ..compiler import Compilation
from .commands import check_arrays, print_compilation, report_run
from .compiling import machine_for, print_trace, stage_named, tools_for, trace_for
from .continuing import Dump, compile_dump, read_dump, reference_of
from .options import Options
from .show import progress


def compile_file(path: Path, options: Options, ir: str | None) -> None:
    """`dplc compile FILE.ir`"""
    stage_named(ir or "cuda")
    _, compilation = _compiled(path, options, None)
    print_compilation(compilation, options, ir)


def run_file(path: Path, options: Options, device: str | None, out: Path | None) -> None:
    """`dplc run FILE.ir`: on drawn inputs, compared with the meaning of the text."""
    check_arrays(out)
    chosen = choose_device(device)
    if chosen == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    dump, compilation = _compiled(path, options, chosen)
    print_trace(compilation, options)
    with progress("computing what it means"):
        references = reference_of(dump, compilation.captured.tensors)
    report_run(compilation, chosen, out, options.as_json, references)


def _compiled(path: Path, options: Options, device: str | None) -> tuple[Dump, Compilation]:
    dump, tools, machine = read_dump(path), tools_for(options), machine_for(options, device)
    with progress("compiling"):
        return dump, compile_dump(dump, tools, machine, trace_for(options), options.seed)
