"""`dplc`: the commands. What is heavy is imported inside of commands: `--help` is instant."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ...ir.diagnostic import INTERNAL, USAGE, DplcError, UsageError
from .options import REQUIRED, Commands, Flags, Subject

INTERRUPTED = 130
COLLECTIONS = (100_000, 20, 100)  # Python's own (700, 10, 10) look through all of torch while it is imported: 0.8 s

app = Commands(
    name="dplc",
    help="PyTorch to CUDA, every optimisation a rule in a text file.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
rules_app = Commands(name="rules", no_args_is_help=True, help="List, show and test rules.")
db_app = Commands(name="db", no_args_is_help=True, help="The tuning store: what was found, exports to share, clean-up.")
model_app = Commands(name="model", no_args_is_help=True, help="The cost model.")
for group in (rules_app, db_app, model_app):
    app.add_typer(group, name=group.info.name)

Dump = Annotated[Path | None, Argument(metavar="[FILE.ir]", help="A dump of `compile --ir`. Leave it out with -c.")]
Length = Annotated[int, Option("--seq-len", metavar="TOKENS", help="Sequence length of the model.")]
Machine = Annotated[
    str | None, Option("--target", metavar="NAME", help="Device, architecture or device file (default: what is here).")
]
DeviceFile = Annotated[Path | None, Option("--out", metavar="FILE.toml", help="Write a device file.")]
RuleFiles = Annotated[
    list[Path] | None, Argument(metavar="[FILE_OR_DIR]...", help="Rule files (default: the built-in rules).")
]
OneName = Annotated[str, Argument(metavar="NAME")]
AnyName = Annotated[str | None, Argument(metavar="[NAME]")]
Entries = Annotated[str | None, Option("--device", metavar="NAME", help="Entries of this device.")]


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
def language_server(subject: Subject, flags: Flags) -> None:
    """The language server of rule files, for editors, over standard input and output."""
    from .rules import serve_editor

    serve_editor()


@app.command(
    "compile",
    subject=Annotated[
        str | None,
        Argument(metavar="[MODEL]", help="A model: configuration, its folder, or an id of the hub. Or FILE.ir."),
    ],
)
def compile_(subject: Subject, flags: Flags) -> None:
    """Compile an expression, a dump or a model: print it at a stage, or write an artefact (not of a dump)."""
    if subject.kind == "model":
        from .models import compile_command

        compile_command(subject.name, flags, flags.weights, flags.out, flags.cubins, flags.ir)
    elif flags.out is not None:
        from .models import compile_text_command

        compile_text_command(flags, flags.out, flags.cubins, flags.ir)
    else:
        from .run import compile_program

        compile_program(subject, flags)


@app.command(
    "run",
    subject=Annotated[Path | None, Argument(metavar="[DIR]", help="An artefact of `dplc compile -o DIR`, or FILE.ir.")],
    out=Annotated[Path | None, Option("--out", metavar="FILE.npz", help="Save the outputs as out0, out1, ...")],
)
def run(subject: Subject, flags: Flags) -> None:
    """Compile an expression or a dump (or take a compiled model), run it, and compare the result with float64."""
    if subject.kind == "artefact":
        from .models import run_command

        run_command(subject.path, flags)
    else:
        from .run import check_program, run_program

        if flags.check:
            check_program(subject, flags, flags.blocks)
        else:
            run_program(subject, flags, flags.out, flags.bench, flags.profile)


@app.command(
    "fuse",
    explore=Annotated[
        bool, Option("--explore", help="Search algebra and fusion together. Otherwise the rules decide.")
    ],
    ir=Annotated[
        str | None, Option("--ir", metavar="STAGE", help="Print one candidate at a stage instead of the table.")
    ],
    run=(Annotated[bool, Option("--run", help="Run a candidate and compare it with float64.")], False),
    device=Annotated[
        str | None, Option("--device", metavar="DEVICE", help="Device for --run: cuda, emulator or reference.")
    ],
)
def fuse(subject: Subject, flags: Flags) -> None:
    """Show the ways to fuse an expression: kernels, bytes, predicted time, and the rules behind them."""
    from .tune import fuse_expression

    fuse_expression(flags)


@app.command(
    "rewrite",
    subject=Dump,
    only_rules=(
        Annotated[
            list[str] | None,
            Option("--only", metavar="RULE", help="Apply only these rules. With -c, all preceding passes run first."),
        ],
        None,
    ),
)
def rewrite(subject: Subject, flags: Flags) -> None:
    """Apply rules to a program and print what comes out."""
    from .rewriting import rewrite_program

    flags = replace(flags, verbose=2 * flags.trace)
    rewrite_program(subject.path if subject.is_dump else None, flags, flags.only_rules or [], flags.about or [])


@app.command(
    "tune",
    subject=Annotated[
        str | None,
        Argument(metavar="[SUITE.json|MODEL]", help="A suite or a model. Each distinct kernel is tuned once."),
    ],
    seed=Annotated[int, Option("--seed", help="Seed of the search.")],
    top=Annotated[
        int,
        Option("--top", metavar="K", min=1, help="Number of fusion candidates. With 1, the rules decide."),
    ],
    assemble=(
        Annotated[bool, Option("--assemble", help="Assemble candidates that may win, and reject those that spill.")],
        False,
    ),
    only=Annotated[
        str | None, Option("--only", metavar="PATTERN", help="Cases of the suite with this in their names.")
    ],
    verbose=Annotated[
        int,
        Option("-v", "--verbose", count=True, help="-v lists each improvement with what changed, -vv every candidate."),
    ],
    no_db=Annotated[bool, Option("--no-db", help="Do not store results.")],
)
def tune(subject: Subject, flags: Flags) -> None:
    """Search the candidates of fusion and the schedules that the rules allow; remember the fastest that is right."""
    from ..tune.runner import DEFAULT_SEARCH, Budget
    from ..tune.tuning import SearchOptions
    from .tune import tune_expression, tune_many

    if flags.executor not in ("processes", "ray"):
        raise UsageError(f"--executor {flags.executor}: executors are processes and ray")
    many = subject.kind != "text" or bool(flags.grid) or flags.jobs > 1 or flags.executor != "processes"
    budget = Budget(flags.tries, flags.programs, flags.seconds, flags.patience)
    wanted = SearchOptions(
        flags.search or DEFAULT_SEARCH, flags.seed, budget, frozenset(flags.free or ()) or None, True, flags.predict,
        flags.assemble,
    )  # fmt: skip
    flags = replace(flags, seed=0)  # that of the text; `--seed` is the search's
    if tune_many(flags, wanted, subject) if many else tune_expression(flags, wanted):
        raise typer.Exit(INTERRUPTED)


@app.command(
    "generate",
    subject=Annotated[str, Argument(metavar="MODEL", help="A configuration, its folder, or an id of the hub.")],
    ids=Annotated[str | None, Option("--ids", metavar="NUMBERS", help="Prompt as token ids, without a tokenizer.")],
    weights=Annotated[
        Path | None, Option("--weights", metavar="DIR", help="Safetensors (default: random weights by --seed).")
    ],
    seed=Annotated[int, Option("--seed", help="Seed of random weights.")],
    device=Annotated[
        str | None, Option("--device", metavar="DEVICE", help="cuda or emulator (default: cuda if there is a GPU).")
    ],
)
def generate(subject: Subject, flags: Flags) -> None:
    """Continue a prompt with a model, greedily, one token at a time with a cache of keys and values."""
    from .models import Prompt, Room, generate

    room = Room(flags.count, flags.maximum, flags.chunk)
    prompt = Prompt(flags.prompt, flags.ids)
    generate(subject.name, prompt, replace(flags, length="1"), room, flags.weights, flags.device)


@app.command(
    "bench",
    subject=Annotated[
        list[str] | None,
        Argument(
            metavar="[SUITE_OR_MODEL]..",
            help="A suite (JSON), a model or an artefact. With --pack: suites, or SUITE:PATTERN.",
        ),
    ],
)
def bench(subject: Subject, flags: Flags) -> None:
    """Compile a suite, a model or an expression; run, check, assemble it; predict its times; on a GPU, measure them."""
    from ..bench.bench import BenchSteps
    from . import bench as benches
    from .output import command_line

    steps, names = BenchSteps(flags.run, flags.assemble, command_line()), subject.names
    if flags.unpack is not None:
        return benches.measure_pack(flags.unpack, flags.minutes, flags.plan, flags.results)
    if flags.pack is not None:
        return benches.pack_suites(names, flags.pack, flags.candidates or 0, flags, steps.command)
    if flags.without or flags.number:
        return benches.bench_without(subject.path, flags)
    if subject.kind == "compare":
        return benches.compare_results(subject.path)
    if len(names) > 1:
        raise UsageError(f"`dplc bench` takes one program, and {len(names)} were given", hint="--pack takes several")
    if subject.kind == "text":
        return benches.bench_expression(flags, steps)
    if subject.kind == "suite":
        return benches.bench_suite(subject.path, flags, steps)
    return benches.bench_model(subject.name, flags, steps, flags.weights)


@app.command(
    "check",
    files=RuleFiles,
    subject=Annotated[
        Path | None, Option("--subject", metavar="FILE.ir", help="Check one rule on the program in a file.")
    ],
    levels=Annotated[list[str] | None, Option("--level", metavar="LEVEL", help="Rules of this level.")],
    seed=Annotated[int, Option("--seed", help="Seed of the generated programs.")],
    out=(
        Annotated[Path, Option("--out", metavar="DIR", help="Folder for counterexamples.")],
        Path("counterexamples"),
    ),
)
def check_rules(subject: Subject, flags: Flags) -> None:
    """Check rules by meaning, on programs made from their own patterns."""
    from ..verify.run import ALL, CheckOptions
    from .check import check

    assert flags.out is not None
    check(
        flags.files or [], flags.rule or [], flags.levels or [], flags.part, CheckOptions(flags.examples, flags.seed),
        subject.path if subject.is_dump else None, flags.out,
        "guards" if flags.guards else "all" if flags.mutate else None,
        ALL if flags.allow_thin else frozenset(flags.few or ()), flags.as_json, flags.verbose > 0,
    )  # fmt: skip


@app.command(
    "ops",
    names=Annotated[list[str] | None, Argument(metavar="[OP]...", help="Ops by their ATen names (default: all).")],
)
def ops(subject: Subject, flags: Flags) -> None:
    """List the torch ops that the rules take, or say what becomes of each in every dtype."""
    from .machine import list_missing, list_ops, tabulate

    names, rules = flags.names or [], flags.rules or []
    if flags.missing and (names or flags.dtypes):
        raise UsageError("`--missing` stands alone: it lists ops that have no rules")
    if flags.missing:
        list_missing(rules, flags.as_json)
    elif flags.dtypes:
        tabulate(names, rules, flags.target, flags.as_json)
    else:
        list_ops(names, rules, flags.as_json)


@app.command("calibrate", target=Machine, out=DeviceFile)
def calibrate(subject: Subject, flags: Flags) -> None:
    """Measure the constants of the model on the GPU that is here; `--target FILE.toml` uses them."""
    from .machine import calibrate_device

    calibrate_device(flags.target, flags.out, flags.as_json)


@model_app.command(
    "fit",
    file=Annotated[Path, Argument(metavar="RESULTS", help="Results of `dplc bench --unpack`.")],
    target=Machine,
    out=DeviceFile,
)
def fit(subject: Subject, flags: Flags) -> None:
    """Fit the constants of a device file to results of `dplc bench --unpack`."""
    from .machine import fit_model

    assert flags.file is not None
    fit_model(flags.file, flags.target, flags.out, flags.as_json)


@app.command(
    "view",
    subject=Annotated[
        str | None, Argument(metavar="[SUITE_OR_MODEL]", help="A suite (JSON), or a model as for `compile`.")
    ],
    out=Annotated[
        Path | None, Option("-o", "--out", metavar="FILE", help="Write the page to a file, for any browser.")
    ],
    check=Annotated[bool, Option("--check", help="Run in checked mode and show the cost of each line.")],
    length=(Length, 32),
)
def view(subject: Subject, flags: Flags) -> None:
    """See a compile in the browser: where each line came from, what each rule did and gained. Live without -o."""
    from .view import serve_page, write_page

    flags = replace(flags, verbose=2)
    if flags.out is not None:
        write_page(flags, flags.out, subject)
    elif subject.kind == "suite":
        raise UsageError("a suite is written to a file", hint=f"dplc view {subject.name} -o suite.html")
    else:
        serve_page(flags, subject, flags.port, flags.browse)


@app.command(
    "doctor",
    subject=Annotated[
        str | None, Option("--model", metavar="MODEL", help="Report the share of a model that dplc compiles.")
    ],
    length=(Length, 32),
)
def doctor(subject: Subject, flags: Flags) -> None:
    """What this machine has: compilers, GPU, caches, and what to do about what is missing. With --model: what share of
    a model's ops, and of their predicted time, dplc runs under torch.compile, and what is left to eager, and why."""
    if subject.kind == "none":
        from .doctor import report

        report(flags.as_json)
    else:
        from .models import report_of_model

        report_of_model(subject.name, flags)


