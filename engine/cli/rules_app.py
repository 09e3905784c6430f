"""`dplc rules`: the options. The work is in rule_commands.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...ir.diagnostic import UsageError
from . import options as given
from .options import Json, Options, RuleFiles

rules_app = typer.Typer(no_args_is_help=True, help="List, show and test rules.")


@rules_app.command("list")
def rules_list(rules: RuleFiles = None, as_json: Json = False) -> None:
    """The passes in order, where each comes from, and why it stands there."""
    from . import rule_commands

    rule_commands.list_rules(rules or [], as_json)


@rules_app.command("show")
def rules_show(name: Annotated[str, typer.Argument(metavar="NAME")], rules: RuleFiles = None) -> None:
    """One rule, with its documentation and examples."""
    from . import rule_commands

    rule_commands.show_rule(name, rules or [])


@rules_app.command("why")
def rules_why(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.ir]", help="A dump of `compile --ir`, or nothing with -c.")
    ] = None,
    expression: given.Expression = None,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    target: given.TargetName = None,
    seed: given.Seed = 0,
    dtype: given.FloatDtype = None,
    as_json: given.Json = False,
) -> None:
    """Where a rule fires in a program and what it weighed there, or why it does not fire."""
    if (file is None) == (expression is None):
        raise UsageError("a program is needed: either -c EXPR or a file", hint="dplc rules why NAME -c EXPR")
    from .rewriting import why_rule

    options = Options(expression or "", seed, dtype, rules, settings, prefer, target, as_json=as_json)
    why_rule(name, file, options)


@rules_app.command("test")
def rules_test(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE_OR_DIR]...", help="Rule files to test (default: the built-in rules)."),
    ] = None,
    rules: RuleFiles = None,
) -> None:
    """Check rules statically and run their examples."""
    from . import rule_commands

    rule_commands.test_rules([*(files or []), *(rules or [])])
