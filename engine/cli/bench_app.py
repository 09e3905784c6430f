"""`dplc bench`: the options. The work is in bench_command.py, expression_bench.py and model_bench.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from . import options as given
from .options import Flags


def bench(
    suite: Annotated[
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
    flags = Flags(
        sys.stdin.read() if expression == "-" else expression or "", seed, dtype, rules, settings, prefer, target,
        as_json=as_json, explore=explore, length=length, layers=layers, sizes=sizes, exact=exact, batch=batch,
    )  # fmt: skip
    of_suite, of_model = only is not None, bool(layers or weights or trust_edited_cuda)
    if expression is not None:
        _refuse(suite is not None or of_suite or of_model, "-c goes without SUITE, --only and the options of models")
        from .expression_bench import bench_expression

        return bench_expression(flags, shown, steps)
    if suite is None:
        raise UsageError("bench a suite, a model or an expression", hint="dplc bench SUITE.json, MODEL, or -c EXPR")
    from . import model_bench

    if model_bench.wanted(suite):
        _refuse(of_suite, "--only goes with a suite")
        return model_bench.bench_model(suite, flags, weights, shown, steps, trust_edited_cuda)
    _refuse(profile or explore, "--profile and --explore go with -c or a model: a suite's table has a line for a case")
    return bench_command.bench_suite(Path(suite), only, flags, shown, steps)


def _refuse(wrong: bool, what: str) -> None:
    """Raises UsageError for options that do not go together."""
    if wrong:
        raise UsageError(what)
