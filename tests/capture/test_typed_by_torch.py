"""Torch IR written by hand: torch says what ops give, but for shapes that depend on values."""

from __future__ import annotations

import pytest

from dplc.engine.capture.capture import check_types
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse
from dplc.ir.text.torch import read_torch_graph

PROGRAM = "graph f(x: f32[4]) -> y: {y}:\n    at: i64[3, 1] = Nonzero(x)\n    y: {y} = Neg(at)\n"


def check(text: str) -> None:
    check_types(read_torch_graph(parse(Source("f.ir", text))[0]), "f.ir")  # type: ignore[arg-type]


def test_a_shape_that_depends_on_values_is_as_the_text_says() -> None:
    check(PROGRAM.format(y="i64[3, 1]"))


def test_what_follows_is_judged_by_what_the_text_says() -> None:
    with pytest.raises(DplcError, match=r"f\.ir: `y: i64\[4, 1\] = Neg\(at\)`: torch gives int64\[3, 1\]"):
        check(PROGRAM.format(y="i64[4, 1]"))
