"""Nests over rows, single elements and gathers: softmax, norms, sums, copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from nest import NESTS, Arrays, Nest, nest, softmax


@nest("rms_norm 4x256", """
kernel rms_norm(x: f32[4, 256], w: f32[256]) -> y: f32[4, 256]:
    for i in 0..4 free:
        for k in 0..256 reduce:
            a = load x[i, k]
            s = multiply(a, a)
            acc <- add(acc, s)
        m = multiply(acc, 0.00390625)
        e = add(m, 1e-05)
        r = rsqrt(e)
        for j in 0..256 free:
            b = load x[i, j]
            c = load w[j]
            d = multiply(b, r)
            f = multiply(d, c)
            y[i, j] = f
""")  # fmt: skip
def rms_norm(x: Any, w: Any) -> Arrays:
    return {"y": x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w}


def softmax_nest(rows: int, width: int) -> str:
    return f"""
kernel softmax(x: f32[{rows}, {width}]) -> y: f32[{rows}, {width}]:
    for i in 0..{rows} free:
        for k in 0..{width} reduce:
            a = load x[i, k]
            top <- maximum(top, a)
        for l in 0..{width} reduce:
            b = load x[i, l]
            c = subtract(b, top)
            d = exp(c)
            sum <- add(sum, d)
        for j in 0..{width} free:
            e = load x[i, j]
            f = subtract(e, top)
            g = exp(f)
            h = divide(g, sum)
            y[i, j] = h
"""


for rows, width in ((8, 128), (5, 97), (300, 64)):
    NESTS[f"softmax {rows}x{width}"] = Nest(softmax_nest(rows, width), lambda x: {"y": softmax(x)})


@nest("silu(g)*u 6x100", """
kernel silu_up(g: f32[6, 100], u: f32[6, 100]) -> y: f32[6, 100]:
    for i in 0..6 free:
        for j in 0..100 free:
            a = load g[i, j]
            b = load u[i, j]
            t = sigmoid(a)
            s = multiply(a, t)
            p = multiply(s, b)
            y[i, j] = p
""")  # fmt: skip
def silu_up(g: Any, u: Any) -> Arrays:
    return {"y": g / (1 + np.exp(-g)) * u}


@nest("a row sum computed for each element", """
kernel l1(x: f32[4, 160]) -> y: f32[4, 160]:
    for i in 0..4 free:
        for j in 0..160 free:
            for k in 0..160 reduce:
                a = load x[i, k]
                b = abs(a)
                acc <- add(acc, b)
            c = load x[i, j]
            d = divide(c, acc)
            y[i, j] = d
""")  # fmt: skip
def l1(x: Any) -> Arrays:
    with np.errstate(all="ignore"):
        return {"y": x / np.abs(x).sum(1, keepdims=True)}


@nest("gather: rows of a table, i64 indices", """
kernel embed(ids: i64[3, 7], table: f32[5, 48], w: f32[48]) -> y: f32[3, 7, 48]:
    for b in 0..3 free:
        for i in 0..7 free:
            n = load ids[b, i]
            for d in 0..48 free:
                a = load table[n, d]
                c = load w[d]
                p = multiply(a, c)
                y[b, i, d] = p
""")  # fmt: skip
def embed(ids: Any, table: Any, w: Any) -> Arrays:
    return {"y": table[ids] * w}


@nest("concatenation: guarded loads", """
kernel concat(a: f32[5, 12], b: f32[5, 9]) -> y: f32[5, 21]:
    for i in 0..5 free:
        for j in 0..21 free:
            u = load a[i, j] if j < 12 else 0.0
            v = load b[i, j - 12] if j >= 12 else 0.0
            c = j < 12
            w = where(c, u, v)
            y[i, j] = w
""")  # fmt: skip
def concat(a: Any, b: Any) -> Arrays:
    return {"y": np.concatenate([a, b], 1)}


@nest("two outputs, two reductions in one loop", """
kernel moments(x: f32[6, 96]) -> mean: f32[6], square: f32[6]:
    for i in 0..6 free:
        for k in 0..96 reduce:
            a = load x[i, k]
            b = multiply(a, a)
            s <- add(s, a)
            q <- add(q, b)
        m = multiply(s, 0.5)
        mean[i] = m
        square[i] = q
""")  # fmt: skip
def moments(x: Any) -> Arrays:
    return {"mean": x.sum(1) * 0.5, "square": (x * x).sum(1)}


@nest("a reduction over two axes, then over the row", """
kernel grouped(x: f32[4, 6, 35]) -> y: f32[4, 6, 35]:
    for g in 0..4 free:
        for c in 0..6 reduce:
            for k in 0..35 reduce:
                a = load x[g, c, k]
                s <- add(s, a)
        for c1 in 0..6 free:
            for k1 in 0..35 free:
                b = load x[g, c1, k1]
                d = subtract(b, s)
                y[g, c1, k1] = d
