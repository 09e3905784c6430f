"""Faults judged without a look at all tests first: the files of tests that lie nearest run on each, for some seconds.

Near is what imports the changed module, names the changed function, has words of the module in its name, or lies in the
folder of the same name. After all faults were judged so, what was not noticed is tried against more files, for longer,
before it is said to survive. The changed file says whether its changed block ran at all.
"""

from __future__ import annotations

import ast
import os
import re
import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from broken_copies import OVER, PATIENCE, Workplace, tested
from faults import Fault, files
from reach import FUNCTIONS, innermost, touching

TEST_SECONDS = 40.0  # of CPU, of one test: longer is a loop without an end, if the test takes a quarter without it


class Bound(NamedTuple):
    """Seconds of CPU: of one file, of all. how, unnoticed, unreached: what a record says of it."""

    how: str
    each: float
    all: float
    unnoticed: str
    unreached: str


NEAR = Bound("near", 5.0, 10.0, "unnoticed nearby", "unreached nearby")
NAMED = Bound("named", 40.0, 120.0, "", "")
WIDER = Bound("wider", 12.0, 60.0, "survives", "reached by none")


def nearest(root: Path, fault: Fault, tests: list[str]) -> list[str]:
    """Files of tests, the nearest first, of equally near ones the shortest."""
    module = fault.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = module.rpartition(".")
    home, inner = _home(root, fault.file)
    held = "|".join(map(re.escape, _holders((root / fault.file).read_text(), fault.at[0]))) or "$^"
    imported = re.compile(rf"\b{re.escape(module)}\b|from \S*{re.escape(package)} import .*\b{re.escape(name)}\b")
    beside, named = re.compile(rf"\b{re.escape(package)}\b"), re.compile(rf"\b(?:{held})\b")
    words = {_singular(word) for word in (*name.split("_"), *inner)}
    users = re.compile("|".join(map(re.escape, _users(root, name, fault.file))) or "$^")

    def distance(test: str) -> tuple[int, int]:
        text = (root / test).read_text()
        shared = len(words & {_singular(word) for word in Path(test).stem.split("_")})
        near = (
            8 * bool(imported.search(text)) + 4 * bool(named.search(text)) + 3 * shared + 2 * bool(users.search(text))
        )
        return -(near + 2 * test.startswith(home) + bool(beside.search(text))), len(text)

    return sorted(tests, key=distance)


def _home(root: Path, file: str) -> tuple[str, list[str]]:
    """The folder of tests of a file's folder, or of the nearest one above; the words of the folders below that one."""
    folder, inner = Path(file.removeprefix("engine/")).parent, list[str]()
    while folder.name and not (root / "tests" / folder).is_dir():
        inner += folder.name.split("_")
        folder = folder.parent
    return f"tests/{folder}/", inner


def _singular(word: str) -> str:
    return word.removesuffix("s")


def _users(root: Path, name: str, file: str) -> list[str]:
    """The modules that import from a module of this name, dotted."""
    imports = re.compile(rf"from [.\w]*\b{re.escape(name)} import |from \S+ import .*\b{re.escape(name)}\b")
    found = [other for other in files(root) if other != file and imports.search((root / other).read_text())]
    return [other.removesuffix(".py").replace("/", ".") for other in found if not other.endswith("__init__.py")]


def _holders(text: str, line: int) -> list[str]:
    """The functions and classes around a line, by name; those of one word of few letters are named by chance."""
    kinds = (*FUNCTIONS, ast.ClassDef)
    held = [n for n in ast.walk(ast.parse(text)) if isinstance(n, kinds) and n.lineno <= line <= (n.end_lineno or 0)]
    return [node.name for node in held if len(node.name) > 4]


def file_by_file(files: list[str], bound: Bound, ran: Path, *options: str) -> tuple[int, str]:
    """What the first failing file ends with and its failing test. ran: a file that gets a line for every test."""
    start = _cpu()
    for name in files:
        if _cpu() - start > bound.all:
            break
        code, failed = tested([name], [_Within(bound.each, ran)], "-x", *options)
        if failed:
            return code, failed
    return 0, ""


