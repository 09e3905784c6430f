"""What a program asks of two lengths at once holds for all of them, or is refused where it is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch

import dplc
from dplc.engine.capture.dynamic_shapes import Symbols
from dplc.engine.capture.places import SourcePlaces
from dplc.ir.expr import Size, add, multiply
from dplc.ir.node import replace
from dplc.ir.ranges import Narrower, ranges_around_hints

Ranges = tuple[int, int, int, int]  # low and high of s, of t
ASKED: dict[str, tuple[Callable[[Any], Any], str, Ranges | None]] = {
    "a branch on a product": (lambda x: x * 2 if x.shape[0] * x.shape[1] > 50 else x * 3, "s*t > 50", (6, 97, 9, 50)),
    "a branch on which is longer": (lambda x: x * 2 if x.shape[0] < x.shape[1] else x * 3, "s >= t", (9, 97, 1, 9)),
    "a slice that may end before it does": (lambda x: x.flatten()[:88], "s*t >= 88", (10, 97, 9, 50)),
    "rows as many as columns": (lambda x: x[: x.shape[1]], "t <= s", (9, 97, 1, 9)),
    "pieces": (lambda x: x.flatten().split(40)[0], "(s*t + 39) // 40 == 3", (9, 13, 9, 9)),
    "a branch on either": (
        lambda x: x * 2 if not ((x.shape[0] * x.shape[1] < 50) | (x.shape[0] < x.shape[1])) else x * 3,
        "s >= t",
        None,
    ),
    "a branch on one of two": (
        lambda x: x * 2 if (x.shape[0] * x.shape[1] > 50) | (x.shape[0] < x.shape[1]) else x * 3,
        "s < t or s*t > 50",
        None,
    ),
}


def compiled(function: Callable[[Any], Any], low: int) -> dplc.Compiled:
    return within(function, (low, 97, low, 50))


def within(function: Callable[[Any], Any], ranges: Ranges) -> dplc.Compiled:
    ends = {0: dplc.Dim("s", *ranges[:2], hint=11), 1: dplc.Dim("t", *ranges[2:], hint=9)}
    return dplc.compile(function, (torch.randn(11, 9),), dynamic={"x": ends}, rows=())


@pytest.mark.parametrize("case", ASKED)
def test_what_does_not_hold_for_every_length_is_refused(case: str) -> None:
    function, said, part = ASKED[case]
    with pytest.raises(dplc.DplcError) as caught:
        compiled(function, 1)
    assert f"lengths with {said}, which does not hold for every s of 1..97, t of 1..50" in caught.value.what
    assert caught.value.span is not None and Path(caught.value.span.source.name).name == Path(__file__).name
    assert "narrow" in (caught.value.hint or "")
    if part is None:
        return
    s, t = (f'Dim("{name}", {low}, {high})' for name, low, high in zip("st", part[::2], part[1::2], strict=True))
    assert f"narrow them, as {s}, {t}; other lengths" in (caught.value.hint or "")
    part = (10, *part[1:]) if case == "pieces" else part  # a piece of one element is another program to torch
    program = within(function, part)
    for shape in ((part[0], part[2]), (part[1], part[3]), (part[0], part[3]), (11, 9)):
        x = torch.randn(shape)
        assert torch.equal(program(x), function(x)), shape


def usually_long(function: Callable[[Any], Any]) -> dplc.DplcError:
    ends = {0: dplc.Dim("s", 1, 97, hint=97), 1: dplc.Dim("t", 1, 50, hint=50)}
    with pytest.raises(dplc.DplcError) as caught:
        dplc.compile(function, (torch.randn(11, 9),), dynamic={"x": ends})
    return caught.value


def test_lengths_that_never_go_that_way_at_their_hints() -> None:
    """The example goes one way, and the usual lengths another: nothing around them remains."""
    found = usually_long(lambda x: x if x.shape[0] * x.shape[1] < 500 else -x)
    assert "lengths with s*t < 500" in found.what and "until it always holds" in (found.hint or "")


def test_an_end_that_is_no_whole_number() -> None:
    """torch's solver stops at it with an assertion of its own."""
    with pytest.raises(Narrower, match=r"`s` is declared 9\.\.13 .* is that of 10\.\.13") as caught:
        within(ASKED["pieces"][0], (9, 13, 9, 9))
    assert caught.value.span is not None and "split(40)" in caught.value.span.source.line(caught.value.span.line)
    found = usually_long(lambda x: x if 11 * x.shape[1] < 500 else -x)
    assert found.notes == ("asked of `t`: 11*t < 500",) and found.span is not None
    found = usually_long(lambda x: x if len(x) * x.shape[1] < 500 else -x)
    assert "the program asks for 11" in found.what and found.span is not None  # len(x) is a number


def test_ranges_around_hints_are_of_multiples() -> None:
    s, t = Size("s", 4, 96, 4, 12), Size("t", 1, 50, 1, 9)
    found = ranges_around_hints(">=", multiply(s, t), 70)
    assert found == (replace(s, low=8), replace(t, low=9))
    assert ranges_around_hints("<", multiply(s, t), 70) is None


@pytest.mark.parametrize("function", [ASKED["a branch on a product"][0], lambda x: x.flatten()[:64], lambda x: x.T + 1,
    ASKED["a branch on one of two"][0],
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


def test_our_names_may_be_those_of_torch() -> None:
    """torch draws a name for each length, which another length of ours may have: `s1` is our `s2`, and the other way."""
    symbols, names = Symbols(SourcePlaces()), ("s1", "s2", "s3")
    torchs = [sympy.Symbol(name, integer=True, positive=True) for name in names]
    sizes = [Size(name, 2, 64, 1, 8) for name in (*names[1:], names[0])]
    for symbol, size in zip(torchs, sizes, strict=True):
        symbols.learn(symbol, size)
    assert [symbols.extent(symbol) for symbol in torchs] == sizes
    assert symbols.extent(torchs[0] * 2 + torchs[2]) == add(sizes[2], multiply(sizes[0], 2))
