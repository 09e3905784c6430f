"""The options of all commands, the subjects of commands, and the one table of which option applies to which subject."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Option
from typer.core import TyperCommand
from typer.models import OptionInfo

from ...codegen.target import target
from ...ir.diagnostic import UsageError


def _known_target(name: str | None) -> str | None:
    """Refuses what is not a target before anything heavy is imported."""
    if name is not None:
        target(name)
    return name


@dataclass(frozen=True)
class Flags:
    """The options of a command as they were typed, and its arguments. An option is declared here, and its help where
    `Commands.command` replaces it. text: of the subject."""

    text: str = ""
    expression: Annotated[
        str | None,
        Option(
            "-c",
            metavar="EXPR",
            help="Python text: statements, then an expression over torch, nn, F, math. `-` reads standard input.",
        ),
    ] = None
    # what is compiled, and how
    seed: Annotated[int, Option("--seed", help="Seed of torch for the expression.")] = 0
    dtype: Annotated[
        str | None, Option("--dtype", metavar="DTYPE", help="Dtype of the model, or of `-c` tensors without a dtype.")
    ] = None
    rules: Annotated[
        list[Path] | None,
        Option("--rules", metavar="FILE_OR_DIR", help="Your .rw files, in addition to the built-in rules."),
    ] = None
    settings: Annotated[
        list[str] | None, Option("--set", metavar="RULE.PARAM=VALUE", help="Pin a rule's parameter.")
    ] = None
    prefer: Annotated[
        list[str] | None,
        Option("--prefer", metavar="RULE", help="Apply this rule wherever it is legal, profitable or not."),
    ] = None
    exact: Annotated[
        bool, Option("--exact", help="Disable rules that reorder floating-point operations (@approx).")
    ] = False
    target: Annotated[
        str | None,
        Option(
            "--target",
            metavar="sm_NN",
            callback=_known_target,
            help="Architecture or device to compile for (default: the GPU present, else sm_80).",
        ),
    ] = None
    explore: Annotated[
        bool, Option("--explore", help="Search algebra and fusion together, and use the best candidate.")
    ] = False
    db: Annotated[
        Path | None,
        Option("--db", metavar="FILE", help="The tuning store (default: in the user's cache directory)."),
    ] = None
    no_db: Annotated[bool, Option("--no-db", help="Ignore tuned schedules.")] = False
    sizes: Annotated[
        list[str] | None,
        Option("--size", metavar="NAME=N[,N..]", help="Value of a symbolic dimension. `run` and `bench` take several."),
    ] = None
    # the shape of a model, and its weights
    layers: Annotated[int | None, Option("--layers", min=1, help="Number of leading blocks of the model.")] = None
    length: Annotated[
        str, Option("--seq-len", metavar="TOKENS", help="Sequence length of the model, or a range A..B.")
    ] = "32"
    batch: Annotated[str, Option("--batch", metavar="N", help="Batch size of the model, or a range A..B.")] = "1"
    rows: Annotated[
        str | None, Option("--rows", metavar="N[,N..]", help="Upper ends of the shape buckets of a range, or none.")
    ] = None
    weights: Annotated[
        Path | None, Option("--weights", metavar="DIR", help="Safetensors of a model (default: symbolic weights).")
    ] = None
    ids: Annotated[
        str | None, Option("--ids", metavar="NUMBERS", help="Input tokens of the model (default: random, by --seed).")
    ] = None
    trust_edited_cuda: Annotated[
        bool, Option("--trust-edited-cuda", help="Accept edited CUDA, which the emulator compiles and runs here.")
    ] = False
    cubins: Annotated[
        bool, Option("--cubins/--no-cubins", help="Also assemble the kernels, which needs NVRTC or nvcc.")
    ] = True
    # what is shown or written
    ir: Annotated[
        str | None,
        Option("--ir", metavar="STAGE", help="Print torch, tensor, loop, tile, kernel or cuda (default cuda)."),
    ] = None
    verbose: Annotated[
        int, Option("-v", "--verbose", count=True, help="-v lists the rules that fired, -vv prints a diff for each.")
    ] = 0
    why_not: Annotated[
        list[str] | None,
        Option("--why-not", metavar="RULE|each", help="Print why a rule did not match, or why each did not."),
    ] = None
    as_json: Annotated[bool, Option("--json", help="Machine-readable output.")] = False
    out: Annotated[Path | None, Option("-o", "--out", metavar="DIR", help="Write an artefact for `dplc run DIR`.")] = (
        None
    )
    markdown: Annotated[Path | None, Option("--markdown", metavar="FILE", help="Write the table as a page.")] = None
    profile: Annotated[bool, Option("--profile", help="Show utilisation, occupancy and bottleneck of each kernel.")] = (
        False
    )
    # run, fuse, rewrite, view
    device: Annotated[
        str | None,
        Option("--device", metavar="DEVICE", help="cuda, cuda:N, emulator or reference (default: a GPU if any)."),
    ] = None
    check: Annotated[
        bool, Option("--check", help="Run in the emulator's checked mode: races, bounds, waits; access costs.")
    ] = False
    blocks: Annotated[
        str | None,
        Option("--blocks", metavar="LIST", help="Blocks to check: first,last,ragged (default), all, or numbers."),
    ] = None
    bench: Annotated[bool, Option("--bench", help="Show a table of kernels: predicted, and measured on a GPU.")] = False
    top: Annotated[int, Option("--top", min=1, metavar="K", help="Number of candidates to show.")] = 4
    candidate: Annotated[
        int | None, Option("--candidate", min=1, metavar="N", help="Candidate for --ir and --run (default 1).")
    ] = None
    trace: Annotated[bool, Option("--trace", help="Print a diff for each firing and a reason for each rejection.")] = (
        False
    )
    only_rules: list[str] | None = None
    about: Annotated[
        list[str] | None, Option("--about", metavar="RULE", help="Apply all rules and show only these.")
    ] = None
    port: Annotated[int, Option("--port", metavar="N", help="Port of the live page (default: a free one).")] = 0
    browse: Annotated[bool, Option("--browse/--no-browse", help="Open a live page in the browser.")] = True
    tune: Annotated[
        int | None, Option("--tune", metavar="TRIES", min=1, help="Search schedules and show the search.")
    ] = None
    # bench
    only: Annotated[
        str | None, Option("--only", metavar="PATTERN", help="Cases with this in their names; `*` is allowed.")
    ] = None
    run: Annotated[bool, Option("--run/--no-run", help="Run and check every case (on a GPU: measure).")] = True
    assemble: Annotated[
        bool, Option("--assemble/--no-assemble", help="Assemble every kernel: registers, spills, hot loops.")
    ] = True
    pack: Annotated[
        Path | None,
        Option("--pack", metavar="FILE.dplc", help="Write suites as one file for a machine with a GPU."),
    ] = None
    candidates: Annotated[
        int | None,
        Option("--candidates", min=0, help="Number of cases with five schedules each, for `model fit` (--pack)."),
    ] = None
    unpack: Annotated[
        Path | None,
        Option("--unpack", metavar="FILE.dplc", help="Measure a pack; `python FILE.dplc` does the same."),
    ] = None
    minutes: Annotated[float | None, Option("--minutes", min=0, help="Time limit (--unpack, default 8).")] = None
    plan: Annotated[bool, Option("--plan", help="Print the steps and their expected seconds (--unpack).")] = False
    results: Annotated[
        Path | None, Option("-o", metavar="FILE.json", help="Results file (--unpack, default results.json).")
    ] = None
    without: Annotated[
        list[str] | None,
        Option("--without", metavar="RULE[,RULE]|each", help="Predict the suite without a rule, or each rule."),
    ] = None
    number: Annotated[
        list[str] | None,
        Option("--number", metavar="NAME=V|each", help="Predict the suite with a number, or each moved by half."),
    ] = None
    compare: Annotated[
        Path | None, Option("--compare", metavar="RESULTS", help="Show times of --unpack next to predicted ones.")
    ] = None
    # tune
    search: Annotated[
        str | None, Option("--search", metavar="NAME", help="Search: hill (default), mcts or random.")
    ] = None
    tries: Annotated[int, Option("--tries", min=1, help="Number of candidates for each kernel.")] = 200
    programs: Annotated[
        int | None, Option("--programs", min=1, help="Maximum number of distinct programs for each kernel.")
    ] = None
    seconds: Annotated[
        float | None, Option("--time", metavar="SECONDS", min=0.0, help="Time limit for each kernel.")
    ] = None
    patience: Annotated[
        int | None, Option("--patience", min=1, help="Maximum number of programs without an improvement.")
    ] = None
    free: Annotated[
        list[str] | None,
        Option("--free", metavar="PASS", help="Search only these passes. All others run by default."),
    ] = None
    predict: Annotated[bool, Option("--predict", help="Use the cost model even if a GPU could measure.")] = False
    grid: Annotated[
        list[str] | None, Option("--grid", metavar="M=1,8,64", help="Tune -c at each of these sizes; repeatable.")
    ] = None
    jobs: Annotated[int, Option("--jobs", min=1, help="Number of kernels tuned in parallel.")] = 1
    executor: Annotated[
        str, Option("--executor", metavar="NAME", help="Executor of jobs: processes, or ray (a cluster).")
    ] = "processes"
    row: Annotated[
        list[str] | None,
        Option(
            "--row",
            metavar="[NAME=]A..B",
            help="With --seq-len A..B or dim(s, A..B): tune the part of the range that `--rows` compiles alone; A..B:N "
            "times it at N (default: at B).",
        ),
    ] = None
    # generate
    prompt: Annotated[str | None, Option("--prompt", metavar="TEXT", help="Text to continue.")] = None
    count: Annotated[
        int, Option("--max-new-tokens", min=1, metavar="N", help="Maximum number of tokens to generate.")
    ] = 32
    maximum: Annotated[
        int | None,
        Option("--max-length", min=2, metavar="L", help="Maximum length of prompt and text (default: their sum)."),
    ] = None
    chunk: Annotated[
        int | None,
        Option("--chunk", min=1, metavar="N", help="Process the prompt in chunks of N tokens, which saves memory."),
    ] = None
    # rules and ops
    name: str = ""
    files: list[Path] | None = None
    file: Path | None = None
    names: list[str] | None = None
    level: Annotated[
        str | None,
        Option("--level", metavar="LEVEL", help="Entries of one level: torch, tensor, module, loop, tile or kernel."),
    ] = None
    diff: Annotated[bool, Option("--diff", help="Write nothing, and print the diff.")] = False
    lines: Annotated[
        str | None, Option("--from", metavar="FILE.ir:10-20", help="Lines of a dump of `compile --ir`.")
    ] = None
    op: Annotated[
        str | None, Option("--op", metavar="OP", help="A torch op. With -c, types and an example as well.")
    ] = None
    subjects: Annotated[
        bool, Option("--subjects", help="Also test every guard on the programs of all examples (seconds).")
    ] = False
    suite: Annotated[Path | None, Option("--suite", metavar="SUITE", help="Add the firings in a suite (minutes).")] = (
        None
    )
    accept: Annotated[bool, Option("--accept", help="Write the present results into the examples of the files.")] = (
        False
    )
    dtypes: Annotated[
        bool, Option("--dtypes", help="Run every op in every dtype and compare with float64 (some minutes).")
    ] = False
    missing: Annotated[
        bool, Option("--missing", help="List the ops of PyTorch that neither a rule nor a decomposition takes.")
    ] = False
    # check
    rule: Annotated[list[str] | None, Option("--rule", metavar="NAME", help="One rule, family or file.")] = None
    levels: list[str] | None = None
    examples: Annotated[int, Option("--examples", min=0, help="Number of generated programs for each rule.")] = 40
    part: Annotated[str, Option("--part", metavar="K/N", help="Check every N-th rule, from the K-th.")] = "1/1"
    mutate: Annotated[
        bool, Option("--mutate", help="Mutate each rule and report the mutants that no check detects.")
    ] = False
    guards: Annotated[bool, Option("--guards", help="Remove one `where` at a time and report undetected mutants.")] = (
        False
    )
    allow_thin: Annotated[
        bool, Option("--allow-thin", help="Accept rules that fired on fewer than 20 distinct programs.")
    ] = False
    few: Annotated[list[str] | None, Option("--few", metavar="NAME", help="Accept few programs for this rule.")] = None
    # the tuning store
    attempts: Annotated[
        bool, Option("--attempts", help="Write every measurement, with the features of its kernels.")
    ] = False
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be deleted.")] = False

    @property
    def pinned(self) -> list[str]:
        """The settings of `--set`, and what `--prefer` is short for."""
        return [*(self.settings or ()), *(f"{rule}.prefer=false" for rule in self.prefer or ())]


# ---- subjects, and the options that apply to them


LEVELS = ("torch", "tensor", "loop", "tile", "kernel")  # of dumps
KINDS = {  # what a subject is called, and how one is given
    "none": ("no program", ""),
    "text": ("an expression", "-c EXPR"),
    **{level: (f"a dump of {level.capitalize()} IR", "") for level in LEVELS},
    "dump": ("a dump", "FILE.ir"),  # of any level
    "model": ("a model", "a configuration, its folder, or an id of the hub"),
    "artefact": ("an artefact", "what `dplc compile -o DIR` wrote"),
    "suite": ("a suite", "SUITE.json"),
    "lines": ("lines of a dump", "--from FILE.ir:10-20"),
    "op": ("a torch op", "--op OP"),
    "unpack": ("a pack", "--unpack FILE.dplc"),
    "compare": ("results", "--compare RESULTS"),
}
SUBJECTS = ("op", "lines", "unpack", "subject", "expression", "compare")  # parameters of commands that name one

RULES = "--rules --set --prefer --exact --target"
SHAPE = "--layers --seq-len --batch --dtype"
BUDGET = "--search --tries --programs --time --patience --assemble --predict"
STORE = "without --no-db --set --prefer"  # what is pinned is what happens: no store is read

# command: {"KIND.. [with OPTION..] [without OPTION..]": "OPTION.."}: these options apply to a subject of one of the
# kinds, if one of the options behind `with` was given, and none of those behind `without`.
TABLE: dict[str, dict[str, str]] = {
    "compile": {
        "text dump model": "--ir --target --json",
        "text torch tensor loop tile model": "--rules --set --prefer --exact --verbose --why-not",
        "text torch tensor loop model": "--no-db",
        f"text torch tensor loop model {STORE}": "--db",
        "text torch tensor model": "--explore",
        "text model": "--dtype --out",
        "text model with --out": "--cubins",
        "text": "--seed",
        "text with --out": "--rows",
        "dump": "--size",
        "model": "--layers --seq-len --batch --rows --weights",
    },
    "run": {
        "text dump artefact": "--device --seed --json --size",
        "text dump artefact without --check": "--out",
        "text dump": "--target --check",
        "text dump with --check": "--blocks",
        "text torch tensor loop tile": "--rules --set --prefer --exact --verbose --why-not",
        "text torch tensor loop tile without --check": "--bench",
        "text torch tensor loop tile with --bench": "--profile",
        "text torch tensor loop": "--no-db",
        f"text torch tensor loop {STORE}": "--db",
        "text torch tensor": "--explore",
        "text": "--dtype",
        "artefact": "--weights --ids --trust-edited-cuda",
    },
    "fuse": {
        "text": f"{RULES} --seed --explore --ir --run",
        "text without --ir": "--json",
        "text with --explore": "--top",
        "text with --ir --run": "--candidate",
        "text with --run": "--device",
    },
    "rewrite": {
        "text dump": f"{RULES} --trace --only",
        "text dump with --trace": "--about",
        "text": "--seed --dtype",
    },
    "view": {
        "text model suite": f"{RULES} --out",
        "text model without --out": "--port --browse",
        "text model": "--dtype --explore",
        "text model with --out": "--no-db",
        f"text model with --out {STORE}": "--db",
        "text": "--seed --check --tune",
        "model": "--layers --seq-len",
    },
    "tune": {
        "text model suite": f"{BUDGET} --rules --set --exact --target --seed --free --top --json --no-db "
        "--jobs --executor",
        "text model suite without --no-db": "--db",
        "text model suite without --jobs --executor": "--verbose",
        "text model": "--row --dtype",
        "text": "--grid",
        "model": "--layers --seq-len --batch",
        "suite": "--only",
    },
    "bench": {
        "text model suite artefact without --pack": "--json",
        "text model suite artefact without --pack --without --number": "--markdown --run --assemble",
        "text model suite": RULES,
        "unpack": "--minutes --plan",
        "unpack without --plan": "-o",
        "suite without --without --number": "--compare",
        "suite without --compare --without --number": "--pack",
        "suite without --pack --compare": "--without --number",
        "suite with --without --number": "-o",
        "suite with --pack": "--candidates",
        "text model artefact": "--profile",
        "text model": "--dtype --size --explore",
        "text": "--seed",
        "model": "--layers --seq-len --batch",
        "model artefact": "--weights",
        "artefact": "--trust-edited-cuda",
        "suite without --pack": "--only",
        "compare": "",
    },
    "generate": {
        "model": "--prompt --ids --max-new-tokens --max-length --chunk --weights --dtype --layers --device --target "
        "--rules --set --exact --json --no-db",
        "model without --no-db --set": "--db",
        "model without --weights": "--seed",
    },
    "doctor": {"none": "--json", "model": f"{SHAPE} --target --json"},
    "check": {
        "none dump": "--rule --level --part",
        "none": "--examples --seed --json --guards",
        "none without --guards": "--mutate",
        "none without --guards --mutate": "--out --allow-thin --verbose",
        "none without --guards --mutate --allow-thin": "--few",
    },
    "ops": {"none": "--json --rules --missing", "none without --missing": "--dtypes", "none with --dtypes": "--target"},
    "calibrate": {"none": "--target --out --json"},
    "model fit": {"none": "--target --out --json"},
    "lsp": {},
    "rules list": {"none": "--rules --json"},
    "rules show": {"none": "--rules"},
    "rules facts": {"none": "--level --rules --json"},
    "rules nodes": {"none": "--level --json"},
    "rules fmt": {"none": "--check --diff"},
    "rules lint": {"none": "--subjects --json"},
    "rules doc": {"none": "--out --rules --suite"},
    "rules test": {"none": "--rules --accept"},
    "rules why": {"text dump": f"{RULES} --json", "text": "--seed --dtype"},
    "rules new": {
        "text lines op": "--out",
        "text": "--level --rules --target --seed --dtype",
        "op": "-c",
        "op with -c": "--seed --dtype",
    },
    "db stats": {"none": "--db --json"},
    "db list": {"none": "--db --device --json"},
    "db show": {"none": "--db --json"},
    "db export": {"none": "--db --device --attempts"},
    "db import": {"none": "--db"},
    "db prune": {"none": "--db --rules --attempts --dry-run"},
}


@dataclass(frozen=True)
class Subject:
    """The program that a command works on. kind: of KINDS; names: the text of `-c`, else what was given."""

    kind: str = "none"
    names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first name."""
        return self.names[0] if self.names else ""

    @property
    def text(self) -> str:
        """The text of `-c`; none of another subject."""
        return self.name if self.kind == "text" else ""

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def is_dump(self) -> bool:
        return self.kind in (*LEVELS, "dump")


