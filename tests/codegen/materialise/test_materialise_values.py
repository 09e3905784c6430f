"""Values of every dtype and kind: gathers, guarded loads, casts, comparisons, NaN, index values, several outputs."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_gather_rows(check, dtype):
    """Rows of a table by loaded indices, vectors along the row."""
    kernels = check(
        f"""
kernel embed(ids: {dtype}[6], table: f32[11, 64]) -> y: f32[6, 64]:
    Tile(i:6=BLOCK, t:8=THREAD, q:2=REG, v:4=VEC):
        n = load ids[i]
        a = load table[n, q*32 + t*4 + v]
        y[i, q*32 + t*4 + v] = a
""",
        ids=np.array([3, 0, 10, 7, 7, 1], np.int64 if dtype == "i64" else np.int32), table=floats(11, 64),
    )  # fmt: skip
    assert "ldg128(a[q], " in kernels[0].text


def test_gather_elements(check):
    """An index that varies along the vector axis makes the load scalar, and the store stays a vector."""
    kernels = check(
        """
kernel pick(ids: i64[32], x: f32[100]) -> y: f32[32]:
    Tile(t:8=THREAD, v:4=VEC):
        n = load ids[t*4 + v]
        m = subtract(99, n)
        a = load x[m]
        y[t*4 + v] = a
""",
        ids=RNG.integers(0, 100, 32), x=floats(100),
    )  # fmt: skip
    assert "stg128(" in kernels[0].text and "ldg128(a" not in kernels[0].text


def test_guarded_loads(check):
    """Concatenation and padding: where the guard fails nothing is read. The vector one is guarded as a whole."""
    kernels = check(
        """
kernel cat(a: f32[5], b: f32[16]) -> y: f32[21], z: f32[24]:
    Tile(t:3=THREAD, v:8=REG):
        p = load a[t*8 + v] if t*8 + v < 5 else 0.0
        q = load b[t*8 + v - 5] if t*8 + v >= 5 and t*8 + v < 21 else -inf
        m = maximum(p, q)
        if t*8 + v < 21:
            y[t*8 + v] = m
        z[t*8 + v] = p
kernel pad(x: f32[4, 20]) -> w: f32[4, 32]:
    Tile(i:4=THREAD, j:8=THREAD, v:4=VEC):
        a = load x[i, j*4 + v - 8] if j*4 + v >= 8 and j*4 + v < 28 else 1.5
        w[i, j*4 + v] = a
""",
        a=floats(5), b=floats(16), x=floats(4, 20),
    )  # fmt: skip
    assert "ldg128(a, " in kernels[1].text


def test_vector_guard_at_its_granularity(check):
    """20 is a multiple of the width: one test and one vector. 18 is not: one test per element."""
    text = """
kernel tail(x: f32[{n}]) -> y: f32[{n}]:
    Tile(t:8=THREAD, v:4=VEC):
        if t*4 + v < {n}:
            a = load x[t*4 + v]
            y[t*4 + v] = a
"""
    assert "stg128" in check(text.format(n=20), x=floats(20))[0].text
    assert "stg128" not in check(text.format(n=18), x=floats(18))[0].text


@pytest.mark.parametrize(("dtype", "array"), [
    ("i32", RNG.integers(-1000, 1000, (3, 40)).astype(np.int32)), ("i64", RNG.integers(-(2**40), 2**40, (3, 40))),
])  # fmt: skip
@pytest.mark.parametrize("fn", ["add", "maximum", "minimum", "multiply"])
def test_integer_reductions(check, dtype, array, fn):
    """Every way down a Combine: REG, VEC, lanes; integers are exact."""
    array = (array % 30 == 0) + 1 if fn == "multiply" else array
    check(
        f"""
kernel fold(x: {dtype}[3, 40]) -> y: {dtype}[3]:
    Tile(i:3=BLOCK, t:4=THREAD, q:5=REG, v:2=VEC):
        a = load x[i, q*8 + t*2 + v]
        r <- {fn}(r, a)
        Combine(r, {fn}, over=(q, v, t))
        if t < 1:
            y[i] = r
""",
        x=array.astype(np.int32 if dtype == "i32" else np.int64),
    )


def test_bools(check):
    """b8 in and out: any, all, logic, casts, selection. One byte every in memory, four to a vector."""
    kernels = check(
        """
