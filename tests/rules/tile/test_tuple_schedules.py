"""Loop nests that fold tuples of accumulators beside contractions that are computed again: the schedule loses none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulating import fault
from scheduling import MACHINE, difference, rule_files, schedule

from dplc.engine.language.pipeline import pipelines
from dplc.engine.rewrite.statements.driver import Engine, run_pipeline
from dplc.ir.interp import loop
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program

PRODUCT = """
        for {d} in 0..2 reduce:
            {a} = load x[b, i, {d}]
            {c} = load x[b, {j}, {d}]
            {p} = multiply({a}, {c})
            {s} <- add({s}, {p})
"""


def product(depth: int, j: str, n: int) -> str:
    """The score of a row i and a row j, the n-th time it is computed."""
    text = PRODUCT.format(d=f"d{n}", a=f"a{n}", c=f"c{n}", p=f"p{n}", s=f"s{n}", j=j).strip("\n")
    return text.replace("        ", "    " * depth, 1).replace("\n        ", "\n" + "    " * depth)


MAXIMUM_AND_TUPLE = f"""
kernel softmax_of_products(x: f32[4, 3, 2]) -> y: f32[4, 3, 3]:
    for b in 0..4 free:
        for i in 0..3 free:
            for j1 in 0..3 reduce:
{product(4, "j1", 1)}
                top <- maximum(top, s1)
            for j2 in 0..3 reduce:
{product(4, "j2", 2)}
                (m, s) <- online((m, s), (s2, 1.0))
            for j in 0..3 free:
{product(4, "j", 3)}
                minus = subtract(s3, top)
                e = exp(minus)
                r = divide(e, s)
                y[b, i, j] = r
"""
TUPLE_ONLY = f"""
kernel softmax_of_products(x: f32[4, 3, 2]) -> y: f32[4, 3, 3]:
    for b in 0..4 free:
        for i in 0..3 free:
            for j2 in 0..3 reduce:
{product(4, "j2", 2)}
                (m, s) <- online((m, s), (s2, 1.0))
            for j in 0..3 free:
{product(4, "j", 3)}
                minus = subtract(s3, m)
                e = exp(minus)
                r = divide(e, s)
                y[b, i, j] = r
"""
BESIDE_A_PRODUCT = """
kernel product_over_softmax(x: f32[3, 64], w: f32[64, 5]) -> y: f32[3, 5]:
    for i in 0..3 free:
        for j in 0..5 free:
            for k in 0..64 reduce:
                a = load x[i, k]
                c = load w[k, j]
                p = multiply(a, c)
                sum <- add(sum, p)
                (m, s) <- online((m, s), (a, 1.0))
            r = divide(sum, s)
            y[i, j] = r
"""
FEW_KEYS = """
kernel attention(q: f32[6, 9], v: f32[6, 64]) -> y: f32[6, 64]:
    for i in 0..6 free:
        for e in 0..64 free:
            for j in 0..6 reduce:
                for d in 0..9 reduce:
                    a = load q[i, d]
                    c = load q[j, d]
                    p = multiply(a, c)
                    x <- add(x, p)
                b = load v[j, e]
                (m, s) <- online((m, s), (x, b))
                (n, l) <- online((n, l), (x, 1.0))
            r = divide(s, l)
            y[i, e] = r
"""
NESTS = {
    "a maximum and a tuple": MAXIMUM_AND_TUPLE,
    "a tuple": TUPLE_ONLY,
    "beside a product": BESIDE_A_PRODUCT,
    "few keys": FEW_KEYS,
}


def read(text: str) -> tuple[Kernel, ...]:
    return read_program(text, "a test")[1]  # type: ignore[return-value]


def meaning(program: tuple[Kernel, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    dice = np.random.default_rng(0)
    inputs = {param.name: dice.standard_normal(param.shape) for param in program[0].ins}
    memory = loop.run(program, inputs)
    return inputs, {param.name: memory[param.name] for param in program[0].outs}


@pytest.mark.parametrize("text", NESTS.values(), ids=NESTS.keys())
def test_the_default_schedule(text: str) -> None:
    program = read(text)
    inputs, wanted = meaning(program)
    made = schedule(program)
    assert difference(made, inputs, wanted) is None
    assert fault(made, inputs, wanted, MACHINE, (0, 1)) is None


def test_a_split_sum_keeps_the_tuple() -> None:
    """Splitting K is refused where it would leave the tuple behind, however much it is asked for."""
    program = read(BESIDE_A_PRODUCT)
    inputs, wanted = meaning(program)
    engine = Engine(rule_files(), {"split_matmul_k": {"S": 2}, "chunk_matmul_k": {"BK": 2}}, check=True)
    made = run_pipeline(engine, pipelines(engine.rules)["tile"], program, MACHINE, None)
    assert difference(made, inputs, wanted) is None
