"""Options of all commands, kinds of subjects, and the single table of the options that apply to each kind."""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import typer

from ...codegen.target import target
from ...ir.diagnostic import DplcError, UsageError, no_such
from ...ir.dtypes import FLOAT_NAMES, toml_table
from ...ir.node import immutable
from ...ir.program import LEVELS

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


PARSERS = {parse.__name__: parse for parse in (program_text, float_named, stage_named, target_named, arrays_file)}


Repeated = list[str]  # values of an option that may be given several times
NONE: Any = ()


@immutable
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


@immutable
class Flags:
    """Subject of a command, its options as the user typed them, and its arguments.

    The texts of an option are in `commands.toml`, and again where a command gives it another help, form or default.
    """

    subject: Subject = Subject()
    text: str = ""
    # what is compiled, and how
    seed: int = 0
    dtype: str | None = None
    rules: list[Path] = NONE
    settings: Repeated = NONE
    prefer: Repeated = NONE
    exact: bool = False
    tf32: str = "auto"
    calls: str = "none"
    target: str | None = None
    explore: bool = False
    db: Path | None = None
    no_db: bool = False
    sizes: Repeated = NONE
    # the shape of a model, and its weights
    layers: int | None = None
    length: str = "32"
    batch: str = "1"
    rows: str | None = None
    weights: Path | None = None
    ids: str | None = None
    trust_edited_cuda: bool = False
    cubins: bool = True
    # what is shown or written
    ir: str | None = None
    verbose: int = 0
    why_not: Repeated = NONE
    as_json: bool = False
    out: Path | None = None
    markdown: Path | None = None
    profile: bool = False
    # run, fuse, rewrite, view
    device: str | None = None
    check: bool = False
    blocks: str | None = None
    bench: bool = False
    top: int = 4
    candidate: int | None = None
    trace: bool = False
    only_rules: Repeated = NONE
    about: Repeated = NONE
    port: int = 0
    browse: bool = True
    # bench
    only: str | None = None
    run: bool = True
    assemble: bool = True
    pack: Path | None = None
    candidates: int | None = None
    unpack: Path | None = None
    minutes: float | None = None
    plan: bool = False
    results: Path | None = None
    shrink: bool = False
    published: list[Path] = NONE
    compare: Path | None = None
    # tune
    search: str | None = None
    tries: int = 200
    programs: int | None = None
    seconds: float | None = None
    patience: int | None = None
    free: Repeated = NONE
    predict: bool = False
    grid: Repeated = NONE
    jobs: int = 1
    row: Repeated = NONE
    # generate
    prompt: str | None = None
    count: int = 32
    maximum: int | None = None
    chunk: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    draw_seed: int = 0
    # rules and ops
    name: str = ""
    files: list[Path] = NONE
    file: Path | None = None
    names: Repeated = NONE
    level: str | None = None
    lines: str | None = None
    op: str | None = None
    suite: Path | None = None
    ops: str = "add,subtract,multiply,divide,exp,Reduce.add,Reduce.maximum"
    leaf: Repeated = NONE
    without: Repeated = NONE
    terms: int = 2
    accept: bool = False
    python: bool = False
    missing: bool = False
    # check
    rule: Repeated = NONE
    levels: Repeated = NONE
    examples: int = 40
    part: str = "1/1"
    prove: bool = False
    proofs: bool = False
    guards: bool = False
    allow_thin: bool = False
    few: Repeated = NONE

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
    "folder": ("a folder of problems", "FOLDER or FILE.py"),
    "lines": ("lines of a dump", "--from FILE.ir:10-20"),
    "op": ("a torch op", "--op OP"),
    "unpack": ("a pack", "--unpack FILE.dplc"),
    "compare": ("results", "--compare RESULTS"),
}
SUBJECTS = ("op", "lines", "unpack", "subject", "text", "compare")  # parameters of commands that name one


class Applies(NamedTuple):
    """One line of the table: fields that apply to these kinds, with one of `needs` and none of `without` given."""

    kinds: list[str]
    needs: list[str]
    without: list[str]
    fields: list[str]


_APPLIES = re.compile(r"(.*?)(?: with (.*?))?(?: without (.*?))?")


def _lines(fields: Mapping[str, str]) -> list[Applies]:
    """Return the lines of a command."""
    lines = []
    for about, listed in fields.items():
        found = _APPLIES.fullmatch(about.replace("dump", " ".join(LEVELS)))
        assert found is not None
        lines.append(Applies(*(words.split() for words in (*found.groups(""), listed))))
    return lines


COMMANDS: dict[str, dict[str, Any]] = toml_table(__package__, "commands")
GROUPS, OPTIONS = COMMANDS.pop("groups"), COMMANDS.pop("options")
TABLE = {command: _lines(entry.get("fields", {})) for command, entry in COMMANDS.items()}


def kinds_of(lines: Iterable[Applies]) -> set[str]:
    """Return the kinds that lines of the table are about."""
    return {kind for line in lines for kind in line.kinds}


def name_of(parameter: Any) -> str:
    """Return the name of a parameter in messages: the long name of an option, the metavar of an argument."""
    is_option = parameter.param_type_name == "option"
    name: str = max(parameter.opts, key=len) if is_option else parameter.metavar.strip("[].")
    return name


def command(words: str) -> Callable[..., None]:
    """Return the function of a command, named without `dplc`. Its signature gives its options to typer."""
    entry = COMMANDS[words]

    def run(ctx: typer.Context, **_: Any) -> None:
        flags = Flags(**{**ctx.params, "subject": checked_subject(ctx, words)})
        others = entry.get("handlers", {}).items()
        asked = (one for name, one in others if name == flags.subject.kind or getattr(flags, name, None))
        pkgutil.resolve_name(f"{__package__}.{next(asked, entry['handler']).replace('.', ':')}")(flags)

    plain = inspect.signature(run)
    parameters = [plain.parameters["ctx"], *_parameters(TABLE[words], entry.get("options", {}))]
    run.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


HINTS = get_type_hints(Flags)


def _parameters(lines: Iterable[Applies], own: Mapping[str, dict[str, Any]]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command: its own, then its other programs and options by the table."""
    programs = kinds_of(lines).intersection(SUBJECTS)
    listed = [name for name in HINTS if name in programs] + [name for line in lines for name in line.fields]
    for name in dict.fromkeys((*own, *listed)):
        texts, hint = {**OPTIONS.get(name, {}), **own.get(name, {})}, HINTS[name]
        argument, form = texts.pop("argument", ""), texts.pop("form", "").split()
        default = texts.pop("default", getattr(Flags, name))
        if name == "subject":  # a path or a text denotes it
            hint, default = Repeated if argument.endswith("..") else str | None, None
        if texts.pop("required", argument and not argument.startswith("[")):
            default = ...
        if "parser" in texts:
            texts["parser"] = PARSERS[texts["parser"]]
        if argument:
            info = typer.Argument(default, metavar=argument, **texts)
        else:
            metavar = form.pop() if form and not form[-1].startswith("-") else None
            info = typer.Option(default, *form or [f"--{name.replace('_', '-')}"], metavar=metavar, **texts)
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
    if exists and (path.suffix == ".py" or (path.is_dir() and "folder" in kinds)):
        return "folder"
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
