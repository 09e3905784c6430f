"""Blocks that walk over tiles, in Tile IR and Kernel IR: one ring goes on from tile to tile, in blocks of any number of turns."""

from __future__ import annotations

import numpy as np
import pytest
from altered_texts import altered
from products_in_rings import is_the_product, only_kernel, whole_numbers

from dplc.ir.facts.layout import tile_of
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.interp.tile import in_step
from dplc.ir.program import Kernel

# five tiles of two blocks: three of one, two of the other; four turns of a ring of three, so no tile begins where another did
TEXT = """## level: tile
kernel f(A: bf16[320, 256], B: bf16[32, 256]) -> C: f32[320, 32]:
    Tile(b:2=BLOCK, p1:4=THREAD, g:8=THREAD, t:4=THREAD, q:2=REG, s:2=REG, h:2=REG, v:2=REG, ks:4=REG, u:2=REG, w:2=REG):
        r = Ring(depth=3)
        Team(threads=128):
            for n in b..5 by 2 serial:
                for kp in 0..4 serial:
                    Acquire(r, n // 2*4 + kp)
                    As = Stage(A, origin=(n*64, kp*64), slab=(i:64@0, k:64@1), depth=3, slot=(n // 2*4 + kp) % 3, via=TMA, swizzle=128)
                    Bs = Stage(B, origin=(0, kp*64), slab=(j:32@0, k:64@1), depth=3, slot=(n // 2*4 + kp) % 3, via=TMA, swizzle=128)
        for n in b..5 by 2 serial:
            for ko in 0..4 serial:
                Await(r, n // 2*4 + ko)
                a = load As[(n // 2*4 + ko) % 3, p1*16 + h*8 + g, ks*16 + u*8 + t*2 + w]
                z = load Bs[(n // 2*4 + ko) % 3, q*16 + s*8 + g, ks*16 + u*8 + t*2 + w]
                Mma(acc, a, z, atom=m64n32k16, axes=(p1, g, t, q, s, h, v, u, w), over=(ks))
                Settle(keep=1)
                Release(r, n // 2*4 + ko - 1, when=ko >= 1)
            Settle()
            Release(r, n // 2*4 + 3)
            C[n*64 + p1*16 + h*8 + g, q*16 + s*8 + t*2 + v] = acc
"""
SHAPES = {"A": (320, 256), "B": (32, 256)}


def kernel(text: str = TEXT) -> Kernel:
    return only_kernel(text)


def operands() -> dict[str, np.ndarray]:
    return whole_numbers(SHAPES)


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_means_the_product(seed: int) -> None:
    is_the_product(kernel(), operands(), seed)


FOUND = {
    "turns that begin anew with a tile": ("Acquire(r, n // 2*4 + kp)", "Acquire(r, kp)", "acquired as number 4"),
    "turns of a shorter tile": ("Await(r, n // 2*4 + ko)", "Await(r, n // 2*3 + ko)", "awaited as number 4"),
    "the last turn of a tile is kept": ("            Release(r, n // 2*4 + 3)\n", "", "Release(r, (n // 2)*4 + ko - 1"),
    "slots that begin anew with a tile": ("load As[(n // 2*4 + ko) % 3", "load As[ko % 3", "is not awaited"),
    "a tile that only the team has": ("        for n in b..5 by 2 serial:\n            for ko", "        for n in b..4 by 2 serial:\n            for ko", "deadlock"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_a_ring_that_loses_count_is_found_in_every_run(name: str) -> None:
    old, new, message = FOUND[name]
    wrong = kernel(altered(TEXT, old, new))
    for seed in range(2):
        with pytest.raises(ScheduleError) as found:
            tile_meaning.run((wrong,), operands(), seed)
        assert message in "\n".join((found.value.what, *found.value.notes))


def test_a_tile_that_is_walked_twice_is_stored_twice() -> None:
    wrong = altered(TEXT, "C[n*64", "C[n // 2*2*64")
    with pytest.raises(ScheduleError, match="stored"):
        tile_meaning.run((kernel(wrong),), operands(), 0)


def test_blocks_run_together_that_come_to_the_same_barriers() -> None:
    tile = tile_of(kernel(TEXT.replace("b:2=BLOCK", "b:3=BLOCK").replace("by 2", "by 3")))
    assert tile is not None
    batches = [np.flatnonzero(batch).tolist() for batch in in_step(tile, {"b": np.arange(3)}, 3)]
    assert batches == [[2], [0, 1]]
    even = tile_of(kernel(TEXT.replace("b..5", "b..4")))
    assert even is not None
    assert [batch.all() for batch in in_step(even, {"b": np.arange(2)}, 2)] == [True]
