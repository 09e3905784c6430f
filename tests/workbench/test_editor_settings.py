"""What `examples/editors` gives editors: whole, and in step with the language; the VS Code extension packed by vsce."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from pygments.token import Error, Keyword, String

from dplc.engine.language.rule import BUILT_IN
from dplc.engine.view.lexer import CLAUSES, FLOW, VALUES, RuleLexer

EDITORS = Path(__file__).resolve().parents[2] / "examples" / "editors"
CODE = EDITORS / "vscode"


def test_the_extension_names_files_that_are_there() -> None:
    package = json.loads((CODE / "package.json").read_text())
    contributed = package["contributes"]
    (language,), (grammar,) = contributed["languages"], contributed["grammars"]
    assert (CODE / language["configuration"]).is_file() and language["id"] == grammar["language"]
    assert grammar["scopeName"] == json.loads((CODE / grammar["path"]).read_text())["scopeName"]
    client = (CODE / package["main"]).read_text()
    asked = {f"dplc.{name}" for name in re.findall(r'settings\.get\("(\w+)"\)', client)}
    assert asked == contributed["configuration"]["properties"].keys()
    assert '["lsp"]' in client and f'language: "{language["id"]}"' in client


def test_the_grammar_colours_every_word_of_the_language() -> None:
    grammar = json.loads((CODE / "syntaxes" / "dplc-rule.tmLanguage.json").read_text())
    compiled = [re.compile(pattern["match"]) for pattern in grammar["patterns"]]
    for word in {*CLAUSES.split(), *FLOW.split(), *VALUES.split()} - {"mat"}:  # a function, `mat(x)`
        heads = (f"{word} name", word, f"{word} rule name")
        assert any(pattern.search(head) for pattern in compiled[4:7] for head in heads), word
    for path in BUILT_IN.rglob("*.rw"):
        for line in path.read_text().splitlines():
            assert all(found.group() for one in compiled for found in one.finditer(line)), (path, line)


def test_the_lexer_knows_every_word() -> None:
    text = (BUILT_IN / "tile/memory/stage_inputs.rw").read_text()
    tokens = list(RuleLexer().get_tokens(text))
    kinds = {kind for kind, _ in tokens}
    assert "".join(value for _, value in tokens) == text and {Keyword, String.Doc} <= kinds and Error not in kinds


def test_helix_and_neovim_start_the_server() -> None:
    helix = tomllib.loads((EDITORS / "helix" / "languages.toml").read_text())
    (language,) = helix["language"]
    assert (language["file-types"], language["language-servers"]) == (["rw"], ["dplc"])
    assert helix["language-server"] == {"dplc": {"command": "dplc", "args": ["lsp"]}}
    neovim = (EDITORS / "neovim" / "dplc.lua").read_text()
    assert '{ "dplc", "lsp" }' in neovim and neovim.count("(") == neovim.count(")")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: the extension cannot be packed")
def test_the_extension_is_packed(tmp_path: Path) -> None:
    folder = shutil.copytree(CODE, tmp_path / "vscode")
    install = ["npm", "install", "--no-audit", "--no-fund"]
    installed = subprocess.run(install, cwd=folder, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"npm cannot install here: {installed.stderr.strip().splitlines()[-1:]}")
    packed = subprocess.run(["npx", "vsce", "package"], cwd=folder, capture_output=True, text=True)
    assert packed.returncode == 0, packed.stderr
    (made,) = folder.glob("*.vsix")
    wanted = ("package.json", "extension.js", "language-configuration.json", "syntaxes/dplc-rule.tmLanguage.json")
    wanted += ("node_modules/vscode-languageclient/node.js",)
    assert {f"extension/{name}" for name in wanted} <= set(zipfile.ZipFile(made).namelist())