@dataclass(frozen=True)
class Applies:
    """A line of the table: these options apply to subjects of these kinds, if one of `needs` was given and none of
    `without`."""

    options: tuple[str, ...]
    kinds: frozenset[str]
    needs: tuple[str, ...]
    without: tuple[str, ...]

    def is_for(self, kind: str) -> bool:
        """Whether it is about a kind. A dump whose level nobody can read is one of any level."""
        return kind in self.kinds or (kind == "dump" and not self.kinds.isdisjoint(LEVELS))


@cache
def lines_of(command: str) -> tuple[Applies, ...]:
    """The lines of a command, without `dplc`: `rules why`."""
    made = []
    for key, options in TABLE[command].items():
        rest, _, without = key.partition(" without ")
        kinds, _, needs = rest.partition(" with ")
        expanded = {kind for word in kinds.split() for kind in (LEVELS if word == "dump" else (word,))}
        made.append(Applies(tuple(options.split()), frozenset(expanded), tuple(needs.split()), tuple(without.split())))
    return tuple(made)


def name_of(parameter: Any) -> str:
    """An option as the table has it: its long name; an argument by its metavar."""
    return str(
        max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.metavar.strip("[].")
    )


class Checked(TyperCommand):
    """A command that looks its subject and its options up in the table before it runs; `ctx.obj` is the subject."""

    def invoke(self, ctx: Any) -> Any:
        ctx.obj = subject_of(ctx)
        check_options(ctx, ctx.obj)
        return super().invoke(ctx)


