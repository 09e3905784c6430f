"""Ops whose answer torch leaves open among equal elements: where all elements differ, they are torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dplc.ir.interp.torch import SETTLED

nan = float("nan")
ROWS: dict[str, Any] = {
    "no dimension": torch.tensor(2.0),
    "one": torch.tensor([2.0]),
    "odd": torch.tensor([[5.0, 1.0, 3.0], [2.0, 9.0, 4.0]]),
    "even": torch.tensor([[5.0, 1.0, 3.0, 8.0], [2.0, 9.0, 4.0, -1.0]]),
    "unknown ones": torch.tensor([[5.0, nan, 3.0, 8.0, 1.0], [2.0, 9.0, 4.0, nan, nan]]),
}
PICKED: dict[str, Callable[..., Any]] = {
    "Median": torch.median,
    "Nanmedian": torch.nanmedian,
    "Kthvalue": lambda x, **how: torch.kthvalue(x, 1, **how),
}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("op", PICKED)
def test_one_of_a_row(op: str, row: str, keepdim: bool) -> None:
    x = ROWS[row]
    given = {"self": x, "dim": -1, "keepdim": keepdim} | ({"k": 1} if op == "Kthvalue" else {})
    for found, wanted in zip(SETTLED[op](given), PICKED[op](x, dim=-1, keepdim=keepdim), strict=True):
        assert found.shape == wanted.shape and torch.allclose(found.double(), wanted.double(), equal_nan=True)


@pytest.mark.parametrize("row", ["no dimension", "one", "odd", "even"])
def test_a_whole_row(row: str) -> None:
    x = ROWS[row]
    for found, wanted in zip(SETTLED["Sort"]({"self": x}), torch.sort(x), strict=True):
        assert torch.equal(found, wanted)
    for found, wanted in zip(SETTLED["Topk"]({"self": x, "k": 1}), torch.topk(x, 1), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("rows", [(5,), (2, 5), (3, 1, 5), (1, 5)])
@pytest.mark.parametrize("places", [(), (2,), (2, 3), (3, 1, 4), (2, 1, 1), (1, 7)])
def test_sorted_rows_are_those_of_what_is_looked_for(rows: tuple[int, ...], places: tuple[int, ...]) -> None:
    row, x = torch.rand(rows).sort().values, torch.rand(places)
    given = {"sorted_sequence": row, "self": x}
    try:
        wanted = torch.searchsorted(row, x)
    except RuntimeError:
        with pytest.raises(ValueError, match="are not those of"):
            SETTLED["Searchsorted"](given)
    else:
        assert torch.equal(SETTLED["Searchsorted"](given), wanted)
