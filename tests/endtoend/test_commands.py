"""Every command with every option as a user types it: `commands.md` is run, and holds them all."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import commands
from safetensors.torch import save_file
from small_configs import TINY

from dplc.engine import cli
from dplc.engine.cli import options as declared
from dplc.engine.cli.app import main
from dplc.engine.cli.options import SUBJECTS, TABLE, Flags, Subject, name_of
from dplc.engine.models.sources import build, find, make, weights_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (Path(__file__).parent / "commands.md").read_text()
SUITE = """{
  "about": "two small cases",
  "operations": {"linear": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
  "cases": [
    {"name": "small", "operation": "linear", "sizes": {"rows": 32, "in": 64, "out": 48}},
    {"name": "ragged", "operation": "linear", "sizes": {"rows": 9, "in": 33, "out": 17}}
  ]
}"""
PROBLEM = """import torch

class Model(torch.nn.Softmax):
    pass

def get_init_inputs():
    return [-1]

def get_inputs():
    return [torch.randn(512, 512)]
"""
COMMANDS = dict(commands())
LINES = [  # of the page's blocks: a command, and the lines below it
    tuple(text.splitlines())
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for text in re.split(r"^\$ dplc ", block, flags=re.MULTILINE)[1:]
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page says is there."""
    made = tmp_path_factory.mktemp("commands")
    for file, name in {
        "examples/dumps/scaled.ir": "scaled.ir",
        "examples/dumps/rows.ir": "rows.ir",
        "examples/rules/product_of_exponentials.rw": "my.rw",
        "tests/store/synthetic_measurements.jsonl": "measured.jsonl",
    }.items():
        shutil.copy(ROOT / file, made / name)
    (made / "suite.json").write_text(SUITE)
    (made / "problems").mkdir()
    (made / "problems" / "row.py").write_text(PROBLEM)
    (made / "published.json").write_text(json.dumps({"problems": {"row.py": {"mean": 0.01}}}))
    (made / "tiny").mkdir()
    (made / "tiny" / "config.json").write_text(json.dumps({"model_type": "llama", **TINY}))
    wanted = {want.names[0]: want for want in weights_of(build(find(str(made / "tiny")))).values()}
    save_file(make(wanted, scale=0.3), made / "tiny" / "model.safetensors")
    return made


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


def loaded(function: Any, seen: set[Any]) -> Iterator[str]:
    """The names that a function reads, and those that the functions of its file read which it names."""
    codes = [function.__code__]
    for code in codes:
        codes += filter(inspect.iscode, code.co_consts)
        yield from code.co_names
        for other in map(function.__globals__.get, code.co_names):
            if inspect.isfunction(other) and other.__module__ == function.__module__ and other not in seen:
                seen.add(other)
                yield from loaded(other, seen)


def behind(command: str) -> set[str]:
    """The names that the functions read which may do the work of a command."""
    entry = declared.COMMANDS[command]
    texts = entry["handler"], *entry.get("handlers", {}).values()
    functions = [pkgutil.resolve_name(f"{cli.__name__}.{text.replace('.', ':')}") for text in texts]
    return {name for function in functions for name in loaded(function, set())}


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
    for first, *said in LINES:
        line, _, to = first.partition(" > ")
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(shlex.split(line))
        printed = capsys.readouterr()
        exits = re.findall(r"^exit (\d+)$", "\n".join(said), re.MULTILINE) or ["0"]
        assert str(stop.value.code or 0) == exits[0], f"$ dplc {line}\n{printed.out[-2000:]}{printed.err}"
        if to:
            Path(to.strip()).write_text(printed.out)
        rest = " ".join(f"{printed.out} {printed.err}".split())
        for text in (" ".join(text.split()) for text in said if text and not text.startswith("exit ")):
            _, found, rest = rest.partition(text)
            assert found == text, f"$ dplc {line}\nis to say: {text}\nand says:\n{printed.out[-3000:]}{printed.err}"
    unread = [
        f"{command} {kind} {field}"
        for (command, kind), read in reads.items()
        for field in {field for line in TABLE[command] if kind in line.kinds for field in line.fields} - {*SUBJECTS}
        if field not in read | behind(command)
    ]
    assert unread == []
    subjects = {(command, kind) for command, lines in TABLE.items() for line in lines for kind in line.kinds}
    assert {(command, kind) for command, kind in subjects if command != "check"} <= reads.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_has_every_option(command: str) -> None:
    lines = [first for first, *_ in LINES if re.match(rf"{re.escape(command)}(?= |$)", first)]
    used = {word.replace("-vv", "-v") for line in lines for word in shlex.split(line)}
    options = [p for p in COMMANDS[command].params if p.param_type_name == "option" and p.name != "help"]
    assert lines and [name_of(p) for p in options if used.isdisjoint([*p.opts, *p.secondary_opts])] == []
