"""Whether every Wait of a ring is for a group that copies: groups that copy, in all turns, and those waited for."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.codegen.materialise.lowering import Boxes
from dplc.codegen.materialise.shared_memory import only_full_ones
from dplc.ir.text.programs import read_program

RING = """## level: tile
kernel f(x: f32[64, 32]) -> y: f32[32]:
    Tile(i:32=THREAD):
{first}
        for n in 0..4 serial:
{turn}
"""
FIRST = "            s = Stage(x, origin=(0, 0), box=(a:8@0, b:32@1), via=TMA)"
STAGE = "            s = Stage(x, origin=(n*8, 0), box=(a:8@0, b:32@1), depth=4, slot=n % 4, when=n + {d} < 4, via=TMA)"
WAIT = "            Wait()"


@pytest.mark.parametrize(
    ("first", "groups", "ahead", "waited", "plain"),
    [
        (1, 1, 1, (1,), True),  # 1 + 3 groups, 4 waited for
        (0, 1, 1, (1,), False),
        (2, 1, 2, (1,), True),
        (1, 1, 2, (1,), False),
        (2, 2, 1, (2,), True),  # 2 + 6 groups, 8 waited for
        (1, 2, 1, (2,), False),
        (0, 2, 2, (1,), True),  # 4 groups, as many waited for
        (3, 2, 4, (1,), False),  # none copies in a turn
        (0, 1, 0, (None,), False),
    ],
)
def test_as_many_groups_copy_as_are_waited_for(
    first: int, groups: int, ahead: int, waited: tuple[int | None, ...], plain: bool
) -> None:
    turn = "\n".join([STAGE.format(d=ahead)] * groups + [WAIT] * len(waited))
    text = RING.format(first="\n".join([FIRST[4:]] * first), turn=turn)
    units: Any = read_program(text)[1]
    body = units[0].body[0].body
    runs = {((0,), position): 1 for position in range(first)}
    runs |= {((0, first), position): 1 for position in range(groups)}
    waits = {((0, first), groups + position): count for position, count in enumerate(waited)}
    assert only_full_ones(body, Boxes(1, 8, runs, waits)) is plain
