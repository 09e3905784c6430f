"""What torch.export calls `dynamic_shapes`, given to `dplc.compile(dynamic=)`; and calls with no rows at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import dplc
from dplc.engine.run.calls import accepted
from dplc.ir.diagnostic import DplcError, UsageError

ROWS = torch.export.Dim("rows", min=1, max=99)


@pytest.mark.parametrize("kind", [tuple, list])
def test_shapes_of_the_inputs_in_order(kind: Any) -> None:
    inputs = torch.randn(8, 4), torch.randn(4), torch.randn(8, 4)
    shapes = kind(({0: ROWS}, None, [ROWS, None]))
    torch.export.export(_Scaled(), inputs, dynamic_shapes=shapes)  # it is what torch takes
    program = dplc.compile(_Scaled(), inputs, dynamic=shapes, rows=())
    assert "rows: 1..99 hint 8" in program.ir("torch")
    for n in (1, 99):
        x, y = torch.randn(n, 4), torch.randn(n, 4)
        assert accepted([program(x, inputs[1], y)], [_Scaled()(x.double(), inputs[1].double(), y.double())])


class _Scaled(nn.Module):
    def forward(self, x: Any, scale: Any, y: Any) -> Any:
        return x * scale + y


def test_shapes_of_other_inputs_than_there_are() -> None:
    with pytest.raises(UsageError, match="dynamic= says it for 2 inputs; there are 1"):
        dplc.compile(nn.ReLU(), (torch.randn(8, 4),), dynamic=({0: ROWS}, None))


def test_a_call_with_no_rows_is_not_told_an_impossible_range() -> None:
    program = dplc.compile(nn.ReLU(), (torch.randn(8, 4),), dynamic=({0: dplc.Dim("s", 1, 99)},), rows=())
    with pytest.raises(DplcError, match="`s` is 0") as told:
        program(torch.randn(0, 4))
    assert "1 or more" in (told.value.hint or "") and "Dim(" not in (told.value.hint or "")
