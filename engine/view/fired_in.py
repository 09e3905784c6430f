"""Where rules fire in a suite: of every rule the cases, and how often in each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..bench.subject import subject_of
from ..bench.suite_file import read_suite
from ..compiler import compile_captured
from ..rewrite.trace import Trace
from ..ruleset import Toolchain

Fired = dict[str, list[tuple[str, int]]]


def fired_in(path: Path, tools: Toolchain, target: Target, tell: Callable[[str, int, int], None]) -> Fired:
    """{rule: [(case, firings)]}. tell: of every case when it begins. Cases that do not compile are left out."""
    suite = read_suite(path)
    found: Fired = {}
    for number, case in enumerate(suite.cases):
        tell(case.name, number, len(suite.cases))
        trace = Trace()
        try:
            compile_captured(subject_of(suite, case).capture(), tools, tools.on(target), trace)
        except DplcError:
            continue
        counts: dict[str, int] = {}
        for event in trace.firings:
            counts[event.rule] = counts.get(event.rule, 0) + 1
        for name, count in counts.items():
            found.setdefault(name, []).append((case.name, count))
    return found
