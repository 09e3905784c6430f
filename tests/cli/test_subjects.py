"""Every option of every command, with every kind of subject: it reaches what runs, or it is an error that says so."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import Command

import dplc.engine.cli as package
from dplc.engine.cli.app import app
from dplc.engine.cli.options import KINDS, SUBJECTS, TABLE, Applies, name_of
from dplc.engine.models.plan_file import MANIFEST
from dplc.ir.diagnostic import UsageError
from dplc.ir.program import LEVELS

DECLARED = ("app", "options", "output", "__init__")  # files that are not behind a command's declaration
VALUES = {"--target": "h200", "--executor": "ray", "--ir": "loop", "--dtype": "f16", "--out": "3.npz"}
DUMP = Path(__file__).parents[2] / "examples" / "dumps" / "scaled.ir"

PATHS = ("model", "suite", "artefact")

Invoke = Callable[[list[str]], list[Any]]


def commands_of(found: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if hasattr(found, "commands"):
        for name, inner in found.commands.items():
            yield from commands_of(inner, (*words, name))
    else:
        yield " ".join(words), found


GROUP = typer.main.get_command(app)
COMMANDS = dict(commands_of(GROUP))


def options_of(command: str) -> dict[str, Any]:
    return {p.name: p for p in COMMANDS[command].params if p.param_type_name == "option" and p.name != "help"}


def typed(parameter: Any) -> list[str]:
    """An option as a user types it, with another value than its default."""
    if parameter.is_flag or parameter.count:
        return [parameter.secondary_opts[0] if parameter.default is True else name_of(parameter)]
    return [name_of(parameter), VALUES.get(name_of(parameter), "3")]


@pytest.fixture
def subjects(tmp_path: Path) -> dict[str, str]:
    """Something of every kind."""
    files = {level: f"## level: {level}\n" for level in LEVELS}
    files |= {"model": json.dumps({"model_type": "llama"}), "suite": "{}"}
    for kind, text in files.items():
        (tmp_path / (f"{kind}.ir" if kind in LEVELS else f"{kind}.json")).write_text(text)
    (tmp_path / MANIFEST).write_text("{}")
    paths = {kind: str(next(tmp_path.glob(f"{kind}.*"))) for kind in files}
    return {
        **paths,
        "artefact": str(tmp_path),
        "text": "3",
        "lines": "a.ir:3",
        "op": "exp",
        "none": "",
        "unpack": "a.dplc",
        "compare": "a.json",
    }


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command line as far as the functions that do the work: what these were called with."""
    calls: list[Any] = []

    class Recorder(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **named: calls.append((name, args, named))

    for file in Path(package.__file__ or "").parent.glob("*.py"):
        if file.stem not in DECLARED:
            monkeypatch.setattr(package, file.stem, Recorder(file.stem), raising=False)
            monkeypatch.setitem(sys.modules, f"{package.__name__}.{file.stem}", getattr(package, file.stem))

    def call(arguments: list[str]) -> list[Any]:
        calls.clear()
        GROUP.main(arguments, prog_name="dplc", standalone_mode=False)
        return [repr(one) for one in calls]

    return call


def line_with(command: str, kind: str, subjects: dict[str, str]) -> list[str] | None:
    """A command line of a command on a kind of subject, with all that it must have; None if no parameter takes it."""
    parameter = None if kind == "none" else kind if kind in SUBJECTS else "subject"
    words, found = command.split(), parameter is None
    if parameter is None and any(p.name == "subject" and p.required for p in COMMANDS[command].params):
        return None  # the parser says so
    for p in COMMANDS[command].params:
        value = [subjects[kind]] if p.name == parameter else ["x"] if p.required and p.name != "subject" else []
        found = found or p.name == parameter
        words += [name_of(p)] * bool(value and p.param_type_name == "option") + value
    return words if found else None


NEEDED = {("view", "suite"): ["--out", "map.html"]}  # options that a command requires for a kind of subject


def takes(command: str, kind: str) -> bool:
    return any(kind in line.kinds for line in TABLE[command]) or (kind == "none" and not TABLE[command])


def refused(command: str, kind: str) -> bool:
    """Whether the kind of a file decides that a command does not take it. Where a command takes dumps alone, any file is
    read as one; where it takes models and no suites, a JSON file is read as a model's."""
    return any(takes(command, other) for other in PATHS) and not (kind == "suite" and takes(command, "model"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_line(command: str) -> None:
    listed = {field for line in TABLE[command] for field in line.fields}
    assert listed - {"text", "compare"} == set(options_of(command)) - set(SUBJECTS)
    kinds = {kind for line in TABLE[command] for kind in line.kinds}
    named = {field for line in TABLE[command] for field in (*line.needs, *line.without)}
    assert kinds <= set(KINDS) and named <= set(options_of(command))


def test_every_command_is_in_the_table() -> None:
    assert set(TABLE) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.sampled(15)
def test_every_option_applies_or_is_an_error(command: str, subjects: dict[str, str], invoke: Invoke) -> None:
    for kind in set(KINDS) - {"dump"}:
        base = line_with(command, kind, subjects)
        base = base and [*base, *NEEDED.get((command, kind), [])]
        if base is None or (kind in PATHS and not takes(command, kind) and not refused(command, kind)):
            continue
        if not takes(command, kind):
            with pytest.raises(UsageError, match=r"does not take|a program is needed"):
                invoke(base)
            continue
        assert invoke(base)
        for name, parameter in options_of(command).items():
            if name not in SUBJECTS and name_of(parameter) not in base:
                check(command, kind, base, name, invoke)


def check(command: str, kind: str, base: list[str], name: str, invoke: Invoke) -> None:
    """An option on a kind of subject: alone, with what it needs, and with what it does not go with."""
    parameter = options_of(command)[name]
    option = typed(parameter)
    lines = [line for line in TABLE[command] if name in line.fields and kind in line.kinds]
    if not lines:
        with pytest.raises(UsageError, match=r"does not apply|needs a program"):
            invoke([*base, *option])
        return
    (line,) = lines
    for given in needed(command, line):
        assert invoke([*base, *given, *option]) != invoke([*base, *given]), f"{base}: {name} changes nothing"
        for other in line.without:
            with pytest.raises(UsageError, match=r"does not go with|goes with|does not apply"):
                invoke([*base, *given, *option, *typed(options_of(command)[other])])
    if line.needs:
        with pytest.raises(UsageError, match=f"`{name_of(parameter)}` goes with "):
            invoke([*base, *option])


def needed(command: str, line: Applies) -> list[list[str]]:
    return [typed(options_of(command)[other]) for other in line.needs] or [[]]


@pytest.mark.parametrize("command", ["compile", "run", "rewrite", "check --subject"])
def test_no_file_has_such_a_name(dplc: Command, command: str) -> None:
    name = "a" * 300
    done = dplc(command, name)
    assert done.code == 1 and f"cannot read {name}: File name too long" in done.err


def test_a_dump_may_have_any_name_where_only_dumps_are_taken(ok: Command, dplc: Command, tmp_path: Path) -> None:
    (tmp_path / "scaled.txt").write_text(DUMP.read_text())
    assert "graph scaled" in ok(f"rewrite {tmp_path / 'scaled.txt'}").out
    assert "`--seed` does not apply to a dump" in dplc(f"rewrite {tmp_path / 'scaled.txt'} --seed 1").err
