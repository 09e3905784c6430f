"""Which tests reach which blocks of Python code: every block of a copy says that it ran, and a test notes what said so.

A block is a list of statements inside a function. Processes that a test starts tell as they end.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

MOST = 1 << 16  # blocks of a tree
NAME = "__reached__"
FOLDER = "DPLC_REACHED"  # the variable that says where processes tell what they reached
SITE = f"""import atexit, builtins, os, pathlib
builtins.{NAME} = bytearray({MOST})
if os.environ.get("{FOLDER}"):
    place = pathlib.Path(os.environ["{FOLDER}"], str(os.getpid()))
    atexit.register(lambda: place.write_bytes(builtins.{NAME}))
"""
TOUCHING = """
def {name}(ran=[]):
    if not ran:
        ran.append(open({path!r}, "w").close())
"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Block(NamedTuple):
    """file: from the root; lines of its first and of its last statement."""

    file: str
    first: int
    last: int


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    inside = {id(inner) for node in ast.walk(tree) if isinstance(node, FUNCTIONS) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in inside and not isinstance(node, ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and block:
                    yield block


def blocks(text: str, file: str) -> list[Block]:
    """The blocks of a text, in the order in which they are marked."""
    return [Block(file, block[0].lineno, block[-1].end_lineno or 0) for block in _blocks(ast.parse(text))]


def marked(text: str, first: int) -> str:
    """A text whose blocks say that they run: the n-th sets place first + n."""
    tree = ast.parse(text)
    for number, block in enumerate(list(_blocks(tree)), first):
        block.insert(int(_documented(block)), ast.parse(f"{NAME}[{number}] = 1").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def touching(text: str, line: int, touched: Path) -> str:
    """A text whose smallest block around a line makes a file as it first runs; what runs at import makes none."""
    tree = ast.parse(text)
    held = [block for block in _blocks(tree) if block[0].lineno <= line <= (block[-1].end_lineno or 0)]
    if not held:
        return text
    block = min(held, key=lambda one: (one[-1].end_lineno or 0) - one[0].lineno)
    block.insert(int(_documented(block)), ast.parse(f"{NAME}()").body[0])
    future = [n for n, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    place = future[-1] + 1 if future else int(_documented(tree.body))
    tree.body.insert(place, ast.parse(TOUCHING.format(name=NAME, path=str(touched))).body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _documented(block: list[ast.stmt]) -> bool:
    return isinstance(block[0], ast.Expr) and isinstance(block[0].value, ast.Constant)


def innermost(all_blocks: list[Block], file: str, line: int) -> int | None:
    """The number of the smallest block that holds a line; None for what runs at import."""
    held = [(b.last - b.first, n) for n, b in enumerate(all_blocks) if b.file == file and b.first <= line <= b.last]
    return min(held)[1] if held else None


def _cpu() -> float:
    """Seconds of CPU, of processes that have ended too."""
    return sum(os.times()[:4])


class Watch:
    """A plugin that writes a line for every test that passes: its name, its seconds of CPU, what it reached."""

    def __init__(self, records: Path, told: Path) -> None:
        self.records, self.told, self.failed = records, told, False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        reached: bytearray = getattr(builtins, NAME)
        reached[:] = bytes(MOST)
        self.failed, start = False, _cpu()
        result = yield
        found = np.frombuffer(bytes(reached), np.uint8) != 0
        for path in self.told.iterdir():
            found |= np.frombuffer(path.read_bytes(), np.uint8) != 0
            path.unlink()
        if not self.failed:
            bits = np.packbits(found).tobytes().hex()
            line = {"test": item.nodeid, "seconds": round(_cpu() - start, 3), "reached": bits}
            with self.records.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed or report.skipped


class Reach:
    """What tests reach. tests: {name: seconds}, of those that passed."""

    def __init__(self, lines: list[str]) -> None:
        found = [json.loads(line) for line in lines if line.endswith("}")]
        self.tests = {one["test"]: one["seconds"] for one in found}
        self._bits = {one["test"]: bytes.fromhex(one["reached"]) for one in found}

    def of(self, numbers: list[int]) -> list[str]:
        """The tests that reach one of some blocks, those of different files in turn, of each the quickest first."""
        turns: dict[str, int] = {}
        ordered = []
        for test in sorted(self.tests, key=lambda test: (self.tests[test], test)):
            bits = self._bits[test]
            if any(bits[n // 8] & (128 >> n % 8) for n in numbers):
                file = test.split("::")[0]
                turns[file] = turns.get(file, -1) + 1
                ordered.append((turns[file], test))
        return [test for _, test in sorted(ordered, key=lambda one: one[0])]
