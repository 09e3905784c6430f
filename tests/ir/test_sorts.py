"""What somebody else wrote as a program is made of names, numbers and nodes; a text in it never reaches a printer."""

from __future__ import annotations

import pytest

from dplc.ir.diagnostic import DplcError
from dplc.ir.expr import Call, Var
from dplc.ir.kernel import Address, Define, Launch, StoreTo
from dplc.ir.program import Kernel, Param
from dplc.ir.text.programs import read_program
from dplc.ir.verify.sorts import sort_problems

EVIL = '0.0f; system("touch canary")'
KERNEL = "kernel k(x: f32[4]) -> y: f32[4]:\n    Launch(grid=({grid}, 1, 1), block=4):\n        a = Define(f32, {value})\n        StoreTo(f32, Address(y), values=(a))\n"


def kernel(value: object, name: str = "a") -> Kernel:
    body = (Define(name, "f32", value), StoreTo("f32", Address("y"), (Var("a"),)))
    return Kernel("k", (Param("x", "f32", (4,)),), (Param("y", "f32", (4,)),), (Launch((1, 1, 1), 4, body),))


def test_a_good_kernel() -> None:
    _, (made,) = read_program(KERNEL.format(grid=1, value="add(1.5, 2.0)"))
    assert sort_problems(made) == ()


@pytest.mark.parametrize("value", [EVIL, (1,), None, 2**70, Call("system", (1,)), Call("add", (1,)), Var(EVIL)])
def test_what_is_no_expression(value: object) -> None:
    assert sort_problems(kernel(value))


def test_a_name_that_is_none() -> None:
    assert sort_problems(kernel(1.0, "a = 0; } int b"))


def test_too_deep() -> None:
    value: object = Var("a")
    for _ in range(300):
        value = Call("exp", (value,))
    assert "levels" in sort_problems(kernel(value))[0]


def test_texts_of_a_file() -> None:
    try:
        _, (made,) = read_program(KERNEL.format(grid=1, value='"system"'))
    except DplcError:
        return
    assert sort_problems(made)


@pytest.mark.parametrize("number", ["4.0", "4.5", "-1e3", "thread"])
def test_a_whole_number(number: str) -> None:
    text = KERNEL.format(grid=1, value="1.0").replace("block=4", f"block={number}")
    with pytest.raises(DplcError, match="`block` is a whole number"):
        read_program(text)
