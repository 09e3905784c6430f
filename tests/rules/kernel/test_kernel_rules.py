"""The rules of Kernel IR on kernels of the suite: they fire, keep the meaning, and do what they are there for."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from facts_purity import anew, checked_facts

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.kernels.examples import run_examples
from dplc.engine.language.rule import load
from dplc.engine.rewrite.statements.driver import Engine, run_pipeline
from dplc.engine.ruleset import toolchain
from dplc.ir.expr import linear
from dplc.ir.kernel import Base, Branch, Replicate
from dplc.ir.node import nodes
from dplc.ir.verify.kernel import problems

# rule: (a program on one of whose kernels it fires, what it lessens)
FIRES = {
    "guard_in_guard": ("torch.randn(7, 9, 33) @ torch.randn(33, 10)", "tests"),
    "same_guard": ("torch.aminmax(torch.randn(5, 7, 33), dim=-1)", "tests"),
    "base_from_base": ("torch.randn(130, 70) @ torch.randn(70, 131)", "terms"),
}


@functools.cache
def compiled(text: str) -> tuple[Any, Any]:
    """(inputs, kernels before the rules of this level)"""
    made = compiler_with(target()).compile(capture_text(text))
    units = tuple(materialise(unit, target()) for unit in made.tile)
    tensors = made.captured.tensors
    return {param.name: tensors[param.name].detach().numpy() for param in made.plan.inputs}, units


def count(units: Any, what: str) -> int:
    """How often a thread tests a guard outside of loops, or the terms that all address registers add up."""
    if what == "terms":
        return sum(len(linear(base.offset)[0]) for base in nodes(units, Base))
    return sum(guards(unit.body, 1) for unit in units)


def guards(block: Any, times: int) -> int:
    found = 0
    for stmt in block:
        inner = times * (stmt.extent if isinstance(stmt, Replicate) else 1)
        found += times * isinstance(stmt, Branch) + guards(getattr(stmt, "body", ()), inner)
    return found


@pytest.mark.parametrize("rule", FIRES)
@pytest.mark.sampled(2)
def test_fires_and_keeps_the_meaning(rule: str) -> None:
    text, what = FIRES[rule]
    arrays, units = compiled(text)
    made = toolchain().engine.fire(rule, units, target())
    assert count(made, what) < count(units, what)
    assert [problems(unit) for unit in made] == [()] * len(made)
    blocks = (0, 3, 17, 255)
    want, got = run_kernels(units, arrays, blocks=blocks), run_kernels(made, arrays, blocks=blocks)
    assert all(np.array_equal(got[name], value, equal_nan=value.dtype.kind == "f") for name, value in want.items())


def test_all_rules_are_here() -> None:
    assert set(FIRES) == {rule.name for rule in load().rules.values() if rule.level == "kernel"}


def test_a_second_run_finds_nothing() -> None:
    tools = toolchain()
    for text, *_ in FIRES.values():
        once = run_pipeline(tools.engine, tools.pipelines["kernel"], compiled(text)[1], target())
        assert run_pipeline(tools.engine, tools.pipelines["kernel"], once, target()) == once


def test_examples_and_facts_that_never_build() -> None:
    with checked_facts():
        engine = Engine(anew(load()))
        number, failures = run_examples(engine, [r for r in engine.rules.rules.values() if r.level == "kernel"])
    assert number == 8
    assert [failure.render() for failure in failures] == []
