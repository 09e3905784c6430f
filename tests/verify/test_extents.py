"""How large buffers must be for a drawn program: what its loops, axes and guards reach, and nothing beyond."""

from __future__ import annotations

import pytest

from dplc.engine.verify.whole_programs import TooLarge, baseline, needs, work
from dplc.ir.text.programs import read_program

BODIES = {
    "a loop that starts later": ("for i in 2..7:\n    a = load x[i]\n    y[i] = a", {"x": [7], "y": [7]}),
    "a step that does not divide": ("for i in 1..8 by 3:\n    a = load x[i]\n    y[i] = a", {"x": [8], "y": [8]}),
    "a loop of no turns": ("for i in 4..4:\n    a = load x[i]\n    y[i] = a", {"x": [1], "y": [1]}),
    "a loop that ends where another is": (
        "for i in 0..4:\n    for j in 0..i + 1:\n        a = load x[j]\n        y[i] = a", {"x": [4], "y": [4]},
    ),
    "a guard": ("for i in 0..9:\n    if i < 5:\n        a = load x[i]\n        y[i] = a", {"x": [5], "y": [5]}),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_what_is_reached(name: str) -> None:
    body, reached = BODIES[name]
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (kernel,) = read_program(f"## level: loop\nkernel k(x: f32[99]) -> y: f32[99]:\n{lines}\n")[1]
    assert needs(kernel.body).hard == reached  # type: ignore[union-attr]


@pytest.mark.parametrize(("start", "turns"), [(0, 8), (5, 3), (8, 1)])
def test_work_counts_turns_from_where_a_loop_starts(start: int, turns: int) -> None:
    text = f"## level: tile\nkernel f(x: f32[8]) -> y: f32[4]:\n    Tile(t:4=THREAD):\n        for k in {start}..8 serial:\n"
    body = "            a = load x[k]\n            s <- add(s, a)\n        y[t] = s\n"
    assert work(read_program(text + body)[1]) == 4 * (2 * turns + 1)  # two statements a turn, and the store behind


def test_an_index_over_many_names_is_refused_before_it_is_counted() -> None:
    axes = ", ".join(f"a{n}:99=REG" for n in range(9))
    whole = " + ".join(f"a{n}" for n in range(9))
    text = f"## level: tile\nkernel f(x: f32[900]) -> y: f32[1]:\n    Tile({axes}):\n        b = load x[{whole}]\n        y[0] = b\n"
    with pytest.raises(TooLarge):
        needs(read_program(text)[1][0].body)


def test_program_with_huge_inputs_has_no_meaning_here() -> None:
    text = "for i in 0..4:\n        a = load x[i, i]\n        y[i] = a"
    program = read_program(f"## level: loop\nkernel k(x: f32[65536, 65536]) -> y: f32[4]:\n    {text}\n")[1]
    assert baseline(program, 0) is None  # type: ignore[arg-type]
