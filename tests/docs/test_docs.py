"""The pages of docs/: the site builds without a warning, and every command of a page prints the lines below it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import printed_by

from dplc.engine.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCKS = re.compile(r"^```console\n(?P<typed>.*?)^```|^<!-- (?P<file>\S+) -->\n```\n(?P<text>.*?)^```", re.M | re.S)
PAGES = sorted(path for path in DOCS.rglob("*.md") if "```console\n$ dplc" in path.read_text())
# Standard terms that a newcomer looks for. Each has a definition in the glossary.
TERMS = """kernel fusion, cost model, roofline, tile size, bank conflict, threadblock, software pipelining, double buffering,
warp specialisation, constant folding, cache invalidation, consumer, coalesced, heuristic, bounds check, split-K, swizzle,
persistent kernel, rematerialisation, equality saturation, unification, shape bucket, prefix sum, online softmax,
register blocking, occupancy, prologue, epilogue, golden"""


def missing(expected: list[str], printed: str) -> list[str]:
    """Return the lines that do not occur in the output, in this order. `...` stands for any lines."""
    at, absent = 0, []
    for line in expected:
        found = 0 if line == "..." else printed.find(line.strip(), at)
        if found < 0:
            absent.append(line)
        elif line != "...":
            at = found + len(line.strip())
    return absent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_print_the_lines_below_them(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    model = tmp_path / "examples/models/tinyllama-1.1b.json"
    model.write_text(re.sub("2048|5632", "256", model.read_text()))  # narrow rows show the same
    predicted = []
    for block in BLOCKS.finditer(page.read_text()):
        if block["file"]:
            path = Path(block["file"])
            old = path.read_text() if path.exists() else 'example "as'
            path.write_text(block["text"] + ("" if "example" in block["text"] else old[old.index('example "as') :]))
        for command in re.split(r"^\$ ", block["typed"] or "", flags=re.M)[1:]:
            line, *expected = command.strip("\n").split("\n")
            with pytest.raises(SystemExit) as stop:
                main(shlex.split(line)[1:])
            printed = capsys.readouterr()
            output = printed.out + printed.err
            status = f"exit {stop.value.code}"
            assert (status in expected) == (stop.value.code not in (None, 0)), f"$ {line}\n{status}\n{output}"
            assert missing([one for one in expected if one != status], output) == [], f"$ {line}\n{output}"
            predicted += [float(text) for text in re.findall(r"([\d.]+) us predicted", output) if " bench " in line]
    if page.stem == "first_rule":
        before, after = predicted
        assert after < 0.7 * before


STATEMENT = DOCS / "tutorials" / "new_statement.md"


@pytest.fixture(scope="module")
def with_statement(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rule of the page, and a copy of dplc in which the edits of the page were made."""
    folder = tmp_path_factory.mktemp("statement")
    for name in ("ir", "codegen", "engine", "rules", "__init__.py", "__main__.py", "version.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / "dplc").mkdir(exist_ok=True)
        copy(ROOT / name, folder / "dplc" / name)
    page = STATEMENT.read_text()
    edits = "".join(re.findall(r"^```diff\n(.*?)^```", page, re.M | re.S))
    subprocess.run(["git", "apply", "-C1", "-"], cwd=folder / "dplc", input=edits, text=True, check=True)
    (rule,) = [block["text"] for block in BLOCKS.finditer(page) if block["file"]]
    (folder / "nap.rw").write_text(rule)
    return folder


@pytest.mark.parametrize(("command", "printed"), [
    ("rules test nap.rw", "0 failed, 0 errors, 0 warnings"),
    ('compile -c "torch.randn(64) + 1" --rules nap.rw', "nap(100);"),
    pytest.param('run -c "torch.randn(64) + 1" --rules nap.rw', "ok", marks=pytest.mark.slow),
])  # fmt: skip
def test_the_worked_statement_compiles_and_runs(with_statement: Path, command: str, printed: str) -> None:
    assert f"dplc {command}\n" in STATEMENT.read_text()
    typed = [sys.executable, "-m", "dplc", *shlex.split(command)]
    environment = {**os.environ, "PYTHONPATH": str(with_statement)}
    done = subprocess.run(typed, cwd=with_statement, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and printed in done.stdout + done.stderr, done.stderr


def test_a_missing_line_is_found() -> None:
    assert missing(["a", "...", "c"], "a\nb\nc\n") == []
    assert missing(["c", "a"], "a\nb\nc\n") == ["a"]


def test_standard_terms_have_a_definition() -> None:
    glossary = (DOCS / "reference" / "glossary.md").read_text().casefold()
    assert [term for term in re.split(r",\s+", TERMS) if term.casefold() not in glossary] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    printed_by(DOCS / "generate.py")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