class Commands(typer.Typer):
    """A group of commands, each with the options that the table names for it."""

    def command(  # type: ignore[override]
        self, name: str, /, **declared: Any
    ) -> Callable[[Handler], Handler]:
        """Add a command: a function of its subject and flags.

        declared: arguments, and options with another type or help than in `Flags`, as {field: Annotated}, or
        {field: (Annotated, default)}.
        """
        words = f"{self.info.name} {name}" if self.info.name != "dplc" else str(name)

        def add(function: Handler) -> Handler:
            @functools.wraps(function)
            def run(ctx: typer.Context, **_: Any) -> None:
                function(ctx.obj, flags_of(ctx))

            run.__annotations__ = {}
            run.__signature__ = inspect.Signature([CONTEXT, *_parameters(words, declared)])  # type: ignore[attr-defined]
            super(Commands, self).command(name, cls=Checked)(run)
            return function

        return add


Handler = Callable[["Subject", Flags], None]
KEYWORD, REQUIRED = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
CONTEXT = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


@cache
def _fields() -> dict[str, tuple[str, Any, Any]]:
    """{option: (its field of `Flags`, type, default)}; of two fields for one option, the first."""
    found: dict[str, tuple[str, Any, Any]] = {}
    hints = get_type_hints(Flags, include_extras=True)
    for field in fields(Flags):
        if option := _option(hints[field.name]):
            found.setdefault(option, (field.name, hints[field.name], field.default))
    return found


