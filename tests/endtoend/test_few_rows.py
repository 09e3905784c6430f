"""Few rows, long rows, rows that repeat: what the policy of few blocks chooses, run whole, checked, against float64.

Ragged and prime extents."""

from __future__ import annotations

import math

import pytest
from test_transposed import compiled, is_right

SCORES = "F.scaled_dot_product_attention(torch.randn(1,{h},{m},{e}),torch.randn(1,{h},{n},{e}),torch.randn(1,{h},{n},{e}){c})"
CAUSAL = ",is_causal=True"


@pytest.mark.parametrize(
    "sizes",
    [
        {"h": 12, "m": 32, "n": 32, "e": 64, "c": ""},
        {"h": 5, "m": 31, "n": 31, "e": 64, "c": CAUSAL},
        {"h": 3, "m": 17, "n": 29, "e": 64, "c": ""},
        {"h": 2, "m": 19, "n": 37, "e": 128, "c": ""},
    ],
    ids=lambda sizes: f"{sizes['h']}x{sizes['m']}x{sizes['n']}x{sizes['e']}{sizes['c']}",
)
@pytest.mark.sampled(1)
def test_attention_of_few_rows_is_right(sizes: dict[str, object]) -> None:
    is_right(SCORES.format(**sizes))


def test_a_block_that_is_alone_has_two_warps_and_no_columns_to_spare() -> None:
    text = SCORES.format(h=12, m=32, n=32, e=64, c=CAUSAL)
    (kernel,) = compiled(text).tile
    threads = [axis.extent for axis in kernel.body[0].axes if str(axis.role) == "THREAD"]
    assert math.prod(threads) == 64
    weights = kernel.body[0].body[0]
    assert [axis.extent for axis in weights.box] == [16, 32]


@pytest.mark.parametrize(
    "text", ["torch.randn(1, 3, 37, 23).repeat_interleave(4, 1)", "torch.randn(7, 129).repeat_interleave(2, 0)"]
)
@pytest.mark.sampled(1)
def test_rows_that_repeat_are_right(text: str) -> None:
    is_right(text)


def test_an_element_that_rows_repeat_is_loaded_once() -> None:
    (kernel,) = compiled("torch.randn(1, 4, 2048, 64).repeat_interleave(8, 1)").tile
    assert kernel.body[0].axes[-1].extent == 8
    assert kernel.body[0].axes[0].extent == 4


def test_a_long_row_is_one_pass() -> None:
    text = "F.batch_norm(torch.randn(11, 1, 61, 53) + 1000, None, None, torch.randn(1), torch.randn(1), True)"
    assert len(compiled(text).launched) == 2  # the sums of blocks, and what they make together
    is_right(text)
