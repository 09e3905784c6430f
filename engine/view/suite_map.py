"""Rules by cases of a suite: which rules fire in which case, how often, and their predicted speed-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...version import __version__
from ..bench.subject import subject_of
from ..bench.suite_file import BenchCase, Suite, read_suite
from ..compiler import Compilation, CompileOptions, compile_captured
from ..rewrite.trace import Trace
from ..ruleset import Toolchain
from .effects import Effects, credits

SECONDS = 0.5  # of processor time, for predicting the firings of one case
Fired = dict[str, list[tuple[str, int, float]]]
Report = Callable[[str, int, int], None]


def fired_in(path: Path, tools: Toolchain, target: Target, report: Report, priced: bool = False) -> Fired:
    """Return {rule: [(case, firings, predicted speed-up)]} for a suite file.

    report: called with (case, number, count) as each case begins. priced: predict speed-ups, which are 1.0 otherwise.
    Cases that do not compile are left out.
    """
    tools = tools.at(target)
    found: Fired = {}
    for case, made, firings in _compiled(read_suite(path), tools, target, report):
        if made is not None:
            pricing = Effects(tools, made.target, SECONDS) if priced else None
            for name, credit in credits(firings, pricing).items():
                found.setdefault(name, []).append((case.name, *credit))
    return found


def suite_record(path: Path, tools: Toolchain, target: Target, report: Report) -> dict[str, Any]:
    """Return the record of a suite for the page.

    A cell holds how often a rule fired in a case, and the predicted speed-up of all its firings there.
    """
    suite, tools = read_suite(path), tools.at(target)
    cases: list[dict[str, Any]] = []
    rules: dict[str, dict[str, Any]] = {}
    for number, (case, made, firings) in enumerate(_compiled(suite, tools, target, report)):
        if made is None:
            cases.append({"name": case.name, "us": None, "launches": 0, "error": firings})
            continue
        whole = Effects(tools, made.target)
        predicted = [whole.kernel(made.kernels[place]) for place in made.launched]
        us = math.fsum(one["us"] for one in predicted if one is not None)
        cases.append({"name": case.name, "us": us, "launches": len(made.launched), "error": ""})
        shown = [event for event in firings if event.prefix != "d" and event.rule in tools.rules.rules]
        for name, credit in credits(shown, Effects(tools, made.target, SECONDS)).items():
            rule = rules.setdefault(name, {"name": name, "location": tools.rules.rules[name].location, "cells": {}})
            rule["cells"][str(number)] = list(credit)
    ordered = sorted(rules.values(), key=lambda rule: (-len(rule["cells"]), rule["name"]))
    return {
        "dplc": __version__, "title": f"{path.name}: {suite.about}" if suite.about else path.name,
        "target": {"name": target.name, "arch": target.arch}, "heat": {"cases": cases, "rules": ordered},
    }  # fmt: skip


def _compiled(
    suite: Suite, tools: Toolchain, target: Target, report: Report
) -> Iterator[tuple[BenchCase, Compilation | None, Any]]:
    """Compile each case. Yields it with its compilation and firings, or with None and the error."""
    for number, case in enumerate(suite.cases):
        report(case.name, number, len(suite.cases))
        trace = Trace()
        try:
            captured = subject_of(suite, case).capture()
            made = compile_captured(captured, CompileOptions(tools, target, trace))
        except DplcError as error:
            yield case, None, error.render()
        else:
            yield case, made, trace.firings
