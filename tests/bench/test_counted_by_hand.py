"""Counts of the model beside those that a person makes: costs of functions, bytes of stores, operations of a value."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.kernel_estimate import EstimatedValue, KernelEstimate, Pricing
from dplc.engine.cost.limits import COSTS, parts
from dplc.ir.expr import Axis
from dplc.ir.tensor import Const, Elementwise, Input
from dplc.ir.text.programs import read_program

STORES = """## level: kernel
kernel f(x: {t}[{n}]) -> y: {t}[{n}]:
    Launch(grid=(1, 1, 1), block=32, shared=0):
{values}
        StoreTo({t}, Address(y, offset=thread*{each}), values=({names}))
"""


def test_a_function_takes_what_the_functions_take_that_it_is_made_of() -> None:
    """exp scales its argument for the unit that has powers of two; a sigmoid is the reciprocal of a sum with one."""
    instructions, special = COSTS["exp2"]
    assert COSTS["exp"] == (instructions + 1, special) and special == 1
    assert COSTS["sigmoid"] == tuple(a + b for a, b in zip(COSTS["exp"], COSTS["reciprocal"], strict=True))
    assert COSTS["reciprocal"] == COSTS["rsqrt"] and COSTS["log"][0] >= COSTS["log2"][0]
    assert all(0 <= special <= instructions for instructions, special in COSTS.values())


@pytest.mark.parametrize(("dtype", "item"), [("f32", 4), ("f16", 2)])
@pytest.mark.parametrize("each", [1, 2, 4])
def test_a_store_moves_all_of_its_values(dtype: str, item: int, each: int) -> None:
    """32 lanes beside each other: as many sectors of 32 bytes as their values fill."""
    names = [f"v{n}" for n in range(each)]
    values = "\n".join(f"        {name} = Registers({dtype})" for name in names)
    text = STORES.format(t=dtype, n=32 * each, values=values, names=", ".join(names), each=each)
    kernel: Any = read_program(text)[1][0]
    counts, sectors = instruction_counts(kernel), max(32 * each * item / 32, 1)
    assert (counts.sectors, counts.ideal_sectors) == (sectors, sectors)


def test_the_parts_of_a_value_end_at_what_is_stored() -> None:
    i = Axis("i", 4)
    x, y = Input("x", (i,)), Input("y", (i,))
    kept, free = Elementwise("exp", (x,)), Elementwise("sqrt", (y,))
    total = Elementwise("add", (kept, free))
    root = Elementwise("multiply", (total, Const(2.0)))
    made, read = parts(root, {kept, root})
    assert (set(made), set(read)) == ({root, total, free}, {kept, y})
    made, read = parts(root, ())
    assert (set(made), set(read)) == ({root, total, kept, free}, {x, y})


LOADS = """## level: kernel
kernel f(x: f32[256]) -> y: f32[64]:
    Launch(grid=(1, 1, 1), block=64, shared=0):
        a = Registers(f32)
        b = Registers(f32)
{loads}
        StoreTo(f32, Address(y, offset=thread), values=(a))
"""
OWN = "LoadFrom(a, f32, Address(x, offset=thread))"


@pytest.mark.parametrize(
    ("loads", "asked", "hits"),
    [
        ((OWN,), 8, 0),
        ((OWN, OWN.replace("(a", "(b")), 16, 8),  # again
        ((OWN, "LoadFrom(b, f32, Address(x, offset=(thread + 32) % 64))"), 16, 8),  # what another warp asked for
        ((OWN, "LoadFrom(b, f32, Address(x, offset=thread + 32))"), 16, 4),  # half of it
        (("LoadFrom(a, f32, Address(x))",), 2, 1),  # two warps, one element
        (("Loop(n, 0, 3):", f"    {OWN}"), 24, 0),  # other turns may come much later
        (("Loop(n, 0, 3):", f"    {OWN}", f"    {OWN}"), 48, 24),
    ],
)
def test_what_was_asked_for_before_is_in_the_first_cache(loads: tuple[str, ...], asked: int, hits: int) -> None:
    kernel: Any = read_program(LOADS.format(loads="\n".join(f"        {line}" for line in loads)))[1][0]
    counts = instruction_counts(kernel)
    stored = 8
    assert (counts.sectors, counts.hits, counts.fill) == (asked + stored, hits, (asked + stored - hits) * 32)
    assert counts.lines == counts.wavefronts + hits / 4


@pytest.mark.parametrize("half", [False, True])
def test_tensor_cores_take_contractions_alone(half: bool) -> None:
    """The bit 1 is an axis of 16 rows, 2 one of 32 columns, 4 one of 64 that is summed; products of halves, then `exp`."""
    item = 2 if half else 4
    loads = tuple(EstimatedValue(axes, buffer=n, item=item, whole=1024.0 * item) for n, axes in enumerate((5, 6)))
    product, total = EstimatedValue(7, (0, 1), fn="multiply", half=half), EstimatedValue(3, (2,), 4, "add", half=half)
    root = EstimatedValue(3, (3,), fn="exp", item=item, half=half)
    estimate = KernelEstimate((*loads, product, total, root), (4,), {1: 16, 2: 32, 4: 64}, {})
    done = list(Pricing(estimate, target("h100")).loads(resident=True).values())
    assert sum(work.tensor for work in done) == (2 * 16 * 32 * 64 if half else 0)
    assert sum(work.products for work in done) == (0 if half else 16 * 32 * 64)
    assert sum(work.special for work in done) == 16 * 32 * COSTS["exp"][1]
