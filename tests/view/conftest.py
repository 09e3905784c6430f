"""A compile with its trace of every program that a test asks for, each once; commands, and the pages that they write."""

from __future__ import annotations

import functools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from view_programs import Command, Compile, Written

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.cli.app import main
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.rewrite.trace import Trace


@functools.cache
def _compiled(text: str) -> Compilation:
    return compiler_with(target(), trace=Trace()).compile(capture_text(text))


@pytest.fixture(scope="session")
def compiled() -> Compile:
    """Compiles a `-c` text by the rules in their order."""
    return _compiled


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command that succeeds prints for a `-c` text: `command("compile --json", text)`."""

    def printed(line: str, text: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main([*shlex.split(line), "-c", text])
        assert not stop.value.code
        return capsys.readouterr().out

    return printed


@pytest.fixture
def written(tmp_path: Path, command: Command) -> Written:
    """The data of the page that `dplc view -o` writes for a text."""

    def data(text: str, options: str = "") -> Any:
        file = tmp_path / "page.html"
        command(f"view -o {file} {options}", text)
        return json.loads(file.read_text().split('id="data">')[1].split("</script>")[0])

    return data
