"""Scans: every position and extent of THREAD axes, registers inside and outside of them, in loops, ragged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lowering_oracle import read

from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.kernel import Registers, Replicate, Shuffle
from dplc.ir.node import nodes

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("extents", [
    (64, 1, 1), (1, 7, 1), (1, 32, 1), (3, 32, 1), (4, 8, 1), (2, 64, 1), (1, 16, 4), (2, 8, 8), (1, 12, 5), (1, 8, 32), (3, 4, 64),
    (2, 3, 3), (1, 96, 2), (1, 512, 1),
])  # fmt: skip
@pytest.mark.parametrize("fn", ["add", "maximum"])
@pytest.mark.sampled(6)
def test_thread_axes(check, extents, fn):
    """The axis stands between others: lanes only, exchange only, or both."""
    a, b, c = extents
    check(
        f"""
kernel running(x: f32[{a}, {b}, {c}]) -> y: f32[{a}, {b}, {c}]:
    Tile(i:{a}=THREAD, t:{b}=THREAD, j:{c}=THREAD):
        v = load x[i, t, j]
        r <- {fn}(r, v)
        Scan(r, {fn}, over=[t])
        y[i, t, j] = r
""",
        x=floats(a, b, c),
    )


@pytest.mark.parametrize("over, place", [
    ("q, t, v", "q*256 + t*4 + v"), ("t, q, v", "t*16 + q*4 + v"), ("q, v, t", "q*256 + v*64 + t"), ("v, t, q", "v*256 + t*4 + q"),
    ("t, v", "t*4 + v"), ("q, t", "q*64 + t"), ("q, v", "q*4 + v"), ("v, q", "v*4 + q"),
])  # fmt: skip
@pytest.mark.sampled(4)
def test_registers(check, over, place):
    """Registers before, between and behind threads; what the axes leave out is scanned for each of its values."""
    check(
        f"""
kernel running(x: f32[1024], w: f32[4, 64, 4]) -> y: f32[4, 64, 4]:
    Tile(q:4=REG, t:64=THREAD, v:4=REG):
        a = load x[{place}]
        b = load w[q, t, v]
        c = add(a, b)
        r <- add(r, c)
        Scan(r, add, over=({over}))
        y[q, t, v] = r
""",
        x=floats(1024), w=floats(4, 64, 4),
    )  # fmt: skip


def test_two_thread_axes(check):
    """Both are digits of one place."""
    check(
        """
kernel running(x: f32[6, 64]) -> y: f32[6, 64]:
    Tile(w:6=THREAD, t:64=THREAD):
        a = load x[w, t]
        r <- add(r, a)
        Scan(r, add, over=(w, t))
        y[w, t] = r
""",
        x=floats(6, 64),
    )


def test_in_a_loop(check):
    """The area of the exchange is written again in every turn."""
    check(
        """
kernel running(x: f32[5, 96]) -> y: f32[5, 96]:
    Tile(t:96=THREAD):
        for k in 0..5 serial:
            a = load x[k, t]
            r <- add(r, a)
            Scan(r, add, over=[t])
            y[k, t] = r
""",
        x=floats(5, 96),
    )


@pytest.mark.parametrize("dtype, fn", [("i64", "add"), ("i32", "multiply"), ("f64", "add"), ("i64", "minimum")])
def test_dtypes(check, dtype, fn):
    x = RNG.integers(-3, 4, (2, 80)).astype({"i64": np.int64, "i32": np.int32, "f64": np.float64}[dtype])
    check(
        f"""
kernel running(x: {dtype}[2, 80]) -> y: {dtype}[2, 80]:
    Tile(i:2=BLOCK, t:40=THREAD, v:2=REG):
        a = load x[i, t*2 + v]
        r <- {fn}(r, a)
        Scan(r, {fn}, over=(t, v))
        y[i, t*2 + v] = r
""",
        x=x,
    )


def test_lanes_pass_on_one_total_of_a_thread():
    """Not one for each register that it was made of."""
    (kernel,) = read(
        """
kernel running(x: f32[128]) -> y: f32[128]:
    Tile(t:32=THREAD, v:4=REG):
        a = load x[t*4 + v]
        r <- add(r, a)
        Scan(r, add, over=(t, v))
        y[t*4 + v] = r
"""
    )
    made = materialise(kernel, target("sm_80"))
    assert sum(1 for _ in nodes(made, Shuffle)) == 5
    assert not any(list(nodes(loop, Shuffle)) for loop in nodes(made, Replicate))


def test_sums_of_warps_are_read_for_one_register_at_a_time():
    """A thread would hold 256 sums otherwise, of 16 warps for each of its 16 registers."""
    (kernel,) = read(
        """
kernel running(x: f32[8192]) -> y: f32[8192]:
    Tile(q:16=REG, t:512=THREAD):
        a = load x[q*512 + t]
        r <- add(r, a)
        Scan(r, add, over=(q, t))
        y[q*512 + t] = r
"""
    )
    made = materialise(kernel, target("sm_80"))
    assert max(math.prod(held.shape) for held in nodes(made, Registers)) == 16
