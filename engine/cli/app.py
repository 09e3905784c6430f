"""`dplc`: the commands and their options. What is heavy is imported inside of commands: `--help` is instant."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ...ir.diagnostic import INTERNAL, USAGE, DplcError, UsageError
from . import options as given
from .bench_app import bench
from .calibration_app import calibrate_options, model_app
from .check_app import check
from .db_app import db_app
from .generate_app import generate
from .ops_app import ops
from .rules_app import rules_app
from .subjects import Commands, flags_of
from .tune_app import tune
from .view_app import view

INTERRUPTED = 130
COLLECTIONS = (100_000, 20, 100)  # Python's own (700, 10, 10) look through all of torch while it is imported: 0.8 s

app = Commands(
    name="dplc",
    help="PyTorch to CUDA, every optimisation a rule in a text file.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(rules_app, name="rules")
app.add_typer(db_app, name="db")
app.add_typer(model_app, name="model")


def _version(wanted: bool) -> None:
    if wanted:
        from ...version import __version__

        typer.echo(f"dplc {__version__}")
        raise typer.Exit


@app.callback()
def flags(
    traceback: Annotated[bool, typer.Option("--traceback", help="Show Python tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """PyTorch to CUDA, every optimisation a rule in a text file."""


@app.command("lsp")
def language_server() -> None:
    """The language server of rule files, for editors, over standard input and output."""
    from .editor_command import serve

    serve()


@app.command("compile")
def compile_command(
    ctx: typer.Context,
    subject: given.Model = None,
    expression: given.Expression = None,
    ir: Annotated[
        str | None,
        typer.Option("--ir", metavar="STAGE", help="Print torch, tensor, loop, tile, kernel or cuda (default cuda)."),
    ] = None,
    layers: given.Layers = None,
    length: given.Lengths = "32",
    batch: given.Batch = "1",
    rows: given.Rows = None,
    dtype: given.FloatDtype = None,
    weights: given.Weights = None,
    out: given.ArtefactFolder = None,
    cubins: given.Cubins = True,
    sizes: given.Sizes = None,
    target: given.TargetName = None,
    verbose: given.Verbose = 0,
    why_not: given.WhyNot = None,
    as_json: given.Json = False,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    seed: given.Seed = 0,
    db: given.DatabaseFile = None,
    no_db: given.NoDatabase = False,
    explore: given.Explored = False,
    exact: given.Exact = False,
) -> None:
    """Compile an expression, a dump or a model: print it at a stage, or write an artefact (not of a dump)."""
    flags = flags_of(ctx)
    if ctx.obj.is_dump:
        from .dump_command import compile_file

        compile_file(ctx.obj.path, flags, ir)
    elif ctx.obj.kind == "model":
        from . import model_commands

        model_commands.compile_command(ctx.obj.name, flags, weights, out, cubins, ir)
    elif out is not None:
        from . import model_commands

        model_commands.compile_text_command(flags, out, cubins, ir)
    else:
        from . import commands

        commands.compile_expression(flags, ir)


@app.command("run")
def run_command(
    ctx: typer.Context,
    subject: given.Artefact = None,
    expression: given.Expression = None,
    device: given.Device = None,
    seed: given.Seed = 0,
    dtype: given.FloatDtype = None,
    out: given.Arrays = None,
    as_json: given.Json = False,
    target: given.TargetName = None,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    verbose: given.Verbose = 0,
    why_not: given.WhyNot = None,
    check: given.Checked = False,
    weights: given.Weights = None,
    ids: given.Tokens = None,
    sizes: given.Sizes = None,
    trust_edited_cuda: given.TrustedEdits = False,
    blocks: given.Blocks = None,
    bench: given.Benched = False,
    profile: given.Profile = False,
    db: given.DatabaseFile = None,
    no_db: given.NoDatabase = False,
    explore: given.Explored = False,
    exact: given.Exact = False,
) -> None:
    """Compile an expression or a dump (or take a compiled model), run it, and compare the result with float64."""
    flags, table = flags_of(ctx), "profile" if profile else "bench" if bench else ""
    if ctx.obj.is_dump:
        from .dump_command import check_file, run_file

        if check:
            check_file(ctx.obj.path, flags, blocks, device)
        else:
            run_file(ctx.obj.path, flags, device, out, table)
    elif ctx.obj.kind == "artefact":
        from . import artefact_command as command

        wanted = command.RunFlags(weights, ids, device, seed, out, as_json, sizes, trust_edited_cuda)
        command.run_command(ctx.obj.path, wanted)
    elif check:
        from . import checking

        checking.check_expression(flags, blocks, device)
    else:
        from . import commands

        commands.run_expression(flags, device, out, table)


@app.command("fuse")
def fuse_command(
    ctx: typer.Context,
    expression: given.Expression = None,
    explore: Annotated[
        bool, typer.Option("--explore", help="Search algebra and fusion together. Otherwise the rules decide.")
    ] = False,
    top: Annotated[int, typer.Option("--top", min=1, metavar="K", help="Number of candidates to show.")] = 4,
    exact: given.Exact = False,
    candidate: Annotated[
        int | None, typer.Option("--candidate", min=1, metavar="N", help="Candidate for --ir and --run (default 1).")
    ] = None,
    ir: Annotated[
        str | None, typer.Option("--ir", metavar="STAGE", help="Print one candidate at a stage instead of the table.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Run a candidate and compare it with float64.")] = False,
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help="Device for --run: cuda, emulator or reference.")
    ] = None,
    target: given.TargetName = None,
    as_json: given.Json = False,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    seed: given.Seed = 0,
) -> None:
    """Show the ways to fuse an expression: kernels, bytes, predicted time, and the rules behind them."""
    from . import fuse_command as command

    command.fuse_expression(flags_of(ctx), command.FuseView(explore, top, candidate, ir, run, device))


@app.command("rewrite")
def rewrite_command(
    ctx: typer.Context,
    subject: Annotated[
        Path | None, typer.Argument(metavar="[FILE.ir]", help="A dump of `compile --ir`. Leave it out with -c.")
    ] = None,
    expression: given.Expression = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print a diff for each firing and a reason for each rejection.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="RULE", help="Apply only these rules. With -c, all preceding passes run first."),
    ] = None,
    about: Annotated[
        list[str] | None,
        typer.Option("--about", metavar="RULE", help="Apply all rules and show only these."),
    ] = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    rules: given.RuleFiles = None,
    target: given.TargetName = None,
    seed: given.Seed = 0,
    dtype: given.FloatDtype = None,
    exact: given.Exact = False,
) -> None:
    """Apply rules to a program and print what comes out."""
    flags = replace(flags_of(ctx), verbose=2 * trace)
    from . import rewriting

    rewriting.rewrite_program(ctx.obj.path if ctx.obj.is_dump else None, flags, only or [], about or [])


app.command("tune")(tune)
app.command("generate")(generate)
app.command("bench")(bench)
app.command("check")(check)
app.command("ops")(ops)
app.command("calibrate")(calibrate_options)
app.command("view")(view)


@app.command("doctor")
def doctor_command(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Report the share of a model that dplc compiles.")
    ] = None,
    length: given.Length = 32,
    batch: given.Batch = "1",
    layers: given.Layers = None,
    dtype: given.FloatDtype = None,
    target: given.TargetName = None,
    as_json: given.Json = False,
) -> None:
    """What this machine has: compilers, GPU, caches, and what to do about what is missing. With --model: what share of
    a model's ops, and of their predicted time, dplc runs under torch.compile, and what is left to eager, and why."""
    if ctx.obj.kind == "none":
        from . import doctor

        doctor.report(as_json)
        return
    from .doctor_model import report_of_model

    report_of_model(ctx.obj.name, flags_of(ctx))


