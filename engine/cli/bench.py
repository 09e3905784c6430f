"""`dplc bench` of suites, expressions, models and artefacts."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...codegen.launch import CudaExecutor
from ...codegen.pack import runner
from ...codegen.pack.contents import CONTENTS, OpenPack
from ...ir.diagnostic import DplcError
from ..api import choose_device, target_for
from ..bench.bench import BenchSteps, bench
from ..bench.records import BenchRecord, CaseRecord, check_suite, comparison, note_measured, read_results
from ..bench.running import CudaClock, can_measure
from ..bench.suites import read_suite
from ..bench.tables import SUITE, TableLayout, print_table
from ..bench.tables import markdown as markdown_page
from ..run.dispatch import at_binding
from .options import Flags
from .output import TABLE, bars, print_json, write, write_file, writing
from .programs import at_each_binding, bindings, compile_text, each_binding, machine_for, print_trace, tools_for
from .run import benched, layout, teller

if TYPE_CHECKING:
    from ..models.artefact import Artefact


def bench_suite(path: Path, flags: Flags, steps: BenchSteps) -> None:
    """`dplc bench SUITE`; of `--compare` measured times are shown next to the predicted ones."""
    measured = read_results(flags.compare) if flags.compare is not None else None
    if measured is not None:
        check_suite(path.stem, measured)
    suite = read_suite(path)
    cases = suite.select(flags.only)
    machine = target_for(choose_device(None), flags.target)  # the rules are not read before their time counts
    record = bench(path, suite, cases, lambda: tools_for(flags), machine, steps, teller())
    if measured is not None:
        note_measured(record, path.stem, measured)
    show_bench(record, SUITE, flags)
    complain(record)


def bench_without(path: Path, flags: Flags) -> None:
    """`dplc bench SUITE --without .. --number ..`. `-o`: a results file that a stopped run continues."""
    from rich.console import Console
    from rich.table import Table

    from ..bench.ablation import HEAD, LEGEND, ablate, variants

    tools = tools_for(flags)
    asked = variants(flags.without or (), flags.number or (), tools)
    machine = target_for(choose_device(None), flags.target)
    record = ablate(path, flags.only, tools, asked, machine, flags.results, teller())
    if flags.as_json:
        print_json(msgspec.to_builtins(record))
        return
    table = Table(*HEAD, box=None)
    for row in record.rows():
        table.add_row(*row)
    console = Console(highlight=False, width=160)
    console.print(table)
    console.print(f"{record.target}: {LEGEND}")


def show_bench(record: BenchRecord, layout: TableLayout, flags: Flags) -> None:
    """A record on standard output and on the pages that were asked for. Raises DplcError for one not written."""
    if flags.markdown is not None:
        write_file(flags.markdown, markdown_page(record, layout), TABLE)
    if flags.as_json:
        write(msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n")
    else:
        print_table(record, not sys.stdout.isatty(), layout)


def complain(record: BenchRecord) -> None:
    """Raises DplcError if a case did not compile or was wrong."""
    wrong = [case.name for case in record.cases if case.wrong]
    if wrong:
        raise DplcError(f"{len(wrong)} of {len(record.cases)} cases did not compile or were wrong", notes=wrong[:10])


# ---- an expression


def bench_expression(flags: Flags, steps: BenchSteps) -> None:
    """`dplc bench -c EXPR`. Raises DplcError where the result is wrong."""
    device = choose_device(None)
    compilation = compile_text(flags, device, values=steps.run)
    print_trace(compilation, flags)
    for bound, _ in at_each_binding(compilation, flags, _single(flags), steps.run):
        record = benched(bound, flags, steps, steps.run and device.startswith("cuda"))
        show_bench(record, layout(flags.profile), flags)
        complain(record)


def _single(flags: Flags) -> str:
    """The options of a bench that go with one binding of sizes alone."""
    return "--json and --markdown are of one table" if flags.as_json or flags.markdown else ""


# ---- a model or an artefact


def bench_model(path: str, flags: Flags, steps: BenchSteps, weights: Path | None) -> None:
    """`dplc bench MODEL_OR_ARTEFACT`. Weights are random where something is measured and none are given."""
    from ..models import benching

    measure = functools.partial(_measure, folder=weights) if steps.run and can_measure() else None
    for subject in _subjects(path, flags):
        with bars() as tell:
            record = benching.bench(subject, tools_for(flags), steps.command, steps.assemble, measure, tell)
        show_bench(record, benching.PROFILED if flags.profile else benching.LAYOUT, flags)
        complain(record)


def _subjects(path: str, flags: Flags) -> Iterator[Artefact]:
    """Yield what is benched: an artefact, or a model at each binding of its sizes."""
    from ..models import artefact, benching
    from .models import compiled_model

    if artefact.is_artefact(Path(path)):
        yield benching.of_artefact(artefact.load(Path(path), flags.trust_edited_cuda))
        return
    with bars() as tell:
        made = compiled_model(path, flags, tell)
    if not (made.compilation.sizes or flags.sizes):
        yield benching.of_compiled(made)
        return
    for binding in each_binding(bindings(made.compilation.sizes, path, flags.sizes), _single(flags)):
        bound = replace(made, shape=made.shape.at(binding), compilation=at_binding(made.compilation, binding))
        yield benching.of_compiled(bound)


def _measure(subject: Artefact, cases: list[CaseRecord], folder: Path | None) -> None:
    """On the GPU that is here."""
    from ..models import benching, weights

    if folder is None:
        values = weights.make(subject.weights, device="cuda")
    else:
        values = {name: tensor.cuda() for name, tensor in weights.load(folder, subject.weights).items()}
    benching.measure(subject, cases, values, CudaExecutor(), CudaClock(), "cuda")
    if cases[-1].measured is not None and cases[-1].measured.wrong:
        raise DplcError(cases[-1].measured.wrong)


# ---- packs


PACK = re.compile(rb"\APK\x03\x04.{26}" + re.escape(CONTENTS.encode()), re.DOTALL)
MINUTES = 8.0


def pack_suites(subjects: Sequence[str], path: Path, candidates: int, flags: Flags, command: str) -> None:
    """`dplc bench SUITE.. --pack FILE`. Raises DplcError where cases were left out, after the rest was written."""
    from ..bench.suites import read_suite
    from ..models.packing import PickedSuite, pack
    from .programs import tools_for

    suites, known = list[PickedSuite](), set[tuple[str, str]]()
    for subject in subjects:
        name, _, pattern = subject.partition(":")
        suite = read_suite(Path(name))
        stem = Path(name).stem
        cases = [case for case in suite.select(pattern or None) if (stem, case.name) not in known]
        known |= {(stem, case.name) for case in cases}
        suites.append(PickedSuite(Path(name), suite, cases, f"{stem}:{pattern}" if pattern else stem))
    with writing(path, PACK) as file:
        made = pack(file, suites, tools_for(flags), machine_for(flags), command, candidates, say=teller())
    write(f"{path}: {made.cases} cases, {made.kernels} kernels, {path.stat().st_size / 1e6:.1f} MB\n")
    if made.refused:
        notes = [f"{name}: {error.what}" for name, error in made.refused.items()]
        raise DplcError(f"{len(notes)} cases are not in the pack", notes=notes[:10])


def measure_pack(path: Path, minutes: float | None, plan: bool, out: Path | None) -> None:
    """`dplc bench --unpack FILE`. The exit code is 1 where a case was wrong."""
    if plan:
        write(runner.plan(OpenPack(path)) + "\n")
        return
    limit = ["--minutes", str(MINUTES if minutes is None else minutes)]
    code = runner.main([str(path), *limit, "-o", str(out or "results.json")])
    if code:
        sys.exit(code)


def compare_results(path: Path) -> None:
    """`dplc bench --compare RESULTS`: every suite that was measured."""
    write(comparison(read_results(path)))
