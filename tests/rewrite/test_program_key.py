"""The key of a program: names are not in it, all else is."""

from __future__ import annotations

from dplc.engine.rewrite.trace import program_key
from dplc.ir.expr import Axis
from dplc.ir.tensor import Elementwise, Input, Output, Reduce, TensorGraph


def program(x: str = "x", i: str = "i", fn: str = "exp", extent: int = 4, dtype: str = "f32") -> TensorGraph:
    row, k = Axis(i, extent), Axis("k", 5)
    given = Input(x, (row, k), dtype)
    value = Elementwise(fn, (given,))
    out = Reduce("add", (k,), Elementwise("multiply", (value, value)))
    return TensorGraph("f", (given,), (Output("y", (row,), out),))


def test_programs_that_differ_in_names_have_one_key() -> None:
    key = program_key(program(), ())
    assert key == program_key(program(x="a"), ()) == program_key(program(i="row"), ())
    others = (program(fn="tanh"), program(extent=8), program(dtype="f16"))
    assert len({key, *(program_key(other, ()) for other in others)}) == 4
    assert program_key(program(), {"x"}) != key == program_key(program(), {"another"})
