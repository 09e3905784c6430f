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
from .options import (
    Batch,
    Commands,
    DatabaseFile,
    Exact,
    Expression,
    FloatDtype,
    Json,
    Layers,
    Lengths,
    NoDatabase,
    RuleFiles,
    Settings,
    TargetName,
    Verbose,
    flags_of,
)
from .rules_app import rules_app

# ---- bench


Subjects = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE_OR_MODEL]..",
        help="A suite (JSON), a model or an artefact. With --pack: suites, or SUITE:PATTERN.",
    ),
]
Only = Annotated[
    str | None, typer.Option("--only", metavar="PATTERN", help="Cases with this in their names; `*` is allowed.")
]
Run = Annotated[bool, typer.Option("--run/--no-run", help="Run and check every case (on a GPU: measure).")]
Assemble = Annotated[
    bool, typer.Option("--assemble/--no-assemble", help="Assemble every kernel: registers, spills, hot loops.")
]
PackFile = Annotated[
    Path | None, typer.Option("--pack", metavar="FILE.dplc", help="Write suites as one file for a machine with a GPU.")
]
Candidates = Annotated[
    int | None,
    typer.Option("--candidates", min=0, help="Number of cases with five schedules each, for `model fit` (--pack)."),
]
Unpack = Annotated[
    Path | None, typer.Option("--unpack", metavar="FILE.dplc", help="Measure a pack; `python FILE.dplc` does the same.")
]
Minutes = Annotated[float | None, typer.Option("--minutes", min=0, help="Time limit (--unpack, default 8).")]
ShowPlan = Annotated[bool, typer.Option("--plan", help="Print the steps and their expected seconds (--unpack).")]
Results = Annotated[
    Path | None, typer.Option("-o", metavar="FILE.json", help="Results file (--unpack, default results.json).")
]
Compare = Annotated[
    Path | None, typer.Option("--compare", metavar="RESULTS", help="Show times of --unpack next to predicted ones.")
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="RULE[,RULE]|each", help="Predict the suite without a rule, or each rule."),
]
Number = Annotated[
    list[str] | None,
    typer.Option("--number", metavar="NAME=V|each", help="Predict the suite with a number, or each moved by half."),
]


def bench_command(
    ctx: typer.Context,
    subject: Subjects = None,
    expression: given.Expression = None,
    only: Only = None,
    target: given.TargetName = None,
    as_json: given.Json = False,
    markdown: given.Markdown = None,
    run: Run = True,
    assemble: Assemble = True,
    profile: given.Profile = False,
    layers: given.Layers = None,
    length: given.Lengths = "32",
    batch: given.Batch = "1",
    dtype: given.FloatDtype = None,
    sizes: given.Sizes = None,
    seed: given.Seed = 0,
    explore: given.Explored = False,
    weights: given.Weights = None,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    trust_edited_cuda: given.TrustedEdits = False,
    exact: given.Exact = False,
    pack: PackFile = None,
    candidates: Candidates = None,
    unpack: Unpack = None,
    minutes: Minutes = None,
    plan: ShowPlan = False,
    out: Results = None,
    compare: Compare = None,
    without: Without = None,
    number: Number = None,
) -> None:
    """Compile a suite, a model or an expression; run, check, assemble it; predict its times; on a GPU, measure them."""
    from ..bench.bench import BenchSteps
    from . import bench
    from .output import command_line

    shown = bench.Shown(as_json, markdown, profile)
    steps = BenchSteps(run, assemble, command_line())
    flags, kind, names = flags_of(ctx), ctx.obj.kind, ctx.obj.names
    if unpack is not None:
        return bench.measure_pack(unpack, minutes, plan, out)
    if pack is not None:
        return bench.pack_suites(names, pack, candidates or 0, flags, steps.command)
    if kind == "compare":
        return bench.compare_results(ctx.obj.path)
    if len(names) > 1:
        raise UsageError(f"`dplc bench` takes one program, and {len(names)} were given", hint="--pack takes several")
    if kind == "text":
        return bench.bench_expression(flags, shown, steps)
    if without or number:
        return bench.bench_without(ctx.obj.path, only, flags, as_json, without or (), number or (), out)
    if kind == "suite":
        return bench.bench_suite(ctx.obj.path, only, flags, shown, steps, compare)
    return bench.bench_model(ctx.obj.name, flags, weights, shown, steps, trust_edited_cuda)


