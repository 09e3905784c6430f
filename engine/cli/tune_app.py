"""`dplc tune`: the options. The work is in tune_command.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError

INTERRUPTED = 130
Files = list[Path] | None
Texts = list[str] | None


def tune(
    expression: Annotated[
        str | None, typer.Option("-c", metavar="EXPR", help="Python text, as of `compile`. `-` reads standard input.")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="NAME", help="hill (default), mcts, mcts-tree, evolution, random, .."),
    ] = None,
    tries: Annotated[int, typer.Option("--tries", min=1, help="Candidates to look at, for each kernel.")] = 200,
    programs: Annotated[
        int | None, typer.Option("--programs", min=1, help="Stop after so many different programs, for each kernel.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--time", metavar="SECONDS", min=0.0, help="Stop after so long, for each kernel.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option("--patience", min=1, help="Stop after so many programs without an improvement.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seeds the search.")] = 0,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="sm_NN", help="Architecture or device (default: the GPU present, else sm_80)."
        ),
    ] = None,
    space: Annotated[bool, typer.Option("--space", help="Print what there is to decide, and try nothing.")] = False,
    free: Annotated[
        Texts, typer.Option("--free", metavar="PASS", help="Decide only these passes; the others do as by default.")
    ] = None,
    predict: Annotated[
        bool, typer.Option("--predict", help="Let the model judge, even where there is a GPU to measure on.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page: progress, decisions, what values did.")
    ] = None,
    db: Annotated[
        Path | None,
        typer.Option("--db", metavar="FILE", help="The tuning store (default: in the user's cache directory)."),
    ] = None,
    no_db: Annotated[bool, typer.Option("--no-db", help="Do not remember what is found.")] = False,
    rules: Annotated[
        Files, typer.Option("--rules", metavar="FILE_OR_DIR", help="Your own .rw files, beside the built-in ones.")
    ] = None,
    settings: Annotated[Texts, typer.Option("--set", metavar="RULE.PARAM=VALUE", help="Pin a parameter.")] = None,
) -> None:
    """Search the schedules that the rules allow, for every kernel; remember the fastest that is right."""
    from ..tune.running import DEFAULT_SEARCH, Budget
    from .tune_command import Asked, show_space, tune_expression

    if expression is None:
        raise UsageError("an expression is needed: -c EXPR", hint='for example -c "torch.relu(torch.randn(8))"')
    text = sys.stdin.read() if expression == "-" else expression
    asked = Asked(
        text, search or DEFAULT_SEARCH, Budget(tries, programs, seconds, patience), seed, target, free or [], predict,
        as_json, html, db, not no_db, rules or [], settings or [],
    )  # fmt: skip
    if space:
        show_space(asked)
    elif tune_expression(asked):
        raise typer.Exit(INTERRUPTED)
