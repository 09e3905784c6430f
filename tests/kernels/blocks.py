"""Well-known programs in Tensor IR, written by hand as the torch rules would: their kernel counts are promises."""

from __future__ import annotations

import itertools
from typing import Any

from dplc.ir import compose
from dplc.ir.compose import elementwise, index, reduce, remap
from dplc.ir.expr import Axis, binary
from dplc.ir.tensor import Input, Output, TensorGraph, Term

Value = tuple[Term, tuple[Axis, ...]]


class Block:
    """Builds a program, forward; every weight becomes an input."""

    def __init__(self) -> None:
        self.ins: list[Input] = []
        self.numbers = itertools.count()

    def axis(self, extent: int, hint: str = "a") -> Axis:
        return Axis(f"{hint}{next(self.numbers)}", extent)

    def input(self, name: str, *dims: Axis, kind: str = "f32") -> Input:
        self.ins.append(Input(name, dims, kind))
        return self.ins[-1]

    def graph(self, *outs: Value) -> TensorGraph:
        results = tuple(Output(f"out{place}", dims, term) for place, (term, dims) in enumerate(outs))
        return TensorGraph("block", tuple(self.ins), results)

    def linear(self, name: str, x: Value, features: int, bias: bool = False) -> Value:
        term, dims = x
        j, k = self.axis(features, "j"), dims[-1]
        y = reduce("add", (k,), elementwise("multiply", term, remapped(self.input(name, j, self.axis(k.extent)), j, k)))
        return (elementwise("add", y, self.input(f"{name}_bias", j)) if bias else y), (*dims[:-1], j)

    def rms_norm(self, name: str, x: Value) -> Value:
        term, dims = x
        k = dims[-1]
        mean = elementwise("divide", reduce("add", (k,), elementwise("multiply", term, term)), float(k.extent))
        scaled = elementwise("multiply", term, elementwise("rsqrt", elementwise("add", mean, 1e-5)))
        return elementwise("multiply", scaled, self.input(name, k)), dims

    def silu(self, x: Term) -> Term:
        return elementwise("multiply", x, elementwise("sigmoid", x))

    def residual(self, x: Value, y: Value) -> Value:
        return elementwise("add", remapped(x[0], *y[1], own=x[1]), y[0]), y[1]

    def heads(self, x: Value, count: int) -> Value:
        """(batch, time, features) to (batch, head, time, d)."""
        term, (b, t, f) = x
        h, d = self.axis(count, "h"), self.axis(f.extent // count, "d")
        return remap(term, {f: binary("+", binary("*", h, d.extent), d)}), (b, h, t, d)

    def rope(self, x: Value, cos: Input, sin: Input) -> Value:
        term, (_, _, t, d) = x
        half = d.extent // 2
        rotated = compose.case(
            binary("<", d, half),
            elementwise("negative", remap(term, {d: binary("+", d, half)})),
            remap(term, {d: binary("-", d, half)}),
        )
        angle = [remapped(table, t, d) for table in (cos, sin)]
        return elementwise(
            "add", elementwise("multiply", term, angle[0]), elementwise("multiply", rotated, angle[1])
        ), x[1]

    def attention(self, q: Value, k: Value, v: Value, causal: bool = True) -> Value:
        """Grouped heads; the result is (batch, head, time, d)."""
        (qt, (b, h, i, d)), (kt, kd), (vt, vd) = q, k, v
        group = h.extent // kd[1].extent
        j, e = kd[2], vd[3]
        if j is i:
            j = self.axis(i.extent, "j")
        keys = remap(kt, {kd[0]: b, kd[1]: binary("//", h, group), kd[2]: j, kd[3]: d})
        dots = elementwise("multiply", reduce("add", (d,), elementwise("multiply", qt, keys)), d.extent**-0.5)
        if causal:
            dots = elementwise("where", index(binary("<=", j, i)), dots, float("-inf"))
        shifted = elementwise("exp", elementwise("subtract", dots, reduce("maximum", (j,), dots)))
        weights = elementwise("divide", shifted, reduce("add", (j,), shifted))
        values = remap(vt, {vd[0]: b, vd[1]: binary("//", h, group), vd[2]: j})
        return reduce("add", (j,), elementwise("multiply", weights, values)), (b, h, i, e)

    def merged(self, x: Value) -> Value:
        term, (b, h, t, d) = x
        f = self.axis(h.extent * d.extent, "f")
        return remap(term, {h: binary("//", f, d.extent), d: binary("%", f, d.extent)}), (b, t, f)


def remapped(x: Term, *wanted: Any, own: tuple[Axis, ...] | None = None) -> Term:
    return remap(x, dict(zip(own or x.axes, wanted, strict=True)))  # type: ignore[attr-defined]


def rms_norm(rows: int = 6, width: int = 48) -> TensorGraph:
    make = Block()
    i, k = make.axis(rows), make.axis(width)
    return make.graph(make.rms_norm("w", (make.input("x", i, k), (i, k))))


def softmax(rows: int = 6, width: int = 40) -> TensorGraph:
    make = Block()
    i, k = make.axis(rows), make.axis(width)
    x = make.input("x", i, k)
    shifted = elementwise("exp", elementwise("subtract", x, reduce("maximum", (k,), x)))
    return make.graph((elementwise("divide", shifted, reduce("add", (k,), shifted)), (i, k)))


def layer_norm(rows: int = 6, width: int = 40) -> TensorGraph:
    make = Block()
    i, k = make.axis(rows), make.axis(width)
    x = make.input("x", i, k)
    centred = elementwise("subtract", x, elementwise("divide", reduce("add", (k,), x), float(width)))
    spread = elementwise("divide", reduce("add", (k,), elementwise("multiply", centred, centred)), float(width))
    return make.graph(
        (elementwise("multiply", centred, elementwise("rsqrt", elementwise("add", spread, 1e-6))), (i, k))
    )


def relu_matmul() -> TensorGraph:
    make = Block()
    i, k, j = make.axis(16), make.axis(64), make.axis(16)
    x = elementwise("add", make.input("x", i, k), make.input("bias", k))
    return make.graph(
        (elementwise("relu", reduce("add", (k,), elementwise("multiply", x, make.input("w", k, j)))), (i, j))
    )


def sdpa(heads: int = 2, time: int = 6, width: int = 4, causal: bool = True) -> TensorGraph:
    make = Block()
    b, h = make.axis(1), make.axis(heads)
    i, j, d, e = make.axis(time), make.axis(time + 1), make.axis(width), make.axis(width)
    q = (make.input("q", b, h, i, d), (b, h, i, d))
    k, v = (make.input(name, b, h, j, last) for name, last in (("k", d), ("v", e)))
    return make.graph(make.attention(q, (k, (b, h, j, d)), (v, (b, h, j, e)), causal))


def gqa_block(make: Block, x: Value, heads: int, groups: int, name: str = "", bias: bool = True) -> Value:
    """Attention with rotary positions: projections, scores, values, output projection."""
    t, width = x[1][1], x[1][2].extent // heads
    q = make.heads(make.linear(f"{name}q", x, heads * width, bias), heads)
    k = make.heads(make.linear(f"{name}k", x, groups * width, bias), groups)
    v = make.heads(make.linear(f"{name}v", x, groups * width, bias), groups)
    cos, sin = (next((y for y in make.ins if y.name == table), None) for table in ("cos", "sin"))
    if cos is None or sin is None:
        d = make.axis(width)
        cos, sin = make.input("cos", t, d), make.input("sin", t, d)
    attended = make.attention(make.rope(q, cos, sin), make.rope(k, cos, sin), v)
    return make.linear(f"{name}o", make.merged(attended), heads * width)


def gqa(batch: int = 2, time: int = 6, heads: int = 4, groups: int = 2, width: int = 8) -> TensorGraph:
    make = Block()
    b, t, f = make.axis(batch), make.axis(time), make.axis(heads * width)
    x = (make.input("x", b, t, f), (b, t, f))
    return make.graph(make.residual(x, gqa_block(make, x, heads, groups)))


def swiglu_mlp(make: Block, x: Value, hidden: int, name: str = "") -> Value:
    gate = make.linear(f"{name}gate", x, hidden)
    up, dims = make.linear(f"{name}up", x, hidden)
    product = elementwise("multiply", make.silu(gate[0]), remapped(up, *gate[1], own=dims))
    return make.linear(f"{name}down", (product, gate[1]), x[1][-1].extent)


def swiglu(rows: int = 5, width: int = 12, hidden: int = 20) -> TensorGraph:
    make = Block()
    b, i, k = make.axis(2), make.axis(rows), make.axis(width)
    x = (make.input("x", b, i, k), (b, i, k))
    return make.graph(make.residual(x, swiglu_mlp(make, make.rms_norm("norm", x), hidden)))


def llama(
    layers: int, time: int = 128, width: int = 2048, heads: int = 32, groups: int = 4, hidden: int = 5632
) -> TensorGraph:
    """A decoder without embedding and head: TinyLlama's shapes by default."""
    make = Block()
    b, t, f = make.axis(1), make.axis(time), make.axis(width)
    x: Value = (make.input("x", b, t, f), (b, t, f))
    for layer in range(layers):
        x = make.residual(x, gqa_block(make, make.rms_norm(f"n{layer}a", x), heads, groups, f"l{layer}", bias=False))
        x = make.residual(x, swiglu_mlp(make, make.rms_norm(f"n{layer}b", x), hidden, f"l{layer}"))
    return make.graph(x)