class _Within:
    """A plugin that stops between tests when a file has had its seconds, and bounds every test."""

    def __init__(self, seconds: float, ran: Path) -> None:
        self.until, self.ran = _cpu() + seconds, ran

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        with self.ran.open("a") as file:
            file.write(item.nodeid + "\n")
        limit = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (min(int(time.process_time() + TEST_SECONDS) + 1, limit), limit))
        result = yield
        if _cpu() > self.until and nextitem is not None:
            item.session.shouldstop = "the seconds of this file are over"
        return result


class Nearest(Workplace):
    """One copy to break. Each file of tests runs for so long, in the order of nearness, the changed tests first."""

    changed: frozenset[str] = frozenset()  # files of tests
    named: Mapping[str, list[str]] = MappingProxyType({})  # {fault: tests that are tried before all others}

    def copies(self) -> tuple[Path, ...]:
        return (self.plain,)

    def prepare(self) -> None:
        """The one copy stays as it is."""

    def take_tests(self) -> frozenset[str]:
        self.changed = super().take_tests()
        return self.changed

    def look(self) -> None:
        """Nothing is looked at beforehand."""

    def judge(self, fault: Fault, bound: Bound = NEAR) -> dict[str, Any]:
        """What becomes of a fault. In the record: how it was judged, and by how many files and tests."""
        order = sorted(nearest(self.plain, fault, self.test_files()), key=lambda name: name not in self.changed)
        touched = self.state / "touched"
        touched.unlink(missing_ok=True)
        change = partial(_changed, fault, touched)
        if named := self.named.get(str(fault), []):
            said, tests = self._ran(fault.file, change, named, NAMED)
            bound = NAMED if said else bound
        if bound is not NAMED:
            said, tests = self._ran(fault.file, change, order, bound)
        files = len({test.split("::")[0] for test in tests})
        record = {"fault": str(fault), "folder": fault.folder, "how": bound.how, "files": files, "tests": len(tests)}
        if said:
            return record | {"verdict": "caught", "by": said}
        inside = innermost(self.blocks, fault.file, fault.at[0]) is not None
        reached = touched.exists() or not inside  # what is in no function runs at import
        return record | {"verdict": bound.unnoticed if reached else bound.unreached}

    def judge_named(self, fault: Fault, tests: list[str]) -> dict[str, Any]:
        """What becomes of a fault by tests that somebody names; no verdict where they notice nothing."""
        said, ran = self._ran(fault.file, partial(_changed, fault, self.state / "touched"), tests, NAMED)
        files = len({test.split("::")[0] for test in ran})
        record = {"how": NAMED.how, "files": files, "tests": len(ran)}
        return record | ({"verdict": "caught", "by": said} if said else {})

    def open(self, record: dict[str, Any]) -> bool:
        return record["verdict"] in (NEAR.unnoticed, NEAR.unreached)

    def judge_on(self, fault: Fault) -> dict[str, Any]:
        return self.judge(fault, WIDER)

    def _ran(self, file: str, change: Callable[[str], str], order: list[str], bound: Bound) -> tuple[str, list[str]]:
        """The test that fails, if it passes without the fault, and what ran; what fails always is left out."""
        ran, without = self.state / "ran", list[str]()
        while True:
            ran.unlink(missing_ok=True)
            run = partial(file_by_file, order, bound, ran, *(f"--deselect={test}" for test in without))
            passed, said = self.broken(file, change, run, bound.all + TEST_SECONDS + 20)
            lines = ran.read_text().splitlines() if ran.exists() else []
            if passed:
                return "", lines
            test = said if said != OVER else [said, *lines][-1]
            if not test.startswith("tests/"):  # a signal ended it
                return said, lines
            if self.sound(test) if test == said else self.sound(test, TEST_SECONDS / PATIENCE):
                return (test if test == said else f"{test}, which no longer ends"), lines
            without.append(test)
            order = [name for name in order if name != test]  # a file that nobody can import


def _changed(fault: Fault, touched: Path, text: str) -> str:
    return touching(fault.applied(text), fault.at[0], touched)


def _cpu() -> float:
    """Seconds of CPU, of processes that have ended too."""
    return sum(os.times()[:4])
