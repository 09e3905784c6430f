"""`dplc view`: the options. The work is in view_command.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from . import options as given
from .subjects import flags_of


def view(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUITE_OR_MODEL]", help="A suite (JSON), or a model as for `compile`.")
    ] = None,
    expression: given.Expression = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the page to a file, for any browser.")
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port of the live page (default: a free one).")] = 0,
    browse: Annotated[bool, typer.Option("--browse/--no-browse", help="Open a live page in the browser.")] = True,
    check: Annotated[bool, typer.Option("--check", help="Run in checked mode and show the cost of each line.")] = False,
    tune: Annotated[
        int | None,
        typer.Option("--tune", metavar="TRIES", min=1, help="Search schedules and show the search."),
    ] = None,
    layers: given.Layers = None,
    length: given.Length = 32,
    target: given.TargetName = None,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    seed: given.Seed = 0,
    dtype: given.FloatDtype = None,
    db: given.DatabaseFile = None,
    no_db: given.NoDatabase = False,
    explore: given.Explored = False,
    exact: given.Exact = False,
) -> None:
    """See a compile in the browser: where each line came from, what each rule did and gained. Live without -o."""
    flags = replace(flags_of(ctx), verbose=2)
    if out is not None:
        from . import view_command

        view_command.write_page(flags, out, ctx.obj, check, tune)
    else:
        from ..view.live_page import SearchRequest
        from .live_command import serve_page

        if ctx.obj.kind == "suite":
            raise UsageError("a suite is written to a file", hint=f"dplc view {ctx.obj.name} -o suite.html")
        serve_page(flags, port, browse, SearchRequest(tune or 0, explore), check, ctx.obj)
