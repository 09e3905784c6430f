"""`dplc bench`: the options. The work is in bench_command.py, expression_bench.py, model_bench.py, pack_command.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...ir.diagnostic import UsageError
from . import options as given
from .options import Flags

if TYPE_CHECKING:
    from ..bench.bench import BenchSteps
    from .bench_command import Shown

Subjects = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE_OR_MODEL]..",
        help="A suite (JSON), a model, or what `compile MODEL -o` wrote; of --pack: suites, SUITE:PATTERN for a part.",
    ),
]
Only = Annotated[
    str | None, typer.Option("--only", metavar="PATTERN", help="Cases with this in their names; `*` is allowed.")
]
Run = Annotated[bool, typer.Option("--run/--no-run", help="Run and check every case (on a GPU: measure).")]
Assemble = Annotated[
    bool, typer.Option("--assemble/--no-assemble", help="Assemble every kernel: registers, spills, hot loops.")
]
PackFile = Annotated[
    Path | None, typer.Option("--pack", metavar="FILE.dplc", help="Write suites as one file for a machine with a GPU.")
]
Candidates = Annotated[
    int | None, typer.Option("--candidates", min=0, help="Of --pack: cases that get five schedules, for `model fit`.")
]
Unpack = Annotated[
    Path | None, typer.Option("--unpack", metavar="FILE.dplc", help="Measure a pack; `python FILE.dplc` does the same.")
]
Minutes = Annotated[float | None, typer.Option("--minutes", min=0, help="Of --unpack: when to stop (default 8).")]
ShowPlan = Annotated[bool, typer.Option("--plan", help="Of --unpack: print the steps and their expected seconds.")]
Results = Annotated[
    Path | None, typer.Option("-o", metavar="FILE.json", help="Of --unpack: the results (default results.json).")
]
Compare = Annotated[
    Path | None, typer.Option("--compare", metavar="RESULTS", help="Show times of --unpack next to predicted ones.")
]


def bench(
    context: typer.Context,
    subjects: Subjects = None,
    expression: given.Expression = None,
    only: Only = None,
    target: given.TargetName = None,
    as_json: given.Json = False,
    html: given.Page = None,
    markdown: given.Markdown = None,
    run: Run = True,
    assemble: Assemble = True,
    profile: given.Profile = False,
    layers: given.Layers = None,
    length: given.Lengths = "32",
    batch: given.Batch = "1",
    dtype: given.FloatDtype = None,
    sizes: given.Sizes = None,
    seed: given.Seed = 0,
    explore: given.Explored = False,
    weights: given.Weights = None,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    trust_edited_cuda: given.TrustedEdits = False,
    exact: given.Exact = False,
    pack: PackFile = None,
    candidates: Candidates = None,
    unpack: Unpack = None,
    minutes: Minutes = None,
    plan: ShowPlan = False,
    out: Results = None,
    compare: Compare = None,
) -> None:
    """Compile a suite, a model or an expression; run, check, assemble it; predict its times; on a GPU, measure them."""
    from ..bench.bench import BenchSteps
    from . import bench_command, pack_command

    shown = bench_command.Shown(as_json, html, markdown, profile)
    steps = BenchSteps(run, assemble, bench_command.command_line())
    flags = Flags(
        sys.stdin.read() if expression == "-" else expression or "", seed, dtype, rules, settings, prefer, target,
        as_json=as_json, explore=explore, length=length, layers=layers, sizes=sizes, exact=exact, batch=batch,
    )  # fmt: skip
    if pack is not None or unpack is not None:
        _refuse_others(context, UNPACKING if pack is None else PACKING)
    if pack is not None:
        return pack_command.pack_suites(subjects or [], pack, candidates or 0, flags, steps.command)
    if unpack is not None:
        return pack_command.measure_pack(unpack, minutes, plan, out)
    _refuse_given(context, UNPACKING - {"unpack"}, "goes with --unpack")
    _refuse_given(context, {"candidates"}, "goes with --pack")
    if compare is not None and not subjects:
        _refuse_others(context, {"compare"})
        return pack_command.compare_results(compare)
    _refuse(compare is not None and expression is not None, "--compare goes with a suite, or alone")
    return _one_subject(subjects or [], expression, only, weights, compare, flags, shown, steps, trust_edited_cuda)


PACKING = {"pack", "candidates", "subjects", "target", "rules", "settings", "prefer", "exact"}
UNPACKING = {"unpack", "minutes", "plan", "out"}


def _one_subject(
    subjects: list[str], expression: str | None, only: str | None, weights: Path | None, compare: Path | None,
    flags: Flags, shown: Shown, steps: BenchSteps, trust: bool,
) -> None:  # fmt: skip
    """Bench a suite, a model or an expression; or compare what a pack measured with what was predicted."""
    from . import bench_command

    of_suite, of_model = only is not None, bool(flags.layers or weights or trust)
    if expression is not None:
        _refuse(bool(subjects) or of_suite or of_model, "-c goes without SUITE, --only and the options of models")
        from .expression_bench import bench_expression

        return bench_expression(flags, shown, steps)
    if len(subjects) != 1:
        hint = "dplc bench SUITE.json, MODEL, or -c EXPR; --pack takes several suites"
        raise UsageError("bench a suite, a model or an expression", hint=hint)
    from . import model_bench

    (suite,) = subjects
    if model_bench.wanted(suite):
        _refuse(of_suite or compare is not None, "--only and --compare go with a suite")
        return model_bench.bench_model(suite, flags, weights, shown, steps, trust)
    wrong = shown.profile or flags.explore
    _refuse(wrong, "--profile and --explore go with -c or a model: a suite's table has a line for a case")
    return bench_command.bench_suite(Path(suite), only, flags, shown, steps, compare)


def _refuse(wrong: bool, what: str) -> None:
    """Raises UsageError for options that do not go together."""
    if wrong:
        raise UsageError(what)


def _refuse_others(context: typer.Context, allowed: set[str]) -> None:
    """Raises UsageError where a parameter was typed that is not allowed here."""
    for parameter in context.command.params:
        if parameter.name not in allowed and _typed(context, parameter.name):
            main = next(name for name in ("pack", "unpack", "compare") if name in allowed)
            name = parameter.opts[0] if parameter.opts[0].startswith("-") else "a suite"
            raise UsageError(f"{name} does not go with --{main}")


def _refuse_given(context: typer.Context, names: set[str], why: str) -> None:
    """Raises UsageError where a parameter was typed."""
    for parameter in context.command.params:
        if parameter.name in names and _typed(context, parameter.name):
            raise UsageError(f"{parameter.opts[0]} {why}")


def _typed(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"