def _option(declared: Any) -> str:
    """The long name of an option that is declared by Annotated; "" for an argument."""
    for info in getattr(declared, "__metadata__", ()):
        if isinstance(info, OptionInfo):
            return max(map(str, (info.default, *(info.param_decls or ()))), key=len).partition("/")[0]
    return ""


def _parameters(command: str, declared: dict[str, Any]) -> list[inspect.Parameter]:
    """The parameters of a command: those declared, then its other programs and options by the table."""
    defaults = {field.name: field.default for field in fields(Flags)}
    found: dict[str, tuple[Any, Any]] = {}
    for name, one in declared.items():
        optional = type(None) in getattr(getattr(one, "__origin__", None), "__args__", ())
        default = defaults.get(name) if _option(one) else None if optional else REQUIRED
        found[name] = one if isinstance(one, tuple) else (one, default)
    kinds = {kind for line in lines_of(command) for kind in line.kinds}
    kinds |= {"expression"} if "text" in kinds else set()
    programs = [option for option, (name, *_) in _fields().items() if name in kinds.intersection(SUBJECTS)]
    named = {_option(kind) for kind, _ in found.values()}
    for option in dict.fromkeys((*programs, *(option for line in lines_of(command) for option in line.options))):
        if option not in named:
            name, *rest = _fields()[option]
            found[name] = rest[0], rest[1]
    return [
        inspect.Parameter(name, KEYWORD, annotation=kind, default=default) for name, (kind, default) in found.items()
    ]


