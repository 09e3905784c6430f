"""What a program asks of two lengths at once holds for all of them, or is refused where it is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dplc

ASKED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a branch on a product": (lambda x: x * 2 if x.shape[0] * x.shape[1] > 50 else x * 3, "s*t > 50"),
    "a branch on which is longer": (lambda x: x * 2 if x.shape[0] < x.shape[1] else x * 3, "s >= t"),
    "a branch on either": (
        lambda x: x * 2 if not ((x.shape[0] * x.shape[1] < 50) | (x.shape[0] < x.shape[1])) else x * 3,
        "s >= t",
    ),
    "a branch on one of two": (
        lambda x: x * 2 if (x.shape[0] * x.shape[1] > 50) | (x.shape[0] < x.shape[1]) else x * 3,
        "s < t or s*t > 50",
    ),
    "a slice that may end before it does": (lambda x: x.flatten()[:88], "s*t >= 88"),
    "rows as many as columns": (lambda x: x[: x.shape[1]], "t <= s"),
    "pieces": (lambda x: x.flatten().split(40)[0], "(s*t + 39) // 40 == 3"),
}


def compiled(function: Callable[[Any], Any], low: int) -> dplc.Compiled:
    ends = {0: dplc.Dim("s", low, 97, hint=11), 1: dplc.Dim("t", low, 50, hint=9)}
    return dplc.compile(function, (torch.randn(11, 9),), dynamic={"x": ends}, rows=())


@pytest.mark.parametrize("case", ASKED)
def test_what_does_not_hold_for_every_length_is_refused(case: str) -> None:
    function, said = ASKED[case]
    with pytest.raises(dplc.DplcError) as caught:
        compiled(function, 1)
    assert f"lengths with {said}, which does not hold for every s of 1..97, t of 1..50" in caught.value.what
    assert caught.value.span is not None and Path(caught.value.span.source.name).name == Path(__file__).name
    assert "narrow the ranges" in (caught.value.hint or "")


@pytest.mark.parametrize("function", [ASKED["a branch on a product"][0], lambda x: x.flatten()[:64], lambda x: x.T + 1,
    lambda x: x * 2 if (x.shape[0] * x.shape[1] > 50) | (x.shape[0] < x.shape[1]) else x * 3,
])  # fmt: skip
def test_what_holds_for_every_length_is_one_program(function: Callable[[Any], Any]) -> None:
    program = compiled(function, 8)
    for shape in ((11, 9), (8, 8), (97, 50), (12, 49)):
        x = torch.randn(shape)
        assert torch.equal(program(x), function(x))


def test_how_memory_lies_is_not_asked_of_lengths() -> None:
    """torch's own comparisons of strides: a column of one length, rows of the other."""
    program = compiled(lambda x: torch.cat([x, x.T.contiguous().T]).transpose(0, 1).reshape(-1), 1)
    for shape in ((11, 9), (1, 1), (1, 50), (97, 1), (6, 7)):
        x = torch.randn(shape)
        assert torch.equal(program(x), torch.cat([x, x]).T.reshape(-1))
