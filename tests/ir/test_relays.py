"""Groups of threads that go one behind the other: laws, meaning, and the order that lowering gives them."""

from __future__ import annotations

import numpy as np
import pytest
from altered_texts import altered
from products_in_rings import only_kernel

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program
from dplc.ir.verify.kernel import problems as kernel_problems
from dplc.ir.verify.tile import problems

TEXT = """## level: tile
kernel f(A: f32[5, 3, 32]) -> C: f32[5, 3, 32]:
    Tile(i:3=THREAD, t:32=THREAD):
        for k in 0..5 serial:
            Enter(k, over=(i))
            a = load A[k, i, t]
            Leave(k, over=(i))
            C[k, i, t] = a
"""
ENTER, LEAVE = "            Enter(k, over=(i))\n", "            Leave(k, over=(i))\n"
A = np.random.default_rng(7).integers(-9, 9, (5, 3, 32)).astype(np.float64)


def kernels(text: str) -> tuple[Kernel, Kernel]:
    """In Tile IR and in Kernel IR."""
    made = only_kernel(text)
    assert problems(made) == ()
    lowered = materialise(made, target("h200"))
    assert kernel_problems(lowered) == ()
    return made, lowered


def test_turns_change_no_value() -> None:
    tile, lowered = kernels(TEXT)
    for seed in range(5):
        np.testing.assert_array_equal(tile_meaning.run((tile,), {"A": A}, seed)["C"], A)
        np.testing.assert_array_equal(run_kernels((lowered,), {"A": A}, seed)["C"], A)


def test_groups_of_two_axes_and_turns_of_a_condition() -> None:
    text = TEXT.replace("i:3=THREAD", "i:3=THREAD, j:2=THREAD").replace("[5, 3, 32]", "[5, 3, 2, 32]")
    text = (
        text.replace("[k, i, t]", "[k, i, j, t]")
        .replace("over=(i)", "over=(i, j), when=k >= 2")
        .replace("(k, ", "(k - 2, ")
    )
    a = np.arange(5 * 6 * 32.0).reshape(5, 3, 2, 32)
    tile, lowered = kernels(text)
    assert "arrivals" not in print_program(lowered)  # a warp each
    np.testing.assert_array_equal(tile_meaning.run((tile,), {"A": a}, 1)["C"], a)
    np.testing.assert_array_equal(run_kernels((lowered,), {"A": a}, 1)["C"], a)


LAWS = {
    "an axis of registers": ("Tile(i:3=THREAD, t", "Tile(i:3=REG, t", "told apart by THREAD axes"),
    "another order of axes": ("over=(i)", "over=(t, i)", "told apart by THREAD axes"),
    "no axis": ("over=(i)", "over=()", "told apart by THREAD axes"),
    "parts of a warp": ("i:3=THREAD, t:32=THREAD", "i:3=THREAD, t:32=THREAD, x:1=THREAD, y:8=THREAD", ""),
    "lanes": ("over=(i)", "over=(t)", "whole warps"),
    "a turn of a thread": ("Enter(k", "Enter(k + t", "the turn varies by thread"),
    "a condition of a thread": ("Leave(k, over=(i)", "Leave(k, over=(i), when=t < 3", "the turn varies by thread"),
    "no Leave": (LEAVE, "", "there is no Leave"),
    "no Enter": (ENTER, "", "there is no Enter"),
    "under a guard": (ENTER, "            if t < 3:\n    " + ENTER, "divergent"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_laws(name: str) -> None:
    old, new, message = LAWS[name]
    found = problems(only_kernel(TEXT.replace(old, new)))
    assert any(message in problem for problem in found) if message else found == ()


def test_a_team_takes_no_turns() -> None:
    team = "        Team(threads=32):\n            Enter(0, over=(i))\n"
    found = problems(only_kernel(altered(TEXT, "        for k", team + "        for k")))
    assert any("the threads of a Team are no group" in problem for problem in found)


ENDLESS = {
    "a turn is left out": ("Enter(k,", "Enter(k*2,", "turn 2 is entered where 1 turns have been entered and 1 left"),
    "a turn comes twice": (ENTER, ENTER + ENTER, "turn 0 is entered where 1 turns have been entered and 0 left"),
    "a turn is left that nobody entered": (LEAVE, LEAVE + LEAVE, "turn 0 is left where 1 turns have been entered and 1 left"),
    "a turn that never ends": ("Leave(k, over=(i))", "Leave(k, over=(i), when=k < 4)", "ends within a turn of `i`"),
    "a barrier within a turn": (LEAVE, "            Sync()\n" + LEAVE, "a barrier of all threads within a turn"),
    "a sum of all within a turn": (LEAVE, "            u <- add(u, a)\n            Combine(u, add, over=(t))\n" + LEAVE, "a barrier of all threads within a turn"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_what_would_wait_for_ever(name: str) -> None:
    old, new, message = ENDLESS[name]
    wrong = only_kernel(altered(TEXT, old, new))
    for seed in range(3):
        with pytest.raises(ScheduleError) as found:
            tile_meaning.run((wrong,), {"A": A}, seed)
        assert message in found.value.what
