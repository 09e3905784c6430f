"""Tensor IR's text: what it looks like, what it reads back as, what it refuses."""

from __future__ import annotations

import pytest

from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.expr import Axis
from dplc.ir.tensor import Const, Elementwise, Input, Mat, Output, Reduce, Remap, TensorGraph
from dplc.ir.text.parse import parse
from dplc.ir.text.programs import read_program
from dplc.ir.text.tensor import print_graph, read_graph

H, J, K = Axis("i", 4), Axis("j", 8), Axis("k", 3)


def read(text: str) -> TensorGraph:
    return read_graph(parse(Source("text", text))[0])  # type: ignore[arg-type]


TEXTS = {
    "matmul": """
graph f(x: f32[4, 8], w: f32[8, 3]) -> y: f32[4, 3]:
    product[i:4, j:8, k:3] = multiply(x[i, j], w[j, k])
    y[i, k] = Reduce(add, j, product)
""",
    "a number": """
graph f(x: f32[]) -> y: f32[]:
    y = multiply(x, 2.0)
""",
    "two reads of one input": """
graph f(x: f32[4, 4]) -> y: f32[4, 4]:
    y[i:4, j:4] = add(x[i, j], x[j, i])
""",
    "an input that is only read at other places": """
graph f(x: f32[i:9]) -> y: f32[4]:
    y[j:4] = copy(x[j*2 + 1])
""",
    "a prefix is not a plain read": """
graph f(x: f32[i:9]) -> y: f32[4]:
    y[j:4] = copy(x[j])
""",
    "gather": """
graph f(w: f32[k:9, j:8], ids: i64[4]) -> y: f32[4, 8]:
    y[i:4, j:8] = copy(w[ids[i], j])
""",
    "dtypes": """
graph f(x: i32[4], n: i64[4]) -> y: f32[4]:
    c[i:4] = i64(x[i])
    d[i] = add(c, n[i])
    e[i] = less(d, 7)
    a[i] = add(x[i], 3)
    b[i] = f32(a)
    y[i] = where(e, b, -inf)
""",
    "a number of another dtype": """
graph f(x: i32[4]) -> y: i32[4]:
    y[i:4] = Case(i < 2, i32(5), i32(7))
""",
    "stored": """
graph f(x: f32[4, 8]) -> y: f32[8, 4]:
    relu_1[i:4, j:8] = relu(x[i, j])
    h[i, j] = mat(relu_1)
    y[j, i] = exp(h[i, j])
""",
    "a case": """
graph f(a: f32[j:4], b: f32[k:3]) -> y: f32[7]:
    y[i:7] = Case(i < 4, a[i], b[i - 4])
""",
    "an expanded result": """
graph f(x: f32[4]) -> y: f32[3, 4]:
    y[i:3, j:4] = copy(x[j])
""",
    "several results": """
graph f(x: f32[4]) -> y: f32[4], z: b8[4]:
    y[i:4] = exp(x[i])
    z[i] = less(y, 2.0)
""",
    "index arithmetic": """
graph f(x: f32[i:24]) -> y: f32[4, 6]:
    v[j:4, k:6] = where(Index(j > k or k >= 5), x[j*6 + k], nan)
    f32_1[j, k] = f32(Index(j*3 + k % 2 - 1))
    y[j, k] = add(v, f32_1)
""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_read_and_print_the_same(name: str) -> None:
    text = TEXTS[name].strip()
    assert print_graph(read(text)) == text
    assert read(text) is read(text)


def test_a_value_without_a_name_is_not_called_like_an_axis() -> None:
    i, axis = Axis("i", 2), Axis("v1", 3)
    x = Input("x", (i, axis))
    total = Reduce("add", (i,), Elementwise("exp", (x,)))
    graph = TensorGraph("f", (x,), (Output("y", (axis,), Elementwise("exp", (total,))),))
    assert "v1[" not in print_graph(graph)
    assert print_graph(read(print_graph(graph))) == print_graph(graph)


def test_a_view_of_a_view_has_a_line() -> None:
    """A view of a view is one, unless its index would be too long: then the first has a name, and a line that says it."""
    rows, picked, column = Axis("i", 3), Axis("p", 3), Axis("k", 4)
    x = Input("x", (rows, column))
    number = Elementwise("remainder", (Input("n", (picked,), "i64"), Const(3, "i64")))
    inner = Remap(x, ((rows, number),))
    outer = Remap(inner, ((picked, 0),))
    graph = TensorGraph("f", (x, number.args[0]), (Output("y", (column,), Elementwise("exp", (outer,))),))
    text = print_graph(graph)
    assert "v1[p:3] = remainder(n[p], 3)" in text and "v2[p, k:4] = x[v1, k]" in text and "exp(v2[0, k])" in text
    assert read(text)


def test_terms_print_and_read_back() -> None:
    x, w = Input("x", (H, J)), Input("w", (J, K))
    h = Mat(Elementwise("tanh", (x,)))
    total = Reduce("add", (J,), Elementwise("multiply", (h, w)))
    half = Elementwise("multiply", (total, Const(0.5)))
    flipped = Elementwise("exp", (Remap(half, ((H, K), (K, H))),))
    graph = TensorGraph("f", (x, w), (Output("y", (K, H), flipped),))
    assert print_graph(read(print_graph(graph))) == print_graph(graph)
    complete = read(print_graph(graph))
    assert read(print_graph(complete)) is complete
    assert complete.outs[0].value is flipped


WRONG = {
    "w: f32[4]) -> y: f32[4]:\n    y[i:4] = relu(v[i])": "`v` is not defined above",
    "w: f32[4]) -> y: f32[4]:\n    y[i:4] = rellu(w[i])": "unknown function `rellu`",
    "w: f32[4]) -> y: f32[4]:\n    y[i:4] = relu(w)": "`w` is stored: read it with brackets",
    "w: f32[4]) -> y: f32[4]:\n    y[i:4] = relu(w[i, i])": "`w` has 1 axes, not 2",
    "w: f32[4]) -> y: f32[4]:\n    y[i] = relu(w[i])": "there is no axis or value `i`",
    "w: f32[4]) -> y: f32[5]:\n    y[i:4] = relu(w[i])": "`y` is f32[4], not f32[5]",
    "w: f32[4]) -> y: i64[4]:\n    y[i:4] = relu(w[i])": "`y` is f32[4], not i64[4]",
    "w: f32[4]) -> y: f32[4]:\n    z[i:4] = relu(w[i])": "which nothing defines",
    "w: f32[4]) -> y: f32[]:\n    y = relu(w[i])": "there is no axis or value `i`",
    "w: f32[4]) -> y: f32[]:\n    a[i:4] = relu(w[i])\n    y = relu(a)": "`y` is f32[4], not f32[]",
    "w: f32[4]) -> y: f32[4]:\n    a[i:4, j:3] = relu(w[i])\n    y[i] = relu(a)": "does not vary along j",
    "w: f32[4]) -> y: f32[4]:\n    y[i:4] = add(w[i])": "`add` takes 2 operands, not 1",
    "w: f32[4]) -> y: f32[4]:\n    i[i:4] = relu(w[i])\n    y[i] = relu(i)": "`i` is an axis",
    "w: f32[4]) -> y: f32[]:\n    y = Reduce(exp, i:4, w[i])": "`exp` cannot reduce",
    "w: f32[4]) -> y: f32[3]:\n    a[i:4] = relu(w[i])\n    y[i:3] = relu(w[i])": "axis `i` has two extents",
    "w: f99[4]) -> y: f32[4]:\n    y[i:4] = relu(w[i])": "unknown dtype `f99`",
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_are_told_with_their_place(text: str) -> None:
    with pytest.raises(DplcError) as caught:
        read(f"graph f({text}\n")
    assert WRONG[text] in caught.value.render()
    assert caught.value.span is not None


def test_brackets_around_one_term_are_none() -> None:
    text = "graph f(x: f32[4]) -> y: f32[4]:\n    y[i:4] = multiply({x}, {two})\n"
    assert read(text.format(x="(x[i])", two="((2.0))")) == read(text.format(x="x[i]", two="2.0"))


def test_a_loop_is_no_line_of_a_graph() -> None:
    """Nor does it say whether the graph is one of torch ops, which have types."""
    text = "graph f(x: f32[4]) -> y: f32[4]:\n    for i in 0..4:\n        a = load x[i]\n    y[i:4] = exp(x[i])\n"
    with pytest.raises(DplcError, match="a line of a graph reads"):
        read_program(text)