def main(arguments: list[str] | None = None) -> None:
    """The console script. Exit codes: 0 ok, 1 the user's program or rule, 2 usage, 3 ours, 130 interrupted."""
    if arguments is None:
        gc.set_threshold(*COLLECTIONS)
    given = sys.argv[1:] if arguments is None else list(arguments)
    traceback = "--traceback" in given
    try:
        code = app(args=[g for g in given if g != "--traceback"], prog_name="dplc", standalone_mode=False) or 0
        if code == INTERRUPTED:  # typer catches the interrupt itself
            _interrupted()
    except SystemExit as stop:
        enough = isinstance(stop.__context__, BrokenPipeError)  # of the help, say rich and click, and exit with 1
        code = 0 if enough else int(stop.code or 0)
    except KeyboardInterrupt:
        code = _interrupted()
    except Exception as error:
        code = _explain(error, traceback)
    raise SystemExit(code)


def _interrupted() -> int:
    print("interrupted", file=sys.stderr)
    return INTERRUPTED


def _explain(error: Exception, traceback: bool) -> int:
    """Print what is wrong; the exit code."""
    kind = type(error).__name__  # typer brings its own copy of click, whose classes have no public name
    if kind == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return USAGE
    if kind == "Abort":
        return _interrupted()
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        error = _wrong_usage(error)
    if traceback:
        import traceback as printer

        printer.print_exception(error)
    if not isinstance(error, DplcError):
        error = _torch_problem() or error
    if isinstance(error, DplcError):
        print(error.render(), file=sys.stderr)
        return error.exit_code
    print(f"internal error: {kind}: {error}", file=sys.stderr)
    print("  help: this is a defect of dplc; run again with `dplc --traceback ...` and report it", file=sys.stderr)
    return INTERNAL


def _torch_problem() -> DplcError | None:
    """What is wrong with torch, without which no command but `doctor` and `rules` works; None if it can be imported."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return DplcError("torch is not installed", hint="pip install 'torch>=2.11,<2.14'; `dplc doctor` says more")
        why = str(error)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
    else:
        return None
    return DplcError("torch cannot be imported", notes=(why,), hint="install torch again; `dplc doctor` says more")


def _wrong_usage(error: Any) -> UsageError:
    """A bad option, a missing command, told like all our errors."""
    message = str(error.format_message()).rstrip(".")
    path = getattr(getattr(error, "ctx", None), "command_path", None) or "dplc"
    return UsageError(message[:1].lower() + message[1:], hint=f"see `{path} --help`")
