"""Scans from either end, behind neutral elements, masked: ragged and prime sizes, run whole, checked, compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

from dplc.ir.tensor import Case, Reduce, operands, postorder
from dplc.ir.text.programs import print_program

ROWS = "x = torch.rand({n}, {m}); "
PROGRAMS = {
    "concatenation": ROWS + "torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)], 1)",
    "start of a scan": ROWS + "torch.cat([x.new_zeros({n}, 1), x.cumsum(1)[:, :-1]], 1)",
    "padded start": ROWS + "F.pad(x.cumsum(1)[:, :-1], (1, 0))",
    "padded scan": ROWS + "F.pad((x > .5).cumsum(1), (2, 0))",
    "products": ROWS + "x = (x - .5).sign(); torch.cat([torch.ones_like(x[:, :2]), x.cumprod(1)], 1)",
    "padded products": ROWS + "F.pad((x - .5).sign().cumprod(1), (1, 0), value=1.)",
    "columns": ROWS + "x = x.t().contiguous(); torch.cat([torch.zeros_like(x[:1]), x[:-1].cumsum(0)], 0)",
    "padded columns": ROWS + "F.pad(x.t().contiguous().cumsum(0)[:-1], (0, 0, 1, 0))",
    "whole numbers": "x = torch.randint(0, 9, ({n}, {m})); F.pad(x.cumsum(1), (1, 0))",
    "from the end": ROWS + "torch.cat([torch.zeros_like(x[:, :1]), x.flip(1).cumsum(1)[:, :-1]], 1).flip(1)",
    "masked": ROWS + "(x * (torch.rand({n}, {m}) > .5)).cumsum(1)",
    "masked, exclusive": ROWS + "F.pad((x * (x > .5)).cumsum(1)[:, :-1], (1, 0))",
    "two readers": ROWS + "c = x.cumsum(1); (F.pad(c[:, :-1], (1, 0)), c[:, -1:])",
    "not neutral": ROWS + "F.pad(x.cumsum(1), (1, 0), value=2.)",
    "another dimension": ROWS + "torch.cat([torch.zeros_like(x), x.cumsum(1)], 0)",
    "reversed": ROWS + "x.flip(1).cumsum(1).flip(1)",
    "of a mirror": ROWS + "x.flip(1).cumsum(1)",
    "mirrored": ROWS + "x.cumsum(1).flip(1)",
    "reversed columns": ROWS + "x.t().contiguous().flip(0).cumsum(0).flip(0)",
    "reversed products": ROWS + "(x - .5).sign().flip(1).cumprod(1).flip(1)",
    "padded at both ends": ROWS + "F.pad(x.cumsum(1), (1, 1))",
}


@settings(max_examples=draws(17), deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(1, 5), st.sampled_from([2, 31, 64, 1021, 4096, 9973, 16384]))
def test_scans_of_any_length_are_right(name: str, n: int, m: int) -> None:
    is_right(PROGRAMS[name].format(n=n, m=m))


@pytest.mark.parametrize("name", ["concatenation", "start of a scan", "padded start", "columns", "from the end"])
def test_an_exclusive_scan_is_a_scan(name: str) -> None:
    """Nothing selects elements of a scan: the scan reads shifted elements."""
    values = postorder(out.value for out in compiled(PROGRAMS[name].format(n=4, m=64)).tensor.outs)
    scans = [value for value in values if value.__class__ is Reduce]
    assert len(scans) == 1
    assert not any(value.__class__ is Case and _below(value, scans[0]) for value in values)


def _below(value: object, scan: object) -> bool:
    return scan in postorder(operands(value))


def test_a_long_reversed_scan_is_a_scan_of_chunks() -> None:
    """No kernel reduces a masked row for each element."""
    kernels = compiled(PROGRAMS["reversed"].format(n=64, m=16384)).tile
    assert any("Scan(" in print_program((kernel,)) for kernel in kernels)


def test_a_long_exclusive_scan_has_the_launches_of_an_inclusive_one() -> None:
    made = compiled(PROGRAMS["concatenation"].format(n=64, m=16384))
    assert len(made.launched) == len(compiled("torch.rand(64, 16384).cumsum(1)").launched)
