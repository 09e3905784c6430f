"""The options that several commands share, and those of models."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from ...codegen.target import target
from ...ir.diagnostic import UsageError

Expression = Annotated[
    str | None,
    typer.Option(
        "-c",
        metavar="EXPR",
        help="Python text: statements, then an expression over torch, nn, F, math. `-` reads standard input.",
    ),
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FILE_OR_DIR", help="Your .rw files, in addition to the built-in rules."),
]


def _known_target(name: str | None) -> str | None:
    """Refuses what is not a target before anything heavy is imported."""
    if name is not None:
        target(name)
    return name


TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="sm_NN",
        callback=_known_target,
        help="Architecture or device to compile for (default: the GPU present, else sm_80).",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="cuda, cuda:N, emulator or reference (default: a GPU if any)."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of torch for the expression.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, help="-v lists the rules that fired, -vv prints a diff for each.")
]
WhyNot = Annotated[
    list[str] | None,
    typer.Option("--why-not", metavar="RULE|each", help="Print why a rule did not match, or why each did not."),
]
Weights = Annotated[
    Path | None, typer.Option("--weights", metavar="DIR", help="Safetensors of a model (default: symbolic weights).")
]
Layers = Annotated[int | None, typer.Option("--layers", min=1, help="Number of leading blocks of the model.")]
Length = Annotated[int, typer.Option("--seq-len", metavar="TOKENS", help="Sequence length of the model.")]
Lengths = Annotated[
    str,
    typer.Option("--seq-len", metavar="TOKENS", help="Sequence length of the model, or a range A..B."),
]
Batch = Annotated[str, typer.Option("--batch", metavar="N", help="Batch size of the model, or a range A..B.")]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows",
        metavar="N[,N..]",
        help="Upper ends of the shape buckets of a range, or none.",
    ),
]
FloatDtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="DTYPE", help="Dtype of the model, or of `-c` tensors without a dtype."),
]
Explored = Annotated[
    bool, typer.Option("--explore", help="Search algebra and fusion together, and use the best candidate.")
]
Profile = Annotated[
    bool,
    typer.Option("--profile", help="Show utilisation, occupancy and bottleneck of each kernel."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="RULE.PARAM=VALUE", help="Pin a rule's parameter.")
]
Preferred = Annotated[
    list[str] | None,
    typer.Option("--prefer", metavar="RULE", help="Apply this rule wherever it is legal, profitable or not."),
]

Exact = Annotated[bool, typer.Option("--exact", help="Disable rules that reorder floating-point operations (@approx).")]

CheckedMode = Annotated[
    bool, typer.Option("--check", help="Run in the emulator's checked mode: races, bounds, waits; access costs.")
]
Blocks = Annotated[
    str | None,
    typer.Option("--blocks", metavar="LIST", help="Blocks to check: first,last,ragged (default), all, or numbers."),
]
Benched = Annotated[bool, typer.Option("--bench", help="Show a table of kernels: predicted, and measured on a GPU.")]
Arrays = Annotated[Path | None, typer.Option("--out", metavar="FILE.npz", help="Save the outputs as out0, out1, ...")]
Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the table as a page.")]
DatabaseFile = Annotated[
    Path | None,
    typer.Option("--db", metavar="FILE", help="The tuning store (default: in the user's cache directory)."),
]
NoDatabase = Annotated[bool, typer.Option("--no-db", help="Ignore tuned schedules.")]

Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        metavar="NAME=N[,N..]",
        help="Value of a symbolic dimension. `run` and `bench` take several.",
    ),
]

Model = Annotated[
    str | None,
    typer.Argument(metavar="[MODEL]", help="A model: configuration, its folder, or an id of the hub. Or FILE.ir."),
]
Artefact = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="An artefact of `dplc compile -o DIR`, or FILE.ir.")
]
ArtefactFolder = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="Write an artefact for `dplc run DIR`."),
]
Cubins = Annotated[
    bool, typer.Option("--cubins/--no-cubins", help="Also assemble the kernels, which needs NVRTC or nvcc.")
]
TrustedEdits = Annotated[
    bool,
    typer.Option(
        "--trust-edited-cuda",
        help="Accept edited CUDA, which the emulator compiles and runs here.",
    ),
]
Tokens = Annotated[
    str | None, typer.Option("--ids", metavar="NUMBERS", help="Input tokens of the model (default: random, by --seed).")
]


@dataclass(frozen=True)
class Flags:
    """What the options that commands share say, as it was typed.

    text: of `-c`; seed: of what is drawn; dtype: of floats that the text leaves open, or of a model; length,
    layers, batch: of a model; sizes: of what has some; rows: of its length; row: the part of it
    that is tuned; exact: without the rules that are @approx.
    """

    text: str = ""
    seed: int = 0
    dtype: str | None = None
    rules: Sequence[Path] | None = None
    settings: Sequence[str] | None = None
    prefer: Sequence[str] | None = None
    target: str | None = None
    verbose: int = 0
    why_not: Sequence[str] | None = None
    as_json: bool = False
    db: Path | None = None
    no_db: bool = False
    explore: bool = False
    length: int | str = 1
    layers: int | None = None
    sizes: Sequence[str] | None = None
    exact: bool = False
    batch: str = "1"
    rows: str | None = None
    row: Sequence[str] | None = None

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


Function = TypeVar("Function", bound=Callable[..., Any])


class Commands(typer.Typer):
    """A group of commands that are checked."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        return super().command(name, **{"cls": Checked, **options})


def command_of(ctx: Any) -> str:
    """The words of the command behind `dplc`."""
    return " ".join(str(ctx.command_path).split()[1:])


def flags_of(ctx: Any) -> Flags:
    """The options of a command that commands share, as they were typed."""
    said = {field.name: ctx.params[field.name] for field in fields(Flags) if field.name in ctx.params}
    text = ctx.params.get("expression") if ctx.obj.kind == "op" else ctx.obj.text
    return Flags(**said, text=text or "")


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
