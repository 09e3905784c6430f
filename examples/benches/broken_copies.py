"""Copies of the tree in which faults are put and tests are run, kept in a folder: what was stopped goes on there."""

from __future__ import annotations

import builtins
import compileall
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, files
from reach import FOLDER, MOST, NAME, SITE, Block, Reach, Watch, blocks, innermost, marked

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = (".git", ".venv*", "__pycache__", ".mypy_cache", ".ruff_cache", ".typecheck", "build", "*.egg-info")
NOT_RUN = ("tests/house", "tests/manifest", "tests/examples")  # they look at the tree, not at what it does
FILE_SECONDS = 60.0  # of CPU, to see what a file of tests reaches
SECONDS = 60.0  # of tests on one fault, as they take without it
PATIENCE = 4  # so many times longer they may take with it: a loop without an end is noticed
WAITING = 1200.0  # by the clock: a test that waits takes no CPU, and one that others keep waiting little


class Workplace:
    """Two copies of the tree in folders of their own, each called as the package is: one to break, one that tells."""

    def __init__(self, state: Path) -> None:
        self.state, self.plain, self.telling = state, state / "plain" / "dplc", state / "telling" / "dplc"
        self.reached, self.results = state / "reached.jsonl", state / "results.jsonl"
        if not self.telling.exists():
            shutil.rmtree(state, ignore_errors=True)
            for copy in (self.plain, self.telling):
                shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
            for file, text in self._marked():
                (self.telling / file).write_text(text)
            (self.telling.parent / "sitecustomize.py").write_text(SITE)
            for copy in (self.plain, self.telling):
                compileall.compile_dir(copy, quiet=2)
        self._mend()
        self.blocks: list[Block] = [b for f in files(self.plain) for b in blocks((self.plain / f).read_text(), f)]

    def _marked(self) -> list[tuple[str, str]]:
        first, made = 0, []
        for file in files(self.plain):
            text = (self.plain / file).read_text()
            made.append((file, marked(text, first)))
            first += len(blocks(text, file))
        return made

    def take_tests(self) -> None:
        """The tests as they are now; what those reach that were changed is forgotten."""
        stale = set()
        for path in (ROOT / "tests").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(ROOT)
                if not (self.plain / name).exists() or (self.plain / name).read_bytes() != path.read_bytes():
                    stale.add(str(name))
                    for copy in (self.plain, self.telling):
                        (copy / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(path, copy / name)
        keep(self.reached, lambda line: line["test"].split("::")[0] not in stale)
        keep(self.state / "looked.jsonl", lambda line: line["file"] not in stale)

    def test_files(self) -> list[str]:
        found = sorted(str(path.relative_to(self.plain)) for path in (self.plain / "tests").rglob("test_*.py"))
        return [name for name in found if not name.startswith(NOT_RUN)]

    def look(self) -> Reach:
        """What every test reaches, each file in a process of its own: what is done once there, is done once in each."""
        looked, told = self.state / "looked.jsonl", self.state / "told"
        told.mkdir(exist_ok=True)
        self.reached.touch()
        done = {line["file"] for line in lines(looked)}
        keep(self.reached, lambda line: line["test"].split("::")[0] in done)
        names = self.test_files()
        for number, name in enumerate(names, 1):
            if name not in done:
                start = time.monotonic()
                watch = Watch(self.reached, told)
                _, said = in_copy(self.telling, [name], [watch], FILE_SECONDS, {FOLDER: str(told)})
                append(looked, {"file": name})
                failed = f" ({said} failed)" * bool(said)
                print(f"[{number}/{len(names)}] {time.monotonic() - start:.0f} s, {name} looked at{failed}", flush=True)
        return Reach(self.reached.read_text().splitlines())

    def tests_for(self, fault: Fault, reach: Reach) -> list[str]:
        """The nearest tests, as many as fit into the time."""
        held = innermost(self.blocks, fault.file, fault.at[0])
        numbers = [held] if held is not None else [n for n, b in enumerate(self.blocks) if b.file == fault.file]
        chosen, left = [], SECONDS
        for test in reach.of(numbers):
            if reach.tests[test] <= left:
                chosen.append(test)
                left -= reach.tests[test]
        return chosen

    def judge(self, fault: Fault, reach: Reach) -> dict[str, Any]:
        """What becomes of a fault: the test that catches it, none, or that none runs it."""
        tests = self.tests_for(fault, reach)
        record = {"fault": str(fault), "folder": fault.folder, "tests": len(tests)}
        if not tests:
            return record | {"verdict": "reached by none"}
        passed, said = self._broken(fault, tests, reach)
        while not passed and "::" in said and not self._sound(said):
            tests.remove(said)
            passed, said = self._broken(fault, tests, reach)
        return record | {"verdict": "survives"} if passed else record | {"verdict": "caught", "by": said}

    def _broken(self, fault: Fault, tests: list[str], reach: Reach) -> tuple[bool, str]:
        path, kept = self.plain / fault.file, self.state / "kept"
        text = path.read_text()
        shutil.copy2(path, kept)  # with its time, so that what was compiled of it is valid again
        (self.state / "broken").write_text(fault.file)
        try:
            path.write_text(fault.applied(text))
            return in_copy(self.plain, tests, [], 20 + PATIENCE * sum(reach.tests[test] for test in tests), {})
        finally:
            self._mend()

    def _mend(self) -> None:
        """The file that is broken is as it was: also when a run was killed that had broken it."""
        broken = self.state / "broken"
        if broken.exists():
            shutil.copy2(self.state / "kept", self.plain / broken.read_text())
            broken.unlink()

    def _sound(self, test: str) -> bool:
        """Whether a test passes without a fault, alone and in this copy too: else it has caught nothing."""
        known = {line["test"]: line["sound"] for line in lines(self.state / "sound.jsonl")}
        if test not in known:
            known[test] = in_copy(self.plain, [test], [], 20 + PATIENCE * SECONDS, {})[0]
            append(self.state / "sound.jsonl", {"test": test, "sound": known[test]})
        return known[test]


class First:
    """A plugin that notes the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


def in_copy(
    copy: Path, tests: list[str], plugins: list[Any], seconds: float, variables: dict[str, str]
) -> tuple[bool, str]:
    """Whether tests pass in a copy of the tree, within some seconds of CPU, and which fails first.

    They run in a fork of this process, which has imported what is slow to import.
    """
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        _child(copy, tests, plugins, seconds, variables, write)
    os.close(write)
    until = time.monotonic() + WAITING
    try:
        while (ended := os.waitpid(process, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what the tests have left, too
        if ended[0] == 0:
            ended = os.waitpid(process, 0)
    with os.fdopen(read) as file:
        said = file.read()
    if os.WIFSIGNALED(ended[1]):
        number = os.WTERMSIG(ended[1])
        said = "the time" if number in (signal.SIGXCPU, signal.SIGKILL) else f"signal {number}"
    return ended[1] == 0, said


def _child(
    copy: Path, tests: list[str], plugins: list[Any], seconds: float, variables: dict[str, str], write: int
) -> None:
    code = 1
    try:
        os.setsid()
        os.chdir(copy)
        sys.path[:0] = [str(copy), str(copy.parent)]  # as `python -m pytest` there has them
        os.environ.update(variables, PYTHONPATH=str(copy.parent), PYTHONDONTWRITEBYTECODE="1")
        os.environ.update(DPLC_CACHE_DIR=str(copy.parent / "cache"), HYPOTHESIS_PROFILE="unshrunk")
        sys.dont_write_bytecode = True
        setattr(builtins, NAME, bytearray(MOST))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        first = First()
        quick = [] if plugins else ["-x"]
        code = pytest.main(["-q", *quick, "-p", "no:xdist", "-p", "no:randomly", *tests], plugins=[first, *plugins])
        os.write(write, first.name.encode())
    finally:
        os._exit(int(code))


def lines(path: Path) -> list[dict[str, Any]]:
    """A run that was killed may have left half a line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def keep(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Of the lines of a file those that are wanted. Whoever is killed here leaves the file as it was."""
    if path.exists():
        made = path.with_suffix(".new")
        made.write_text("".join(json.dumps(line) + "\n" for line in lines(path) if wanted(line)))
        made.replace(path)