kernel logic(m: b8[64], x: f32[64]) -> y: f32[64], n: b8[64], anyone: b8[1], everyone: b8[1], count: i64[1]:
    Tile(t:16=THREAD, v:4=VEC):
        a = load m[t*4 + v]
        b = load x[t*4 + v]
        c = greater(b, 0.0)
        d = logical_and(a, c)
        e = logical_not(d)
        n[t*4 + v] = e
        f = where(d, b, -1.0)
        y[t*4 + v] = f
        some <- logical_or(some, d)
        every <- logical_and(every, a)
        one = i64(a)
        total <- add(total, one)
        Combine(some, logical_or, over=(v, t))
        Combine(every, logical_and, over=(v, t))
        Combine(total, add, over=(v, t))
        if t < 1:
            anyone[0] = some
            everyone[0] = every
            count[0] = total
""",
        m=RNG.random(64) < 0.7, x=floats(64),
    )  # fmt: skip
    assert "ldg32(a, m_at)" in kernels[0].text


def test_nan_propagates(check):
    x = floats(2, 64)
    x[0, 5], x[1, 9] = np.nan, -np.inf
    check(
        """
kernel nans(x: f32[2, 64]) -> hi: f32[2], lo: f32[2], y: f32[2, 64]:
    Tile(i:2=BLOCK, t:16=THREAD, v:4=VEC):
        a = load x[i, t*4 + v]
        r = relu(a)
        y[i, t*4 + v] = r
        top <- maximum(top, a)
        bottom <- minimum(bottom, a)
        Combine(top, maximum, over=(v, t))
        Combine(bottom, minimum, over=(v, t))
        if t < 1:
            hi[i] = top
            lo[i] = bottom
""",
        x=x,
    )


def test_index_values(check):
    """Index arithmetic as a value is i64, and becomes 64-bit where it is computed with further."""
    kernels = check(
        """
kernel index(x: f32[300]) -> y: f32[300], z: i64[300], p: i32[300], s: b8[300]:
    Tile(i:3=BLOCK, t:100=THREAD):
        n = i*100000 + t*1000
        q = multiply(n, n)
        z[i*100 + t] = q
        f = f32(n)
        a = load x[i*100 + t]
        g = multiply(f, a)
        y[i*100 + t] = g
        h = i32(i + t)
        p[i*100 + t] = h
        s[i*100 + t] = t <= i + 50
""",
        x=floats(300),
    )
    assert "(long long)" in kernels[0].text


def test_casts(check):
    check(
        """
kernel casts(x: f32[32], n: i64[32]) -> i: i32[32], j: i64[32], b: b8[32], f: f32[32], k: i32[32]:
    Tile(t:32=THREAD):
        a = load x[t]
        c = load n[t]
        i[t] = i32(a)
        j[t] = i64(a)
        b[t] = b8(a)
        d = f32(c)
        f[t] = d
        k[t] = i32(c)
""",
        x=np.array([0.0, -0.5, 2.7, -3.9] * 8, np.float32), n=RNG.integers(-100, 100, 32),
    )  # fmt: skip


def test_zero_dimensional(check):
    """A scalar is `[1]`; no axis at all is one thread in one block."""
    kernels = check(
        """
kernel scale(a: f32[1], b: f32[1]) -> y: f32[1]:
    Tile():
        p = load a[0]
        q = load b[0]
        r = divide(p, q)
        y[0] = r
""",
        a=floats(1), b=floats(1),
    )  # fmt: skip
    assert kernels[0].block == 1 and kernels[0].grid == (1, 1, 1)


def test_loop_ir_without_a_tile(check):
    check(
        """
kernel total(x: f32[7, 5]) -> y: f32[1], z: f32[7]:
    for i in 0..7 reduce:
        for j in 0..5 reduce:
            a = load x[i, j]
            acc <- add(acc, a)
    y[0] = acc
    for i in 0..7 free:
        for j in 0..5 reduce:
            b = load x[i, j]
            row <- maximum(row, b)
        z[i] = row
""",
        x=floats(7, 5),
    )


@pytest.mark.parametrize(
    "name", ["float", "int", "blockIdx", "exp2f", "ldg128", "tid", "smem", "thread", "x__y", "max"]
)
@pytest.mark.sampled(5)
def test_awkward_names(check, name):
    """Names of C++, of CUDA, of the prelude and of the lowering itself, as buffers and as values."""
    check(
        f"""
kernel exp({name}: f32[32], w: f32[32]) -> y: f32[32]:
    Tile(t:32=THREAD):
        a = load {name}[t]
        b = load w[t]
        c = exp(a)
        d = maximum(c, b)
        y[t] = d
kernel second(q: f32[32]) -> i: f32[32]:
    Tile(i:2=BLOCK, q:4=REG, t:4=THREAD):
        {name} = load q[i*16 + q*4 + t]
        s = multiply({name}, {name})
        i[i*16 + q*4 + t] = s
""",
        **{name: floats(32), "w": floats(32), "q": floats(32)},
    )
