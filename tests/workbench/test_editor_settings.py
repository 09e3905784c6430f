"""What `examples/editors` gives editors: whole, and in step with the language; the VS Code extension packed by vsce."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dplc.engine.language.rule import BUILT_IN
from dplc.engine.view.lexer import CLAUSES, FLOW, VALUES

EDITORS = Path(__file__).resolve().parents[2] / "examples" / "editors"
CODE = EDITORS / "vscode"


def read(name: str) -> Any:
    return json.loads((CODE / name).read_text())


def patterns(grammar: dict[str, Any]) -> Iterator[str]:
    return (pattern["match"] for pattern in grammar["patterns"])


def test_the_extension_names_files_that_are_there() -> None:
    package = read("package.json")
    contributed = package["contributes"]
    named = [package["main"], *(one["path"] for one in contributed["grammars"])]
    named += [one["configuration"] for one in contributed["languages"]]
    assert [name for name in named if not (CODE / name).is_file()] == []
    language, grammar = contributed["languages"][0], contributed["grammars"][0]
    assert language["id"] == grammar["language"] and grammar["scopeName"] == read(grammar["path"])["scopeName"]
    client = (CODE / package["main"]).read_text()
    asked = {f"dplc.{name}" for name in re.findall(r'settings\.get\("(\w+)"\)', client)}
    assert asked == contributed["configuration"]["properties"].keys() and '["lsp"]' in client
    assert f'language: "{language["id"]}"' in client


def test_the_grammar_colours_every_word_of_the_language() -> None:
    grammar = read("syntaxes/dplc-rule.tmLanguage.json")
    compiled = [re.compile(pattern) for pattern in patterns(grammar)]
    for word in (*CLAUSES, *FLOW, *VALUES):
        heads = (f"{word} name", word, f"{word} rule name")
        if word == "mat":
            continue  # a function, `mat(x)`
        assert any(pattern.search(head) for pattern in compiled[4:7] for head in heads), word
    for path in BUILT_IN.rglob("*.rw"):
        for line in path.read_text().splitlines():
            assert all(found.end() > found.start() for one in compiled for found in one.finditer(line)), (path, line)


def test_helix_and_neovim_start_the_server() -> None:
    helix = tomllib.loads((EDITORS / "helix" / "languages.toml").read_text())
    (language,) = helix["language"]
    assert language["file-types"] == ["rw"] and language["language-servers"] == list(helix["language-server"])
    assert helix["language-server"]["dplc"] == {"command": "dplc", "args": ["lsp"]}
    neovim = (EDITORS / "neovim" / "dplc.lua").read_text()
    assert '{ "dplc", "lsp" }' in neovim and neovim.count("(") == neovim.count(")")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: the extension cannot be packed")
def test_the_extension_is_packed(tmp_path: Path) -> None:
    folder = tmp_path / "vscode"
    shutil.copytree(CODE, folder)
    installed = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True
    )
    if installed.returncode:
        pytest.skip(f"npm cannot install here: {installed.stderr.strip().splitlines()[-1:]}")
    packed = subprocess.run(["npx", "vsce", "package"], cwd=folder, capture_output=True, text=True)
    assert packed.returncode == 0, packed.stderr
    (made,) = folder.glob("*.vsix")
    names = set(zipfile.ZipFile(made).namelist())
    wanted = ("package.json", "extension.js", "language-configuration.json", "syntaxes/dplc-rule.tmLanguage.json")
    wanted += ("node_modules/vscode-languageclient/node.js",)
    assert {f"extension/{name}" for name in wanted} <= names
