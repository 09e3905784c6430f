"""Index expressions as CUDA text: parentheses stand wherever an operator binds tighter than what is within."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from dplc.codegen.cuda import Printer, print_cuda
from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.codegen.kernel import Buffer, Program
from dplc.ir.expr import Expr, Var, add, floordiv, modulo, multiply, subtract
from dplc.ir.interp.scalar import evaluate
from dplc.ir.text.programs import read_program

NAMES = ("b", "s", "t")
LEAVES = st.sampled_from([Var(name) for name in NAMES])
NUMBERS = st.sampled_from([1, 2, 3, 5, 8, 32])
POWERS = st.sampled_from([2, 8, 32])


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Sums, products, quotients, remainders; quotients rounded up, by powers of two: Kernel IR calls a function where a
    dividend may be negative (`materialise/expressions.py`), but for shifts and masks."""
    pair = st.tuples(inner, st.one_of(inner, NUMBERS))
    return st.one_of(
        pair.map(lambda p: add(*p)),
        pair.map(lambda p: multiply(*p)),
        pair.map(lambda p: floordiv(*p)),
        pair.map(lambda p: modulo(*p)),
        st.tuples(inner, POWERS).map(lambda p: subtract(0, floordiv(subtract(0, p[0]), p[1]))),
        st.tuples(inner, POWERS, inner).map(
            lambda p: subtract(0, multiply(floordiv(subtract(0, p[0]), p[1]), p[2])),
        ),
    )


def printed(e: Expr) -> str:
    nothing: Any = SimpleNamespace(ins=(), outs=(), body=())
    return Printer(nothing, {name: name for name in NAMES}).text(e)


def meant(text: str, values: dict[str, int]) -> int:
    """These operators bind in Python as they do in C++; only the quotient is spelled otherwise."""
    found: int = eval(text.replace("/", "//"), {"__builtins__": {}}, values)
    return found


@given(st.recursive(LEAVES, grown, max_leaves=6), st.tuples(*[st.integers(1, 99)] * 3))
def test_the_text_means_the_expression(e: Expr, numbers: tuple[int, ...]) -> None:
    values = dict(zip(NAMES, numbers, strict=True))
    try:
        found = meant(printed(e), values)
    except ZeroDivisionError:
        return
    assert found == evaluate(e, values), printed(e)


def test_a_negated_product_is_no_operand_of_a_quotient() -> None:
    """The blocks of a grid of four axes, one of them rounded up: a second axis of even length was read at odd places."""
    blocks = subtract(0, multiply(floordiv(subtract(0, Var("t")), 32), Var("s")))
    assert printed(floordiv(Var("b"), blocks)) == "b / (-(-t >> 5) * s)"
    assert printed(floordiv(Var("b"), subtract(0, floordiv(subtract(0, Var("t")), 32)))) == "b / -(-t >> 5)"


@pytest.mark.parametrize("dtype", ["i32", "i64", "f16", "bf16"])
def test_what_is_stored_as_four_floats_is_converted_first(dtype: str) -> None:
    """Registers that lie side by side are stored by one instruction, if they hold what is stored."""
    values = ", ".join(f"f32(a[{n}])" for n in range(4))
    loads = "\n".join(f"        LoadFrom(a[{n}], {dtype}, Address(x, offset=thread*4 + {n}))" for n in range(4))
    text = f"""## level: kernel
kernel f(x: {dtype}[128]) -> y: f32[128]:
    Launch(grid=(1, 1, 1), block=32):
        a = Registers({dtype}, shape=(4))
{loads}
        StoreTo(f32, Address(y, offset=thread*4), values=({values}))
"""
    kernel: Any = read_program(text)[1][0]
    held = {"i32": torch.int32, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    x = torch.arange(128).to(held) - 60
    program = Program((print_cuda(kernel),), (Buffer("x", dtype, (128,)),), (Buffer("y", "f32", (128,)),))
    assert torch.equal(EmulatorExecutor().run(program, {"x": x})["y"], x.float())


@pytest.mark.parametrize(("dtype", "fn", "said"), [
    ("f32", "add(acc, 2.0)", "acc += 2.0f;"), ("f32", "subtract(acc, 2.0)", "acc -= 2.0f;"), ("f32", "multiply(acc, 2.0)", "acc *= 2.0f;"),
    ("f64", "add(acc, 2.0)", "acc += 2.0;"), ("f32", "add(2.0, acc)", "acc = 2.0f + acc;"), ("f32", "negative(acc)", "acc = -acc;"),
    ("i32", "add(acc, 2)", "acc = wrap_add(acc, 2);"),
])  # fmt: skip
def test_a_float_is_added_to_in_place(dtype: str, fn: str, said: str) -> None:
    """As people write it; integers wrap around by name."""
    text = f"""## level: kernel
kernel f(x: {dtype}[32]) -> y: {dtype}[32]:
    Launch(grid=(1, 1, 1), block=32):
        acc = Registers({dtype})
        LoadFrom(acc, {dtype}, Address(x, offset=thread))
        Assign(acc, {fn})
        StoreTo({dtype}, Address(y, offset=thread), values=(acc))
"""
    kernel: Any = read_program(text)[1][0]
    assert said in print_cuda(kernel).text
