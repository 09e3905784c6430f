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
from functools import partial
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
OVER = "the time"  # what is said of a run that was stopped
WAITING = 1200.0  # by the clock: a test that waits takes no CPU, and one that others keep waiting little

Run = Callable[[], tuple[int, str]]  # the code that a run of tests ends with, and the first that fails


class Workplace:
    """Two copies of the tree in folders of their own, each called as the package is: one to break, one that tells."""

    def __init__(self, state: Path) -> None:
        self.state, self.plain, self.telling = state, state / "plain" / "dplc", state / "telling" / "dplc"
        self.reached, self.results = state / "reached.jsonl", state / "results.jsonl"
        if not all(copy.exists() for copy in self.copies()):
            shutil.rmtree(state, ignore_errors=True)
            for copy in self.copies():
                shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
            self.prepare()
            for copy in self.copies():
                compileall.compile_dir(copy, quiet=2)
        self.mend()
        self.blocks: list[Block] = [b for f in files(self.plain) for b in blocks((self.plain / f).read_text(), f)]
        self.reach = Reach([])

    def copies(self) -> tuple[Path, ...]:
        return (self.plain, self.telling)

    def prepare(self) -> None:
        """One copy says which of its blocks run."""
        for file, text in self._marked():
            (self.telling / file).write_text(text)
        (self.telling.parent / "sitecustomize.py").write_text(SITE)

    def _marked(self) -> list[tuple[str, str]]:
        first, made = 0, []
        for file in files(self.plain):
            text = (self.plain / file).read_text()
            made.append((file, marked(text, first)))
            first += len(blocks(text, file))
        return made

    def take_tests(self) -> frozenset[str]:
        """The tests as they are now; what those reach that were changed is forgotten. Returns their files."""
        stale = set()
        for path in (ROOT / "tests").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(ROOT)
                if not (self.plain / name).exists() or (self.plain / name).read_bytes() != path.read_bytes():
                    stale.add(str(name))
                    for copy in self.copies():
                        (copy / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(path, copy / name)
        keep(self.reached, lambda line: line["test"].split("::")[0] not in stale)
        keep(self.state / "looked.jsonl", lambda line: line["file"] not in stale)
        return frozenset(stale)

    def test_files(self) -> list[str]:
        found = sorted(str(path.relative_to(self.plain)) for path in (self.plain / "tests").rglob("test_*.py"))
        return [name for name in found if not name.startswith(NOT_RUN)]

    def look(self) -> None:
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
                run = partial(tested, [name], [watch])
                _, said = in_copy(self.telling, run, FILE_SECONDS, {FOLDER: str(told)})
                append(looked, {"file": name})
                failed = f" ({said} failed)" * bool(said)
                print(f"[{number}/{len(names)}] {time.monotonic() - start:.0f} s, {name} looked at{failed}", flush=True)
        self.reach = Reach(self.reached.read_text().splitlines())

    def tests_for(self, fault: Fault) -> list[str]:
        """The nearest tests, as many as fit into the time."""
        held = innermost(self.blocks, fault.file, fault.at[0])
        numbers = [held] if held is not None else [n for n, b in enumerate(self.blocks) if b.file == fault.file]
        chosen, left = [], SECONDS
        for test in self.reach.of(numbers):
            if self.reach.tests[test] <= left:
                chosen.append(test)
                left -= self.reach.tests[test]
        return chosen

    def judge(self, fault: Fault) -> dict[str, Any]:
        """What becomes of a fault: the test that catches it, none, or that none runs it."""
        tests = self.tests_for(fault)
        record = {"fault": str(fault), "folder": fault.folder, "tests": len(tests)}
        if not tests:
            return record | {"verdict": "reached by none"}
        passed, said = self._tried(fault, tests)
        while not passed and "::" in said and not self.sound(said):
            tests.remove(said)
            passed, said = self._tried(fault, tests)
        return record | {"verdict": "survives"} if passed else record | {"verdict": "caught", "by": said}

    def open(self, record: dict[str, Any]) -> bool:
        """Whether a fault is to be judged again, after all of them."""
        return False

    def judge_on(self, fault: Fault) -> dict[str, Any]:
        """A second verdict on what is open."""
        return self.judge(fault)

    def _tried(self, fault: Fault, tests: list[str]) -> tuple[bool, str]:
        limit = 20 + PATIENCE * sum(self.reach.tests[test] for test in tests)
        return self.broken(fault.file, fault.applied, partial(tested, tests, [], "-x"), limit)

    def broken(self, file: str, change: Callable[[str], str], run: Run, seconds: float) -> tuple[bool, str]:
        """What a run says while a file is changed."""
        path, kept = self.plain / file, self.state / "kept"
        text = path.read_text()
        shutil.copy2(path, kept)  # with its time, so that what was compiled of it is valid again
        (self.state / "broken").write_text(file)
        try:
            path.write_text(change(text))
            return in_copy(self.plain, run, seconds, {})
        finally:
            self.mend()

    def mend(self) -> None:
        """The file that is broken is as it was: also when a run was killed that had broken it."""
        broken = self.state / "broken"
        if broken.exists():
            shutil.copy2(self.state / "kept", self.plain / broken.read_text())
            broken.unlink()

    def sound(self, test: str, seconds: float = 20 + PATIENCE * SECONDS) -> bool:
        """Whether a test passes without a fault, alone and in this copy too: else it has caught nothing.

        seconds: of CPU that it may take. Of a file it is only asked whether it can be imported.
        """
        known = {(line["test"], line["seconds"]): line["sound"] for line in lines(self.state / "sound.jsonl")}
        if (test, seconds) not in known:
            options = ["-x"] if "::" in test else ["--collect-only"]
            known[test, seconds] = in_copy(self.plain, partial(tested, [test], [], *options), seconds, {})[0]
            append(self.state / "sound.jsonl", {"test": test, "seconds": seconds, "sound": known[test, seconds]})
        return known[test, seconds]


class First:
    """A plugin that notes the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


def tested(tests: list[str], plugins: list[Any], *options: str) -> tuple[int, str]:
    """What pytest returns, and the first test that fails."""
    first = First()
    code = pytest.main(["-q", "-p", "no:xdist", "-p", "no:randomly", *options, *tests], plugins=[first, *plugins])
    return int(code), first.name


def in_copy(copy: Path, run: Run, seconds: float, variables: dict[str, str]) -> tuple[bool, str]:
    """Whether tests pass in a copy of the tree, within some seconds of CPU, and which fails first.

    They run in a fork of this process, which has imported what is slow to import.
    """
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        _child(copy, run, seconds, variables, write)
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
        said = OVER if number in (signal.SIGXCPU, signal.SIGKILL) else f"signal {number}"
    return ended[1] == 0, said


def _child(copy: Path, run: Run, seconds: float, variables: dict[str, str], write: int) -> None:
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
        code, said = run()
        os.write(write, said.encode())
    finally:
        os._exit(code)


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
