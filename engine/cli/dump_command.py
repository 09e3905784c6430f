"""compile and run of a dump: FILE.ir, of any level."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...ir.diagnostic import UsageError
from ..api import choose_device
from ..compiler import Compilation
from ..rewrite.trace import Trace
from .commands import print_compilation, report_run
from .compiling import machine_for, print_trace, stage_named, tools_for
from .continuing import Dump, compile_dump, read_dump, reference_of
from .show import progress


@dataclass(frozen=True)
class Given:
    """What the options say. seed: of the inputs that are drawn."""

    path: Path
    rules: list[Path] | None = None
    settings: list[str] | None = None
    target: str | None = None
    verbose: int = 0
    seed: int = 0


def compile_file(given: Given, ir: str | None, as_json: bool) -> None:
    """`dplc compile FILE.ir`"""
    stage = stage_named(ir or "cuda")
    _, compilation = _compiled(given, None)
    print_compilation(compilation, stage, given.verbose, as_json, None if ir is None else stage)


def run_file(given: Given, device: str | None, out: Path | None, as_json: bool) -> None:
    """`dplc run FILE.ir`: on drawn inputs, compared with the meaning of the text."""
    if out is not None and out.suffix != ".npz":
        raise UsageError(f"--out {out}: the name must end in .npz")
    chosen = choose_device(device)
    if chosen == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    dump, compilation = _compiled(given, chosen)
    print_trace(compilation, 0 if as_json else given.verbose)
    with progress("computing what it means"):
        references = reference_of(dump, compilation.captured.tensors)
    report_run(compilation, chosen, out, as_json, references)


def _compiled(given: Given, device: str | None) -> tuple[Dump, Compilation]:
    dump = read_dump(given.path)
    tools = tools_for(given.rules or [], given.settings or [])
    machine = tools.on(machine_for(given.target, device))
    with progress("compiling"):
        return dump, compile_dump(dump, tools, machine, Trace() if given.verbose else None, given.seed)
