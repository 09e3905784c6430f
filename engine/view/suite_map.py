"""A suite as a map: which rules fire in which of its cases, how often, and what they gain there by the model's word."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...version import __version__
from ..bench.subject import subject_of
from ..bench.suite_file import BenchCase, Suite, read_suite
from ..compiler import compile_captured
from ..rewrite.trace import Trace
from ..ruleset import Toolchain
from .effects import Effects, credits

SECONDS = 0.5  # for the model's word on the firings of one case


def suite_record(
    path: Path, tools: Toolchain, target: Target, tell: Callable[[str, int, int], None] = lambda what, n, of: None
) -> dict[str, Any]:
    """The record of a suite. tell: of every case when it begins. Rules that decompose torch ops are left out.

    times: how many times faster the firings of a rule made the kernels of a case together, as far as they were priced.
    """
    suite = read_suite(path)
    cases: list[dict[str, Any]] = []
    rules: dict[str, dict[str, Any]] = {}
    for number, case in enumerate(suite.cases):
        tell(case.name, number, len(suite.cases))
        told, fired = _case(suite, case, tools, tools.on(target))
        cases.append(told)
        for name, (count, times) in fired.items():
            rule = rules.setdefault(name, {"name": name, "location": tools.rules.rules[name].location, "cells": {}})
            rule["cells"][str(number)] = [count, times]
    ordered = sorted(rules.values(), key=lambda rule: (-len(rule["cells"]), rule["name"]))
    return {
        "dplc": __version__, "title": f"{path.name}: {suite.about}" if suite.about else path.name,
        "target": {"name": target.name, "arch": target.arch}, "heat": {"cases": cases, "rules": ordered},
    }  # fmt: skip


def _case(
    suite: Suite, case: BenchCase, tools: Toolchain, target: Target
) -> tuple[dict[str, Any], dict[str, tuple[int, float]]]:
    trace = Trace()
    try:
        made = compile_captured(subject_of(suite, case).capture(), tools, target, trace)
    except DplcError as error:
        return {"name": case.name, "us": None, "launches": 0, "error": error.render()}, {}
    shown = (event for event in trace.firings if event.prefix != "d" and event.rule in tools.rules.rules)
    fired = credits(shown, Effects(tools, target, SECONDS))
    whole = Effects(tools, target)
    told = [whole.kernel(made.kernels[place]) for place in made.launched]
    us = math.fsum(one["us"] for one in told if one is not None)
    return {"name": case.name, "us": us, "launches": len(made.launched), "error": ""}, fired
