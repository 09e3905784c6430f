"""Loop nests as the lifter writes them, each with its meaning in plain numpy (float64)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dplc.ir.program import Kernel
from dplc.ir.text.read import read_program

Arrays = dict[str, Any]


class Nest(NamedTuple):
    """A program of Loop IR and what it computes: buffers by name to buffers by name."""

    text: str
    meaning: Callable[..., Arrays]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return read_program(self.text)[1]  # type: ignore[return-value]

    def inputs(self, seed: int = 0) -> Arrays:
        return {param.name: _data(param, np.random.default_rng([seed, n])) for n, param in enumerate(self.kernels[0].ins)}


def _data(param: Any, dice: Any) -> Any:
    """Small whole numbers, so that sums are exact in any order; truth values; indices that fit every test's tables."""
    if param.dtype == "b8":
        return dice.random(param.shape) < 0.5
    if param.dtype.startswith("i"):
        return dice.integers(0, 5, param.shape)
    return dice.integers(-4, 5, param.shape).astype(float)


NESTS: dict[str, Nest] = {}


def nest(name: str, text: str) -> Callable[[Callable[..., Arrays]], Callable[..., Arrays]]:
    def register(meaning: Callable[..., Arrays]) -> Callable[..., Arrays]:
        NESTS[name] = Nest(text, meaning)
        return meaning

    return register


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def matmul(m: int, n: int, k: int, transposed: bool = False) -> str:
    shape, index = (f"{n}, {k}", "j, k") if transposed else (f"{k}, {n}", "k, j")
    return f"""
kernel matmul(x: f32[{m}, {k}], w: f32[{shape}]) -> y: f32[{m}, {n}]:
    for i in 0..{m} free:
        for j in 0..{n} free:
            for k in 0..{k} reduce:
                a = load x[i, k]
                b = load w[{index}]
                p = multiply(a, b)
                acc <- add(acc, p)
            y[i, j] = acc
"""


for m, n, k in ((64, 64, 64), (40, 72, 50), (3, 70, 40)):
    NESTS[f"matmul {m}x{n}x{k}"] = Nest(matmul(m, n, k), lambda x, w: {"y": x @ w})
    NESTS[f"matmul transposed {m}x{n}x{k}"] = Nest(matmul(m, n, k, True), lambda x, w: {"y": x @ w.T})


NESTS["matmul 5x24x600"] = Nest(matmul(5, 24, 600), lambda x, w: {"y": x @ w})


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
