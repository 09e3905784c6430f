"""Options of all commands, kinds of subjects, and the single table of the options that apply to each kind."""

# ruff: noqa: RUF009 (an option is a field of a dataclass)

from __future__ import annotations

import contextlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import typer

from ...codegen.target import target
from ...ir.diagnostic import DplcError, UsageError, no_such
from ...ir.dtypes import FLOAT_NAMES
from ...ir.program import LEVELS

REQUIRED = ...


# ---- values that are checked before anything heavy is imported


def check_known(kind: str, name: str, known: Collection[str]) -> None:
    """Raise UsageError for an unknown value of an option. kind: see `no_such`."""
    if name not in known:
        raise no_such(kind, name, known)


def program_text(text: str) -> str:
    """Return the text of `-c`, read from standard input for `-`."""
    return sys.stdin.read() if text == "-" else text


def float_named(name: str) -> str:
    """Return the dtype of `--dtype`, named as in dplc or PyTorch. Raises UsageError."""
    check_known("float dtype", name, FLOAT_NAMES)
    return FLOAT_NAMES[name]


def stage_named(name: str) -> str:
    """Return the stage of `--ir`. Raises UsageError."""
    check_known("stage", name, (*LEVELS, "cuda"))
    return name


def target_named(name: str) -> str:
    """Return the name of `--target`, or the path of its file. Raises UsageError."""
    target(name)
    return name


def arrays_file(name: str) -> Path:
    """Return the path of a file of numpy's. Raises UsageError for another extension."""
    if not name.endswith(".npz"):
        raise UsageError(f"--out {name}: the name must end in .npz")
    return Path(name)


# ---- declarations


def option(help: str, form: str = "", default: Any = None, **more: Any) -> Any:
    """Declare an option. more: further arguments of `typer.Option`. The default of a flag is False if it has none.

    form: names and metavar, as in `-o --out DIR`. By default the name is that of the field.
    """
    names = form.split()
    if names and not names[-1].startswith("-"):
        more["metavar"] = names.pop()
    if names:
        more["names"] = names
    return field(default=default, metadata={"help": help, **more})


def several(help: str = "", form: str = "") -> Any:
    """Declare an option that may be given several times."""
    return option(help, form, default=())


def argument(metavar: str, help: str = "") -> Any:
    """Declare an argument. It is required unless its metavar has brackets."""
    default = None if metavar.startswith("[") else REQUIRED
    return field(default=default, metadata={"names": (), "metavar": metavar, "help": help})


Repeated = list[str]  # values of an option that may be given several times


@dataclass(frozen=True)
class Subject:
    """Program that a command works on. kind: one of KINDS; names: the text of `-c`, else the given names."""

    kind: str = "none"
    names: tuple[str, ...] = ("",)

    @property
    def name(self) -> str:
        """First name, "" without any."""
        return self.names[0]

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def is_dump(self) -> bool:
        return self.kind in (*LEVELS, "dump")


