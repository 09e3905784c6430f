"""The order of blocks with loops of different lengths: the last one to start is a short one."""

from __future__ import annotations

import heapq
import itertools

import pytest

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.ir.expr import free_names
from dplc.ir.loop import For
from dplc.ir.node import Node, nodes
from dplc.ir.substitute import substitute
from dplc.ir.tile import Tile

SHAPES = ((14, 512, 64), (32, 512, 64), (32, 2048, 64), (14, 2048, 64))  # heads, length, width


def lengths(text: str) -> list[int]:
    """Return the iterations of each block of a kernel, in the order in which a device starts them."""
    (kernel,) = compiler_with(target("h200")).compile(capture_text(text, values=False)).tile
    (tile,) = nodes(kernel.body, Tile)
    blocks = [axis for axis in tile.axes if axis.role == "BLOCK"]
    ends = [loop.stop for loop in nodes(tile.body, For) if isinstance(loop.stop, Node)]
    (trips,) = dict.fromkeys(e for e in ends if free_names(e) <= {axis.name for axis in blocks})
    found = []
    for place in itertools.product(*(range(axis.extent) for axis in blocks)):
        found.append(substitute(trips, {axis.name: n for axis, n in zip(blocks, place, strict=True)}))
    return found


def finished(found: list[int], slots: int) -> int:
    """Return when the last block ends if each starts in the slot that is free first."""
    ends = [0] * slots
    for n in found:
        heapq.heappush(ends, heapq.heappop(ends) + n)
    return max(ends)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.sampled(4)
def test_causal_blocks_end_together(shape: tuple[int, int, int], dtype: str) -> None:
    """Of one block a multiprocessor, the last ends at most a twelfth, and two steps, after an even share of all."""
    size = ", ".join(map(str, (1, *shape)))
    found = lengths(
        f"F.scaled_dot_product_attention(*[torch.randn({size}, dtype=torch.{dtype}) for _ in 'qkv'], is_causal=True)"
    )
    slots = target("h200").multiprocessors
    assert found == sorted(found, reverse=True) and len({*found}) > 1
    assert finished(found, slots) <= max(sum(found) / slots * 13 / 12 + 2, max(found))
