"""Counts of the model beside those that a person makes: costs of functions, bytes, wavefronts, operations of a value, turns of rings."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import InstructionCounts, instruction_counts
from dplc.engine.cost.kernel_estimate import EstimatedValue, KernelEstimate, Pricing
from dplc.engine.cost.limits import COSTS, Replications, Work, parts
from dplc.engine.cost.memory_model import wavefronts
from dplc.ir.expr import Axis, Call, Var
from dplc.ir.facts import layout
from dplc.ir.tensor import Const, Elementwise, Input
from dplc.ir.text.programs import read_program

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))

from short_extents import turns


def test_a_function_takes_what_the_functions_take_that_it_is_made_of() -> None:
    """exp scales its argument for the unit that has powers of two; a sigmoid is the reciprocal of a sum with one."""
    instructions, special = COSTS["exp2"]
    assert COSTS["exp"] == (instructions + 1, special) and special == 1
    assert COSTS["sigmoid"] == tuple(a + b for a, b in zip(COSTS["exp"], COSTS["reciprocal"], strict=True))
    assert COSTS["reciprocal"] == COSTS["rsqrt"] and COSTS["log"][0] >= COSTS["log2"][0]
    assert all(0 <= special <= instructions for instructions, special in COSTS.values())


def test_a_sign_costs_nothing_and_a_root_is_the_special_unit() -> None:
    """What reads a value copies or negates it by the way; every other function is an instruction at least."""
    costs = {"negative": Work(), "copy": Work(), "abs": Work(1), "rsqrt": Work(2, special=1)}
    assert {name: Replications().work([Call(name, (Var("x"),))])[0] for name in costs} == costs


def counted(shape: str, lines: str) -> InstructionCounts:
    """The counts of one block of so many threads."""
    text = "## level: kernel\nkernel f(x: f32[256]) -> y: {}:\n    Launch(grid=(1, 1, 1), block={}, shared=0):\n{}"
    kernel: Any = read_program(text.format(*shape.split("/"), lines))[1][0]
    return instruction_counts(kernel)


@pytest.mark.parametrize(
    ("shape", "values", "sectors"),
    [("f32[32]/32", 1, 4), ("f32[128]/32", 4, 16), ("f16[32]/32", 1, 2), ("f16[64]/32", 2, 4)],
)
def test_a_store_moves_all_of_its_values(shape: str, values: int, sectors: int) -> None:
    """32 lanes beside each other: as many sectors of 32 bytes as their values fill."""
    names = [f"v{n}" for n in range(values)]
    lines = "".join(f"        {name} = Registers({shape[:3]})\n" for name in names)
    store = f"StoreTo({shape[:3]}, Address(y, offset=thread*{values}), values=({', '.join(names)}))\n"
    counts = counted(shape, f"{lines}        {store}")
    assert (counts.sectors, counts.ideal_sectors) == (sectors, sectors)


LOADS = """\
        a = Registers(f32)
        b = Registers(f32)
        {}
        StoreTo(f32, Address(y, offset=thread), values=(a))