@dataclass(frozen=True)
class Flags:
    """Subject of a command, its options as the user typed them, and its arguments.

    An option is declared here, and again in a command that gives it another help text, form or default.
    """

    subject: Subject = Subject()
    text: str = option(
        "Python text: statements, then an expression over torch, nn, F, math. `-` reads standard input.",
        "-c EXPR",
        default="",
        parser=program_text,
    )
    # what is compiled, and how
    seed: int = option("Seed of torch for the expression.", default=0)
    dtype: str | None = option("Dtype of the model, or of `-c` tensors without a dtype.", "DTYPE", parser=float_named)
    rules: list[Path] = several("Your .rw files, in addition to the built-in rules.", "FILE_OR_DIR")
    settings: Repeated = several("Pin a rule's parameter.", "--set RULE.PARAM=VALUE")
    prefer: Repeated = several("Apply this rule wherever it is legal, profitable or not.", "RULE")
    exact: bool = option("Disable rules that reorder floating-point operations (@approx).")
    target: str | None = option(
        "Architecture or device to compile for (default: the GPU present, else sm_80).",
        "sm_NN",
        parser=target_named,
    )
    explore: bool = option("Search algebra and fusion together, and use the best candidate.")
    db: Path | None = option("The tuning store (default: in the user's cache directory).", "FILE")
    no_db: bool = option("Ignore tuned schedules.")
    sizes: Repeated = several("Value of a symbolic dimension. `run` and `bench` take several.", "--size NAME=N[,N..]")
    # the shape of a model, and its weights
    layers: int | None = option("Number of leading blocks of the model.", min=1)
    length: str = option("Sequence length of the model, or a range A..B.", "--seq-len TOKENS", default="32")
    batch: str = option("Batch size of the model, or a range A..B.", "N", default="1")
    rows: str | None = option("Upper ends of the shape buckets of a range, or none.", "N[,N..]")
    weights: Path | None = option("Safetensors of a model (default: symbolic weights).", "DIR")
    ids: str | None = option("Input tokens of the model (default: random, by --seed).", "NUMBERS")
    trust_edited_cuda: bool = option("Accept edited CUDA, which the emulator compiles and runs here.")
    cubins: bool = option("Also assemble the kernels, which needs NVRTC or nvcc.", "--cubins/--no-cubins", default=True)
    # what is shown or written
    ir: str | None = option(
        "Print torch, tensor, loop, tile, kernel or cuda (default cuda).", "STAGE", parser=stage_named
    )
    verbose: int = option(
        "-v lists the rules that fired, -vv prints a diff for each.", "-v --verbose", default=0, count=True
    )
    why_not: Repeated = several("Print why a rule did not match, or why each did not.", "RULE|each")
    as_json: bool = option("Machine-readable output.", "--json")
    out: Path | None = option("Write an artefact for `dplc run DIR`.", "-o --out DIR")
    markdown: Path | None = option("Write the table as a page.", "FILE")
    profile: bool = option("Show utilisation, occupancy and bottleneck of each kernel.")
    # run, fuse, rewrite, view
    device: str | None = option("cuda, cuda:N, emulator or reference (default: a GPU if any).", "DEVICE")
    check: bool = option("Run in the emulator's checked mode: races, bounds, waits; access costs.")
    blocks: str | None = option("Blocks to check: first,last,ragged (default), all, or numbers.", "LIST")
    bench: bool = option("Show a table of kernels: predicted, and measured on a GPU.")
    top: int = option("Number of candidates to show.", "K", default=4, min=1)
    candidate: int | None = option("Candidate for --ir and --run (default 1).", "N", min=1)
    trace: bool = option("Print a diff for each firing and a reason for each rejection.")
    only_rules: Repeated = several()
    about: Repeated = several("Apply all rules and show only these.", "RULE")
    port: int = option("Port of the live page (default: a free one).", "N", default=0, min=0, max=65535)
    browse: bool = option("Open a live page in the browser.", "--browse/--no-browse", default=True)
    tune: int | None = option("Search schedules and show the search.", "TRIES", min=1)
    # bench
    only: str | None = option("Cases with this in their names; `*` is allowed.", "PATTERN")
    run: bool = option("Run and check every case (on a GPU: measure).", "--run/--no-run", default=True)
    assemble: bool = option(
        "Assemble every kernel: registers, spills, hot loops.", "--assemble/--no-assemble", default=True
    )
    pack: Path | None = option("Write suites as one file for a machine with a GPU.", "FILE.dplc")
    candidates: int | None = option("Number of cases with five schedules each, for `model fit` (--pack).", min=0)
    unpack: Path | None = option("Measure a pack; `python FILE.dplc` does the same.", "FILE.dplc")
    minutes: float | None = option("Time limit (--unpack, default 8).", min=0)
    plan: bool = option("Print the steps and their expected seconds (--unpack).")
    results: Path | None = option("Results file (--unpack, default results.json).", "-o FILE.json")
    without: Repeated = several("Predict the suite without a rule, or each rule.", "RULE[,RULE]|each")
    number: Repeated = several("Predict the suite with a number, or each moved by half.", "NAME=V|each")
    compare: Path | None = option("Show times of --unpack next to predicted ones.", "RESULTS")
    # tune
    search: str | None = option("Search: hill (default) or random.", "NAME")
    tries: int = option("Number of candidates for each kernel.", default=200, min=1)
    programs: int | None = option("Maximum number of distinct programs for each kernel.", min=1)
    seconds: float | None = option("Time limit for each kernel.", "--time SECONDS", min=0.0)
    patience: int | None = option("Maximum number of programs without an improvement.", min=1)
    free: Repeated = several("Search only these passes. All others run by default.", "PASS")
    predict: bool = option("Use the cost model even if a GPU could measure.")
    grid: Repeated = several("Tune -c at each of these sizes; repeatable.", "M=1,8,64")
    jobs: int = option("Number of kernels tuned in parallel.", default=1, min=1)
    executor: str = option("Executor of jobs: processes, or ray (a cluster).", "NAME", default="processes")
    row: Repeated = several(
        "With --seq-len A..B or dim(s, A..B): tune the part of the range that `--rows` compiles alone; A..B:N "
        "times it at N (default: at B).",
        "[NAME=]A..B",
    )
    # generate
    prompt: str | None = option("Text to continue.", "TEXT")
    count: int = option("Maximum number of tokens to generate.", "--max-new-tokens N", default=32, min=1)
    maximum: int | None = option("Maximum length of prompt and text (default: their sum).", "--max-length L", min=2)
    chunk: int | None = option("Process the prompt in chunks of N tokens, which saves memory.", "N", min=1)
    # rules and ops
    name: str = ""
    files: list[Path] = several()
    file: Path | None = None
    names: Repeated = several()
    level: str | None = option("Entries of one level: torch, tensor, module, loop, tile or kernel.", "LEVEL")
    diff: bool = option("Write nothing, and print the diff.")
    lines: str | None = option("Lines of a dump of `compile --ir`.", "--from FILE.ir:10-20")
    op: str | None = option("A torch op. With -c, types and an example as well.", "OP")
    suite: Path | None = option("Add the firings in a suite (minutes).", "SUITE")
    accept: bool = option("Write results into examples, and draw refusals for guards without one.")
    python: bool = option("Show the generated Python function that matches.")
    dtypes: bool = option("Run every op in every dtype and compare with float64 (some minutes).")
    missing: bool = option("List the ops of PyTorch that neither a rule nor a decomposition takes.")
    # check
    rule: Repeated = several("One rule, family or file.", "NAME")
    levels: Repeated = several()
    examples: int = option("Number of generated programs for each rule.", default=40, min=0)
    part: str = option("Check every N-th rule, from the K-th.", "K/N", default="1/1")
    mutate: bool = option("Mutate each rule and report the mutants that no check detects.")
    guards: bool = option("Remove one `require` at a time and report undetected mutants.")
    allow_thin: bool = option("Accept rules that fired on fewer than 20 distinct programs.")
    few: Repeated = several("Accept few programs for this rule.", "NAME")
    # the tuning store
    attempts: bool = option("Write every measurement, with the features of its kernels.")
    dry_run: bool = option("Print what would be deleted.")

    @property
    def pinned(self) -> list[str]:
        """Settings of `--set`, and those that `--prefer` abbreviates."""
        return [*self.settings, *(f"{rule}.prefer=false" for rule in self.prefer)]


