"""Rules of the tree that a machine can check: floors, packaging, sizes, laziness, data that cannot execute."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FLOORS = ("ir", "codegen", "engine")
SOURCES = sorted(p for floor in FLOORS for p in (ROOT / floor).rglob("*.py"))


@functools.cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax, parsed once for all tests."""
    return tuple(ast.walk(ast.parse(path.read_text())))


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


def test_sizes() -> None:
    for path in SOURCES:
        lines = path.read_text().count("\n")
        assert lines <= 900, f"{path.name} has {lines} lines: one subject per file, at most 900 lines"
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef):
                documented = ast.get_docstring(node) is not None
                size = (node.end_lineno or 0) - (node.body[0].end_lineno if documented else node.lineno - 1)
                assert size <= 60, f"{path.name}:{node.lineno}: {node.name} has {size} lines"


def test_no_rooms_without_a_name() -> None:
    assert not [p for p in SOURCES if p.stem in ("utils", "util", "helpers", "misc", "common")]


def _imports(path: Path) -> set[str]:
    """The floors that a module imports, relative imports resolved."""
    package = ("dplc", *path.parent.relative_to(ROOT).parts)
    found = set()
    for node in _nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            found.add(".".join((*base, *(node.module or "").split("."))).rstrip("."))
    return found


# Class names that stand in two files, and why. Everything else has one meaning in the whole tree.
REPEATED = {
    "Assign": "a statement of Kernel IR, and a line of syntax",
    "Launch": "the statement of Kernel IR, and the step of a program that runs it",
    "Match": "a clause of a rule's syntax, and what a rule matched",
    "Rule": "a rule's syntax, and the rule that was read from it",
    "Subject": "the program that a command works on, and a program on which a rule is checked",
    "TensorMap": "the parameter in Kernel IR, and what the emulator holds for it",
    "Names": "names that are taken: in a program, in a graph, in a rewrite",
}


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in _nodes(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(str(path.relative_to(ROOT)))
    repeated = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    new = {name: files for name, files in repeated.items() if name not in REPEATED}
    assert not new, f"class names with two meanings: say what each is: {new}"
    assert len(REPEATED) <= 20


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _needs(path: Path, known: set[str]) -> set[str]:
    """The files of the project that a file imports, inside functions and under TYPE_CHECKING too."""
    package = path.parent.relative_to(ROOT).parts
    found = set()
    for node in _nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else ()))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dplc":
            base = tuple((node.module or "").split(".")[1:])
        else:
            continue
        for alias in node.names:
            inner = ".".join((*base, alias.name))
            found.add(inner if inner in known else ".".join(base))
    return (found & known) - {_module(path)}


def _reads_syntax(text: str) -> bool:
    """Whether a file imports the parser's tree."""
    imports = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom | ast.Import))
    return any(
        (f"{getattr(node, 'module', None) or ''}.{alias.name}").startswith(("ir.text.syntax", "dplc.ir.text.syntax"))
        for node in imports
        for alias in node.names
    )


def test_who_reads_rules_reads_their_core() -> None:
    """Outside of the language (and of the IRs' own texts) a rule is what `engine/language/core.py` says it is."""
    assert _reads_syntax("from ...ir.text import syntax as s") and _reads_syntax("from ..ir.text.syntax import Rule")
    assert not _reads_syntax("from ..ir.text.parse import parse")
    beside = [p for p in SOURCES if p.relative_to(ROOT).parts[0] != "ir" and "language" not in p.parts]
    wrong = [str(p.relative_to(ROOT)) for p in beside if _reads_syntax(p.read_text())]
    assert not wrong, f"these read the parser's tree, not the core: {wrong}"


def test_the_root_of_the_engine_is_its_doors() -> None:
    found = {path.name for path in (ROOT / "engine").glob("*.py")}
    assert found == {"__init__.py", "compiler.py", "api.py", "torch_backend.py", "ruleset.py"}, "give it a folder"


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one member (Tarjan, 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return found


def test_no_circle_of_files() -> None:
    """Imports inside functions and for types alone count: two files that need each other are one subject."""
    known = {_module(path) for path in SOURCES} - {""}
    circles = _circles({_module(path): _needs(path, known) for path in SOURCES})
    assert not circles, "circles of files:\n" + "\n".join(", ".join(circle) for circle in circles)


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(_circles(graph)) == [["a", "b", "c"], ["d", "e"]]


# A file of the project by its path, or a page by its name; `*`, `{` and `<` stand for something. Tests make files up.
REFERENCE = re.compile(
    r"(?<![\w/.{*<$-])((?:(?:ir|codegen|engine|rules|examples)/[\w./-]*\.(?:py|rw|md|cuh|cpp|toml|json|lark|html))"
    r"|(?:[\w-]+/)*[A-Z][A-Z_]+\.md)\b(?!\w*[{*<])"
)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")


def test_no_reference_dangles() -> None:
    """Pages, docstrings and comments name files that are here."""
    pages = [p for p in ROOT.glob("*.md") if not p.is_symlink()]
    folders = ("ir", "codegen", "engine", "rules", "examples", "tests", "docs")
    found = [p for folder in folders for suffix in ("md", "py", "rw") for p in (ROOT / folder).rglob(f"*.{suffix}")]
    pages += [p for p in found if "generated" not in p.parts]
    dangling = []
    for path in pages:
        text = path.read_text()
        found = [*LINK.finditer(text)] if path.suffix == ".md" else []
        found += [m for m in REFERENCE.finditer(text) if path.parts[len(ROOT.parts)] != "tests" or m[1].endswith(".md")]
        for match in found:
            here = any((folder / match[1]).exists() for folder in (ROOT, path.parent))
            if not here and "generated/" not in match[1]:  # a command writes those
                line = text[: match.start()].count("\n") + 1
                dangling.append(f"{path.relative_to(ROOT)}:{line}: {match[1]}")
    assert not dangling, "these name files that are not here:\n" + "\n".join(dangling)


def test_floors() -> None:
    above = {"ir": ("codegen", "engine"), "codegen": ("engine",), "engine": ()}
    for path in SOURCES:
        floor = path.relative_to(ROOT).parts[0]
        for name in _imports(path):
            assert not any(name.startswith(f"dplc.{upper}") for upper in above[floor]), f"{path}: {name}"


def test_nothing_is_executed_but_our_own_constructors() -> None:
    """`eval`, `exec` and pickle appear only where the text is ours or the user's: a `-c` text, a folder of problems, a pack."""
    allowed = {"ir/node.py", "engine/capture/capture.py", "engine/bench/folders.py", "codegen/pack/contents.py"}
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        calls = {n.func.id for n in _nodes(path) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        if name not in allowed and not name.startswith("engine/rewrite/"):
            assert not calls & {"eval", "exec"}, name
        modules = {a.name for n in _nodes(path) if isinstance(n, ast.Import) for a in n.names}
        assert not modules & {"pickle", "marshal", "shelve"}, name


LIGHT = """
import sys
try:
    from dplc.engine.cli.app import main
    main(["--help"])
except SystemExit:
    print(sorted({"torch", "lark", "numpy"} & set(sys.modules)))
import dplc.ir.interp.torch
from dplc.engine.language import check, rule
rule.load()
check.check(rule.RuleSet([rule.read_rules(rule.Source("a.rw", ""))]))
print("torch" in sys.modules)
"""


def test_help_imports_neither_torch_nor_lark_and_rules_load_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "False"]


def test_version_is_one() -> None:
    import dplc

    assert dplc.__version__ == PROJECT["project"]["version"]