def command_of(ctx: Any) -> str:
    """The words of the command behind `dplc`."""
    return " ".join(str(ctx.command_path).split()[1:])


def flags_of(ctx: Any) -> Flags:
    """The options of a command as they were typed."""
    said = {name: value for name, value in ctx.params.items() if name != "subject"}
    text = said.get("expression") if ctx.obj.kind == "op" else ctx.obj.text
    return Flags(text or "", **said)


def subject_of(ctx: Any) -> Subject:
    """Read the subject of a command. Raises UsageError if a required subject is missing, or for several."""
    command, given = command_of(ctx), [name for name in SUBJECTS if ctx.params.get(name) not in (None, [], ())]
    kinds = set().union(*(line.kinds for line in lines_of(command)))
    if not given:
        if not kinds or "none" in kinds:
            return Subject()
        raise UsageError(f"a program is needed: `dplc {command}` takes {described(kinds)}")
    named = {parameter.name: parameter for parameter in ctx.command.params}
    first, *others = given
    subject = _read(first, ctx.params[first], kinds)
    for other in others:
        if not any(name_of(named[other]) in line.options for line in lines_of(command) if line.is_for(subject.kind)):
            both = " and ".join(f"`{name_of(named[name])}`" for name in (other, first))
            raise UsageError(f"`dplc {command}` takes one program: {both} were given")
    if not any(line.is_for(subject.kind) for line in lines_of(command)):
        what = f"`dplc {command}` does not take {KINDS[subject.kind][0]}"
        raise UsageError(f"{what}: {subject.name}", hint=f"it takes {described(kinds)}")
    return subject


