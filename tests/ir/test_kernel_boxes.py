"""Copies by TMA in the meaning of Kernel IR: it agrees with Tile IR's, and what is broken is noticed there already."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "codegen" / "materialise"))

from test_materialise_boxes import CHANGES, COPY, SPLIT, UNCOUNTED, ring, uniform
from test_materialise_mutants import mutants

from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.diagnostic import DplcError
from dplc.ir.interp import kernel, tile
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.text.programs import read_program

SEEDS = (0, 1, 2)


def lowered(text: str) -> tuple[Any, Any]:
    units: Any = read_program(text)[1]
    return units, tuple(materialise(unit, target("sm_90a")) for unit in units)


def agrees(text: str, **arrays: Any) -> None:
    units, made = lowered(text)
    want = tile.run(units, arrays)["y"]
    for seed in SEEDS:
        np.testing.assert_allclose(kernel.run(made, arrays, seed)["y"], want, rtol=1e-9)


@pytest.mark.parametrize("swizzle", ["", ", swizzle=128"])
@pytest.mark.parametrize("origin", ["0, 0", "-5, -3", "20, 17", "40, 0", "-40, 3"])
def test_what_lies_outside_is_zero(origin: str, swizzle: str) -> None:
    agrees(COPY.format(m=40, n=44, origin=origin, fields=swizzle), x=uniform(40, 44))


@pytest.mark.parametrize(("rows", "width", "swizzle"), [(16, 32, 128), (16, 16, 64), (8, 8, 32), (16, 32, 0)])
def test_rows_in_spans(rows: int, width: int, swizzle: int) -> None:
    field = f", swizzle={swizzle}" if swizzle else ""
    agrees(SPLIT.format(rows=rows, o=64 // width, w=width, swizzle=field), x=uniform(rows, 64))


@pytest.mark.parametrize("when", ["", ", when=n < 6"])
def test_waits_that_depend_on_the_turn(when: str) -> None:
    agrees(UNCOUNTED.format(when=when), x=uniform(6, 32))


@pytest.mark.parametrize("dtype", ["f16", "i64", "b8"])
def test_other_elements(dtype: str) -> None:
    text = COPY.format(m=40, n=64, origin="3, 8", fields="").replace("f32", dtype)
    x = np.random.default_rng(0).integers(0, 2 if dtype == "b8" else 50, (40, 64))
    agrees(text, x=x.astype(bool) if dtype == "b8" else x)


def test_a_ring_of_two_operands() -> None:
    agrees(ring(), x=uniform(30, 96), w=uniform(96, 64, seed=1))


TRANSPOSE = """
kernel turn(x: f32[64, 64]) -> y: f32[64, 64]:
    Tile(b:4=BLOCK, i:16=THREAD, j:16=THREAD, r:4=REG):
        s = Stage(x, origin=(0, b*16), slab=(a:64@0, c:16@1), via=TMA)
        Wait()
        v = load s[i*4 + r, j]
        y[b*16 + j, i*4 + r] = v
"""


def test_blocks_in_step() -> None:
    agrees(TRANSPOSE, x=uniform(64, 64))


# ---- what is broken


def noticed(made: Any, arrays: Any, want: Any) -> bool:
    for seed in SEEDS:
        try:
            if np.allclose(kernel.run((made,), arrays, seed)["y"], want, atol=1e-9):
                return False
        except (DplcError, KeyError):
            continue
    return True


@pytest.mark.parametrize("title", CHANGES)
def test_mutants_are_noticed(title: str) -> None:
    units, (made,) = lowered(ring())
    arrays = {"x": uniform(30, 96), "w": uniform(96, 64, seed=1)}
    want = tile.run(units, arrays)["y"]
    assert not noticed(made, arrays, want)
    tried = list(dict.fromkeys(mutants(made, *CHANGES[title])))
    assert tried
    for mutant in tried:
        assert noticed(mutant, arrays, want)


SETUP = """
kernel f(x: f32[4, 32]) -> y: f32[4, 32]:
    Launch(grid=(1, 1, 1), block=32, shared=528):
        map = TensorMap(x, box=(4, 32))
        a = Registers(f32)
        Branch(thread == 0):
            InitBarrier(Address(smem, offset=512))
            FenceBarriers()
        {first}
        Branch(thread == 0):
            {issue}
        {wait}
        Loop(n, 0, 4):
            LoadFrom(a, f32, Address(smem, offset=n*128 + thread*4))
            StoreTo(f32, Address(y, offset=n*32 + thread), values=(a))
