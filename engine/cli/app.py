"""`dplc`: the commands. A command imports the file of its handler when it runs, so that `--help` is instant."""

from __future__ import annotations

import gc
import sys

import typer

from ...ir.diagnostic import INTERNAL, USAGE, DplcError, UsageError
from .options import COMMANDS, GROUPS, command

INTERRUPTED = 130
COLLECTIONS = (100_000, 20, 100)  # Python's own (700, 10, 10) look through all of torch while it is imported: 0.8 s

app = typer.Typer(
    name="dplc",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from ...version import __version__

        typer.echo(f"dplc {__version__}")
        raise typer.Exit


@app.callback()
def global_options(
    traceback: bool = typer.Option(False, "--traceback", help="Show Python tracebacks of errors."),
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """PyTorch to CUDA, every optimisation a rule in a text file."""


groups = {"": app}
for title, about in GROUPS.items():
    groups[title] = typer.Typer(name=title, no_args_is_help=True, help=about)
    app.add_typer(groups[title], name=title)
for words, entry in COMMANDS.items():
    title, _, name = words.rpartition(" ")
    groups[title].command(name, help=entry["help"])(command(words))


def main(arguments: list[str] | None = None) -> None:
    """Run the console script.

    Exit codes: 0 success, 1 an error in the user's program or rule, 2 wrong usage, 3 a defect of dplc, 130 interrupted.
    """
    if arguments is None:
        gc.set_threshold(*COLLECTIONS)
        arguments = sys.argv[1:]
    given = [word for word in arguments if word != "--traceback"]
    try:
        code = app(args=given, prog_name="dplc", standalone_mode=False) or 0  # INTERRUPTED: typer catches the interrupt
    except SystemExit as stop:
        enough = isinstance(stop.__context__, BrokenPipeError)  # of the help, say rich and click, and exit with 1
        code = 0 if enough else int(stop.code or 0)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = _explain(error, traceback="--traceback" in arguments)
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    raise SystemExit(code)


def _explain(error: Exception, traceback: bool) -> int:
    """Print an error. Return the exit code."""
    kind = type(error).__name__  # typer brings its own copy of click, whose classes have no public name
    if kind == "NoArgsIsHelpError" and hasattr(error, "show"):
        error.show()
        return USAGE
    if kind == "Abort":
        return INTERRUPTED
    if hasattr(error, "format_message"):  # an unknown option, for example
        message = str(error.format_message()).rstrip(".")
        path = getattr(getattr(error, "ctx", None), "command_path", None) or "dplc"
        error = UsageError(message[:1].lower() + message[1:], hint=f"see `{path} --help`")
    if traceback:
        import traceback as printer

        printer.print_exception(error)
    if not isinstance(error, DplcError):
        from .doctor import imported_torch

        try:
            imported_torch()
        except DplcError as unusable:
            error = unusable
    if isinstance(error, DplcError):
        print(error.render(), file=sys.stderr)
        return error.exit_code
    print(f"internal error: {kind}: {error}", file=sys.stderr)
    print("  help: this is a defect of dplc; run again with `dplc --traceback ...` and report it", file=sys.stderr)
    return INTERNAL
