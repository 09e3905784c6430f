"""CombineTuple: verified, printed and read back, executed by its meaning and as CUDA, with one barrier for all parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulating import fault
from scheduling import MACHINE, difference

from dplc.codegen.cuda import print_cuda
from dplc.codegen.materialise import materialise
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify import tile as verify

SOFTMAX = """
kernel f(x: f32[3, 192]) -> y: f32[3, 192]:
    Tile(i:3=BLOCK, t:{T}=THREAD):
        for k in t..192 by {T} reduce:
            a = load x[i, k]
            m <- maximum(m, a)
        base = where(equal(m, -inf), 0.0, m)
        for k in t..192 by {T} reduce:
            b = load x[i, k]
            d = subtract(b, base)
            e = exp(d)
            s <- add(s, e)
        CombineTuple(accs=(m, s), fn=online, over=(t))
        for k in t..192 by {T} free:
            b = load x[i, k]
            d = subtract(b, m)
            e = exp(d)
            r = divide(e, s)
            y[i, k] = r
"""
WEIGHED = """
kernel f(x: f32[3, 192], v: f32[192, 8]) -> y: f32[3, 8]:
    Tile(i:3=BLOCK, t:{T}=THREAD, l:2=THREAD, e:4=VEC):
        for k in t..192 by {T} reduce:
            a = load x[i, k]
            b = load v[k, l*4 + e]
            (m, s, n) <- online_pair((m, s, n), (a, b, 1.0))
        CombineTuple(accs=(m, s, n), fn=online_pair, over=(t))
        if t < 1:
            r = divide(s, n)
            y[i, l*4 + e] = r
"""
VARIANCE = """
kernel f(x: f32[3, 192]) -> y: f32[3]:
    Tile(i:3=BLOCK, t:{T}=THREAD, q:2=REG):
        for k in t..96 by {T} reduce:
            a = load x[i, k*2 + q]
            (n, m, s) <- welford((n, m, s), (a))
        CombineTuple(accs=(n, m, s), fn=welford, over=(q, t))
        if t < 1:
            r = divide(s, n)
            y[i] = r
"""
IN_A_LOOP = """
kernel f(x: f32[3, 192]) -> y: f32[3]:
    Tile(i:3=BLOCK, t:{T}=THREAD):
        for c in 0..2 serial:
            for k in t..96 by {T} reduce:
                a = load x[i, c*96 + k]
                (m, s) <- online((m, s), (a, 1.0))
            CombineTuple(accs=(m, s), fn=online, over=(t))
            z = log(s)
            w = add(z, m)
            sum <- add(sum, w)
        if t < 1:
            y[i] = sum
"""


def exponentials(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.exp(x - x.max(-1, keepdims=True))


REFERENCES: dict[str, Any] = {
    SOFTMAX: lambda x: exponentials(x) / exponentials(x).sum(-1, keepdims=True),
    WEIGHED: lambda x, v: exponentials(x) @ v / exponentials(x).sum(-1, keepdims=True),
    VARIANCE: lambda x: x.var(-1),
    IN_A_LOOP: lambda x: np.log(np.exp(x.reshape(3, 2, 96)).sum(-1)).sum(-1),
}
CASES = [
    *((SOFTMAX, threads) for threads in (1, 8, 64, 96)),
    *((WEIGHED, threads) for threads in (4, 64)),
    *((VARIANCE, threads) for threads in (32, 64, 6)),
    (IN_A_LOOP, 64),
]


def read(text: str, threads: int) -> tuple[Kernel, ...]:
    return read_program(text.replace("{T}", str(threads)), "a test")[1]  # type: ignore[return-value]


@pytest.mark.parametrize(("text", "threads"), CASES)
@pytest.mark.sampled(3)
def test_partial_tuples_become_one(text: str, threads: int) -> None:
    program, dice = read(text, threads), np.random.default_rng(0)
    assert read_program(print_program(program))[1] == program
    assert verify.problems(program[0]) == ()
    inputs = {param.name: dice.standard_normal(param.shape) for param in program[0].ins}
    if text in (SOFTMAX, WEIGHED):
        inputs["x"][0, :100] = -np.inf  # whole threads see nothing else
    wanted = {"y": REFERENCES[text](**inputs)}
    assert difference(program, inputs, wanted) is None
    assert fault(program, inputs, wanted, MACHINE, (0, 1)) is None


def test_one_barrier_serves_all_parts() -> None:
    assert print_cuda(materialise(read(SOFTMAX, 64)[0], MACHINE)).text.count("block_sync()") == 1
    assert print_cuda(materialise(read(SOFTMAX, 8)[0], MACHINE)).text.count("block_sync()") == 0


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("accs=(m, s)", "accs=(m, s, s)", "2 parts"),
        ("accs=(m, s)", "accs=(m, q)", "not an accumulator"),
        ("m <- maximum(m, a)", "m <- add(m, a)", "cannot add up"),
        ("over=(t))", "over=(z))", "not an axis inside of a block"),
    ],
)
def test_what_is_no_tuple(old: str, new: str, what: str) -> None:
    assert any(what in problem for problem in verify.problems(read(SOFTMAX.replace(old, new), 8)[0]))
