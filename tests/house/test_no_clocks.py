"""No clock decides a test: a machine that is busy fails nothing. Times are measured by `make bench`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CLOCKS = {
    "time", "time_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "monotonic", "monotonic_ns",
    "thread_time", "thread_time_ns", "getrusage",
}  # fmt: skip
# Waiting for an event with a long time-out, and the peak of memory, which `getrusage` gives.
ALLOWED = {
    "models/test_compiled_models.py": {"getrusage"},
    "view/view_programs.py": {"monotonic"},
}


def clocks(text: str) -> Iterator[str]:
    """The clocks that a module reads, by name."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("time", "resource")
        ):
            yield from {node.attr} & CLOCKS
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "resource"):
            yield from {alias.name for alias in node.names} & CLOCKS
        elif isinstance(node, ast.Import) and any(alias.name == "timeit" for alias in node.names):
            yield "timeit"


@pytest.mark.parametrize(
    "text",
    ["import time\nstart = time.perf_counter()", "from time import monotonic", "import timeit", "time.time() - start"],
)
def test_a_clock_is_found(text: str) -> None:
    assert list(clocks(text))


def test_no_clock_decides_a_test() -> None:
    found = {
        str(path.relative_to(TESTS)): read
        for path in sorted(TESTS.rglob("*.py"))
        if (read := set(clocks(path.read_text())))
    }
    assert found == ALLOWED, "count calls (`tests/counting.py`), or make it a line of `make bench`"
