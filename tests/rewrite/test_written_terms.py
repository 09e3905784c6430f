"""How terms are written in one line, where rules go round in circles."""

from __future__ import annotations

import math

from dplc.engine.rewrite.loops import written
from dplc.ir.expr import Axis
from dplc.ir.tensor import Const, Elementwise, Input, Mat, Reduce

K = Axis("k", 8)
X = Input("x", "f32", (K,))


def test_leaves_and_functions() -> None:
    assert written(X) == "x"
    assert [written(Const(value)) for value in (True, False, 2.0, -math.inf)] == ["true", "false", "2.0", "-inf"]
    twice = Elementwise("add", (X, X))
    assert written(twice) == "add(x, x)"
    assert written(Reduce("add", (K,), twice)) == "Reduce(add, k, add(x, x))"
    assert written(Mat(twice)) == "mat(add(x, x))"


def test_what_is_deep_is_left_out() -> None:
    deep = Elementwise("exp", (Elementwise("tanh", (Elementwise("neg", (X,)),)),))
    assert written(deep, 3) == "exp(tanh(neg(x)))"
    assert written(deep, 2) == "exp(tanh(..))"
    assert written(deep, 1) == "exp(..)"
    assert written(Elementwise("add", (X, deep)), 1) == "add(x, ..)"