# ---- rules


@rules_app.command("list")
def rules_list(subject: Subject, flags: Flags) -> None:
    """The passes in order, where each comes from, and why it stands there."""
    from .rules import list_rules

    list_rules(flags.rules or [], flags.as_json)


@rules_app.command("show", name=OneName)
def rules_show(subject: Subject, flags: Flags) -> None:
    """One rule, with its documentation and examples."""
    from .rules import show_rule

    show_rule(flags.name, flags.rules or [])


@rules_app.command("facts", name=AnyName)
def rules_facts(subject: Subject, flags: Flags) -> None:
    """The questions and functions that a rule may ask, with their sorts and a sentence each."""
    from .rules import show_facts

    show_facts(flags.name, flags.level, flags.rules or [], flags.as_json)


@rules_app.command("nodes", name=AnyName)
def rules_nodes(subject: Subject, flags: Flags) -> None:
    """What programs are made of: statements, values, ops of torch, with their fields, sorts and defaults."""
    from .rules import show_nodes

    show_nodes(flags.name, flags.level, flags.as_json)


@rules_app.command(
    "fmt",
    files=Annotated[list[Path], Argument(metavar="FILE_OR_DIR...", help="Rule files; `-` is standard input.")],
    check=Annotated[bool, Option("--check", help="Write nothing, and exit with 1 if a file is not formatted.")],
)
def rules_fmt(subject: Subject, flags: Flags) -> None:
    """Lay rule files out: one spelling of every line. Comments, blank lines and the meaning stay."""
    from .rules import format_files

    format_files(flags.files or [], flags.check, flags.diff)


