"""`dplc rules`: the options. The work is in rule_commands.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, RuleFiles

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