def _read(parameter: str, value: Any, kinds: Iterable[str]) -> Subject:
    if parameter == "expression":
        return Subject("text", (sys.stdin.read() if value == "-" else value,))
    names = tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
    if parameter != "subject":
        return Subject(parameter, names)
    found = {_kind(name, set(kinds)): name for name in names}
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        what = f"{first} is {KINDS[one][0]}, and {second} is {KINDS[other][0]}"
        raise UsageError(what, hint="give programs of one kind")
    return Subject(next(iter(found)), names)


def _kind(name: str, kinds: set[str]) -> str:
    """The kind of a path or an id; if nothing is there, a kind that the command takes. Raises UsageError."""
    path = Path(name)
    if "(" in name and not _exists(path):
        raise UsageError(f"there is no file `{name}`", hint="an expression needs the option -c in front of it")
    if name.endswith(".ir") or kinds.isdisjoint(("model", "artefact", "suite")):
        return _level(path)
    from ..models.artefact_folder import MANIFEST  # not before: what they import takes longer than `--help`
    from ..models.sources import is_model

    if _exists(path / MANIFEST):
        return "artefact"
    if _exists(path):
        found = ["model"] if is_model(name) else ["artefact", "model"] if path.is_dir() else ["suite", "model"]
    else:
        found = ["model", "suite"] if is_model(name) else ["suite", "artefact", "model"]
    return next((kind for kind in found if kind in kinds), found[0])


