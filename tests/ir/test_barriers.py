"""Whether barriers alone order the copies of a shared tile and what is read of it."""

from __future__ import annotations

import textwrap

import pytest

from dplc.ir.facts.barriers import ordered_by_barriers
from dplc.ir.text.programs import read_program

ORDERED = {
    "once": """
        As = Stage(A, origin=(0), box=(i:32@0))
        Sync()
        a = load As[t]
    """,
    "again, after a second barrier": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0))
            Sync()
            a = load As[t]
            Sync()
    """,
    "two slots need one barrier a turn": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=k % 2)
            Sync()
            a = load As[k % 2, t]
    """,
    "a ring": """
        As = Stage(A, origin=(0), box=(i:32@0), depth=3, via=ASYNC)
        As = Stage(A, origin=(0), box=(i:32@0), depth=3, slot=1, via=ASYNC)
        for k in 0..6 serial:
            Wait(keep=1)
            Sync()
            As = Stage(A, origin=(0), box=(i:32@0), depth=3, slot=(k + 2) % 3, via=ASYNC)
            a = load As[k % 3, t]
    """,
}

UNORDERED = {
    "no barrier": """
        As = Stage(A, origin=(0), box=(i:32@0))
        a = load As[t]
    """,
    "a barrier after it": """
        As = Stage(A, origin=(0), box=(i:32@0))
        a = load As[t]
        Sync()
    """,
    "copied over what was read": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0))
            Sync()
            a = load As[t]
    """,
    "the other slot": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=k % 2)
            Sync()
            a = load As[(k + 1) % 2, t]
    """,
    "three slots without a barrier": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=3, slot=k % 3)
            a = load As[(k + 1) % 3, t]
    """,
    "four slots without a barrier, met after two turns": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=4, slot=k % 4)
            a = load As[(k + 2) % 4, t]
    """,
    "the same slot, two turns on": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=k % 2)
            a = load As[(k + 2) % 2, t]
            Sync()
    """,
    "a slot that threads choose": """
        for k in 0..8 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=k % 2)
            a = load As[(t + 1) % 2, t]
            Sync()
    """,
    "another loop of the same name": """
        As = Stage(A, origin=(0), box=(i:32@0), depth=2)
        As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=1)
        Sync()
        for k in 0..2 serial:
            a = load As[k % 2, t]
        for k in 0..2 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=(k + 1) % 2)
            Sync()
    """,
    "another loop of the same name, after one with barriers": """
        for k in 0..2 serial:
            Sync()
            a = load As[k % 2, t]
        for k in 0..2 serial:
            As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=(k + 1) % 2)
            Sync()
    """,
    "written before a barrier": """
        As = Stage(A, origin=(0), box=(i:32@0))
        As[t] = 0.0
        Sync()
    """,
    "a barrier in a loop without turns": """
        As = Stage(A, origin=(0), box=(i:32@0))
        for k in 4..4 serial:
            Sync()
        a = load As[t]
    """,
    "it lands after the barrier": """
        As = Stage(A, origin=(0), box=(i:32@0), via=ASYNC)
        Sync()
        Wait()
        a = load As[t]
    """,
    "a barrier in a loop that may not run": """
        As = Stage(A, origin=(0), box=(i:32@0))
        for k in 0..b serial:
            Sync()
        a = load As[t]
    """,
    "a barrier behind a guard": """
        As = Stage(A, origin=(0), box=(i:32@0))
        if b < 2:
            Sync()
        a = load As[t]
    """,
    "read inside of a loop, copied after it": """
        As = Stage(A, origin=(0), box=(i:32@0), depth=2)
        Sync()
        for k in 0..2 serial:
            a = load As[k, t]
        As = Stage(A, origin=(0), box=(i:32@0), depth=2, slot=1)
    """,
}


def ordered(statements: str) -> bool:
    body = textwrap.indent(textwrap.dedent(statements), " " * 8)
    text = f"kernel f(A: f32[32]) -> y: f32[4, 32]:\n    Tile(b:4=BLOCK, t:32=THREAD):{body}\n        y[b, t] = 0.0\n"
    return ordered_by_barriers(read_program(text)[1][0], "As")


@pytest.mark.parametrize("name", ORDERED)
def test_ordered(name: str) -> None:
    assert ordered(ORDERED[name])


@pytest.mark.parametrize("name", UNORDERED)
def test_not_ordered(name: str) -> None:
    assert not ordered(UNORDERED[name])
