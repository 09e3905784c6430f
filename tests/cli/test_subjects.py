"""Every option of every command, with every kind of subject: it reaches what runs, or it is an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from command_line import commands

from dplc.engine.cli import options
from dplc.engine.cli.app import app
from dplc.engine.cli.options import KINDS, SUBJECTS, TABLE, name_of
from dplc.engine.models.plan_file import MANIFEST
from dplc.ir.diagnostic import UsageError
from dplc.ir.program import LEVELS

COMMANDS = dict(commands())
VALUES = {"--target": "h200", "--ir": "loop", "--dtype": "f16", "--out": "3.npz"}
PATHS = {"model": "model.json", "suite": "suite.json", "artefact": ".", "folder": "problem.py"}
NAMES = {
    "text": "3", "lines": "a.ir:3", "op": "exp", "unpack": "a.dplc", "compare": "a.json",
    **{level: f"{level}.ir" for level in LEVELS}, **PATHS,
}  # fmt: skip

Invoke = Callable[[list[str]], Any]


def options_of(command: str) -> dict[str, Any]:
    return {p.name: p for p in COMMANDS[command].params if p.param_type_name == "option" and p.name != "help"}


def typed(parameter: Any) -> list[str]:
    """An option as a user types it, with another value than its default."""
    if parameter.is_flag or parameter.count:
        return [parameter.secondary_opts[0] if parameter.default is True else name_of(parameter)]
    return [name_of(parameter), VALUES.get(name_of(parameter), "3")]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Invoke:
    """Run a command line in a folder with something of every kind: the function that would do the work, and its flags."""
    for level in LEVELS:
        (tmp_path / f"{level}.ir").write_text(f"## level: {level}\n")
    for name, text in {
        "model.json": '{"model_type": "llama"}',
        "suite.json": "{}",
        MANIFEST: "{}",
        "problem.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    calls: list[Any] = []
    resolve = SimpleNamespace(resolve_name=lambda name: lambda flags: calls.append((name, flags)))
    monkeypatch.setattr(options, "pkgutil", resolve)

    def call(arguments: list[str]) -> Any:
        typer.main.get_command(app).main(arguments, prog_name="dplc", standalone_mode=False)
        return calls.pop()

    return call


def line_with(command: str, kind: str) -> list[str] | None:
    """A command line of a command on a kind of subject, with all that it must have; None if no parameter takes it."""
    named = kind if kind in SUBJECTS else "subject"
    words, found = command.split(), kind == "none"
    for p in COMMANDS[command].params:
        value = ""
        if p.name == named and kind != "none":
            value, found = NAMES[kind], True
        elif p.required:
            if p.name == "subject":
                return None  # the parser says so
            value = "x"
        if value:
            words += [name_of(p), value] if p.param_type_name == "option" else [value]
    return words if found else None


def takes(command: str, kind: str) -> bool:
    return any(kind in line.kinds for line in TABLE[command]) or (kind == "none" and not TABLE[command])


def is_read_as_another(command: str, kind: str) -> bool:
    """Whether a file of a kind that a command does not take is not refused for its kind: where a command takes dumps alone,
    any file is read as one; where it takes models and no suites, a JSON file is read as a model's."""
    others = any(takes(command, other) for other in PATHS)
    return kind in PATHS and not takes(command, kind) and (not others or (kind == "suite" and takes(command, "model")))


def test_every_option_has_a_line() -> None:
    assert TABLE.keys() == COMMANDS.keys()
    for command, lines in TABLE.items():
        kinds, needs, without, fields = (set().union(*column) for column in zip(*lines)) if lines else [set()] * 4
        assert fields - {"text", "compare"} == options_of(command).keys() - set(SUBJECTS), command
        assert kinds <= KINDS.keys() and needs | without <= options_of(command).keys(), command


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.sampled(15)
def test_every_option_applies_or_is_an_error(command: str, invoke: Invoke) -> None:
    for kind in KINDS.keys() - {"dump"}:
        base = line_with(command, kind)
        if base is None or is_read_as_another(command, kind):
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
    known = options_of(command)
    option = typed(known[name])
    lines = [line for line in TABLE[command] if name in line.fields and kind in line.kinds]
    if not lines:
        with pytest.raises(UsageError, match=r"does not apply|needs a program"):
            invoke([*base, *option])
        return
    (line,) = lines
    for given in [[*base, *typed(known[other])] for other in line.needs] or [base]:
        assert invoke([*given, *option]) != invoke(given), f"{base}: {name} changes nothing"
        for other in line.without:
            with pytest.raises(UsageError, match=r"does not go with|goes with|does not apply"):
                invoke([*given, *option, *typed(known[other])])
    if line.needs:
        with pytest.raises(UsageError, match=f"`{name_of(known[name])}` goes with "):
            invoke([*base, *option])
