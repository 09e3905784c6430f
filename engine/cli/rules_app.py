"""The commands of `dplc rules` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options as given
from .options import Commands, Json, RuleFiles, flags_of

rules_app = Commands(no_args_is_help=True, help="List, show and test rules.")


@rules_app.command("list")
def rules_list(rules: RuleFiles = None, as_json: Json = False) -> None:
    """The passes in order, where each comes from, and why it stands there."""
    from .rules import list_rules

    list_rules(rules or [], as_json)


@rules_app.command("show")
def rules_show(name: Annotated[str, typer.Argument(metavar="NAME")], rules: RuleFiles = None) -> None:
    """One rule, with its documentation and examples."""
    from .rules import show_rule

    show_rule(name, rules or [])


Level = Annotated[
    str | None,
    typer.Option("--level", metavar="LEVEL", help="Entries of one level: torch, tensor, module, loop, tile or kernel."),
]


@rules_app.command("facts")
def rules_facts(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,
    level: Level = None,
    rules: RuleFiles = None,
    as_json: Json = False,
) -> None:
    """The questions and functions that a rule may ask, with their sorts and a sentence each."""
    from .rules import show_facts

    show_facts(name, level, rules or [], as_json)


@rules_app.command("nodes")
def rules_nodes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None, level: Level = None, as_json: Json = False
) -> None:
    """What programs are made of: statements, values, ops of torch, with their fields, sorts and defaults."""
    from .rules import show_nodes

    show_nodes(name, level, as_json)


@rules_app.command("fmt")
def rules_fmt(
    files: Annotated[list[Path], typer.Argument(metavar="FILE_OR_DIR...", help="Rule files; `-` is standard input.")],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing, and exit with 1 if a file is not formatted.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing, and print the diff.")] = False,
) -> None:
    """Lay rule files out: one spelling of every line. Comments, blank lines and the meaning stay."""
    from .rules import format_files

    format_files(files, check, diff)


@rules_app.command("new")
def rules_new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.")],
    expression: given.Expression = None,
    lines: Annotated[
        str | None, typer.Option("--from", metavar="FILE.ir:10-20", help="Lines of a dump of `compile --ir`.")
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="A torch op. With -c, types and an example as well.")
    ] = None,
    level: Annotated[
        str, typer.Option("--level", metavar="LEVEL", help="Level of the rule: tensor, loop, tile or kernel.")
    ] = "tensor",
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Output file.")] = None,
    rules: given.RuleFiles = None,
    target: given.TargetName = None,
    seed: given.Seed = 0,
    dtype: given.FloatDtype = None,
) -> None:
    """Write a rule to fill in: the pattern is a program, or a piece of one, with an example and a refusal."""
    from .rules import new_rule

    new_rule(name, lines, op, level, flags_of(ctx), out)


@rules_app.command("lint")
def rules_lint(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE_OR_DIR]...", help="Rule files to lint (default: the built-in rules)."),
    ] = None,
    subjects: Annotated[
        bool, typer.Option("--subjects", help="Also test every guard on the programs of all examples (seconds).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Report parts of rules without effect: unused local rules, idle guards, unknown devices."""
    from .rules import lint_rules

    lint_rules(files or [], subjects, as_json)


@rules_app.command("doc")
def rules_doc(
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of the pages.")],
    rules: RuleFiles = None,
    suite: Annotated[
        Path | None, typer.Option("--suite", metavar="SUITE", help="Add the firings in a suite (minutes).")
    ] = None,
) -> None:
    """Write all rules, statements, facts and constants as Markdown pages."""
    from .rules import write_pages

    write_pages(out, rules or [], suite)


@rules_app.command("why")
def rules_why(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    subject: Annotated[
        Path | None, typer.Argument(metavar="[FILE.ir]", help="A dump of `compile --ir`. Leave it out with -c.")
    ] = None,
    expression: given.Expression = None,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    target: given.TargetName = None,
    seed: given.Seed = 0,
    dtype: given.FloatDtype = None,
    as_json: given.Json = False,
    exact: given.Exact = False,
) -> None:
    """Where a rule fires in a program and what it weighed there, or why it does not fire."""
    from .rewriting import why_rule

    why_rule(name, ctx.obj.path if ctx.obj.is_dump else None, flags_of(ctx))


@rules_app.command("test")
def rules_test(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE_OR_DIR]...", help="Rule files to test (default: the built-in rules)."),
    ] = None,
    rules: RuleFiles = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Write the present results into the examples of the files.")
    ] = False,
) -> None:
    """Check rules statically and run their examples."""
    from .rules import accept_examples, test_rules

    if accept:
        accept_examples([*(files or []), *(rules or [])])
    test_rules([*(files or []), *(rules or [])])