@rules_app.command(
    "new",
    name=Annotated[str, Argument(metavar="NAME", help="The name of the rule.")],
    level=(
        Annotated[str, Option("--level", metavar="LEVEL", help="Level of the rule: tensor, loop, tile or kernel.")],
        "tensor",
    ),
    out=Annotated[Path | None, Option("-o", "--out", metavar="FILE", help="Output file.")],
)
def rules_new(subject: Subject, flags: Flags) -> None:
    """Write a rule to fill in: the pattern is a program, or a piece of one, with an example and a refusal."""
    from .rules import new_rule

    new_rule(flags.name, flags.lines, flags.op, flags.level or "tensor", flags, flags.out)


@rules_app.command("lint", files=RuleFiles)
def rules_lint(subject: Subject, flags: Flags) -> None:
    """Report parts of rules without effect: unused local rules, idle guards, unknown devices."""
    from .rules import lint_rules

    lint_rules(flags.files or [], flags.subjects, flags.as_json)


@rules_app.command(
    "doc", out=(Annotated[Path, Option("-o", "--out", metavar="DIR", help="Folder of the pages.")], REQUIRED)
)
def rules_doc(subject: Subject, flags: Flags) -> None:
    """Write all rules, statements, facts and constants as Markdown pages."""
    from .rules import write_pages

    assert flags.out is not None
    write_pages(flags.out, flags.rules or [], flags.suite)


