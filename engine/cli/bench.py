"""`dplc bench` of suites, expressions, models and artefacts."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from ...codegen.launch import CudaExecutor
from ...codegen.pack import runner
from ...codegen.pack.contents import CONTENTS
from ...ir.diagnostic import DplcError, UsageError
from ..api import choose_device, has_gpu
from ..bench.bench import BenchSteps, CudaClock, bench_cases, provenance, totals
from ..bench.cases import read_suite, selected
from ..bench.folders import ProblemWorker, each_record, problems_of, published_times
from ..bench.records import (
    SUITE,
    BenchRecord,
    CaseRecord,
    TableLayout,
    comparison,
    fast_shares,
    folder_layout,
    kernel_layout,
    markdown_page,
    read_json,
    read_results,
    summary,
)
from ..models import artefact, benching, sources
from ..models.artefact import Artefact
from ..models.benching import PickedSuite, pack
from ..models.compiling import with_rows
from ..run.calls import at_binding
from .models import compiled_model
from .options import Flags
from .output import TABLE, bars, command_line, print_json, write, write_file, writing
from .programs import benched, bindings, compiler_for, each_binding, prepared, print_table


def bench(flags: Flags) -> None:
    """Run `dplc bench`: dispatch on the kind of subject, `--pack` and `--unpack`."""
    if flags.unpack:
        measure_pack(flags)
    elif flags.pack:
        pack_suites(flags, flags.pack)
    elif len(flags.subject.names) > 1:
        what = f"`dplc bench` takes one program, and {len(flags.subject.names)} were given"
        raise UsageError(what, hint="--pack takes several")
    elif flags.subject.kind == "compare":
        write(comparison(read_results(flags.subject.path)))  # every suite that was measured
    else:
        steps = BenchSteps(flags.run, flags.assemble, command_line())
        benches = {"text": bench_expression, "suite": bench_suite, "folder": bench_folder}
        benches.get(flags.subject.kind, bench_model)(flags, steps)


def bench_suite(flags: Flags, steps: BenchSteps) -> None:
    """Run `dplc bench SUITE`."""
    path = flags.subject.path
    suite = read_suite(path)
    with bars() as tell:
        record = bench_cases(path, suite, suite.select(flags.only), lambda: compiler_for(flags), steps, tell)
    show_bench(record, SUITE, flags)


def show_bench(record: BenchRecord, layout: TableLayout, flags: Flags) -> None:
    """Print a record, and write the requested pages.

    Raises DplcError if a page cannot be written, if a case did not compile, or if a result was wrong.
    """
    if flags.markdown:
        write_file(flags.markdown, markdown_page(record, layout), TABLE)
    if flags.as_json:
        print_json(record)
    else:
        print_table(record, layout)
    if wrong := [f"{case.name}: {case.problem.splitlines()[0]}" for case in record.cases if case.problem]:
        raise DplcError(f"{len(wrong)} of {len(record.cases)} cases did not compile or were wrong", notes=wrong[:10])


RESULTS = re.compile(rb'\A\{"suite":')


def bench_folder(flags: Flags, steps: BenchSteps) -> None:
    """Run `dplc bench FOLDER`. Ctrl-C leaves problems out, and the same command with `-o` continues.

    Raises UsageError for a folder without problems, KeyboardInterrupt after an interrupt, once the table is printed.
    """
    problems = problems_of(flags.subject.path)
    problems = {name: problems[name] for name in selected(problems, flags.only)}
    published, out = published_times(flags.published, problems), flags.results
    with bars("loading rules") as show:
        compiler = compiler_for(flags)
        record = BenchRecord(
            suite=flags.subject.name, totals=totals([], 0.0, 0.0), cases=[],
            **provenance(steps.command, compiler.target, compiler.tools),
        )  # fmt: skip
        if out and out.exists():
            old = read_json(out, BenchRecord, "name another file, or remove this one")
            if (old.command, old.versions) == (record.command, record.versions):
                record = old
        cases = record.cases
        done = {case.name for case in cases}
        waiting = [name for name in problems if name not in done]
        worker = ProblemWorker(compiler, steps.run and has_gpu(), flags.shrink)
        found = each_record(worker, [problems[name] for name in waiting], flags.seconds or 0.0)
        with contextlib.suppress(KeyboardInterrupt):
            for name in waiting:
                show(name, len(cases), len(problems))
                cases.append(msgspec.structs.replace(next(found), name=name, published=published[name]))
                seconds = sum(case.compile_ms for case in cases) / 1e3
                record.totals, record.fast = totals(cases, seconds, seconds), fast_shares(cases)
                if out:
                    write_file(out, msgspec.json.encode(record).decode(), RESULTS)
    show_bench(record, folder_layout(record), flags)
    if len(cases) < len(problems):
        raise KeyboardInterrupt


def bench_expression(flags: Flags, steps: BenchSteps) -> None:
    """Run `dplc bench -c EXPR`. Raises DplcError if the result is wrong."""
    device = choose_device(None)
    for compilation in prepared(flags, device, _single(flags), steps.run):
        record = benched(compilation, flags, steps, steps.run and device.startswith("cuda"))
        show_bench(record, kernel_layout(flags.profile, summary), flags)


def _single(flags: Flags) -> str:
    """Return the options that allow only one binding of the sizes, as the start of an error message; "" for none."""
    return "--json and --markdown are of one table" if flags.as_json or flags.markdown else ""


# ---- a model or an artefact


def bench_model(flags: Flags, steps: BenchSteps) -> None:
    """Run `dplc bench MODEL_OR_ARTEFACT`. A measurement without `--weights` uses random weights."""

    def measure(program: Artefact, cases: list[CaseRecord]) -> None:
        if flags.weights is None:
            values = sources.make(program.weights, device="cuda")
        else:
            loaded = sources.load(flags.weights, program.weights)
            values = {name: tensor.cuda() for name, tensor in loaded.items()}
        benching.measure(program, cases, values, CudaExecutor(), CudaClock(), "cuda")

    measuring = measure if steps.run and has_gpu() else None
    for program in _programs(flags):
        if flags.weights:
            sources.check(flags.weights, program.weights)
        with bars() as tell:
            record = benching.bench(program, compiler_for(flags).tools, steps.command, steps.assemble, measuring, tell)
        show_bench(record, kernel_layout(flags.profile, benching.summary), flags)


def _programs(flags: Flags) -> Iterator[Artefact]:
    """Yield the artefact to benchmark, or the model at each binding of its sizes."""
    if flags.subject.kind == "artefact":
        yield benching.of_artefact(artefact.load(flags.subject.path, flags.trust_edited_cuda))
        return
    with bars() as tell:
        made = compiled_model(flags, tell)
    sizes = made.compilation.sizes
    if not (sizes or flags.sizes):
        yield benching.of_compiled(made)
        return
    for binding in each_binding(bindings(sizes, flags.sizes, _single(flags))):
        bound = with_rows(made, (), partial(at_binding, sizes=binding))
        yield benching.of_compiled(replace(bound, shape=made.shape.at(binding)))


# ---- packs


PACK = re.compile(rb"\APK\x03\x04.{26}" + re.escape(CONTENTS.encode()), re.DOTALL)


def pack_suites(flags: Flags, out: Path) -> None:
    """Run `dplc bench SUITE.. --pack FILE`. A pattern of a suite's own comes before `--only`.

    Raises DplcError if the pack lacks cases, after it is written.
    """
    suites, known = list[PickedSuite](), set[tuple[str, str]]()
    for given in flags.subject.names:
        name, _, own = given.partition(":")
        pattern = own or flags.only
        path = Path(name)
        suite, stem = read_suite(path), path.stem
        cases = [case for case in suite.select(pattern) if (stem, case.name) not in known]
        known |= {(stem, case.name) for case in cases}
        suites.append(PickedSuite(path, suite, cases, f"{stem}:{pattern}" if pattern else stem))
    with writing(out, PACK) as file, bars() as tell:
        made = pack(file, suites, compiler_for(flags), command_line(), flags.candidates or 0, say=tell)
    write(f"{out}: {made.cases} cases, {made.kernels} kernels, {out.stat().st_size / 1e6:.1f} MB\n")
    if made.refused:
        notes = [f"{name}: {error.what}" for name, error in made.refused.items()]
        raise DplcError(f"{len(notes)} cases are not in the pack", notes=notes[:10])


def measure_pack(flags: Flags) -> None:
    """Run `dplc bench --unpack FILE`. The exit code is 1 if a case was wrong."""
    options = {"--minutes": flags.minutes, "--out": flags.results}
    given = [f"{option}={value}" for option, value in options.items() if value is not None]
    if code := runner.main([str(flags.unpack), *given, *["--plan"] * flags.plan]):
        sys.exit(code)
