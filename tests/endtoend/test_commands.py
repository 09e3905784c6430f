"""Every command with every option as a user types it: `commands.md` is run, and holds them all."""

from __future__ import annotations

import dis
import importlib
import inspect
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import commands
from small_configs import TINY

from dplc.engine import cli
from dplc.engine.cli import options as declared
from dplc.engine.cli.app import main
from dplc.engine.cli.options import SUBJECTS, TABLE, Flags, Subject, name_of
from dplc.engine.models.sources import build, find

ROOT = Path(__file__).resolve().parents[2]
PAGE = (Path(__file__).parent / "commands.md").read_text()
SUITE = {
    "about": "two small cases",
    "operations": {"linear": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
    "cases": [
        {"name": "small", "operation": "linear", "sizes": {"rows": 32, "in": 64, "out": 48}},
        {"name": "ragged", "operation": "linear", "sizes": {"rows": 9, "in": 33, "out": 17}},
    ],
}


@dataclass(frozen=True)
class Typed:
    """A line of the page. to: the file that its output goes to; said: what must be in its output, in order."""

    line: str
    to: str
    code: int
    said: tuple[str, ...]


def typed() -> Iterator[Typed]:
    """The commands of the page's blocks."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *rest = text.splitlines()
            line, _, to = first.partition(" > ")
            codes = [int(told[5:]) for told in rest if re.fullmatch(r"exit \d+", told)]
            said = tuple(told for told in rest if told and not re.fullmatch(r"exit \d+", told))
            yield Typed(line, to.strip(), codes[0] if codes else 0, said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page says is there."""
    made = tmp_path_factory.mktemp("commands")
    for dump in ("scaled.ir", "rows.ir"):
        shutil.copy(ROOT / "examples" / "dumps" / dump, made)
    shutil.copy(ROOT / "examples" / "rules" / "product_of_exponentials.rw", made / "my.rw")
    shutil.copy(ROOT / "tests" / "store" / "synthetic_measurements.jsonl", made / "measured.jsonl")
    (made / "suite.json").write_text(json.dumps(SUITE))
    (made / "tiny").mkdir()
    (made / "tiny" / "config.json").write_text(json.dumps({"model_type": "llama", **TINY}))
    from safetensors.torch import save_file

    shapes = {name: value.shape for name, value in build(find(str(made / "tiny"))).state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
    save_file(weights, made / "tiny" / "model.safetensors")
    return made


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], set[str]]:
    """{(command, kind of its subject): the shared options that the command read}"""
    found: dict[tuple[str, str], set[str]] = {}
    current: set[str] = set()
    checked, read = declared.checked_subject, object.__getattribute__

    def noted(ctx: Any, command: str) -> Subject:
        nonlocal current
        subject = checked(ctx, command)
        current = found.setdefault((command, subject.kind), set())
        return subject

    def get(flags: Flags, name: str) -> Any:
        if sys._getframe(1).f_globals["__name__"] != "dataclasses":  # `replace` reads all of them
            current.add(name)
        return read(flags, name)

    monkeypatch.setattr(declared, "checked_subject", noted)
    monkeypatch.setattr(Flags, "__getattribute__", get)
    return found


def handlers(command: str) -> Iterator[Any]:
    """The functions that may do the work of a command."""
    handler = inspect.getclosurevars(inspect.unwrap(COMMANDS[command].callback)).nonlocals["handler"]
    texts = [handler] if isinstance(handler, str) else [text for text in handler.__code__.co_consts if text is not None]
    for file, _, function in (text.partition(".") for text in texts):
        if function:
            yield getattr(importlib.import_module(f"{cli.__name__}.{file}"), function)


def loaded(function: Any, seen: set[Any]) -> Iterator[str]:
    """The names that a function reads, and those that the functions of its file read which it names."""
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
        names = [str(one.argval) for one in dis.get_instructions(code) if one.opname.startswith("LOAD")]
        yield from names
        for other in (function.__globals__.get(name) for name in names):
            if inspect.isfunction(other) and other.__module__ == function.__module__ and other not in seen:
                seen.add(other)
                yield from loaded(other, seen)


def unread(reads: dict[tuple[str, str], set[str]]) -> Iterator[str]:
    """The options that apply by the table, that the file of a command's handler does not read, and that nothing behind it
    read for any line of the page."""
    for (command, kind), read in reads.items():
        fields = {field for line in TABLE[command] if kind in line.kinds for field in line.fields}
        read = read | {name for function in handlers(command) for name in loaded(function, set())}
        yield from (
            f"{command} {kind} {name_of(p)}"
            for p in COMMANDS[command].params
            if p.name in fields and p.name not in read and p.name not in SUBJECTS
        )


@pytest.mark.usefixtures("captured_once")
def test_the_page_is_true(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reads: dict[tuple[str, str], set[str]],
) -> None:
    """One test: what a line writes, a later one reads. Every option that applies to a subject is read for it."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # so does the page
    for one in typed():
        capsys.readouterr()
        words = shlex.split(one.line)
        assert words[0] == "dplc"
        with pytest.raises(SystemExit) as stop:
            main(words[1:])
        printed = capsys.readouterr()
        assert int(stop.value.code or 0) == one.code, f"$ {one.line}\n{printed.out[-2000:]}{printed.err}"
        if one.to:
            Path(one.to).write_text(printed.out)
        output, at = plain(printed.out + " " + printed.err), 0
        for said in one.said:
            found = output.find(plain(said), at)
            assert found >= 0, f"$ {one.line}\nis to say: {said}\nand says:\n{printed.out[-3000:]}{printed.err}"
            at = found + len(plain(said))
    assert list(unread(reads)) == []
    subjects = {(command, kind) for command, lines in TABLE.items() for line in lines for kind in line.kinds}
    assert {(command, kind) for command, kind in subjects if command != "check"} <= reads.keys()


def options(command: Any) -> set[str]:
    named = [(*p.opts, *p.secondary_opts) for p in command.params if p.param_type_name == "option"]
    return {max(option, key=len) for option in named} - {"--help"}


COMMANDS = dict(commands())
KNOWN = {f"dplc {words}": options(command) for words, command in COMMANDS.items()}


@pytest.mark.parametrize("command", KNOWN)
def test_the_page_has_every_option(command: str) -> None:
    lines = [one.line for one in typed() if re.match(rf"{re.escape(command)}(?= |$)", one.line)]
    assert lines, f"the page has no `{command}`"
    used = {word for line in lines for word in shlex.split(line)}
    short = {"-v": "--verbose", "-vv": "--verbose", "-o": "--out", "--cubins": "--no-cubins"}
    used |= {short[word] for word in used & short.keys()}
    wanted = KNOWN[command]
    assert wanted - used == set(), f"`{command}`: the page shows no use of these"


def test_commands_that_are_not_there_are_not_on_the_page() -> None:
    for one in typed():
        known = [command for command in KNOWN if re.match(rf"{re.escape(command)}(?= |$)", one.line)]
        assert known, one.line