# ---- subjects, and the options that apply to them


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
SUBJECTS = ("op", "lines", "unpack", "subject", "text", "compare")  # parameters of commands that name one

# The fields of `Flags` that apply to the subjects of each command. `KIND.. with FIELD.. without FIELD..: FIELD..` is
# for a subject of one of the kinds, if one of the fields after `with` was given, and none of those after `without`.
# With `settings` or `prefer` no store (`db`) is read, because what is pinned is what happens.
FIELDS_BY_SUBJECT = """
compile
    text dump model: ir target as_json
    text torch tensor loop tile model: rules settings prefer exact verbose why_not
    text torch tensor loop model: no_db
    text torch tensor loop model without no_db settings prefer: db
    text torch tensor model: explore
    text model: dtype out
    text model with out: cubins
    text: seed
    text with out: rows
    dump: sizes
    model: layers length batch rows weights
run
    text dump artefact: device seed as_json sizes
    text dump artefact without check: out
    text dump: target check
    text dump with check: blocks
    text torch tensor loop tile: rules settings prefer exact verbose why_not
    text torch tensor loop tile without check: bench
    text torch tensor loop tile with bench: profile
    text torch tensor loop: no_db
    text torch tensor loop without no_db settings prefer: db
    text torch tensor: explore
    text: dtype
    artefact: weights ids trust_edited_cuda
fuse
    text: rules settings prefer exact target seed explore ir run
    text without ir: as_json
    text with explore: top
    text with ir run: candidate
    text with run: device
rewrite
    text dump: rules settings prefer exact target trace only_rules
    text dump with trace: about
    text: seed dtype
view
    text model suite: rules settings prefer exact target out
    text model without out: port browse
    text model: dtype explore
    text model with out: no_db
    text model with out without no_db settings prefer: db
    text: seed check tune
    model: layers length
tune
    text model suite: search tries programs seconds patience assemble predict rules settings exact target seed free
    text model suite: top as_json no_db jobs executor
    text model suite without no_db: db
    text model suite without jobs executor: verbose
    text model: row dtype
    text: grid
    model: layers length batch
    suite: only
bench
    text model suite artefact without pack: as_json
    text model suite artefact without pack without number: markdown run assemble
    text model suite: rules settings prefer exact target
    unpack: minutes plan
    unpack without plan: results
    suite without without number: compare
    suite without compare without number: pack
    suite without pack compare: without number
    suite with without number: results
    suite with pack: candidates
    text model artefact: profile
    text model: dtype sizes explore
    text: seed
    model: layers length batch
    model artefact: weights
    artefact: trust_edited_cuda
    suite: only
    compare:
generate
    model: prompt ids count maximum chunk weights dtype layers device target rules settings exact as_json no_db
    model without no_db settings: db
    model without weights: seed
doctor
    none: as_json
    model: layers length batch dtype target as_json
check
    none dump: rule levels part
    none: examples seed as_json guards
    none without guards: mutate
    none without guards mutate: out allow_thin verbose
    none without guards mutate allow_thin: few
ops
    none: as_json rules missing
    none without missing: dtypes
    none with dtypes: target
calibrate
    none: target out as_json
model fit
    none: target out as_json
lsp
rules list
    none: rules as_json
rules show
    none: rules python
rules facts
    none: level rules as_json
rules nodes
    none: level as_json
rules fmt
    none: check diff
rules lint
    none: as_json
rules doc
    none: out rules suite
rules test
    none: rules accept
rules why
    text dump: rules settings prefer exact target as_json
    text: seed dtype
rules new
    text lines op: out
    text: level rules target seed dtype
    op: text
    op with text: seed dtype
db stats
    none: db as_json
db list
    none: db device as_json
db show
    none: db as_json
db export
    none: db device attempts
db import
    none: db
db prune
    none: db rules attempts dry_run
"""