@rules_app.command("why", name=OneName, subject=Dump)
def rules_why(subject: Subject, flags: Flags) -> None:
    """Where a rule fires in a program and what it weighed there, or why it does not fire."""
    from .rewriting import why_rule

    why_rule(flags.name, subject.path if subject.is_dump else None, flags)


@rules_app.command("test", files=RuleFiles)
def rules_test(subject: Subject, flags: Flags) -> None:
    """Check rules statically and run their examples."""
    from .rules import accept_examples, test_rules

    files = [*(flags.files or []), *(flags.rules or [])]
    if flags.accept:
        accept_examples(files)
    test_rules(files)


# ---- the tuning store


@db_app.command("stats")
def db_stats(subject: Subject, flags: Flags) -> None:
    """Where the store is, how large, and what is in it."""
    from .database import stats

    stats(flags.db, flags.as_json)


@db_app.command("list", device=Entries)
def db_list(subject: Subject, flags: Flags) -> None:
    """A line for each remembered schedule: predicted or measured, against the default order."""
    from .database import list_entries

    list_entries(flags.db, flags.device, flags.as_json)


@db_app.command("show", name=Annotated[str, Argument(metavar="KERNEL", help="Prefix of a kernel's key, from `list`.")])
def db_show(subject: Subject, flags: Flags) -> None:
    """Everything about a kernel's schedules: the firings, the rules they use, how the figures came about."""
    from .database import show

    show(flags.db, flags.name, flags.as_json)


@db_app.command(
    "export",
    file=Annotated[Path | None, Argument(metavar="[FILE]", help="Output file (default: standard output).")],
    device=Entries,
)
def db_export(subject: Subject, flags: Flags) -> None:
    """Write schedules as text, one line each, sorted: made to be committed and shared."""
    from .database import export

    export(flags.db, flags.file, flags.device, flags.attempts)


@db_app.command("import", file=Annotated[Path, Argument(metavar="FILE")])
def db_import(subject: Subject, flags: Flags) -> None:
    """Merge an export: what is new or better on its own basis is kept."""
    from .database import import_file

    assert flags.file is not None
    import_file(flags.db, flags.file)


@db_app.command("prune", attempts=Annotated[bool, Option("--attempts", help="Delete every attempt as well.")])
def db_prune(subject: Subject, flags: Flags) -> None:
    """Remove the schedules whose rules have changed."""
    from .database import prune

    prune(flags.db, flags.rules or [], flags.attempts, flags.dry_run)


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
