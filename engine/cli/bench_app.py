"""`dplc bench`: the options. The work is in bench_command.py, expression_bench.py, model_bench.py, pack_command.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from . import options as given
from .subjects import flags_of

Subjects = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE_OR_MODEL]..",
        help="A suite (JSON), a model or an artefact. With --pack: suites, or SUITE:PATTERN.",
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
    int | None,
    typer.Option("--candidates", min=0, help="Number of cases with five schedules each, for `model fit` (--pack)."),
]
Unpack = Annotated[
    Path | None, typer.Option("--unpack", metavar="FILE.dplc", help="Measure a pack; `python FILE.dplc` does the same.")
]
Minutes = Annotated[float | None, typer.Option("--minutes", min=0, help="Time limit (--unpack, default 8).")]
ShowPlan = Annotated[bool, typer.Option("--plan", help="Print the steps and their expected seconds (--unpack).")]
Results = Annotated[
    Path | None, typer.Option("-o", metavar="FILE.json", help="Results file (--unpack, default results.json).")
]
Compare = Annotated[
    Path | None, typer.Option("--compare", metavar="RESULTS", help="Show times of --unpack next to predicted ones.")
]


def bench(
    ctx: typer.Context,
    subject: Subjects = None,
    expression: given.Expression = None,
    only: Only = None,
    target: given.TargetName = None,
    as_json: given.Json = False,
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

    shown = bench_command.Shown(as_json, markdown, profile)
    steps = BenchSteps(run, assemble, bench_command.command_line())
    flags, kind, names = flags_of(ctx), ctx.obj.kind, ctx.obj.names
    if unpack is not None:
        return pack_command.measure_pack(unpack, minutes, plan, out)
    if pack is not None:
        return pack_command.pack_suites(names, pack, candidates or 0, flags, steps.command)
    if kind == "compare":
        return pack_command.compare_results(ctx.obj.path)
    if len(names) > 1:
        raise UsageError(f"`dplc bench` takes one program, and {len(names)} were given", hint="--pack takes several")
    if kind == "text":
        from .expression_bench import bench_expression

        return bench_expression(flags, shown, steps)
    if kind == "suite":
        return bench_command.bench_suite(ctx.obj.path, only, flags, shown, steps, compare)
    from . import model_bench

    return model_bench.bench_model(ctx.obj.name, flags, weights, shown, steps, trust_edited_cuda)
