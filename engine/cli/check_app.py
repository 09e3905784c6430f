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
    rule: Annotated[list[str] | None, typer.Option("--rule", metavar="NAME", help="One rule, family or file.")] = None,
    level: Annotated[list[str] | None, typer.Option("--level", metavar="LEVEL", help="Rules of this level.")] = None,
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="Number of generated programs for each rule.")
    ] = 40,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the generated programs.")] = 0,
    part: Annotated[
        str,
        typer.Option("--part", metavar="K/N", help="Check every N-th rule, from the K-th."),
    ] = "1/1",
    subject: Annotated[
        Path | None, typer.Option("--subject", metavar="FILE.ir", help="Check one rule on the program in a file.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for counterexamples.")] = Path(
        "counterexamples"
    ),
    mutate: Annotated[
        bool, typer.Option("--mutate", help="Mutate each rule and report the mutants that no check detects.")
    ] = False,
    guards: Annotated[
        bool, typer.Option("--guards", help="Remove one `where` at a time and report undetected mutants.")
    ] = False,
    allow_thin: Annotated[
        bool, typer.Option("--allow-thin", help="Accept rules that fired on fewer than 20 distinct programs.")
    ] = False,
    few: Annotated[
        list[str] | None,
        typer.Option("--few", metavar="NAME", help="Accept few programs for this rule."),
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
