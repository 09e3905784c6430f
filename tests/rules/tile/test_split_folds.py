"""Reductions over few rows, split over blocks: sums, tuples of every monoid, attention of a single query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulating import fault
from scheduling import MACHINE, difference, rule_files

from dplc.engine.language.pipeline import pipelines
from dplc.engine.rewrite.statements.driver import Engine, run_pipeline
from dplc.ir.interp import loop
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program

SUM = """
kernel f(x: f32[2, 1200]) -> y: f32[2]:
    for i in 0..2 free:
        for k in 0..1200 reduce:
            a = load x[i, k]
            s <- add(s, a)
        r = rsqrt(s)
        y[i] = r
"""
TUPLE = """
kernel f(x: f32[2, 1200]) -> y: f32[2], z: f32[2]:
    for i in 0..2 free:
        for k in 0..1200 reduce:
            a = load x[i, k]
            {merge}
        r = divide(p, q)
        y[i] = p
        z[i] = r
"""
QUERY = """
kernel f(q: f32[2, 32], k: f32[2, {J}, 32], v: f32[2, {J}, 32]) -> y: f32[2, 32]:
    for i in 0..2 free:
        for e in 0..32 free:
            for j in 0..{J} reduce:
                for d in 0..32 reduce:
                    a = load q[i, d]
                    c = load k[i, j, d]
                    p = multiply(a, c)
                    x <- add(x, p)
                b = load v[i, j, e]
                (m, s) <- online((m, s), (x, b))
                (n, l) <- online((n, l), (x, 1.0))
            r = divide(s, l)
            y[i, e] = r
"""
NESTS = {
    "a sum": SUM,
    "a softmax": TUPLE.format(merge="(p, q) <- online((p, q), (a, 1.0))"),
    "a variance": TUPLE.format(merge="(n, p, q) <- welford((n, p, q), (a))"),
    "a query": QUERY.format(J=48),
    "a query of an odd number of keys": QUERY.format(J=27),
}


def made(text: str, **choices: dict[str, int]) -> tuple[tuple[Kernel, ...], dict[str, Any], dict[str, Any]]:
    """(schedule, inputs, what comes out by the meaning of the nest)"""
    program: Any = read_program(text, "a test")[1]
    engine = Engine(rule_files(), choices, check=True)
    units = run_pipeline(engine, pipelines(engine.rules)["tile"], program, MACHINE, None)
    dice = np.random.default_rng(0)
    inputs = {param.name: np.abs(dice.standard_normal(param.shape)) for param in program[0].ins}
    memory = loop.run(program, inputs)
    return units, inputs, {param.name: memory[param.name] for param in program[0].outs}


@pytest.mark.parametrize("text", NESTS.values(), ids=NESTS.keys())
@pytest.mark.sampled(2)
def test_blocks_share_a_row(text: str) -> None:
    units, inputs, wanted = made(text, split_fold={"S": 3})
    assert [unit.name for unit in units] == ["f_partial", "f"]
    assert difference(units, inputs, wanted) is None
    assert fault(units, inputs, wanted, MACHINE, (0, 1)) is None


@pytest.mark.parametrize("text", list(NESTS.values())[3:], ids=list(NESTS)[3:])
def test_one_query_in_one_block(text: str) -> None:
    units, inputs, wanted = made(text, split_fold={"S": 1}, online_row={"W": 2, "U": 2})
    assert [unit.name for unit in units] == ["f"]
    assert difference(units, inputs, wanted) is None
    assert fault(units, inputs, wanted, MACHINE, (0, 1)) is None


def test_a_row_that_fills_no_block_is_not_split() -> None:
    units, _, _ = made(SUM)
    assert len(units) == 1
