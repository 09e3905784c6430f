"""Folds of one row that need nothing of each other, tuples beside sums, are folded in one sweep and shared by blocks.

Ragged and prime sizes; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

from dplc.ir.text.programs import print_program

TEXTS = (
    "x = torch.randn(130, 517); (x.mean(), x.std())",
    "x = torch.randn(130, 517); (x - x.mean()) / x.std()",
    "x = torch.randn(130, 517) * 3 + 9; (x.std(), x.amax(), x.amin())",
    "x = torch.randn(3, 15013); (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)",
    "x = torch.randn(3, 15013).bfloat16(); (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)",
    "x = torch.randn(3, 15013); (x.logsumexp(1), x.std(1))",
    "x = torch.randn(3, 15013); x.softmax(1) * x.std(1, keepdim=True)",
    "x = torch.randn(3, 15013); (x.argmax(1), x.std(1), x.sum(1))",
    "x = torch.randn(64, 33, 77); (x - x.mean((0, 2), keepdim=True)) / x.std((0, 2), keepdim=True)",
    "x = torch.randn(130, 517); x[3, 5] = float('nan'); (x.mean(), x.std())",
    "x = torch.randn(15013, 3); (x.mean(0), x.std(0))",
    "x = torch.randn(20000); w = torch.randn(20000); ((x * w).sum(), x.std())",
    "x = torch.randn(20000).double(); (x - x.mean()) / x.std()",
    "x = torch.randn(3, 15013); s = x.sum(1, keepdim=True); ((x - s).std(1), s)",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.sampled(2)
def test_it_is_right(text: str) -> None:
    is_right(text)


@settings(max_examples=draws(2), deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(4200, 9000))
def test_it_is_right_at_any_size(rows: int, columns: int) -> None:
    is_right(f"x = torch.randn({rows}, {columns}); (x.mean(), x.std())")


def test_a_row_is_read_once() -> None:
    """A mean and a deviation of a whole tensor: blocks compute parts of both in one loop over the row."""
    first, *others = compiled("x = torch.randn(1024, 2048); (x - x.mean()) / x.std()").tile
    text = print_program((first,))
    assert len(others) == 2 and "=BLOCK" in text and text.count("load x[") == 2, text  # the row, and its first element


def test_what_needs_the_first_sweep_waits_for_it() -> None:
    kernels = compiled("x = torch.randn(3, 15013); s = x.sum(1, keepdim=True); ((x - s).std(1), s)").tile
    assert any(print_program((kernel,)).count("load x[") > 1 for kernel in kernels)
