"""Few long rows: what is folded of them to a few results takes two launches, and the first reads each element once."""

from __future__ import annotations

import math

import pytest
import torch
from test_transposed import compiled, is_right

import dplc
from dplc.engine.cost.instruction_counts import instruction_counts

LENGTH = 40009  # a prime number: the last chunk is ragged
TWO_LAUNCHES = (
    "torch.randn(1, 40009).argmax(-1)",
    "torch.randn(33331, 3).argmin(0, keepdim=True)",
    "torch.randn(200, 301).argmax()",
    "torch.randint(-9999, 9999, (2, 40009)).argmin(1)",
    "torch.randn(2, 40009).bfloat16().argmax(1)",
    "torch.randn(2, 40009).max(1)",
    "torch.randn(2, 40009).max(1)[1]",
    "torch.randn(2, 40009).max(1).values",
    "torch.randn(40009, 2).half().min(0, keepdim=True)",
    "torch.randn(2, 40009).bfloat16().min(1).values",
    "torch.randint(-9999, 9999, (3, 40009)).max(1)",
    "torch.logsumexp(torch.randn(3, 40040), 1)",
    "torch.logsumexp(torch.randn(3, 40040).bfloat16(), 1)",
    "torch.var_mean(torch.randn(3, 40040) + 7, 1)",
    "torch.var_mean(torch.randn(7, 3, 81, 77).bfloat16(), (0, 2, 3))",
    "torch.std_mean(torch.randn(210, 308).half())",
)
ROWS_AGAIN = (  # and the rows themselves: partial results, their sum, and the rows
    "torch.softmax(torch.randn(3, 40040).bfloat16(), 1)",
    "torch.log_softmax(torch.randn(3, 40040).half(), 1)",
    "F.layer_norm(torch.randn(3, 40040).bfloat16(), (40040,))",
    "F.batch_norm(torch.randn(7, 3, 81, 77).bfloat16(), None, None, torch.randn(3), torch.randn(3), True)",
)


@pytest.mark.parametrize("text", TWO_LAUNCHES)
@pytest.mark.sampled(2)
def test_few_results_of_long_rows_take_two_launches(text: str) -> None:
    first, second = map(instruction_counts, compiled(text).kernels)
    assert second.dram < first.dram / 20  # bytes
    is_right(text)


@pytest.mark.parametrize("text", ROWS_AGAIN)
@pytest.mark.sampled(2)
def test_halves_are_swept_as_often_as_floats(text: str) -> None:
    floats = text.replace(".bfloat16()", "").replace(".half()", "")
    assert len(compiled(text).kernels) == len(compiled(floats).kernels) == 3
    is_right(text)


def rows() -> dict[str, torch.Tensor]:
    """Rows of which the first of several largest elements, or the first nan, is asked for."""
    one, two = torch.randn(2, LENGTH), torch.randn(2, LENGTH)
    one[:, [1023, 1024, 30000]] = 9.0
    two[0, [5000, 30000]] = math.nan
    two[1, LENGTH - 1] = math.nan
    alike = torch.zeros(2, LENGTH)
    return {"ties": one, "nan": two, "alike": alike, "inf": alike + math.inf, "-inf": alike - math.inf}


@pytest.mark.parametrize("name", ["ties", "nan", "alike", "inf", "-inf"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.sampled(3)
def test_places_are_those_of_pytorch(name: str, dtype: torch.dtype) -> None:
    x = rows()[name].to(dtype)

    def places(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x.argmax(1), x.argmin(1), *x.max(1), *x.min(1))

    for found, wanted in zip(dplc.compile(places, (x,))(x), places(x), strict=True):
        assert torch.equal(found.nan_to_num(nan=7.0), wanted.nan_to_num(nan=7.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_infinite_elements_of_a_logsumexp(dtype: torch.dtype) -> None:
    x = torch.randn(4, LENGTH)
    x[0, 7], x[1], x[2, 9], x[3, 5] = math.inf, -math.inf, math.nan, -math.inf
    found = dplc.compile(lambda x: torch.logsumexp(x, 1), (x.to(dtype),))(x.to(dtype))
    wanted = torch.logsumexp(x.to(dtype).double(), 1)
    assert torch.allclose(found.double(), wanted, rtol=1e-2 if dtype is torch.bfloat16 else 1e-6, equal_nan=True)