"""
ISSUE = "Expect(Address(smem, offset=512), 512)", "CopyBox(Address(smem), map, Address(smem, offset=512), at=(0, 0))"
GOOD = {"first": "Barrier()", "issue": ISSUE, "wait": ("WaitPhase(Address(smem, offset=512), 0)",)}
FOUND: dict[str, tuple[dict[str, Any], str]] = {
    "no barrier behind the initialisation": ({"first": ""}, "read before a barrier after it was written"),
    "nobody waits": ({"wait": ("Barrier()",)}, "read while a copy to it is in flight"),
    "thread 0 alone waits": (
        {"wait": ("Branch(thread == 0):", "    WaitPhase(Address(smem, offset=512), 0)")},
        "read before a barrier after it was written",
    ),
    "too few bytes announced": (
        {"issue": ("Expect(Address(smem, offset=512), 256)", ISSUE[1])},
        "lacks an arrival, or bytes that were announced",
    ),
    "no arrival": ({"issue": ISSUE[1:]}, "lacks an arrival"),
    "the other parity": ({"wait": ("WaitPhase(Address(smem, offset=512), 1)",)}, "in flight"),
    "two arrivals": ({"issue": (ISSUE[0], *ISSUE)}, "one arrival too many"),
    "a misaligned box": ({"issue": (ISSUE[0], ISSUE[1].replace("Address(smem), map", "Address(smem, offset=16), map"))}, "misaligned"),
    "no such mbarrier": ({"issue": (ISSUE[0].replace("=512", "=520"),)}, "uninitialised shared memory"),
    "twice to one place": ({"issue": (*ISSUE, ISSUE[1])}, "race: shared memory is written"),
}  # fmt: skip


def program(**changed: Any) -> Any:
    given = {name: (value,) if isinstance(value, str) else value for name, value in {**GOOD, **changed}.items()}
    lines = []
    for line in SETUP.strip("\n").splitlines():
        name = line.strip().strip("{}")
        indent = line[: len(line) - len(line.lstrip())]
        lines += [indent + part for part in given[name] if part] if name in given else [line]
    return read_program("\n".join(lines) + "\n")[1]


def test_a_box_for_everybody() -> None:
    x = uniform(4, 32)
    for seed in SEEDS:
        np.testing.assert_array_equal(kernel.run(program(), {"x": x}, seed)["y"], x)


def test_a_barrier_shows_what_one_thread_waited_for() -> None:
    x = uniform(4, 32)
    alone = ("Branch(thread == 0):", "    WaitPhase(Address(smem, offset=512), 0)", "Barrier()")
    np.testing.assert_array_equal(kernel.run(program(wait=alone), {"x": x})["y"], x)


@pytest.mark.parametrize("what", FOUND)
def test_what_it_finds(what: str) -> None:
    changed, message = FOUND[what]
    for seed in SEEDS:
        with pytest.raises(ScheduleError, match=message):
            kernel.run(program(**changed), {"x": uniform(4, 32)}, seed)


SHARED_BOX = """
kernel f(x: f32[4, 32]) -> y: f32[2, 4, 32]:
    Launch(grid=(2, 1, 1), block=32, shared=528, cluster=2):
        map = TensorMap(x, box=(4, 32))
        a = Registers(f32)
        Branch(thread == 0):
            InitBarrier(Address(smem, offset=512))
            FenceBarriers()
        Barrier(cluster=2)
        Branch(thread == 0):
            Expect(Address(smem, offset=512), 512)
            Branch(block_x == 0):
                CopyBox(Address(smem), map, Address(smem, offset=512), at=(0, 0), cluster=2)
        WaitPhase(Address(smem, offset=512), 0)
        Loop(n, 0, 4):
            LoadFrom(a, f32, Address(smem, offset=n*128 + thread*4))
            StoreTo(f32, Address(y, offset=block_x*128 + n*32 + thread), values=(a))
"""


def test_a_box_for_both_blocks_of_a_pair() -> None:
    x = uniform(4, 32)
    for seed in SEEDS:
        found = kernel.run(read_program(SHARED_BOX)[1], {"x": x}, seed)["y"]  # type: ignore[arg-type]
        np.testing.assert_array_equal(found, np.stack((x, x)))
