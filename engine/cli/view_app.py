"""`dplc view`: the options. The work is in view_command.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from . import options as given
from .options import Flags


def view(
    model: Annotated[
        str | None, typer.Argument(metavar="[SUITE_OR_MODEL]", help="A suite (JSON), or a model, as of `compile`.")
    ] = None,
    expression: given.Expression = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the page to a file, for any browser.")
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", help="Of a live page (default: a free one).")] = 0,
    browse: Annotated[bool, typer.Option("--browse/--no-browse", help="Open a live page in the browser.")] = True,
    check: Annotated[
        bool, typer.Option("--check", help="With -c: run in checked mode, and show what each line cost.")
    ] = False,
    tune: Annotated[
        int | None,
        typer.Option("--tune", metavar="TRIES", min=1, help="With -c: search schedules, and show it."),
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
    if (expression is None) == (model is None):
        raise UsageError("a program is needed: either -c EXPR, a suite or a model", hint="dplc view -c EXPR -o FILE")
    text = sys.stdin.read() if expression == "-" else expression or ""
    flags = Flags(
        text, seed, dtype, rules, settings, prefer, target, 2, False, db, no_db, explore, length, layers, exact=exact
    )
    if check and model is not None:
        raise UsageError("--check goes with -c", hint="dplc view -c EXPR --check")
    if tune is not None and model is not None:
        raise UsageError("--tune goes with -c", hint="dplc view -c EXPR --tune 200")
    if out is not None:
        from . import view_command

        view_command.write_page(flags, out, model, check, tune)
    elif db is not None:
        raise UsageError("--db goes with -o: a live page compiles by the rules alone")
    else:
        from ..models.sources import is_model
        from ..view.live_page import SearchRequest
        from .live_command import serve_page

        if model is not None and not is_model(model):
            raise UsageError("a suite is written to a file", hint=f"dplc view {model} -o suite.html")
        serve_page(flags, port, browse, SearchRequest(tune or 0, explore), check, model)