# ---- calibrate and model fit


Target = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="Device, architecture or device file (default: what is here)."),
]
CalibrationJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def calibrate_options(
    target: Target = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.toml", help="Write a device file.")] = None,
    as_json: CalibrationJson = False,
) -> None:
    """Measure the constants of the model on the GPU that is here; `--target FILE.toml` uses them."""
    from .machine import calibrate_device

    calibrate_device(target, out, as_json)


model_app = Commands(help="The cost model.", no_args_is_help=True)


@model_app.command("fit")
def fit_options(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Results of `dplc bench --unpack`.")],
    target: Target = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.toml", help="Write a device file.")] = None,
    as_json: CalibrationJson = False,
) -> None:
    """Fit the constants of a device file to results of `dplc bench --unpack`."""
    from .machine import fit_model

    fit_model(results, target, out, as_json)


# ---- check


def check_command(
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
    from . import check as command

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


# ---- db


db_app = Commands(no_args_is_help=True, help="The tuning store: what was found, exports to share, clean-up.")

Store = Annotated[
    Path | None, typer.Option("--db", metavar="FILE", help="The store (default: in the user's cache directory).")
]
DatabaseJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help="Entries of this device.")]


@db_app.command("stats")
def stats(db: Store = None, as_json: DatabaseJson = False) -> None:
    """Where the store is, how large, and what is in it."""
    from .database import stats

    stats(db, as_json)


@db_app.command("list")
def list_entries(db: Store = None, device: Device = None, as_json: DatabaseJson = False) -> None:
    """A line for each remembered schedule: predicted or measured, against the default order."""
    from .database import list_entries

    list_entries(db, device, as_json)


@db_app.command("show")
def show(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="Prefix of a kernel's key, from `list`.")],
    db: Store = None,
    as_json: DatabaseJson = False,
) -> None:
    """Everything about a kernel's schedules: the firings, the rules they use, how the figures came about."""
    from .database import show

    show(db, kernel, as_json)


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
    from .database import export

    export(db, file, device, attempts)


@db_app.command("import")
def import_file(file: Annotated[Path, typer.Argument(metavar="FILE")], db: Store = None) -> None:
    """Merge an export: what is new or better on its own basis is kept."""
    from .database import import_file

    import_file(db, file)


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
    from .database import prune

    prune(db, rules or [], attempts, dry_run)


# ---- generate


def generate_command(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="MODEL", help="A configuration, its folder, or an id of the hub.")],
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="Text to continue.")] = None,
    ids: Annotated[
        str | None, typer.Option("--ids", metavar="NUMBERS", help="Prompt as token ids, without a tokenizer.")
    ] = None,
    count: Annotated[
        int, typer.Option("--max-new-tokens", min=1, metavar="N", help="Maximum number of tokens to generate.")
    ] = 32,
    maximum: Annotated[
        int | None,
        typer.Option(
            "--max-length", min=2, metavar="L", help="Maximum length of prompt and text (default: their sum)."
        ),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk", min=1, metavar="N", help="Process the prompt in chunks of N tokens, which saves memory."
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", metavar="DIR", help="Safetensors (default: random weights by --seed).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of random weights.")] = 0,
    dtype: FloatDtype = None,
    layers: Layers = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="cuda or emulator (default: cuda if there is a GPU)."),
    ] = None,
    target: TargetName = None,
    as_json: Json = False,
    rules: RuleFiles = None,
    settings: Settings = None,
    db: DatabaseFile = None,
    no_db: NoDatabase = False,
    exact: Exact = False,
) -> None:
    """Continue a prompt with a model, greedily, one token at a time with a cache of keys and values."""
    from . import models as command

    room = command.Room(count, maximum, chunk)
    command.generate(subject, command.Prompt(prompt, ids), flags_of(ctx), room, weights, device)


# ---- ops


