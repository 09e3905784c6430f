"""`dplc bench`: the options. The work is in bench_command.py, expression_bench.py and model_bench.py."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options as given
from .subjects import flags_of


def bench(
    ctx: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(metavar="[SUITE_OR_MODEL]", help="A suite (JSON), a model, or what `compile MODEL -o` wrote."),
    ] = None,
    expression: given.Expression = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="PATTERN", help="Cases with this in their names; `*` is allowed.")
    ] = None,
    target: given.TargetName = None,
    as_json: given.Json = False,
    html: given.Page = None,
    markdown: given.Markdown = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Run and check every case (on a GPU: measure).")] = True,
    assemble: Annotated[
        bool, typer.Option("--assemble/--no-assemble", help="Assemble every kernel: registers, spills, hot loops.")
    ] = True,
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
) -> None:
    """Compile a suite, a model or an expression; run, check, assemble it; predict its times; on a GPU, measure them."""
    from ..bench.bench import BenchSteps
    from . import bench_command

    shown = bench_command.Shown(as_json, html, markdown, profile)
    steps = BenchSteps(run, assemble, bench_command.command_line())
    flags = flags_of(ctx)
    if ctx.obj.kind == "text":
        from .expression_bench import bench_expression

        return bench_expression(flags, shown, steps)
    if ctx.obj.kind == "suite":
        return bench_command.bench_suite(ctx.obj.path, only, flags, shown, steps)
    from . import model_bench

    return model_bench.bench_model(ctx.obj.name, flags, weights, shown, steps, trust_edited_cuda)
