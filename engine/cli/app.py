"""`dplc`: the commands. A command imports the file of its handler when it runs, so that `--help` is instant."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import typer

from ...ir.diagnostic import INTERNAL, USAGE, DplcError, UsageError
from .options import REQUIRED, Commands, argument, arrays_file, option

INTERRUPTED = 130
COLLECTIONS = (100_000, 20, 100)  # Python's own (700, 10, 10) look through all of torch while it is imported: 0.8 s

app = Commands(
    name="dplc",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
rules_app = Commands(name="rules", no_args_is_help=True, help="List, show and test rules.")
db_app = Commands(name="db", no_args_is_help=True, help="The tuning store: what was found, exports to share, clean-up.")
model_app = Commands(name="model", no_args_is_help=True, help="The cost model.")
for group in (rules_app, db_app, model_app):
    app.add_typer(group, name=group.info.name)


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


DUMP = argument("[FILE.ir]", "A dump of `compile --ir`. Leave it out with -c.")
FILES = argument("[FILE_OR_DIR]...", "Rule files (default: the built-in rules).")
LENGTH = option("Sequence length of the model.")
TARGET = option("Device, architecture or device file (default: what is here).", "NAME")
DEVICE_FILE = option("Write a device file.", "--out FILE.toml")
ENTRIES = option("Entries of this device.", "NAME")

app.add("lsp", "rules.serve_editor", "The language server of rule files, for editors, over standard input and output.")


app.add(
    "compile",
    lambda flags: (
        "models.compile_artefact" if flags.out or flags.subject.kind == "model" else "programs.compile_program"
    ),
    "Compile an expression, a dump or a model: print it at a stage, or write an artefact (not of a dump).",
    subject=argument("[MODEL]", "A model: configuration, its folder, or an id of the hub. Or FILE.ir."),
)
app.add(
    "run",
    lambda flags: "models.run_artefact" if flags.subject.kind == "artefact" else "programs.run_program",
    "Compile an expression or a dump (or take a compiled model), run it, and compare the result with float64.",
    subject=argument("[DIR]", "An artefact of `dplc compile -o DIR`, or FILE.ir."),
    out=option("Save the outputs as out0, out1, ...", "--out FILE.npz", parser=arrays_file),
)
app.add(
    "fuse",
    "tune.fuse",
    "Show the ways to fuse an expression: kernels, bytes, predicted time, and the rules behind them.",
    explore=option("Search algebra and fusion together. Otherwise the rules decide."),
    ir=option("Print one candidate at a stage instead of the table."),
    run=option("Run a candidate and compare it with float64.", "--run", default=False),
    device=option("Device for --run: cuda, emulator or reference."),
)
app.add(
    "rewrite",
    "rewriting.rewrite_program",
    "Apply rules to a program and print what comes out.",
    subject=DUMP,
    only_rules=option("Apply only these rules. With -c, all preceding passes run first.", "--only RULE"),
)
app.add(
    "tune",
    "tune.tune",
    "Search the candidates of fusion and the schedules that the rules allow; remember the fastest that is right.",
    subject=argument("[SUITE.json|MODEL]", "A suite or a model. Each distinct kernel is tuned once."),
    seed=option("Seed of the search."),
    top=option("Number of fusion candidates. With 1, the rules decide."),
    assemble=option("Assemble candidates that may win, and reject those that spill.", "--assemble", default=False),
    only=option("Cases of the suite with this in their names."),
    verbose=option("-v lists each improvement with what changed, -vv every candidate."),
    no_db=option("Do not store results."),
)
app.add(
    "generate",
    "models.generate",
    "Continue a prompt with a model, greedily, one token at a time with a cache of keys and values.",
    subject=argument("MODEL", "A configuration, its folder, or an id of the hub."),
    ids=option("Prompt as token ids, without a tokenizer."),
    weights=option("Safetensors (default: random weights by --seed)."),
    seed=option("Seed of random weights."),
    device=option("cuda or emulator (default: cuda if there is a GPU)."),
)
app.add(
    "bench",
    "bench.bench",
    "Compile a suite, a model or an expression; run, check, assemble it; predict its times; on a GPU, measure them.",
    subject=argument(
        "[SUITE_OR_MODEL]..", "A suite (JSON), a model or an artefact. With --pack: suites, or SUITE:PATTERN."
    ),
)
app.add(
    "check",
    "check.check",
    "Check rules by meaning, on programs made from their own patterns.",
    files=FILES,
    subject=option("Check one rule on the program in a file.", "--subject FILE.ir"),
    levels=option("Rules of this level.", "--level LEVEL"),
    seed=option("Seed of the generated programs."),
    out=option("Folder for counterexamples.", "--out DIR", default=Path("counterexamples")),
)
app.add(
    "ops",
    "machine.ops",
    "List the torch ops that the rules take, or say what becomes of each in every dtype.",
    names=argument("[OP]...", "Ops by their ATen names (default: all)."),
)
app.add(
    "calibrate",
    "machine.calibrate_device",
    "Measure the constants of the model on the GPU that is here; `--target FILE.toml` uses them.",
    target=TARGET,
    out=DEVICE_FILE,
)
model_app.add(
    "fit",
    "machine.fit_model",
    "Fit the constants of a device file to results of `dplc bench --unpack`.",
    file=argument("RESULTS", "Results of `dplc bench --unpack`."),
    target=TARGET,
    out=DEVICE_FILE,
)
app.add(
    "view",
    "view.view",
    "See a compile in the browser: where each line came from, what each rule did and gained. Live without -o.",
    subject=argument("[SUITE_OR_MODEL]", "A suite (JSON), or a model as for `compile`."),
    out=option("Write the page to a file, for any browser.", "-o --out FILE"),
    check=option("Run in checked mode and show the cost of each line."),
    length=LENGTH,
)
app.add(
    "doctor",
    lambda flags: "doctor.report" if flags.subject.kind == "none" else "models.report_of_model",
    "What this machine has: compilers, GPU, caches, and what to do about what is missing. With --model: what share of a"
    " model's ops, and of their predicted time, dplc runs under torch.compile, and what is left to eager, and why.",
    subject=option("Report the share of a model that dplc compiles.", "--model MODEL"),
    length=LENGTH,
)

# ---- rules

rules_app.add("list", "rules.list_rules", "The passes in order, where each comes from, and why it stands there.")
rules_app.add("show", "rules.show_rule", "One rule, with its documentation and examples.", name=argument("NAME"))
rules_app.add(
    "facts",
    "rules.show_facts",
    "The questions and functions that a rule may ask, with their sorts and a sentence each.",
    name=argument("[NAME]"),
)
rules_app.add(
    "nodes",
    "rules.show_nodes",
    "What programs are made of: statements, values, ops of torch, with their fields, sorts and defaults.",
    name=argument("[NAME]"),
)
rules_app.add(
    "fmt",
    "rules.format_files",
    "Lay rule files out: one spelling of every line. Comments, blank lines and the meaning stay.",
    files=argument("FILE_OR_DIR...", "Rule files; `-` is standard input."),
    check=option("Write nothing, and exit with 1 if a file is not formatted."),
)
rules_app.add(
    "new",
    "rules.new_rule",
    "Write a rule to fill in: the pattern is a program, or a piece of one, with an example and a refusal.",
    name=argument("NAME", "The name of the rule."),
    level=option("Level of the rule: tensor, loop, tile or kernel.", "LEVEL", default="tensor"),
    out=option("Output file.", "-o --out FILE"),
)
rules_app.add(
    "lint",
    "rules.lint_rules",
    "Report parts of rules without effect: unused local rules, idle guards, unknown devices.",
    files=FILES,
)
rules_app.add(
    "doc",
    "rules.write_pages",
    "Write all rules, statements, facts and constants as Markdown pages.",
    out=option("Folder of the pages.", "-o --out DIR", default=REQUIRED),
)
rules_app.add(
    "why",
    "rewriting.why_rule",
    "Where a rule fires in a program and what it weighed there, or why it does not fire.",
    name=argument("NAME"),
    subject=DUMP,
)
rules_app.add("test", "rules.test_rules", "Check rules statically and run their examples.", files=FILES)

# ---- the tuning store

db_app.add("stats", "database.stats", "Where the store is, how large, and what is in it.")
db_app.add(
    "list",
    "database.list_entries",
    "A line for each remembered schedule: predicted or measured, against the default order.",
    device=ENTRIES,
)
db_app.add(
    "show",
    "database.show",
    "Everything about a kernel's schedules: the firings, the rules they use, how the figures came about.",
    name=argument("KERNEL", "Prefix of a kernel's key, from `list`."),
)
db_app.add(
    "export",
    "database.export",
    "Write schedules as text, one line each, sorted: made to be committed and shared.",
    file=argument("[FILE]", "Output file (default: standard output)."),
    device=ENTRIES,
)
db_app.add(
    "import",
    "database.import_file",
    "Merge an export: what is new or better on its own basis is kept.",
    file=argument("FILE"),
)
db_app.add(
    "prune",
    "database.prune",
    "Remove the schedules whose rules have changed.",
    attempts=option("Delete every attempt as well."),
)


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
