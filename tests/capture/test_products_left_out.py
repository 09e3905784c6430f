"""A text that is only compiled is captured without computing its products."""

from __future__ import annotations

import pytest
import torch

from dplc.codegen.target import target
from dplc.engine.capture.capture import MOST_COMPUTED, SkipLargeProducts, capture_text
from dplc.engine.compiler import compiler_with

LARGE, SMALL = 512, 64
assert 2 * SMALL**3 < MOST_COMPUTED < 2 * LARGE**3

PRODUCTS = {
    "mm": lambda n: torch.ones(n, n) @ torch.ones(n, n),
    "addmm": lambda n: torch.nn.functional.linear(torch.ones(n, n), torch.ones(n, n), torch.ones(n)),
    "bmm": lambda n: torch.ones(2, n, n) @ torch.ones(2, n, n),
    "conv": lambda n: torch.nn.functional.conv2d(torch.ones(1, n // 8, 48, 48), torch.ones(n // 2, n // 8, 3, 3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_large_products_are_zeros_of_the_right_shape(name: str) -> None:
    right = PRODUCTS[name](LARGE)
    with SkipLargeProducts():
        found = PRODUCTS[name](LARGE)
    assert not found.any() and right.any()
    assert (found.shape, found.dtype, found.stride()) == (right.shape, right.dtype, right.stride())


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm"])
def test_small_products_are_computed(name: str) -> None:
    with SkipLargeProducts():
        found = PRODUCTS[name](SMALL)
    assert torch.equal(found, PRODUCTS[name](SMALL))


@pytest.mark.parametrize(
    "text",
    [
        f"torch.relu(torch.randn({LARGE}, {LARGE}) @ torch.randn({LARGE}, {LARGE}))",
        f"nn.Linear({LARGE}, {2 * LARGE})(torch.randn({LARGE}, {LARGE}))",
        f"F.scaled_dot_product_attention(*torch.randn(3, 8, {LARGE}, 64).unbind(0))",
    ],
)
def test_the_program_is_the_same(text: str) -> None:
    computed, left_out = capture_text(text), capture_text(text, values=False)
    assert computed.reference is not None and left_out.reference is None
    made = [compiler_with(target()).compile(one).cuda for one in (computed, left_out)]
    assert made[0] == made[1]


def test_statements_are_computed() -> None:
    """What a text prepares may be a weight."""
    ones = f"torch.ones({LARGE}, {LARGE})"
    text = f"m = nn.Linear({LARGE}, {LARGE}, bias=False)\nm.weight.copy_({ones} @ {ones})\nm({ones})"
    captured = capture_text(text, values=False)
    values = [value for name, value in captured.tensors.items() if captured.kinds[name] == "parameter"]
    assert len(values) == 1 and (torch.as_tensor(values[0]) == LARGE).all()


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_just_as_many_operations_as_may_be_is_computed(more: int) -> None:
    k = MOST_COMPUTED // (2 * LARGE * LARGE)
    assert 2 * LARGE * LARGE * k == MOST_COMPUTED
    with SkipLargeProducts():
        found = torch.ones(LARGE, k + more) @ torch.ones(k + more, LARGE)
    assert bool((found == (0 if more else k)).all())
