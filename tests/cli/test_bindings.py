"""`--size`: the numbers that sizes are bound to, and what is refused."""

from __future__ import annotations

import pytest
from command_line import Command

from dplc.engine.cli.programs import bindings
from dplc.ir.diagnostic import UsageError
from dplc.ir.expr import Size

SIZES = {"s": Size("s", 1, 100, 1, 7), "t": Size("t", 1, 100, 1, 9)}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["s=1,2", "t=5"], [{"s": 1, "t": 5}, {"s": 2, "t": 5}]),
        (["t=3 , 4"], [{"s": 7, "t": 3}, {"s": 7, "t": 4}]),  # s as its hint says
        (["s=2,2,1"], [{"s": 2, "t": 9}, {"s": 1, "t": 9}]),
        ([], [{"s": 7, "t": 9}]),
    ],
)
def test_every_combination(asked: list[str], found: list[dict[str, int]]) -> None:
    assert bindings(SIZES, asked) == found


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("u=3", "there is no size `u`"),
        ("s=x", "write NAME=7 or NAME=1,7,100"),
        ("s=" + ",".join(map(str, range(1, 1002))), "more than 1000 combinations"),
    ],
)
def test_what_is_no_binding(asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bindings(SIZES, [asked])


def test_a_thousand_combinations_are_not_too_many() -> None:
    assert len(bindings(SIZES, ["s=" + ",".join(map(str, range(1, 101))), "t=1,2,3,4,5,6,7,8,9,10"])) == 1000


@pytest.mark.parametrize(
    "written", ["x.index_fill(0, i, 2.0)", "x.index_add(0, i.abs(), x[:3])", "x.index_put((i, i.abs()), x[0, 0])"]
)
@pytest.mark.sampled(2)
def test_places_are_looked_at_where_sizes_are_numbers(written: str, ok: Command, dplc: Command) -> None:
    """What an op takes for a place ends with the length: 5 is one of 7 rows, and none of 4."""
    text = "x = torch.randn(dim(s, 4..40), 9); i = torch.tensor([0, 5, {}]); " + written
    assert ok("run --size s=6,7,40 -c", text.format(3)).out.count("ok") == 3
    done = dplc("run --size s=7,4 -c", text.format(3))
    assert done.code == 1 and "out of " in done.err and "internal" not in done.err
