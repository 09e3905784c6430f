"""`dplc ops`: the options. The work is in ops_command.py."""

from __future__ import annotations

from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from .options import Json, RuleFiles, TargetName


def ops(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[OP]...", help="Ops by their ATen names (default: all).")
    ] = None,
    dtypes: Annotated[
        bool, typer.Option("--dtypes", help="Run every op in every dtype and compare with float64 (some minutes).")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="List the ops of PyTorch that neither a rule nor a decomposition takes.")
    ] = False,
    target: TargetName = None,
    as_json: Json = False,
    rules: RuleFiles = None,
) -> None:
    """List the torch ops that the rules take, or say what becomes of each in every dtype."""
    from . import ops_command as command

    if missing and (names or dtypes):
        raise UsageError("`--missing` stands alone: it lists ops that have no rules")
    if missing:
        command.list_missing(rules or [], as_json)
    elif dtypes:
        command.tabulate(names or [], rules or [], target, as_json)
    else:
        command.list_ops(names or [], rules or [], as_json)