class Applies(NamedTuple):
    """One line of the table: fields that apply to these kinds, with one of `needs` and none of `without` given."""

    kinds: list[str]
    needs: list[str]
    without: list[str]
    fields: list[str]


_COMMAND = re.compile(r"^(\S.*)\n((?: .*\n)*)", re.MULTILINE)
_LINE = re.compile(r"    (.*?)(?: with (.*?))?(?: without (.*?))?:(.*)")
TABLE = {
    command: [Applies(*map(str.split, line)) for line in _LINE.findall(lines)]
    for command, lines in _COMMAND.findall(FIELDS_BY_SUBJECT.replace("dump", " ".join(LEVELS)))
}


def kinds_of(lines: Iterable[Applies]) -> set[str]:
    """Return the kinds that lines of the table are about."""
    return {kind for line in lines for kind in line.kinds}


def name_of(parameter: Any) -> str:
    """Return the name of a parameter in messages: the long name of an option, the metavar of an argument."""
    is_option = parameter.param_type_name == "option"
    name: str = max(parameter.opts, key=len) if is_option else parameter.metavar.strip("[].")
    return name


class Commands(typer.Typer):
    """Group of commands. Each has the options that the table lists for it."""

    def add(self, name: str, handler: str | Callable[[Flags], str], help: str, /, **declared: Any) -> None:
        """Add a command.

        Args:
            handler: `FILE.FUNCTION`, a function of flags in this folder. It is imported when the command
                runs, so that `--help` is instant. Else a function that chooses one.
            declared: arguments, and options with another help or default than in `Flags`, by field.
        """
        words = f"{self.info.name} {name}" if self.info.name != "dplc" else name

        def run(ctx: typer.Context, **_: Any) -> None:
            flags = Flags(**{**ctx.params, "subject": checked_subject(ctx, words)})
            chosen = handler if isinstance(handler, str) else handler(flags)
            pkgutil.resolve_name(f"{__package__}.{chosen.replace('.', ':')}")(flags)

        plain = inspect.signature(run)
        parameters = [plain.parameters["ctx"], *_parameters(TABLE[words], declared)]
        run.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
        self.command(name, help=help)(run)


DECLARED = {declared.name: declared for declared in fields(Flags)}
HINTS = get_type_hints(Flags)


