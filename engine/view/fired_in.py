"""Where rules fire in a suite: of every rule the cases, how often in each, and what it gained there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..bench.subject import subject_of
from ..bench.suite_file import read_suite
from ..compiler import CompileOptions, compile_captured
from ..rewrite.trace import Trace
from ..ruleset import Toolchain
from .effects import Effects, credits

SECONDS = 0.5  # for the model's word on the firings of one case
Fired = dict[str, list[tuple[str, int, float]]]


def fired_in(
    path: Path, tools: Toolchain, target: Target, tell: Callable[[str, int, int], None], priced: bool = False
) -> Fired:
    """{rule: [(case, firings, times faster)]}. tell: of every case when it begins. priced: whether the model is asked;
    else it is 1.0 times. Cases that do not compile are left out."""
    suite, tools, machine = read_suite(path), tools.at(target), tools.on(target)
    found: Fired = {}
    for number, case in enumerate(suite.cases):
        tell(case.name, number, len(suite.cases))
        trace = Trace()
        try:
            compile_captured(subject_of(suite, case).capture(), CompileOptions(tools, machine, trace))
        except DplcError:
            continue
        for name, told in credits(trace.firings, Effects(tools, machine, SECONDS) if priced else None).items():
            found.setdefault(name, []).append((case.name, *told))
    return found
