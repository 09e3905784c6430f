"""How terms are written in one line, where rules go round in circles."""

from __future__ import annotations

import math

from dplc.engine.rewrite.trace import term_text
from dplc.ir.expr import Axis
from dplc.ir.tensor import Const, Elementwise, Input, Mat, Reduce

K = Axis("k", 8)
X = Input("x", "f32", (K,))


def test_leaves_and_functions() -> None:
    assert term_text(X) == "x"
    assert [term_text(Const(value)) for value in (True, False, 2.0, -math.inf)] == ["true", "false", "2.0", "-inf"]
    twice = Elementwise("add", (X, X))
    assert term_text(twice) == "add(x, x)"
    assert term_text(Reduce("add", (K,), twice)) == "Reduce(add, k, add(x, x))"
    assert term_text(Mat(twice)) == "mat(add(x, x))"


def test_what_is_deep_is_left_out() -> None:
    deep = Elementwise("exp", (Elementwise("tanh", (Elementwise("neg", (X,)),)),))
    assert term_text(deep, 3) == "exp(tanh(neg(x)))"
    assert term_text(deep, 2) == "exp(tanh(..))"
    assert term_text(deep, 1) == "exp(..)"
    assert term_text(Elementwise("add", (X, deep)), 1) == "add(x, ..)"
