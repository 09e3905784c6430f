"""What torch.export says of lengths for which a program is another one: the part of the range that remains."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

import dplc
from dplc.engine.capture.dynamic_shapes import all_hold, common_step
from dplc.ir.expr import Size, floordiv, modulo, multiply
from dplc.ir.node import replace
from dplc.ir.ranges import Narrower, around_hint, part_that_decides

SIZE = Size("s", 1, 97, 1, 11)


S = sympy.Symbol("s17", integer=True, positive=True)


@pytest.mark.parametrize(
    ("guard", "low", "high"),
    [
        (sympy.Ne(FloorDiv(2 + S, 3), 1), 4, 97),
        (sympy.Ne(S, 2), 3, 97),
        (sympy.Ne(1 + FloorDiv(S - 3, 2), 1), 5, 97),
        (sympy.Ne(S, 40), 1, 39),
        (sympy.And(S >= 3, S <= 50), 3, 50),
        (sympy.Or(S >= 4, sympy.Eq(S, 1)), 4, 97),
        (9 * S >= 82, 10, 97),
        (sympy.Lt(Mod(S - 1, 20), 15), 1, 15),
        (sympy.Ne(FloorDiv(S, S - 1), 3), 2, 97),
    ],
)
def test_the_run_of_lengths_around_the_hint(guard: Any, low: int, high: int) -> None:
    found = around_hint(SIZE, lambda n: all_hold([guard], S, n))
    assert found is not None and (found.low, found.high, found.hint) == (low, high, 11)
    assert common_step(SIZE, S, [guard]) == 1


def test_common_step_is_the_divisor_of_all_lengths() -> None:
    assert common_step(replace(SIZE, hint=12), S, [sympy.Eq(Mod(4 * S, 24), 0), sympy.Ne(S, 6)]) == 6
    assert common_step(SIZE, S, [sympy.Eq(S, 40)]) == 1 and common_step(SIZE, S, [sympy.Eq(Mod(S, 2), 1)]) == 1


def test_multiples_stay_multiples() -> None:
    by_four = replace(SIZE, low=2, high=97, multiple=4, hint=12)
    found = around_hint(by_four, lambda n: n > 5)
    assert found is not None and (found.low, found.high, found.multiple) == (8, 96, 4)
    assert around_hint(by_four, lambda n: True) is by_four and around_hint(by_four, lambda n: n == 8) is None


def test_a_condition_that_is_undecided_is_decided_for_a_part() -> None:
    from dplc.ir.expr import compare

    part = part_that_decides(compare(">=", multiply(SIZE, 20) + -233, 0))  # type: ignore[operator]
    assert part is None  # 1..11, where it does not hold, are too few
    part = part_that_decides(compare(">=", multiply(SIZE, 200) + -233, 0))  # type: ignore[operator]
    assert part is not None and (part.low, part.high) == (2, 97)
    assert part_that_decides(compare(">=", floordiv(SIZE, Size("t", 1, 9, 1, 9)), 3)) is None
    assert part_that_decides(compare("==", modulo(SIZE, 3), 0)) is None and part_that_decides(True) is None


def last_ones(x: Any) -> Any:
    return (x @ torch.ones(4, 200)).flatten()[-233:]


def windows(x: Any) -> Any:
    return torch.nn.functional.conv1d(x.T, torch.ones(5, 4, 3), stride=2)


def every_third(x: Any) -> Any:
    return torch.where(x[::3] > 0, x[::3], 0)


def every_second_of_a_sum(x: Any) -> Any:
    v = (x[:, None] + x[None])[:, :, :, ::2]
    return (v @ v.transpose(-1, -2)).softmax(-1) @ v


def test_lengths_of_which_no_range_tells() -> None:
    """torch asks how memory lies, which differs for odd lengths: they are named by what is asked."""
    with pytest.raises(dplc.DplcError, match="asks more of its dimensions") as found:
        dplc.compile(every_second_of_a_sum, (torch.randn(2, 2, 11),), dynamic={"x": {2: dplc.Dim("s", 1, 97)}})
    assert not isinstance(found.value, Narrower) and "compile for each length" in (found.value.hint or "")
    assert "asked of `s`: s != (2*((1 + s) // 2))" in found.value.notes


@pytest.mark.parametrize(
    ("function", "what", "hint"),
    [
        (last_ones, "torch op 'slice' is not supported for every `s` of the range", 'Dim("s", 2, 97)'),
        (windows, "this way through the program is that of 5..97", 'Dim("s", 5, 97)'),
        (every_third, "this way through the program is that of 4..97", 'Dim("s", 4, 97)'),
    ],
)
def test_one_message_with_the_range_that_remains(function: Any, what: str, hint: str) -> None:
    with pytest.raises(Narrower) as found:
        dplc.compile(function, (torch.randn(11, 4),), dynamic={"x": {0: dplc.Dim("s", 1, 97)}})
    assert what in found.value.what and hint in (found.value.hint or "")
    part = found.value.size
    narrow = {"x": {0: dplc.Dim("s", part.low, part.high)}}
    program = dplc.compile(function, (torch.randn(11, 4),), dynamic=narrow)
    x = torch.randn(part.low, 4)
    assert torch.allclose(program(x), function(x), atol=1e-5)
