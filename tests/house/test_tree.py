"""The house rules that a machine can check: floors, packaging, sizes, laziness, data that cannot execute."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FLOORS = ("ir", "codegen", "engine")
SOURCES = sorted(p for floor in FLOORS for p in (ROOT / floor).rglob("*.py"))


def test_packages_are_the_tree() -> None:
    found = {"dplc", *(".".join(("dplc", *p.parent.relative_to(ROOT).parts)) for p in SOURCES)}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


def test_every_package_has_an_init() -> None:
    missing = {str(p.parent.relative_to(ROOT)) for p in SOURCES if not (p.parent / "__init__.py").exists()}
    assert not missing


def test_package_data_is_declared() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["dplc"]
    kept = {q for pattern in patterns for q in ROOT.glob(pattern)}
    suffixes = {".rw", ".lark", ".cuh", ".cpp", ".toml", ".json"}
    data = {p for floor in (*FLOORS, "rules") for p in (ROOT / floor).rglob("*") if p.suffix in suffixes}
    assert data <= kept, f"not shipped: {sorted(str(p.relative_to(ROOT)) for p in data - kept)}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= 440, f"{path.name} has {lines} lines: one subject per file, about 400 lines"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            size = (node.end_lineno or 0) - node.lineno + 1
            assert size <= 60, f"{path.name}:{node.lineno}: {node.name} has {size} lines"


def test_no_rooms_without_a_name() -> None:
    assert not [p for p in SOURCES if p.stem in ("utils", "util", "helpers", "misc", "common")]


def _imports(path: Path) -> set[str]:
    """The floors that a module imports, relative imports resolved."""
    package = ("dplc", *path.parent.relative_to(ROOT).parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            found.add(".".join((*base, *(node.module or "").split("."))).rstrip("."))
    return found


def test_floors() -> None:
    above = {"ir": ("codegen", "engine"), "codegen": ("engine",), "engine": ()}
    for path in SOURCES:
        floor = path.relative_to(ROOT).parts[0]
        for name in _imports(path):
            assert not any(name.startswith(f"dplc.{upper}") for upper in above[floor]), f"{path}: {name}"


def test_nothing_is_executed_but_our_own_constructors() -> None:
    """`eval`, `exec` and pickle appear only where the text is ours or the user's `-c` expression."""
    allowed = {"ir/node.py", "engine/front/instrument.py", "engine/front/capture.py"}
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text())
        calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        if name not in allowed and not name.startswith("engine/match/"):
            assert not calls & {"eval", "exec"}, name
        modules = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not modules & {"pickle", "marshal", "shelve"}, name


def test_help_imports_neither_torch_nor_lark() -> None:
    code = "import sys\ntry:\n    from dplc.engine.cli.app import main; main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'lark', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_version_is_one() -> None:
    import dplc

    assert dplc.__version__ == PROJECT["project"]["version"]
