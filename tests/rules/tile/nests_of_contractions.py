"""Nests with a contraction whose operands are both reused: matmuls and their relatives."""

from __future__ import annotations

from typing import Any

import numpy as np
from nest import NESTS, Arrays, Nest, matmul, nest, softmax

for m, n, k in ((64, 64, 64), (40, 72, 50), (3, 70, 40)):
    NESTS[f"matmul {m}x{n}x{k}"] = Nest(matmul(m, n, k), lambda x, w: {"y": x @ w})
    NESTS[f"matmul transposed {m}x{n}x{k}"] = Nest(matmul(m, n, k, True), lambda x, w: {"y": x @ w.T})


NESTS["matmul 5x24x3000"] = Nest(matmul(5, 24, 3000), lambda x, w: {"y": x @ w})


@nest("relu(matmul(x + bias, w)) 17x33x65", """
kernel bias_matmul_relu(X: f32[17, 33], bias: f32[33], W: f32[33, 65]) -> Y: f32[17, 65]:
    for i in 0..17 free:
        for j in 0..65 free:
            for k in 0..33 reduce:
                a = load X[i, k]
                c = load bias[k]
                ac = add(a, c)
                w = load W[k, j]
                p = multiply(ac, w)
                acc <- add(acc, p)
            r = relu(acc)
            Y[i, j] = r
""")  # fmt: skip
def bias_matmul_relu(X: Any, bias: Any, W: Any) -> Arrays:
    return {"Y": np.maximum((X + bias) @ W, 0)}


@nest("gated matmul 20x32x24", """
kernel gated(x: f32[20, 32], g: f32[32, 24], u: f32[32, 24]) -> y: f32[20, 24]:
    for i in 0..20 free:
        for j in 0..24 free:
            for k in 0..32 reduce:
                a = load x[i, k]
                b = load g[k, j]
                c = multiply(a, b)
                acc <- add(acc, c)
            for l in 0..32 reduce:
                d = load x[i, l]
                e = load u[l, j]
                f = multiply(d, e)
                sum <- add(sum, f)
            s = sigmoid(acc)
            h = multiply(acc, s)
            o = multiply(h, sum)
            y[i, j] = o
""")  # fmt: skip
def gated(x: Any, g: Any, u: Any) -> Arrays:
    return {"y": (x @ g) / (1 + np.exp(-(x @ g))) * (x @ u)}


@nest("attention scores, causal, batched heads", """
kernel scores(q: f32[2, 4, 19, 16], k: f32[2, 2, 23, 16]) -> s: f32[2, 4, 19, 23]:
    for b in 0..2 free:
        for h in 0..4 free:
            for i in 0..19 free:
                for j in 0..23 free:
                    for d in 0..16 reduce:
                        a = load q[b, h, i, d]
                        c = load k[b, h // 2, j, d]
                        p = multiply(a, c)
                        acc <- add(acc, p)
                    t = multiply(acc, 0.25)
                    m = j <= i
                    o = where(m, t, -inf)
                    s[b, h, i, j] = o
""")  # fmt: skip
def scores(q: Any, k: Any) -> Arrays:
    dots = np.einsum("bhid,bhjd->bhij", q, k.repeat(2, axis=1)) / 4
    return {"s": np.where(np.arange(23) <= np.arange(19)[:, None], dots, -np.inf)}


@nest("softmax and values: a contraction inside of a row", """
kernel attend(s: f32[2, 11, 40], v: f32[2, 40, 8]) -> o: f32[2, 11, 8]:
    for h in 0..2 free:
        for i in 0..11 free:
            for j in 0..40 reduce:
                a = load s[h, i, j]
                top <- maximum(top, a)
            for l in 0..40 reduce:
                b = load s[h, i, l]
                c = subtract(b, top)
                e = exp(c)
                sum <- add(sum, e)
            for d in 0..8 free:
                for m in 0..40 reduce:
                    f = load s[h, i, m]
                    g = subtract(f, top)
                    p = exp(g)
                    r = divide(p, sum)
                    w = load v[h, m, d]
                    t = multiply(r, w)
                    acc <- add(acc, t)
                o[h, i, d] = acc
""")  # fmt: skip
def attend(s: Any, v: Any) -> Arrays:
    return {"o": softmax(s) @ v}


@nest("gather inside of a matmul", """
kernel gathered(ids: i64[9], table: f32[5, 32], w: f32[32, 20]) -> y: f32[9, 20]:
    for i in 0..9 free:
        n = load ids[i]
        for j in 0..20 free:
            for k in 0..32 reduce:
                a = load table[n, k]
                b = load w[k, j]
                p = multiply(a, b)
                acc <- add(acc, p)
            y[i, j] = acc
""")  # fmt: skip
def gathered(ids: Any, table: Any, w: Any) -> Arrays:
    return {"y": table[ids] @ w}


@nest("gather inside of a matmul, ragged", """
kernel gathered(ids: i64[13], table: f32[5, 72], w: f32[72, 50]) -> y: f32[13, 50]:
    for i in 0..13 free:
        n = load ids[i]
        for j in 0..50 free:
            for k in 0..72 reduce:
                a = load table[n, k]
                b = load w[k, j]
                p = multiply(a, b)
                acc <- add(acc, p)
            y[i, j] = acc
""")  # fmt: skip
def gathered_ragged(ids: Any, table: Any, w: Any) -> Arrays:
    return {"y": table[ids] @ w}


@nest("matmul of a padded operand", """
kernel padded(x: f32[20, 30], w: f32[40, 24]) -> y: f32[20, 24]:
    for i in 0..20 free:
        for j in 0..24 free:
            for k in 0..40 reduce:
                a = load x[i, k - 5] if k >= 5 and k < 35 else 1.0
                b = load w[k, j]
                p = multiply(a, b)
                acc <- add(acc, p)
            y[i, j] = acc
""")  # fmt: skip
def padded(x: Any, w: Any) -> Arrays:
    return {"y": np.pad(x, ((0, 0), (5, 5)), constant_values=1.0) @ w}


@nest("a contraction over two axes", """
kernel contract(x: f32[6, 5, 20], w: f32[5, 20, 12]) -> y: f32[6, 12]:
    for i in 0..6 free:
        for j in 0..12 free:
            for b in 0..5 reduce:
                for k in 0..20 reduce:
                    a = load x[i, b, k]
                    c = load w[b, k, j]
                    p = multiply(a, c)
                    acc <- add(acc, p)
            y[i, j] = acc
""")  # fmt: skip
def contract(x: Any, w: Any) -> Arrays:
    return {"y": np.einsum("ibk,bkj->ij", x, w)}


@nest("both operands along k", """
kernel both(x: f32[24, 10], w: f32[24, 20]) -> y: f32[10, 20]:
    for i in 0..10 free:
        for j in 0..20 free:
            for k in 0..24 reduce:
                a = load x[k, i]
                b = load w[k, j]
                p = multiply(a, b)
                acc <- add(acc, p)
            y[i, j] = acc
""")  # fmt: skip
def both(x: Any, w: Any) -> Arrays:
    return {"y": x.T @ w}


@nest("exponentials of the end", """
kernel powers(x: f32[10, 33], w: f32[33, 20]) -> y: f32[10, 20]:
    for i in 0..10 free:
        for j in 0..20 free:
            for k in 0..33 reduce:
                a = load x[i, k]
                b = load w[k, j]
                c = exp(a)
                p = add(c, b)
                acc <- add(acc, p)
            y[i, j] = acc
""")  # fmt: skip
def powers(x: Any, w: Any) -> Arrays:
    return {"y": np.exp(x).sum(1, keepdims=True) + w.sum(0)}