""")  # fmt: skip
def grouped(x: Any) -> Arrays:
    return {"y": x - x.sum((1, 2), keepdims=True)}


@nest("everything to one number", """
kernel total(x: f32[30, 17]) -> y: f32[1]:
    for i in 0..30 reduce:
        for j in 0..17 reduce:
            a = load x[i, j]
            s <- add(s, a)
    m = multiply(s, 2.0)
    y[0] = m
""")  # fmt: skip
def total(x: Any) -> Arrays:
    return {"y": x.sum(keepdims=True).reshape(1) * 2}


@nest("no loops at all", """
kernel scalar(x: f32[1], n: i64[1]) -> y: f32[1]:
    a = load x[0]
    b = load n[0]
    c = f32(b)
    d = add(a, c)
    y[0] = d
""")  # fmt: skip
def scalar(x: Any, n: Any) -> Arrays:
    return {"y": x + n}


@nest("a scalar before the loops, size-1 grid", """
kernel scaled(c: f32[1], x: f32[1, 5]) -> y: f32[1, 5]:
    s = load c[0]
    for i in 0..1 free:
        for j in 0..5 free:
            a = load x[i, j]
            b = multiply(a, s)
            y[i, j] = b
""")  # fmt: skip
def scaled(c: Any, x: Any) -> Arrays:
    return {"y": x * c}


@nest("argmax: two sweeps, i64 out", """
kernel argmax(x: f32[5, 70]) -> y: i64[5]:
    for i in 0..5 free:
        for k in 0..70 reduce:
            a = load x[i, k]
            top <- maximum(top, a)
        for l in 0..70 reduce:
            b = load x[i, l]
            e = equal(b, top)
            n = l + 0
            w = where(e, n, 70)
            first <- minimum(first, w)
        y[i] = first
""")  # fmt: skip
def argmax(x: Any) -> Arrays:
    return {"y": x.argmax(1)}


@nest("cumulative sum", """
kernel cumsum(x: f32[4, 50]) -> y: f32[4, 50]:
    for i in 0..4 free:
        for j in 0..50 free:
            for k in 0..50 reduce:
                a = load x[i, k] if k <= j else 0.0
                s <- add(s, a)
            y[i, j] = s
""")  # fmt: skip
def cumsum(x: Any) -> Arrays:
    return {"y": x.cumsum(1)}


@nest("truth values and integers", """
kernel masks(m: b8[7, 33], n: i32[7, 33]) -> any: b8[7], count: i64[7]:
    for i in 0..7 free:
        for k in 0..33 reduce:
            a = load m[i, k]
            b = load n[i, k]
            c = i64(b)
            o <- logical_or(o, a)
            s <- add(s, c)
        any[i] = o
        count[i] = s
""")  # fmt: skip
def masks(m: Any, n: Any) -> Arrays:
    return {"any": m.any(1), "count": n.sum(1)}


@nest("a large pointwise kernel", """
kernel shifted(x: f32[132, 2048], b: f32[2048]) -> y: f32[132, 2048]:
    for i in 0..132 free:
        for j in 0..2048 free:
            a = load x[i, j]
            c = load b[j]
            d = add(a, c)
            y[i, j] = d
""")  # fmt: skip
def shifted(x: Any, b: Any) -> Arrays:
    return {"y": x + b}


@nest("column sums", """
kernel columns(x: f32[60, 9]) -> y: f32[9]:
    for j in 0..9 free:
        for k in 0..60 reduce:
            a = load x[k, j]
            s <- add(s, a)
        y[j] = s
""")  # fmt: skip
def columns(x: Any) -> Arrays:
    return {"y": x.sum(0)}


@nest("matrix times vector", """
kernel matvec(x: f32[300], w: f32[300, 40]) -> y: f32[40]:
    for j in 0..40 free:
        for k in 0..300 reduce:
            a = load x[k]
            b = load w[k, j]
            p = multiply(a, b)
            s <- add(s, p)
        y[j] = s
""")  # fmt: skip
def matvec(x: Any, w: Any) -> Arrays:
    return {"y": x @ w}


@nest("a transposed copy", """
kernel transposed(x: f32[37, 21]) -> y: f32[21, 37]:
    for i in 0..21 free:
        for j in 0..37 free:
            a = load x[j, i]
            y[i, j] = a
""")  # fmt: skip
def transposed(x: Any) -> Arrays:
    return {"y": x.T}
