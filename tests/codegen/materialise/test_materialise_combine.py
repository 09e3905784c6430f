"""Combines: every position and extent of THREAD axes, several axes, several accumulators, in loops and guards."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("extents", [
    (64, 1, 1), (24, 1, 1), (96, 1, 1), (7, 1, 1), (1, 32, 1), (3, 32, 1), (4, 8, 1), (2, 64, 1), (1, 16, 4), (2, 8, 8), (1, 12, 5),
    (1, 8, 32), (3, 4, 64), (2, 3, 3), (1, 128, 2), (1, 512, 1),
])  # fmt: skip
@pytest.mark.parametrize("fn", ["add", "maximum"])
@pytest.mark.sampled(5)
def test_thread_axes(check, extents, fn):
    """The axis folded stands between others: lanes only, exchange only, or both."""
    a, b, c = extents
    check(
        f"""
kernel fold(x: f32[{a}, {b}, {c}]) -> y: f32[{a}, {c}]:
    Tile(i:{a}=THREAD, t:{b}=THREAD, j:{c}=THREAD):
        v = load x[i, t, j]
        r <- {fn}(r, v)
        Combine(r, {fn}, over=[t])
        if t < 1:
            y[i, j] = r
""",
        x=floats(a, b, c),
    )


def test_register_tile(check):
    """Sixteen accumulators a thread, K sliced over warps: vectors through shared memory, neighbours stay neighbours."""
    kernels = check(
        """
kernel slices(x: f32[8, 64], w: f32[64, 32]) -> y: f32[8, 32]:
    Tile(w1:4=THREAD, i:4=THREAD, j:8=THREAD, r:2=REG, v:4=VEC):
        for k in 0..16 reduce:
            a = load x[i*2 + r, w1*16 + k]
            b = load w[w1*16 + k, j*4 + v]
            p = multiply(a, b)
            acc <- add(acc, p)
        Combine(acc, add, over=[w1])
        if w1 < 1:
            y[i*2 + r, j*4 + v] = acc
""",
        x=floats(8, 64), w=floats(64, 32),
    )  # fmt: skip
    assert "sts128(" in kernels[0].text and "lds128(" in kernels[0].text


def test_two_axes_and_registers(check):
    check(
        """
kernel both(x: f32[8, 16, 6]) -> y: f32[1], z: f32[16]:
    Tile(i:8=THREAD, j:16=THREAD, q:6=REG):
        a = load x[i, j, q]
        s <- add(s, a)
        Combine(s, add, over=(q, i, j))
        m <- maximum(m, a)
        Combine(m, maximum, over=(q, i))
        if i < 1:
            z[j] = m
            if j < 1:
                y[0] = s
""",
        x=floats(8, 16, 6),
    )


def test_two_passes(check):
    """LayerNorm: the second reduction reads the first one's result, from registers."""
    kernels = check(
        """
kernel layer_norm(x: f32[4, 256], g: f32[256], b: f32[256]) -> y: f32[4, 256]:
    Tile(i:4=BLOCK, t:64=THREAD, v:4=VEC):
        a = load x[i, t*4 + v]
        total <- add(total, a)
        Combine(total, add, over=(v, t))
        mean = multiply(total, 0.00390625)
        d = subtract(a, mean)
        s = multiply(d, d)
        square <- add(square, s)
        Combine(square, add, over=(v, t))
        m = multiply(square, 0.00390625)
        e = add(m, 1e-05)
        r = rsqrt(e)
        h = load g[t*4 + v]
        n = load b[t*4 + v]
        o = multiply(d, r)
        p = multiply(o, h)
        q = add(p, n)
        y[i, t*4 + v] = q
""",
        x=floats(4, 256), g=floats(256), b=floats(256),
    )  # fmt: skip
    assert kernels[0].text.count("ldg128") == 3


def test_combine_in_a_loop(check):
    """The exchange area is used again: a barrier stands before the next turn's stores."""
    check(
        """
kernel rows(x: f32[5, 96]) -> y: f32[5]:
    Tile(t:96=THREAD):
        for i in 0..5 serial:
            a = load x[i, t]
            r <- add(r, a)
            Combine(r, add, over=[t])
            if t < 1:
                y[i] = r
""",
        x=floats(5, 96),
    )


def test_combine_in_an_unrolled_loop(check):
    check(
        """
kernel rows(x: f32[3, 96]) -> y: f32[3]:
    Tile(t:96=THREAD):
        for i in 0..3 serial unroll=3:
            a = load x[i, t]
            r <- maximum(r, a)
            Combine(r, maximum, over=[t])
            if t < 1:
                y[i] = r
""",
        x=floats(3, 96),
    )


def test_combine_read_outside_its_block(check):
    """What a Combine in a guard folded is read after the guard."""
    check(
        """
kernel outside(x: f32[2, 64]) -> y: f32[2, 64]:
    Tile(i:2=BLOCK, t:16=THREAD, v:4=VEC):
        if i < 5:
            for k in 0..1 reduce:
                a = load x[i, t*4 + v]
                r <- add(r, a)
            Combine(r, add, over=(v, t))
        y[i, t*4 + v] = r
""",
        x=floats(2, 64),
    )


@pytest.mark.parametrize("fn", ["maximum", "minimum", "multiply", "add"])
def test_accumulators_start_from_the_identity(check, fn):
    """Not direct: a loop adds to arrays of registers."""
    check(
        f"""
kernel columns(x: f32[9, 64]) -> y: f32[64]:
    Tile(t:8=THREAD, q:2=REG, v:4=VEC):
        for k in 0..9 reduce:
            a = load x[k, q*32 + t*4 + v]
            acc <- {fn}(acc, a)
        y[q*32 + t*4 + v] = acc
""",
        x=floats(9, 64) - 3,
    )


def test_guarded_accumulation(check):
    """A ragged row: elements beyond it are not added; the guard varies with the registers."""
    check(
        """
kernel ragged(x: f32[3, 77]) -> y: f32[3], n: i64[3]:
    Tile(i:3=BLOCK, t:8=THREAD, q:3=REG, v:4=VEC):
        if q*32 + t*4 + v < 77:
            a = load x[i, q*32 + t*4 + v]
            s <- maximum(s, a)
            c <- add(c, 1)
        Combine(s, maximum, over=(q, v, t))
        Combine(c, add, over=(q, v, t))
        if t < 1:
            y[i] = s
            n[i] = c
""",
        x=floats(3, 77) - 5,
    )


def test_softmax_in_two_loops(check):
    """Not in registers: each pass loads again; the accumulators live in the tile."""
    check(
        """
kernel softmax(x: f32[3, 100]) -> y: f32[3, 100]:
    Tile(i:3=BLOCK, t:32=THREAD):
        for k in t..100 by 32 reduce:
            a = load x[i, k]
            top <- maximum(top, a)
        Combine(top, maximum, over=[t])
        for l in t..100 by 32 reduce:
            b = load x[i, l]
            c = subtract(b, top)
            d = exp(c)
            sum <- add(sum, d)
        Combine(sum, add, over=[t])
        for j in t..100 by 32 free:
            e = load x[i, j]
            f = subtract(e, top)
            g = exp(f)
            h = divide(g, sum)
            y[i, j] = h
""",
        x=floats(3, 100) * 5,
    )