"""
OWN = "LoadFrom(a, f32, Address(x, offset=thread))"


@pytest.mark.parametrize(
    ("loads", "asked", "hits"),
    [
        (OWN, 8, 0),
        (f"{OWN}\n        {OWN.replace('(a', '(b')}", 16, 8),  # again
        (
            f"{OWN}\n        LoadFrom(b, f32, Address(x, offset=(thread + 32) % 64))",
            16,
            8,
        ),  # what another warp asked for
        (f"{OWN}\n        LoadFrom(b, f32, Address(x, offset=thread + 32))", 16, 4),  # half of it
        ("LoadFrom(a, f32, Address(x))", 2, 1),  # two warps, one element
        (f"Loop(n, 0, 3):\n            {OWN}", 24, 0),  # other turns may come much later
        (f"Loop(n, 0, 3):\n            {OWN}\n            {OWN}", 48, 24),
    ],
)
def test_what_was_asked_for_before_is_in_the_first_cache(loads: str, asked: int, hits: int) -> None:
    counts, stored = counted("f32[64]/64", LOADS.format(loads)), 8
    assert (counts.sectors, counts.hits, counts.fill) == (asked + stored, hits, (asked + stored - hits) * 32)
    assert counts.lines == counts.wavefronts + hits / 4


# ---- of one access to shared memory the model counts what the choice of layouts counts

LANES = np.arange(32)
PATTERNS = [LANES, LANES * 0, LANES // 8, LANES % 8, LANES // 2, LANES & 1 | LANES >> 1 & 2, LANES * 8, LANES * 9]
SHARED = st.builds(lambda pattern, flipped: list(pattern ^ flipped), st.sampled_from(PATTERNS), st.integers(0, 31))


@given(SHARED | st.lists(st.integers(0, 40), min_size=32, max_size=32), st.sampled_from((1, 2, 4)))
@example([5] * 31 + [40], 4)
def test_wavefronts_of_any_lanes(places: list[int], width: int) -> None:
    words = np.array(places) * width
    assert wavefronts(words[None], width, np.ones((1, 32), bool))[0] == layout.wavefronts(words, width)


def test_idle_lanes_keep_no_pair_apart() -> None:
    busy = LANES % 2 == 0
    words = np.where(busy, LANES // 2, 100 + LANES) * 4
    idle, all_busy = (wavefronts(words[None], 4, lanes[None])[0] for lanes in (busy, busy | True))
    assert idle == 2 < all_busy


# ---- values of Tensor IR


def test_the_parts_of_a_value_end_at_what_is_stored() -> None:
    x, y = (Input(name, (Axis("i", 4),)) for name in "xy")
    kept, free = Elementwise("exp", (x,)), Elementwise("sqrt", (y,))
    total = Elementwise("add", (kept, free))
    root = Elementwise("multiply", (total, Const(2.0)))
    for stored, made, read in (({kept, root}, {root, total, free}, {kept, y}), ((), {root, total, kept, free}, {x, y})):
        assert tuple(map(set, parts(root, stored))) == (made, read)


@pytest.mark.parametrize("half", [False, True])
def test_tensor_cores_take_contractions_alone(half: bool) -> None:
    """The bit 1 is an axis of 16 rows, 2 one of 32 columns, 4 one of 64 that is summed; products of halves, then `exp`."""
    item = 2 if half else 4
    loads = [EstimatedValue(axes, buffer=n, item=item, whole=1024.0 * item) for n, axes in enumerate((5, 6))]
    product, total = EstimatedValue(7, (0, 1), fn="multiply", half=half), EstimatedValue(3, (2,), 4, "add", half=half)
    root = EstimatedValue(3, (3,), fn="exp", item=item, half=half)
    estimate = KernelEstimate((*loads, product, total, root), (4,), {1: 16, 2: 32, 4: 64}, {})
    done = Pricing(estimate, target("h100")).loads(resident=True).values()
    tensor, products, special = (sum(column) for column in zip(*((w.tensor, w.products, w.special) for w in done)))
    whole = 16 * 32 * 64
    assert (tensor, products, special) == ((2 * whole, 0) if half else (0, whole)) + (16 * 32 * COSTS["exp"][1],)


# ---- how often rings turn: what is counted of copies before a loop and in it

RING = """
kernel f(A: f32[64, 64]) -> y: f32[4, 16]:
    Tile(b:4=BLOCK, t:16=THREAD):
{before}        for k in {bounds} serial:
            As = Stage(A, origin=(0, k), box=(i:16@0, k:4@1), depth={depth}, slot=k % {depth})
            Sync()
            a = load As[k % {depth}, t, 0]
            acc <- add(acc, a)
        y[b, t] = acc
"""
BEFORE = "        As = Stage(A, origin=(0, 0), box=(i:16@0, k:4@1), depth=2, slot=0)\n"


@pytest.mark.parametrize(
    ("rings", "turned"),
    [
        ([("0..12", 2, "")], 6),
        ([("0..12", 4, "")], 3),
        ([("2..12", 2, "")], 5),
        ([("0..12", 2, ""), ("0..12", 4, "")], 3),  # the ring that turns least
        ([("0..11", 2, BEFORE)], 6),  # a copy before the loop is of the ring
        # what is no ring, or has no number, is not counted
        ([("0..12", 1, "")], math.inf),
        ([("0..b + 1", 2, "")], math.inf),
        ([("b..12", 2, "")], math.inf),
    ],
)
def test_rings_turn_over_their_slots(rings: list[tuple[str, int, str]], turned: float) -> None:
    texts = []
    for bounds, depth, before in rings:
        text = RING.format(bounds=bounds, depth=depth, before=before)
        texts.append(text.replace(", depth=1, slot=k % 1", "").replace("k % 1, ", ""))
    assert turns(tuple(read_program(text)[1][0] for text in texts)) == turned
