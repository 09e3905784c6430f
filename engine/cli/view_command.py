"""`dplc view -o FILE`: a compile as a page in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..view.page import page
from ..view.record import access_counts, measured_registers, view_record
from ..view.suite_map import suite_record
from .compiling import captured_text, compile_text, machine_for, tools_for
from .options import Flags
from .output_file import PAGE, write_file
from .show import bars, print_note, progress
from .subjects import Subject

WAYS = 4  # candidates of fusion among which --tune with --explore chooses, as `dplc tune` does


def record_of(flags: Flags, model: str | None = None, check: bool = False, tries: int | None = None) -> dict[str, Any]:
    """The record of an expression or a model, compiled with its trace. check: run in checked mode, too; tries: tune it
    with so many, by the model's word."""
    traced = replace(flags, verbose=2)
    if model is None:
        compilation = compile_text(traced)
    else:
        from .model_commands import compiled_model

        with bars() as tell:
            compilation = compiled_model(model, traced, tell).compilation
    with progress("linking lines"):
        record = view_record(compilation, tools_for(flags), model or flags.text)
    with progress("assembling"):
        for kernel, found in zip(record["kernels"], measured_registers(compilation), strict=False):
            kernel["assembled"] = found
    if flags.explore and model is None:
        record["egraph"] = _egraph(flags)
    if tries is not None:
        record["tuning"] = _tuning(flags, tries)
    if check:
        with progress("running in checked mode"):
            record["counted"] = access_counts(compilation)
    return record


def _egraph(flags: Flags) -> dict[str, Any]:
    """The e-graph of an expression and what was taken out of it."""
    from ..compiler import CompileOptions, values_of
    from ..explore.candidates import exploration
    from ..view.search_records import egraph_record

    tools, machine = tools_for(flags), machine_for(flags)
    captured, _ = captured_text(flags, values=False)
    made = exploration(values_of(captured, CompileOptions(tools, machine)), tools, machine)
    with progress("exploring"):
        return egraph_record(made, made.explained(made.candidates()))


def _tuning(flags: Flags, tries: int) -> dict[str, Any]:
    """A search of the schedules of an expression: predicted, nothing is kept."""
    from ..tune.running import Budget
    from ..tune.search_log import SearchLog
    from ..tune.tuning import SearchOptions
    from ..tune.tuning_job import evaluator_for
    from ..tune.tuning_program import tune_program
    from ..view.search_records import tuning_record
    from .tune_command import fusing_of, searching

    _, fusing = fusing_of(flags, WAYS if flags.explore else 1)
    search, log = SearchOptions(seed=flags.seed, budget=Budget(tries), check=False, predict=True), SearchLog()
    with evaluator_for(fusing.target, search) as evaluator, bars() as show:

        def heard(run: Any, tried: Any) -> None:
            log.heard(run, tried)
            show(searching(run), run.tries, run.limit or 0)

        return tuning_record(tune_program(fusing, evaluator, search, None, heard), log)


def write_page(
    flags: Flags, out: Path, subject: Subject, check: bool = False, tries: int | None = None
) -> None:  # fmt: skip
    """`dplc view -o FILE`. check, tries: as of `record_of`."""
    if subject.kind == "suite":
        with bars() as tell:
            record = suite_record(subject.path, tools_for(flags), machine_for(flags), tell)
    else:
        record = record_of(flags, subject.name if subject.kind == "model" else None, check, tries)
    write_file(out, page(record), PAGE)
    print_note(f"note: written to {out}: it opens in any browser, nothing is loaded from elsewhere")