def _exists(path: Path) -> bool:
    """Whether something is there; nothing is under a name that is too long."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _level(path: Path) -> str:
    """The level that the first line of a dump declares; `dump` where it declares none, or cannot be read."""
    if not path.is_file():  # what is not a file, like standard input, can be read once
        return "dump"
    try:
        with path.open(errors="replace") as file:
            found = re.match(r"## level: (\w+)", file.readline(100))
    except OSError:
        return "dump"
    return found[1] if found and found[1] in LEVELS else "dump"


def check_options(ctx: Any, subject: Subject) -> None:
    """Raises UsageError for an option that was given and does not apply."""
    sources = {parameter.name: ctx.get_parameter_source(parameter.name) for parameter in ctx.command.params}
    given = [
        name_of(parameter)
        for parameter in ctx.command.params
        if parameter.param_type_name == "option" and getattr(sources[parameter.name], "name", "") == "COMMANDLINE"
    ]
    own = {name_of(p) for p in ctx.command.params if p.name in SUBJECTS} - {"-c" if subject.kind == "op" else ""}
    for option in given:
        if option not in own:
            _check(option, subject.kind, lines_of(command_of(ctx)), given)


def _check(option: str, kind: str, lines: tuple[Applies, ...], given: list[str]) -> None:
    mine = [line for line in lines if option in line.options]
    here = [line for line in mine if line.is_for(kind)]
    if not here:
        applies = described(set().union(*(line.kinds for line in mine)))
        what = "needs a program" if kind == "none" else f"does not apply to {KINDS[kind][0]}"
        raise UsageError(f"`{option}` {what}", hint=f"it applies to {applies}")
    if any(_meets(line, given) for line in here):
        return
    line = here[0]
    if line.needs and not set(line.needs) & set(given):
        raise UsageError(f"`{option}` goes with {' or '.join(f'`{other}`' for other in line.needs)}")
    other = next(other for other in line.without if other in given)
    raise UsageError(f"`{option}` does not go with `{other}`")


def _meets(line: Applies, given: list[str]) -> bool:
    return (not line.needs or not set(line.needs).isdisjoint(given)) and set(line.without).isdisjoint(given)


def described(kinds: Iterable[str]) -> str:
    """Kinds, for people: `an expression (-c EXPR), a dump of Torch or Tensor IR or a model (..)`."""
    levels = [level for level in LEVELS if level in kinds]
    left = {kind for kind in kinds if kind not in LEVELS} | ({"dump"} if levels else set())
    words = [f"{what} ({form})" if form else what for kind, (what, form) in KINDS.items() if kind in left]
    if levels and len(levels) < len(LEVELS):
        named = f"a dump of {_either(level.capitalize() for level in levels)} IR"
        words = [named if word.startswith("a dump") else word for word in words]
    return _either(words)


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
