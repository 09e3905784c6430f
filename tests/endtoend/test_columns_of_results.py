"""Softmaxes and norms down columns: lanes have neighbouring columns, and registers keep what each is made of.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.ir.text.programs import print_program

X = "x = torch.randn({b}, {n}, {m}{t}); "
COLUMNS = {
    "softmax": X + "F.softmax(x, 1)",
    "log_softmax": X + "F.log_softmax(x, 1)",
    "what is left of the largest": X + "x - x.amax(1, keepdim=True)",
    "each over its sum": X + "x / (x * x + 1).sum(1, keepdim=True)",
    "a norm of channels": X
    + "u = x.mean(1, keepdim=True); s = (x - u).pow(2).mean(1, keepdim=True); (x - u) * torch.rsqrt(s + 1e-5)",
    "a norm of transposed rows": X + "F.layer_norm(x.transpose(1, 2), ({n},))",
    "a norm of transposed rows, transposed back": X + "F.rms_norm(x.transpose(1, 2), ({n},)).transpose(1, 2)",
    "the largest, where it is, and what is left": X + "(x.argmax(1), x - x.amax(1, keepdim=True))",
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("dtype", ["", ",dtype=torch.bfloat16"], ids=["f32", "bf16"])
@pytest.mark.parametrize("b, n, m", [(2, 67, 131), (1, 1031, 9), (3, 64, 32)])
@pytest.mark.sampled(2)
def test_a_column_of_results_is_right(name: str, dtype: str, b: int, n: int, m: int) -> None:
    is_right(COLUMNS[name].format(b=b, n=n, m=m, t=dtype))


def test_a_column_that_no_registers_hold_is_right() -> None:
    text = "F.softmax(torch.randn(5003, 300), 0)"
    (kernel,) = compiled(text).tile
    assert "for " in print_program((kernel,))
    is_right(text)


@settings(max_examples=draws(2), deadline=None)
@given(st.sampled_from(sorted(COLUMNS)), st.integers(1, 3), st.integers(1, 150), st.integers(1, 70))
def test_it_is_right_at_any_size(name: str, b: int, n: int, m: int) -> None:
    is_right(COLUMNS[name].format(b=b, n=n, m=m, t=""))


@settings(max_examples=draws(2), deadline=None)
@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([2, 4, 8, 16]), st.integers(33, 140), st.integers(1, 70))
def test_it_is_right_with_any_lanes_and_teams(lanes: int, teams: int, n: int, m: int) -> None:
    text = COLUMNS["softmax"].format(b=2, n=n, m=m, t="")
    is_right(text, {"column_reduce": {"L": lanes, "W": teams}})


@pytest.mark.parametrize("device", ["a100", "h200", "rtx5090"])
@pytest.mark.parametrize("text", [
    "F.softmax(torch.randn(4096, 1024), 0)", "F.softmax(torch.randn(8, 256, 56, 56), 1)", "F.softmax(torch.randn(512, 4096), 0)",
    "x = torch.randn(2048, 2048); x / x.sum(0)",
])  # fmt: skip
@pytest.mark.sampled(2)
def test_a_column_is_read_once_by_whole_sectors(text: str, device: str) -> None:
    (kernel,) = compiled(text, device=device).kernels
    counts = instruction_counts(kernel)
    assert counts.sectors * 32 * counts.blocks <= 1.02 * counts.dram
