"""Rows that are read or written from their end are moved in vectors, whose elements are in reverse order.

Ragged and odd extents, several dtypes; each program is run whole in checked mode and compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

from dplc.ir.expr import Var, total
from dplc.ir.facts.layout import vector_step
from dplc.ir.kernel import LoadFrom, StoreTo
from dplc.ir.node import nodes

INPUT = "x = torch.randn({n}, {m}).to({dtype}); "
PROGRAMS = {
    "flip": INPUT + "x.flip(1) * 2",
    "flip of both axes": INPUT + "x.flip(0, 1) + x",
    "half of it": INPUT + "torch.cat([x.flip(1), x], 1)",
    "sum of a reversed row": INPUT + "(x.flip(1) * torch.rand({m})).sum(1)",
    "sum of all rows from their ends": INPUT + "x.flip(1).float().sum()",
    "largest place from the end": INPUT + "x.float().flip(1).argmax(1)",
    "row and its mirror": INPUT + "(x * x.flip(1)).float().softmax(1)",
    "columns from the end": INPUT + "x.flip(0).float().cumsum(0)",
    "scan from the end": INPUT + "x.float().flip(1).cumsum(1).flip(1)",
    "product by a mirror": INPUT + "x.float() @ torch.randn({m}, 24).flip(1)",
    "product of mirrors": INPUT + "x.float().flip(1) @ torch.randn({m}, 24).flip(0, 1)",
    "reflected padding": INPUT + "F.pad(x[:, None].float(), (3, 3), mode='reflect')",
    "window from the end": INPUT + "F.avg_pool1d(x.float().flip(1)[:, None], 3, 2)",
}
DTYPES = ("torch.float32", "torch.float64", "torch.bfloat16", "torch.half", "torch.int32", "torch.uint8")


@settings(max_examples=draws(12), deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)), st.sampled_from([1, 3, 16]), st.sampled_from([4, 7, 32, 96, 260, 1024]),
    st.sampled_from(DTYPES),
)  # fmt: skip
def test_programs_that_go_backwards_are_right(name: str, n: int, m: int, dtype: str) -> None:
    is_right(PROGRAMS[name].format(n=n, m=m, dtype=dtype))


@pytest.mark.parametrize("name", ["flip", "sum of a reversed row", "scan from the end"])
def test_rows_from_the_end_move_in_vectors(name: str) -> None:
    kernels = compiled(PROGRAMS[name].format(n=64, m=4096, dtype="torch.float32")).kernels
    assert {load.width for load in nodes(kernels, LoadFrom) if load.dtype == "f32" and load.width > 1} == {4}
    assert all(len(store.values) in (1, 4) for store in nodes(kernels, StoreTo))


@pytest.mark.parametrize(
    "step, constant, expected", [(1, 0, 1), (1, 2, 0), (-1, 3, -1), (-1, 1023, -1), (-1, 0, 0), (-1, 2, 0), (2, 0, 0)]
)
def test_a_vector_is_aligned_in_both_directions(step: int, constant: int, expected: int) -> None:
    """Backwards the last element is the aligned one."""
    address = total((Var("row"), Var("v"), constant), (8, step, 1))
    assert vector_step(address, "v", 4) == expected