def ops_command(
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
    from . import machine as command

    if missing and (names or dtypes):
        raise UsageError("`--missing` stands alone: it lists ops that have no rules")
    if missing:
        command.list_missing(rules or [], as_json)
    elif dtypes:
        command.tabulate(names or [], rules or [], target, as_json)
    else:
        command.list_ops(names or [], rules or [], as_json)


# ---- tune


INTERRUPTED_CODE = 130

Subject = Annotated[
    str | None,
    typer.Argument(metavar="[SUITE.json|MODEL]", help="A suite or a model. Each distinct kernel is tuned once."),
]
Search = Annotated[str | None, typer.Option("--search", metavar="NAME", help="Search: hill (default), mcts or random.")]
Tries = Annotated[int, typer.Option("--tries", min=1, help="Number of candidates for each kernel.")]
Programs = Annotated[
    int | None, typer.Option("--programs", min=1, help="Maximum number of distinct programs for each kernel.")
]
Seconds = Annotated[
    float | None, typer.Option("--time", metavar="SECONDS", min=0.0, help="Time limit for each kernel.")
]
Patience = Annotated[
    int | None, typer.Option("--patience", min=1, help="Maximum number of programs without an improvement.")
]
SearchSeed = Annotated[int, typer.Option("--seed", help="Seed of the search.")]
Free = Annotated[
    list[str] | None,
    typer.Option("--free", metavar="PASS", help="Search only these passes. All others run by default."),
]
AssembleCandidates = Annotated[
    bool, typer.Option("--assemble", help="Assemble candidates that may win, and reject those that spill.")
]
Predict = Annotated[bool, typer.Option("--predict", help="Use the cost model even if a GPU could measure.")]
Grid = Annotated[
    list[str] | None, typer.Option("--grid", metavar="M=1,8,64", help="Tune -c at each of these sizes; repeatable.")
]
TunedCases = Annotated[
    str | None, typer.Option("--only", metavar="PATTERN", help="Cases of the suite with this in their names.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Number of kernels tuned in parallel.")]
Executor = Annotated[
    str, typer.Option("--executor", metavar="NAME", help="Executor of jobs: processes, or ray (a cluster).")
]
Top = Annotated[
    int,
    typer.Option("--top", metavar="K", min=1, help="Number of fusion candidates. With 1, the rules decide."),
]
Row = Annotated[
    list[str] | None,
    typer.Option(
        "--row",
        metavar="[NAME=]A..B",
        help="With --seq-len A..B or dim(s, A..B): tune the part of the range that `--rows` compiles alone; A..B:N "
        "times it at N (default: at B).",
    ),
]
Told = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, help="-v lists each improvement with what changed, -vv every candidate."
    ),
]
NotKept = Annotated[bool, typer.Option("--no-db", help="Do not store results.")]


def tune_command(
    ctx: typer.Context,
    subject: Subject = None,
    expression: Expression = None,
    layers: Layers = None,
    length: Lengths = "32",
    batch: Batch = "1",
    row: Row = None,
    dtype: FloatDtype = None,
    search: Search = None,
    tries: Tries = 200,
    programs: Programs = None,
    seconds: Seconds = None,
    patience: Patience = None,
    seed: SearchSeed = 0,
    top: Top = 4,
    target: TargetName = None,
    free: Free = None,
    assemble: AssembleCandidates = False,
    predict: Predict = False,
    grid: Grid = None,
    only: TunedCases = None,
    jobs: Jobs = 1,
    executor: Executor = "processes",
    as_json: Json = False,
    verbose: Told = 0,
    db: DatabaseFile = None,
    no_db: NotKept = False,
    rules: RuleFiles = None,
    settings: Settings = None,
    exact: Exact = False,
) -> None:
    """Search the candidates of fusion and the schedules that the rules allow; remember the fastest that is right."""
    from ..tune.runner import DEFAULT_SEARCH, Budget
    from ..tune.tuning import SearchOptions
    from .tune import TuneView, tune_expression

    if executor not in ("processes", "ray"):
        raise UsageError(f"--executor {executor}: executors are processes and ray")
    many = ctx.obj.kind != "text" or bool(grid) or jobs > 1 or executor != "processes"
    flags = replace(flags_of(ctx), seed=0)  # that of the text; `--seed` is the search's
    budget, passes = Budget(tries, programs, seconds, patience), frozenset(free or ()) or None
    wanted = SearchOptions(search or DEFAULT_SEARCH, seed, budget, passes, True, predict, assemble)
    interrupted = False
    if many:
        from .tune import Many, tune_many

        interrupted = tune_many(flags, wanted, Many(ctx.obj, only, grid or [], jobs, executor, top))  # type: ignore[arg-type]
    else:
        interrupted = tune_expression(flags, wanted, TuneView(top))
    if interrupted:
        raise typer.Exit(INTERRUPTED_CODE)


