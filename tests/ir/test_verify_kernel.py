"""The verifier of Kernel IR: each invariant broken once."""

from __future__ import annotations

from typing import Any

import pytest
from altered_texts import altered

from dplc.ir.text.read import read_program
from dplc.ir.verify.kernel import problems
from dplc.ir.verify.sorts import sort_problems

KERNEL = """
kernel f(x: f32[64]) -> y: f32[64]:
    Launch(grid=(2, 1, 1), block=32, shared=128):
        a = Registers(f32)
        LoadFrom(a, f32, Address(x, offset=block_x*32 + thread))
        StoreTo(f32, Address(smem, offset=thread*4), values=(a))
        Barrier()
        LoadFrom(a, f32, Address(smem, offset=124 - thread*4))
        StoreTo(f32, Address(y, offset=block_x*32 + thread), values=(a))
"""


def wrong(old: str, new: str) -> tuple[str, ...]:
    unit: Any = read_program(altered(KERNEL, old, new, 1))[1][0]
    return sort_problems(unit) or problems(unit)


def test_a_good_one() -> None:
    assert wrong("Launch", "Launch") == ()


@pytest.mark.parametrize("old, new, what", [
    ("grid=(2, 1, 1)", "grid=(2, -0.0, 1)", "a grid has three extents"),
    ("grid=(2, 1, 1)", "grid=(2, 0, 1)", "a grid has three extents"),
    ("grid=(2, 1, 1)", "grid=(2, 1)", "a grid has three extents"),
    ("grid=(2, 1, 1)", "grid=(2, thread, 1)", "a grid has three extents"),
    ("block=32", "block=0", "1 to 1024 threads"),
    ("block=32", "block=2048", "1 to 1024 threads"),
    ("shared=128", "shared=-4", "1 to 1024 threads"),
    ("a = Registers(f32)", "for k in 0..4 reduce:\n            b = load x[k]", "For is no statement of this level"),
    ("Address(smem, offset=thread*4)", "add(smem, 1)", "`address` of StoreTo"),
    ("(a, f32", "(b, f32", "undefined b"),
    ("values=(a)", "values=(b)", "undefined b"),
    ("Address(x", "Address(z", "undefined z"),
    ("StoreTo(f32, Address(y", "StoreTo(f32, Address(x", "`x` is an input"),
    ("f32, Address(x, ", "i64, Address(x, ", "`x` points to f32"),
    ("offset=thread*4", "offset=thread*2", "the address is a multiple of 2 bytes only"),
    ("Barrier()", "Branch(thread < 3):\n            Barrier()", "not every thread"),
])  # fmt: skip
def test_problems(old: str, new: str, what: str) -> None:
    assert any(what in problem for problem in wrong(old, new)), wrong(old, new)
