"""`dplc check`: the options. The work is in check_command.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, Verbose


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE_OR_DIR]...", help="Rule files to check (default: the built-in rules)."),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="NAME", help="Only this rule, family or file.")
    ] = None,
    level: Annotated[
        list[str] | None, typer.Option("--level", metavar="LEVEL", help="Only rules of this level.")
    ] = None,
    examples: Annotated[int, typer.Option("--examples", min=0, help="Subjects drawn for each rule.")] = 40,
    seed: Annotated[int, typer.Option("--seed", help="Decides what is drawn.")] = 0,
    part: Annotated[
        str,
        typer.Option(
            "--part", metavar="K/N", help="Only every N-th rule, from the K-th: a sample that rotates with K."
        ),
    ] = "1/1",
    subject: Annotated[
        Path | None, typer.Option("--subject", metavar="FILE.ir", help="Check one rule on the program in a file.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where counterexamples are written.")] = Path(
        "counterexamples"
    ),
    mutate: Annotated[
        bool, typer.Option("--mutate", help="Break each rule in every way and report what goes unseen.")
    ] = False,
    guards: Annotated[
        bool, typer.Option("--guards", help="The same, but only leave out one `where` after the other.")
    ] = False,
    allow_thin: Annotated[
        bool, typer.Option("--allow-thin", help="A rule that fired on fewer than 20 distinct programs is no failure.")
    ] = False,
    few: Annotated[
        list[str] | None,
        typer.Option("--few", metavar="NAME", help="The same for one rule: there are few such programs."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = 0,
) -> None:
    """Check rules by meaning, on programs made from their own patterns."""
    from ..verify.run import ALL, CheckOptions
    from . import check_command as command

    command.check(
        files or [],
        rule or [],
        level or [],
        part,
        CheckOptions(examples, seed),
        subject,
        out,
        "guards" if guards else "all" if mutate else None,
        ALL if allow_thin else frozenset(few or ()),
        as_json,
        verbose > 0,
    )
