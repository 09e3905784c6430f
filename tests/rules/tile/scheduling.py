"""Running nests through the schedule and through the meanings."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from dplc.codegen.target import Target, target
from dplc.engine.language.check import load_facts
from dplc.engine.language.pipeline import PassStep, pipelines
from dplc.engine.language.rule import RuleSet, built_in_files, read_rules
from dplc.engine.rewrite.statements.driver import Engine, run_pipeline
from dplc.ir.diagnostic import Source
from dplc.ir.interp import tile
from dplc.ir.program import Kernel

Program = tuple[Kernel, ...]
MACHINE = target("h200")
load_facts()  # what the rules ask


def rule_files(changes: dict[str, tuple[str, str]] | None = None) -> RuleSet:
    """The built-in rules, some with one piece of their text replaced: {file or rule: (old, new)}."""
    files = []
    for file in built_in_files():
        text = file.source.text
        for name, (old, new) in (changes or {}).items():
            head = next((m.start() for m in re.finditer(rf"\nrule {name}\b", text)), -1)
            if file.stem == name or head >= 0:
                before, rest = text[: max(head, 0)], text[max(head, 0) :]
                assert old in rest, f"{name} no longer says `{old}`"
                text = before + rest.replace(old, new, 1)
        changed = text != file.source.text
        files.append(read_rules(Source(file.source.name, text), further=file.further) if changed else file)
    return RuleSet(files)


@functools.cache
def engine() -> Engine:
    return Engine(rule_files(), check=True)


@functools.cache
def steps() -> tuple[PassStep, ...]:
    return pipelines(engine().rules)["tile"]


def schedule(program: Program, machine: Target = MACHINE, trace: Any = None) -> Program:
    """The default schedule."""
    return run_pipeline(engine(), steps(), program, machine, trace)


def difference(
    program: Program, inputs: dict[str, Any], wanted: dict[str, Any], seeds: Iterable[int] = (0, 1)
) -> str | None:
    """What is wrong with a schedule under some orders of its threads, or None."""
    for seed in seeds:
        try:
            made = tile.run(program, inputs, seed)
        except Exception as error:  # a broken rule may break anything
            return f"{type(error).__name__}: {error}"
        for name, value in wanted.items():
            got = made[name]
            exact = value.dtype.kind != "f"
            same = (
                np.array_equal(got, value) if exact else np.allclose(got, value, rtol=1e-9, atol=1e-9, equal_nan=True)
            )
            if not same:
                return f"{name} has wrong values under seed {seed}"
    return None
