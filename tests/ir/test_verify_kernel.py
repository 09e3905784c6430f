"""The verifier of Kernel IR: each invariant broken once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from altered_texts import altered

from dplc.codegen.emulator.executor import run_kernels
from dplc.ir.diagnostic import DplcError
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program
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


FRAGMENTS = """
kernel f(x: f16[256]) -> y: f32[32]:
    Launch(grid=(1, 1, 1), block=32, shared=512):
        StoreTo(f16, Address(smem, offset=thread*2), values=(0.0))
        Barrier()
        a = Fragment(f16, 4)
        LoadMatrix(a[0], Address(smem, offset=thread*16), count=4, trans=1)
        PackWord(a[3], values=(1.0, 2.0))
        w = Registers(f32)
        StoreTo(f32, Address(y, offset=thread), values=(w))
"""


def wrong(old: str, new: str, text: str = KERNEL) -> tuple[str, ...]:
    unit: Any = read_program(altered(text, old, new, 1))[1][0]
    return sort_problems(unit) or problems(unit)


def test_a_good_one() -> None:
    assert wrong("Launch", "Launch") == wrong("values=(a)", "values=(-inf)") == ()


def test_a_register_may_be_loaded_twice() -> None:
    (kernel,) = read_program(KERNEL)[1]
    x = np.arange(64, dtype=np.float32)
    assert isinstance(kernel, Kernel)
    assert (run_kernels([kernel], {"x": x})["y"] == x.reshape(2, 32)[:, ::-1].reshape(64)).all()


@pytest.mark.parametrize("old, new, what", [
    ("grid=(2, 1, 1)", "grid=(2, -0.0, 1)", "a grid has three extents"),
    ("grid=(2, 1, 1)", "grid=(2, 0, 1)", "a grid has three extents"),
    ("grid=(2, 1, 1)", "grid=(2, 1)", "a grid has three extents"),
    ("grid=(2, 1, 1)", "grid=(2, thread, 1)", "a grid has three extents"),
    ("block=32", "block=0", "1 to 1024 threads"),
    ("block=32", "block=2048", "1 to 1024 threads"),
    ("shared=128", "shared=-4", "1 to 1024 threads"),
    ("a = Registers(f32)", "for k in 0..4 reduce:\n            b = load x[k]", "For is not a statement of this level"),
    ("Address(smem, offset=thread*4)", "add(smem, 1)", "`address` of StoreTo"),
    ("(a, f32", "(b, f32", "undefined b"),
    ("values=(a)", "values=(b)", "undefined b"),
    ("Address(x", "Address(z", "undefined z"),
    ("StoreTo(f32, Address(y", "StoreTo(f32, Address(x", "`x` is an input"),
    ("f32, Address(x, ", "i64, Address(x, ", "`x` points to f32"),
    ("offset=thread*4", "offset=thread*2", "the address is a multiple of 2 bytes only"),
    ("a = Registers(f32)", "a = Define(i32, -inf)", "-inf is not a value of i32"),
    ("a = Registers(f32)", "a = Registers(i64)\n        Assign(a, nan)", "nan is not a value of i64"),
    ("StoreTo(f32, Address(smem, offset=thread*4), values=(a)", "StoreTo(i32, Address(smem, offset=0), values=(inf)", "inf is not a value of i32"),
    ("Barrier()", "Loop(k, 0, 4, step=0):\n            Barrier()", "a loop counts up"),
    ("Barrier()", "Branch(thread < 3):\n            Barrier()", "not every thread"),
])  # fmt: skip
def test_problems(old: str, new: str, what: str) -> None:
    assert any(what in problem for problem in wrong(old, new)), wrong(old, new)


@pytest.mark.parametrize(("old", "new", "what"), [
    ("PackWord", "PackWord", ""),
    ("LoadMatrix(a[0]", "LoadMatrix(a", "this is no place of a fragment"),
    ("LoadMatrix(a[0]", "LoadMatrix(a[0, 0]", "this is no place of a fragment"),
    ("PackWord(a[3]", "PackWord(w[0]", "undefined w"),
    ("LoadMatrix(a[0]", "LoadMatrix(a[1]", "`a` has 4 words"),
    ("PackWord(a[3]", "PackWord(a[4]", "`a` has 4 words"),
    ("count=4", "count=3", "1, 2 or 4 matrices"),
    ("Fragment(f16", "Fragment(f32", "only elements of 2 bytes are transposed"),
    ("(1.0, 2.0)", "(1.0)", "a word does not hold 1 values of f16"),
])  # fmt: skip
def test_problems_of_fragments(old: str, new: str, what: str) -> None:
    said = wrong(old, new, FRAGMENTS)
    assert any(what in problem for problem in said) if what else said == (), said


@pytest.mark.parametrize(
    "call", ["PackWord(a[3], 1.0, 2.0)", "PackWord(a[3], values=(1.0, 2.0))", "PackWord(into=a[3], values=(1.0, 2.0))"]
)
def test_a_list_by_its_place_or_by_its_name(call: str) -> None:
    assert wrong("PackWord(a[3], values=(1.0, 2.0))", call, FRAGMENTS) == ()


@pytest.mark.parametrize("call", [
    "PackWord(a[3], 1.0, values=(1.0, 2.0))", "PackWord(a[3], values=(1.0, 2.0), values=(1.0, 2.0))",
    "PackWord(into=a[3], a[2], values=(1.0, 2.0))",
])  # fmt: skip
def test_a_field_that_is_given_twice(call: str) -> None:
    with pytest.raises(DplcError, match=r"`PackWord` has `(values|into)` twice"):
        wrong("PackWord(a[3], values=(1.0, 2.0))", call, FRAGMENTS)


BOXES = """
kernel f(x: f32[{shape}]) -> y: f32[32]:
    Launch(grid=(1, 1, 1), block=32):
        map = TensorMap(x, box=({box}))
        a = Registers(f32)
        StoreTo(f32, Address(y, offset=thread), values=(a))
"""


@pytest.mark.parametrize(("shape", "box", "good"), [
    ("64", "32", True), ("2, 2, 2, 2, 8", "1, 1, 1, 1, 8", True), ("8, 64", "32", False), ("64", "1, 32", False),
    ("2, 2, 2, 2, 2, 8", "1, 1, 1, 1, 1, 8", False),
])  # fmt: skip
def test_a_box_has_the_dimensions_of_its_input_at_most_five(shape: str, box: str, good: bool) -> None:
    unit: Any = read_program(BOXES.format(shape=shape, box=box))[1][0]
    said = [problem for problem in problems(unit) if "not an input of as many dimensions" in problem]
    assert bool(said) is not good
