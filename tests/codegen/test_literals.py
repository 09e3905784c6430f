"""The dtype of a number in a kernel: that of its neighbours, where these can hold its kind."""

from __future__ import annotations

import pytest

from dplc.codegen.dtypes import literal_dtype


@pytest.mark.parametrize(("value", "beside", "dtype"), [
    (True, [], "b8"), (True, ["i32"], "i32"), (True, ["f32"], "f32"),
    (1, [], "i64"), (1, ["b8"], "i64"), (1, ["i32"], "i32"), (1, ["i64", "i32"], "i64"), (1, ["f32"], "f32"),
    (1.0, [], "f32"), (1.0, ["i64"], "f32"), (1.0, ["f32", "i32"], "f32"),
])  # fmt: skip
def test_a_number_is_as_its_neighbours(value: object, beside: list[str], dtype: str) -> None:
    assert literal_dtype(value, beside) == dtype  # type: ignore[arg-type]
