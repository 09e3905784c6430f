"""`dplc db`: the options. The work is in db_command.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .subjects import Commands

db_app = Commands(no_args_is_help=True, help="The tuning store: what was found, exports to share, clean-up.")

Store = Annotated[
    Path | None, typer.Option("--db", metavar="FILE", help="The store (default: in the user's cache directory).")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help="Entries of this device.")]


@db_app.command("stats")
def stats(db: Store = None, as_json: Json = False) -> None:
    """Where the store is, how large, and what is in it."""
    from . import db_command

    db_command.stats(db, as_json)


@db_app.command("list")
def list_entries(db: Store = None, device: Device = None, as_json: Json = False) -> None:
    """A line for each remembered schedule: predicted or measured, against the default order."""
    from . import db_command

    db_command.list_entries(db, device, as_json)


@db_app.command("show")
def show(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="Prefix of a kernel's key, from `list`.")],
    db: Store = None,
    as_json: Json = False,
) -> None:
    """Everything about a kernel's schedules: the firings, the rules they use, how the figures came about."""
    from . import db_command

    db_command.show(db, kernel, as_json)


@db_app.command("export")
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Output file (default: standard output).")
    ] = None,
    db: Store = None,
    device: Device = None,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Write every measurement, with the features of its kernels.")
    ] = False,
) -> None:
    """Write schedules as text, one line each, sorted: made to be committed and shared."""
    from . import db_command

    db_command.export(db, file, device, attempts)


@db_app.command("import")
def import_file(file: Annotated[Path, typer.Argument(metavar="FILE")], db: Store = None) -> None:
    """Merge an export: what is new or better on its own basis is kept."""
    from . import db_command

    db_command.import_file(db, file)


@db_app.command("prune")
def prune(
    db: Store = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option("--rules", metavar="FILE_OR_DIR", help="Your rules, in addition to the built-in rules."),
    ] = None,
    attempts: Annotated[bool, typer.Option("--attempts", help="Delete every attempt as well.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted.")] = False,
) -> None:
    """Remove the schedules whose rules have changed."""
    from . import db_command

    db_command.prune(db, rules or [], attempts, dry_run)
