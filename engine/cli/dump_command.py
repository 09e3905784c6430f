"""compile and run of a dump: FILE.ir, of any level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...ir.diagnostic import UsageError
from ...ir.text.programs import sizes_of
from ..api import choose_device
from ..compiler import Compilation
from .bindings import alone, bindings, told
from .checking import check_compilation, check_device
from .commands import check_arrays, kernel_table, print_compilation, report_run
from .compiling import compile_options, print_trace, stage_named, tell_compilation
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


def run_file(path: Path, flags: Flags, device: str | None, out: Path | None, bench: str = "") -> None:
    """`dplc run FILE.ir`: on drawn inputs, compared with the meaning of the text, at each binding of its sizes.

    bench: "bench" or "profile" for a table of the kernels too.
    """
    check_arrays(out)
    chosen = choose_device(device)
    if chosen == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    for binding in _bindings(path, flags, out is not None or flags.as_json):
        compilation, references = _to_run(path, flags, chosen, binding)
        table = kernel_table(compilation, flags, chosen, bench)
        report_run(compilation, chosen, out, flags.as_json, references, table)


def check_file(path: Path, flags: Flags, blocks: str | None, device: str | None) -> None:
    """`dplc run --check FILE.ir`. Raises DplcError where something was found."""
    check_device(device)
    for binding in _bindings(path, flags, flags.as_json):
        compilation, references = _to_run(path, flags, "emulator", binding)
        check_compilation(compilation, flags, blocks, references)


def _bindings(path: Path, flags: Flags, single: bool) -> Iterator[dict[str, int]]:
    """The bindings of the sizes of a dump, each named on standard output where there are several. single: what is
    asked for is of one run. Raises UsageError."""
    found = bindings(sizes_of(read_text(path), str(path)), str(path), flags.sizes)
    alone(found, single, "--out and --json are of one run")
    for binding in found:
        if len(found) > 1:
            write(told(binding))
        yield binding


def _to_run(path: Path, flags: Flags, device: str, binding: Mapping[str, int]) -> tuple[Compilation, list[Any]]:
    """A dump compiled, and the outputs that it means on its drawn inputs."""
    dump, compilation = _compiled(path, flags, device, binding)
    print_trace(compilation, flags)
    with progress("computing what it means"):
        return compilation, reference_of(dump, compilation.captured.tensors)


def _compiled(path: Path, flags: Flags, device: str | None, binding: Mapping[str, int]) -> tuple[Dump, Compilation]:
    dump, options = read_dump(path, binding), compile_options(flags, device)
    with progress("compiling"):
        compilation = compile_dump(dump, options, flags.seed)
    tell_compilation(compilation)
    return dump, compilation