def _parameters(lines: Iterable[Applies], declared: dict[str, Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command: those declared, then its other programs and options by the table."""
    programs = kinds_of(lines).intersection(SUBJECTS)
    listed = [name for name in DECLARED if name in programs] + [name for line in lines for name in line.fields]
    for name, one in (declared | {name: DECLARED[name] for name in listed} | declared).items():
        shared, hint = DECLARED[name], HINTS[name]
        more, default = {**shared.metadata, **one.metadata}, shared.default if one.default is None else one.default
        if name == "subject":  # a path or a text denotes it
            hint, default = Repeated if more["metavar"].endswith("..") else str | None, one.default
        names = more.pop("names", [f"--{name.replace('_', '-')}"])
        if names:
            info = typer.Option(False if hint is bool and default is None else default, *names, **more)
        else:
            info = typer.Argument(default, **more)
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=info)


def checked_subject(ctx: Any, command: str) -> Subject:
    """Return the subject of a command, named without `dplc`. Raises UsageError.

    It is one subject, of a kind that the command takes, and every given option applies to it.
    """
    lines, named = TABLE[command], {parameter.name: name_of(parameter) for parameter in ctx.command.params}
    given = [name for name in named if ctx.get_parameter_source(name).name == "COMMANDLINE"]
    programs, kinds = [name for name in SUBJECTS if name in given], kinds_of(lines)
    subject = _read(programs[0], ctx.params[programs[0]], kinds) if programs else Subject()
    kind = "torch" if subject.kind == "dump" else subject.kind  # of an unreadable level: all that applies to any does
    mine = [line for line in lines if kind in line.kinds]
    for other in programs[1:]:
        if not any(other in line.fields for line in mine):
            both = f"`{named[other]}` and `{named[programs[0]]}`"
            raise UsageError(f"`dplc {command}` takes one program: {both} were given")
    if kinds and not mine:
        if not programs:
            raise UsageError(f"a program is needed: `dplc {command}` takes {described(kinds)}")
        what = f"`dplc {command}` does not take {KINDS[subject.kind][0]}: {subject.name}"
        raise UsageError(what, hint=f"it takes {described(kinds)}")
    for name in given:
        listed = [line for line in lines if name in line.fields]  # none for an argument
        if name in programs or not listed:
            continue
        line = next((line for line in listed if line in mine), None)  # an option has one line for a kind
        if line is None:
            what = f"does not apply to {KINDS[subject.kind][0]}" if programs else "needs a program"
            raise UsageError(f"`{named[name]}` {what}", hint=f"it applies to {described(kinds_of(listed))}")
        if line.needs and not any(other in given for other in line.needs):
            raise UsageError(f"`{named[name]}` goes with {' or '.join(f'`{named[other]}`' for other in line.needs)}")
        for other in line.without:
            if other in given:
                raise UsageError(f"`{named[name]}` does not go with `{named[other]}`")
    return subject


def _read(parameter: str, value: Any, kinds: set[str]) -> Subject:
    names = tuple(map(str, value if isinstance(value, list | tuple) else (value,)))
    if parameter != "subject":
        return Subject(parameter, names)
    found = {_kind(name, kinds): name for name in names}
    if len(found) > 1:
        first, second, *_ = (f"{name} is {KINDS[kind][0]}" for kind, name in found.items())
        raise UsageError(f"{first}, and {second}", hint="give programs of one kind")
    return Subject(next(iter(found)), names)


def _kind(name: str, kinds: set[str]) -> str:
    """Return the kind of a path or an id. Raises DplcError.

    If nothing exists there, return a kind that the command accepts.
    """
    path, exists = Path(name), False
    if name.endswith(".rw"):
        raise UsageError(
            f"{name} holds rules, and a program is needed", hint=f"give it by --rules {name}, beside a program"
        )
    try:
        exists = path.exists()
    except (OSError, ValueError) as error:  # no file can have such a name, an expression can
        if "(" not in name:
            raise DplcError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if "(" in name and not exists:
        raise UsageError(f"there is no file `{name}`", hint="an expression needs the option -c in front of it")
    if name.endswith(".ir") or kinds.isdisjoint(("model", "artefact", "suite")):
        return _level(path)
    from ..models.plan_file import MANIFEST  # not before: what they import takes longer than `--help`
    from ..models.sources import is_model

    if (path / MANIFEST).exists():
        return "artefact"
    if is_model(name):
        return "model"
    found = ["suite", "artefact", "model"]
    if exists:
        found.remove("suite" if path.is_dir() else "artefact")
    return next((kind for kind in found if kind in kinds), found[0])


def _level(path: Path) -> str:
    """Return the level that the first line of a dump declares, or `dump` if it declares none or cannot be read."""
    if path.is_file():  # what is not a file, like standard input, can be read once
        with contextlib.suppress(OSError), path.open(errors="replace") as file:
            if found := re.match(rf"## level: ({'|'.join(LEVELS)})\b", file.readline(100)):
                return found[1]
    return "dump"


def described(kinds: set[str]) -> str:
    """Return kinds as text: `an expression (-c EXPR), a dump of Torch or Tensor IR or a model (..)`."""
    named, levels = dict(KINDS), [level.capitalize() for level in LEVELS if level in kinds]
    if 0 < len(levels) < len(LEVELS):
        named["dump"] = f"a dump of {_either(levels)} IR", ""
    shown = kinds.difference(LEVELS).union(["dump"] if levels else [])
    return _either([f"{what} ({form})" if form else what for kind, (what, form) in named.items() if kind in shown])


def _either(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
