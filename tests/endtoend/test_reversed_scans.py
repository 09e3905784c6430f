"""Scans from the end of a row, short and by chunks: ragged and prime sizes, run whole, checked, compared with float64."""

from __future__ import annotations

from drawing import draws
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transposed import compiled, is_right

from dplc.ir.text.programs import print_program

PROGRAMS = (
    "x = torch.randn({n}, {m}); x.flip(1).cumsum(1).flip(1)",
    "x = torch.randn({n}, {m}); x.flip(1).cumsum(1)",
    "x = torch.randn({n}, {m}); x.cumsum(1).flip(1)",
    "x = torch.randn({m}, {n}); x.flip(0).cumsum(0).flip(0)",
    "x = torch.rand({n}, {m}) * .01 + 1; x.flip(1).cumprod(1).flip(1)",
)


@settings(max_examples=draws(5), deadline=None)
@given(st.sampled_from(PROGRAMS), st.integers(1, 5), st.sampled_from([1, 2, 31, 64, 1021, 4096, 9973, 16384]))
def test_reversed_scans_of_any_length_are_right(text: str, n: int, m: int) -> None:
    is_right(text.format(n=n, m=m))


def test_a_long_reversed_scan_is_a_scan_of_chunks() -> None:
    """No kernel reduces a masked row for each element."""
    kernels = compiled(PROGRAMS[0].format(n=64, m=16384)).tile
    assert any("Scan(" in print_program((kernel,)) for kernel in kernels)