# ---- view


def view_command(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUITE_OR_MODEL]", help="A suite (JSON), or a model as for `compile`.")
    ] = None,
    expression: given.Expression = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the page to a file, for any browser.")
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port of the live page (default: a free one).")] = 0,
    browse: Annotated[bool, typer.Option("--browse/--no-browse", help="Open a live page in the browser.")] = True,
    check: Annotated[bool, typer.Option("--check", help="Run in checked mode and show the cost of each line.")] = False,
    tune: Annotated[
        int | None,
        typer.Option("--tune", metavar="TRIES", min=1, help="Search schedules and show the search."),
    ] = None,
    layers: given.Layers = None,
    length: given.Length = 32,
    target: given.TargetName = None,
    rules: given.RuleFiles = None,
    settings: given.Settings = None,
    prefer: given.Preferred = None,
    seed: given.Seed = 0,
    dtype: given.FloatDtype = None,
    db: given.DatabaseFile = None,
    no_db: given.NoDatabase = False,
    explore: given.Explored = False,
    exact: given.Exact = False,
) -> None:
    """See a compile in the browser: where each line came from, what each rule did and gained. Live without -o."""
    flags = replace(flags_of(ctx), verbose=2)
    if out is not None:
        from . import view

        view.write_page(flags, out, ctx.obj, check, tune)
    else:
        from ..view.server import SearchRequest
        from .view import serve_page

        if ctx.obj.kind == "suite":
            raise UsageError("a suite is written to a file", hint=f"dplc view {ctx.obj.name} -o suite.html")
        serve_page(flags, port, browse, SearchRequest(tune or 0, explore), check, ctx.obj)


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
def global_options(
    traceback: Annotated[bool, typer.Option("--traceback", help="Show Python tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """PyTorch to CUDA, every optimisation a rule in a text file."""


@app.command("lsp")
def language_server() -> None:
    """The language server of rule files, for editors, over standard input and output."""
    from .rules import serve_editor

    serve_editor()


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
        from .dumps import compile_file

        compile_file(ctx.obj.path, flags, ir)
    elif ctx.obj.kind == "model":
        from .models import compile_command

        compile_command(ctx.obj.name, flags, weights, out, cubins, ir)
    elif out is not None:
        from .models import compile_text_command

        compile_text_command(flags, out, cubins, ir)
    else:
        from .programs import compile_expression

        compile_expression(flags, ir)


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
    check: given.CheckedMode = False,
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
        from .dumps import check_file, run_file

        if check:
            check_file(ctx.obj.path, flags, blocks, device)
        else:
            run_file(ctx.obj.path, flags, device, out, table)
    elif ctx.obj.kind == "artefact":
        from . import models as command

        wanted = command.RunFlags(weights, ids, device, seed, out, as_json, sizes, trust_edited_cuda)
        command.run_command(ctx.obj.path, wanted)
    elif check:
        from .programs import check_expression

        check_expression(flags, blocks, device)
    else:
        from .programs import run_expression

        run_expression(flags, device, out, table)


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
    from . import tune as command

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
    from .rewriting import rewrite_program

    rewrite_program(ctx.obj.path if ctx.obj.is_dump else None, flags, only or [], about or [])


app.command("tune")(tune_command)
app.command("generate")(generate_command)
app.command("bench")(bench_command)
app.command("check")(check_command)
app.command("ops")(ops_command)
app.command("calibrate")(calibrate_options)
app.command("view")(view_command)


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
        from .doctor import report

        report(as_json)
        return
    from .models import report_of_model

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
