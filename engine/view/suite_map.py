"""A suite as a map: which rules fire in which of its cases, how often, and what they gain there by the model's word."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...version import __version__
from ..bench.subject import subject_of
from ..bench.suite_file import BenchCase, read_suite
from ..capture.capture import Capture
from ..compiler import CompileOptions, compile_captured
from ..rewrite.trace import Firing, Trace
from ..ruleset import Toolchain
from .effects import Effects, credits

SECONDS = 0.5  # of processor time, for the model's word on the firings of one case
Fired = dict[str, tuple[int, float]]  # of each rule: its firings, and how many times faster they made it
Tell = Callable[[str, int, int], None]


def silent(what: str, number: int, count: int) -> None:
    """Tells nothing."""


@dataclass
class MapCase:
    """A case as it was last compiled. told: what the page says of it; firings: but those that decompose torch ops;
    came_to: tells whether another compile came to the same; fired: what rules gained, once it is priced."""

    told: dict[str, Any]
    firings: list[Firing]
    came_to: Any = None
    fired: Fired | None = None


class SuiteMap:
    """A suite whose cases are captured once, for rules that may change."""

    def __init__(self, path: Path) -> None:
        self.path, self.suite = path, read_suite(path)
        self._captured: dict[str, Capture] = {}
        self._cases: dict[str, MapCase] = {}

    def compile(self, tools: Toolchain, target: Target, tell: Tell = silent) -> None:
        """Compile every case by these rules. tell: of every case when it begins. A case that came to the same as
        before stays priced: that takes longer than compiling."""
        for number, case in enumerate(self.suite.cases):
            tell(case.name, number, len(self.suite.cases))
            made, known = self._case(case, tools, tools.on(target)), self._cases.get(case.name)
            if known is not None and made.came_to is not None and made.came_to == known.came_to:
                made.fired = known.fired
            self._cases[case.name] = made

    def price(self, tools: Toolchain, target: Target) -> Iterator[None]:
        """Ask the model of each case what firings gained there, as far as there is time for it."""
        for case in self._cases.values():
            if case.fired is None:
                case.fired = credits(case.firings, Effects(tools, tools.on(target), SECONDS))
                yield

    def record(self, tools: Toolchain, target: Target) -> dict[str, Any]:
        """What the page shows. Cells hold how often a rule fired in a case, and how many times faster its firings made
        the kernels there together: 1.0 of those that are not priced."""
        rules: dict[str, dict[str, Any]] = {}
        for number, case in enumerate(self._cases.values()):
            fired = case.fired if case.fired is not None else credits(case.firings, None)
            for name, (count, times) in fired.items():
                rule = rules.setdefault(name, {"name": name, "location": tools.rules.rules[name].location, "cells": {}})
                rule["cells"][str(number)] = [count, times]
        ordered = sorted(rules.values(), key=lambda rule: (-len(rule["cells"]), rule["name"]))
        name, about = self.path.name, self.suite.about
        heat = {"cases": [case.told for case in self._cases.values()], "rules": ordered}
        return {
            "dplc": __version__, "title": f"{name}: {about}" if about else name,
            "target": {"name": target.name, "arch": target.arch}, "heat": heat,
        }  # fmt: skip

    def _case(self, case: BenchCase, tools: Toolchain, target: Target) -> MapCase:
        trace = Trace()
        try:
            if case.name not in self._captured:
                self._captured[case.name] = subject_of(self.suite, case).capture()
            made = compile_captured(self._captured[case.name], CompileOptions(tools, target, trace))
        except DplcError as error:
            return MapCase({"name": case.name, "us": None, "launches": 0, "error": error.render()}, [])
        firings = [event for event in trace.firings if event.prefix != "d" and event.rule in tools.rules.rules]
        whole = Effects(tools, target)
        told = [whole.kernel(made.kernels[place]) for place in made.launched]
        us = math.fsum(one["us"] for one in told if one is not None)
        came_to = made.cuda, target, tuple((event.rule, event.where, event.location) for event in firings)
        return MapCase({"name": case.name, "us": us, "launches": len(made.launched), "error": ""}, firings, came_to)


def suite_record(path: Path, tools: Toolchain, target: Target, tell: Tell = silent) -> dict[str, Any]:
    """The record of a suite, priced. tell: of every case when it begins."""
    found = SuiteMap(path)
    found.compile(tools, target, tell)
    for _ in found.price(tools, target):
        pass
    return found.record(tools, target)
