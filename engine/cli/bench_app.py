"""`dplc bench`: the options. The work is in bench_command.py and model_bench.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from .options import FloatDtype, Json, Layers, Length, RuleFiles, Settings, TargetName, TrustedEdits, Weights


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE_OR_MODEL",
            help="A suite (JSON), a model, or what `dplc compile MODEL -o DIR` wrote.",
        ),
    ],
    only: Annotated[
        str | None, typer.Option("--only", metavar="PATTERN", help="Cases with this in their names; `*` is allowed.")
    ] = None,
    target: TargetName = None,
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with a plot.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the table as a page.")
    ] = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Run and check every case (on a GPU: measure).")] = True,
    assemble: Annotated[
        bool, typer.Option("--assemble/--no-assemble", help="Assemble every kernel: registers, spills, hot loops.")
    ] = True,
    layers: Layers = None,
    length: Length = 32,
    dtype: FloatDtype = None,
    weights: Weights = None,
    rules: RuleFiles = None,
    settings: Settings = None,
    trust_edited_cuda: TrustedEdits = False,
) -> None:
    """Compile a suite cold, run, check and assemble it, and predict its times; on a GPU, measure them. Or a model's."""
    from . import bench_command, model_bench

    if model_bench.wanted(suite):
        from . import model_commands

        if only is not None:
            raise UsageError("--only goes with a suite")
        how = model_commands.How(
            model_commands.shape_of(length, layers, dtype or "f32"), target, tuple(rules or ()), tuple(settings or ())
        )
        model_bench.bench_model(suite, how, weights, as_json, html, markdown, run, assemble, trust_edited_cuda)
        return
    bench_command.bench_suite(
        Path(suite), only, target, as_json, html, markdown, run, assemble, rules or [], settings or []
    )
