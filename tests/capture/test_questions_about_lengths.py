"""What a program asks of its lengths holds for all of them, or is told where it is asked, with the ranges that remain."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.utils._sympy.functions import FloorDiv, Mod

import dplc
from dplc.engine.capture.dynamic_shapes import Symbols, all_hold, common_step, range_of
from dplc.engine.capture.places import SourcePlaces
from dplc.ir.expr import Size, add, compare, floordiv, modulo, multiply
from dplc.ir.node import replace
from dplc.ir.ranges import Narrower, around_hint, part_that_decides, ranges_around_hints

Range = tuple[int, int]
Function = Callable[[Any], Any]


def compiled(function: Function, s: Range, t: Range, hints: Range = (11, 9)) -> dplc.Compiled:
    """A function of a matrix of s by t, traced for 11 by 9."""
    ends = {0: dplc.Dim("s", *s, hint=hints[0]), 1: dplc.Dim("t", *t, hint=hints[1])}
    return dplc.compile(function, (torch.randn(11, 9),), dynamic={"x": ends}, rows=())


def refused(function: Function, s: Range, t: Range, hints: Range = (11, 9)) -> dplc.DplcError:
    with pytest.raises(dplc.DplcError) as caught:
        compiled(function, s, t, hints)
    assert caught.value.span is not None and caught.value.span.source.name.endswith("test_questions_about_lengths.py")
    return caught.value


def check(function: Function, s: Range, t: Range) -> None:
    program = compiled(function, s, t)
    for shape in itertools.product((*s, 11), (*t, 9)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x), function(x), rtol=0, atol=1e-5)


def follow(function: Function, hint: str | None, **ranges: Range) -> None:
    """Check a function for the ranges that its errors say, one after the other."""
    dims = re.findall(r'Dim\("(\w)", (\d+), (\d+)\)', hint or "")
    ranges |= {name: (int(low), int(high)) for name, low, high in dims}
    try:
        check(function, **ranges)
    except dplc.DplcError as error:
        follow(function, error.hint, **ranges)


def pieces(x: Any) -> Any:
    return x.flatten().split(40)[0]


def longer(x: Any) -> Any:
    return x * 2 if x.numel() > 50 else x * 3


def longer_or_wider(x: Any) -> Any:
    return x * 2 if (x.numel() > 50) | (x.shape[0] < x.shape[1]) else x * 3


def neither(x: Any) -> Any:
    return x * 2 if not ((x.numel() < 50) | (x.shape[0] < x.shape[1])) else x * 3


@pytest.mark.parametrize(
    ("function", "asked", "ranges"),
    [
        (longer, "s*t > 50", 'Dim("s", 6, 97), Dim("t", 9, 50)'),
        (neither, "s >= t", 'Dim("s", 9, 97), Dim("t", 1, 9)'),
        (lambda x: x.flatten()[:88], "s*t >= 88", 'Dim("s", 10, 97), Dim("t", 9, 50)'),
        (lambda x: x[: x.shape[1]], "t <= s", 'Dim("s", 9, 97), Dim("t", 1, 9)'),
        (pieces, "(s*t + 39) // 40 == 3", 'Dim("s", 9, 13), Dim("t", 9, 9)'),
        (longer_or_wider, "s < t or s*t > 50", None),
    ],
)
def test_what_does_not_hold_for_all_of_two_lengths_is_refused(
    function: Function, asked: str, ranges: str | None
) -> None:
    error = refused(function, (1, 97), (1, 50))
    lengths = f"this way through the program is that of lengths with {asked}"
    assert error.what == f"{lengths}, which does not hold for every s of 1..97, t of 1..50"
    narrow = f"narrow them, as {ranges}" if ranges else "narrow the ranges until it always holds"
    assert error.hint == f"{narrow}; other lengths take another way through the program"
    if ranges:
        follow(function, error.hint)


WAY = "`s` is declared {} (dimension 0 of `x`), but this way through the program is that of {}"


@pytest.mark.parametrize(
    ("function", "s", "what", "ranges"),
    [
        # an end that is not a whole number, at which torch's solver stops with an assertion of its own
        (pieces, (9, 13), WAY.format("9..13", "10..13"), 'Dim("s", 10, 13)'),
        (
            lambda x: F.conv1d(x.T, torch.ones(5, 9, 3), stride=2),
            (1, 97),
            WAY.format("1..97", "5..97"),
            'Dim("s", 5, 97)',
        ),
        (lambda x: torch.where(x[::3] > 0, x[::3], 0), (1, 97), WAY.format("1..97", "4..97"), 'Dim("s", 4, 97)'),
        (
            lambda x: (x @ torch.ones(9, 200)).flatten()[-233:],
            (1, 97),
            "torch op 'slice' is not supported for every `s` of the range",
            'Dim("s", 2, 97)',
        ),
    ],
)
def test_what_does_not_hold_for_all_of_a_length_is_refused(
    function: Function, s: Range, what: str, ranges: str
) -> None:
    error = refused(function, s, (9, 9))
    assert isinstance(error, Narrower) and error.what == what and f"narrow it: {ranges}" in (error.hint or "")
    follow(function, ranges, t=(9, 9))


def every_second_of_a_sum(x: Any) -> Any:
    """torch asks how its memory lies, which differs for odd lengths."""
    v = (x[:, None] + x[None])[:, :, ::2]
    return (v @ v.transpose(-1, -2)).softmax(-1) @ v


@pytest.mark.parametrize(
    ("function", "what", "hint", "notes"),
    [
        # the example goes one way, and the usual lengths another: nothing around them remains
        (lambda x: x if x.numel() < 500 else -x, "lengths with s*t < 500", "until it always holds", set()),
        (lambda x: x if 11 * x.shape[1] < 500 else -x, "asks more", "compile for each length", {"asked of `t`: 11*t < 500"}),
        (every_second_of_a_sum, "asks more", "compile for each length", {"asked of `t`: t != (2*((1 + t) // 2))"}),
        # the length is a number
        (lambda x: x if len(x) * x.shape[1] < 500 else -x, "the program asks for 11", "leave `s` out of dynamic=", set()),
    ],
)  # fmt: skip
def test_lengths_of_which_no_range_remains(function: Function, what: str, hint: str, notes: set[str]) -> None:
    error = refused(function, (1, 97), (1, 50), hints=(97, 49))
    assert not isinstance(error, Narrower)
    assert what in error.what and hint in (error.hint or "") and notes <= set(error.notes)


@pytest.mark.parametrize(
    ("function", "low"),
    [
        (longer, 8),
        (longer_or_wider, 8),
        (lambda x: x.flatten()[:64], 8),
        (lambda x: x.T + 1, 8),
        # torch's own comparisons of strides are not asked: a column of one length, rows of the other
        (lambda x: torch.cat([x, x.T.contiguous().T]).transpose(0, 1).reshape(-1), 1),
    ],
)
def test_what_holds_for_every_length_is_one_program(function: Function, low: int) -> None:
    check(function, (low, 97), (low, 50))


# ---- The ranges that remain, of conditions of torch's and of ours.

S = sympy.Symbol("s17", integer=True, positive=True)
SIZE = Size("s", 1, 97, 1, 11)
BY_FOUR = Size("s", 2, 97, 4, 12)


def condition(text: str) -> Any:
    return sympy.sympify(text, {"s": S, "FloorDiv": FloorDiv, "Mod": Mod})


@pytest.mark.parametrize(
    ("size", "guard", "part"),
    [
        (SIZE, "Ne(FloorDiv(2 + s, 3), 1)", "4..97"),
        (SIZE, "Ne(s, 40)", "1..39"),
        (SIZE, "And(s >= 3, s <= 50)", "3..50"),
        (SIZE, "Or(s >= 4, Eq(s, 1))", "4..97"),
        (SIZE, "Lt(Mod(s - 1, 20), 15)", "1..15"),
        (SIZE, "Ne(FloorDiv(s, s - 1), 3)", "2..97"),
        (BY_FOUR, "s > 5", "8..96, a multiple of 4"),
        (BY_FOUR, "Ne(s, 7)", "2..97, a multiple of 4"),
        (BY_FOUR, "Eq(s, 8)", None),
    ],
)
def test_the_run_of_lengths_around_the_hint(size: Size, guard: str, part: str | None) -> None:
    found = around_hint(size, lambda n: all_hold([condition(guard)], S, n))
    assert (found and range_of(found), found and found.hint) == (part, part and size.hint)


@pytest.mark.parametrize(
    ("guards", "step"),
    [(["Eq(Mod(4 * s, 24), 0)", "Ne(s, 6)"], 6), (["Eq(s, 40)"], 1), (["Eq(Mod(s, 2), 1)"], 1)],
)
def test_common_step_is_the_divisor_of_all_lengths(guards: list[str], step: int) -> None:
    assert common_step(replace(SIZE, hint=12), S, list(map(condition, guards))) == step


@pytest.mark.parametrize(
    ("undecided", "part"),
    [
        (compare(">=", multiply(SIZE, 200) + -233, 0), "2..97"),  # type: ignore[operator]
        (compare(">=", multiply(SIZE, 20) + -233, 0), None),  # type: ignore[operator]  # 1..11, where it does not hold, are few
        (compare(">=", floordiv(SIZE, Size("t", 1, 9, 1, 9)), 3), None),
        (compare("==", modulo(SIZE, 3), 0), None),
        (True, None),
    ],
)
def test_a_condition_that_is_undecided_is_decided_for_a_part(undecided: Any, part: str | None) -> None:
    found = part_that_decides(undecided)
    assert (found and range_of(found)) == part


def test_ranges_around_hints_are_of_multiples() -> None:
    s, t = Size("s", 4, 96, 4, 12), Size("t", 1, 50, 1, 9)
    found = ranges_around_hints(">=", multiply(s, t), 70)
    assert found == (replace(s, low=8), replace(t, low=9))
    assert ranges_around_hints("<", multiply(s, t), 70) is None


def test_our_names_may_be_those_of_torch() -> None:
    """torch draws a name for each length, which another length of ours may have: `s1` is our `s2`, and the other way."""
    symbols = Symbols(SourcePlaces())
    torchs = sympy.symbols("s1 s2 s3", integer=True, positive=True)
    sizes = [Size(name, 2, 64, 1, 8) for name in ("s2", "s3", "s1")]
    for symbol, size in zip(torchs, sizes, strict=True):
        symbols.learn(symbol, size)
    assert [symbols.extent(symbol) for symbol in torchs] == sizes
    assert symbols.extent(torchs[0] * 2 + torchs[2]) == add(sizes[2], multiply(sizes[0], 2))
