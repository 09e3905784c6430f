"""What fusing costs: seconds to compute values again in every block, against seconds to store and load them once.

The rates are what is reached of the device's published peaks, as in engine/cost: this is that model before there is a
schedule. A value computed again takes the issue slots of its own instructions and of its way through shared memory; a
value that is stored takes a launch, and the bytes that are written and read for it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from typing import Any

from ...codegen.target import Target
from ...ir.dtypes import DTYPES
from ...ir.facts.dataflow import Dataflow
from ...ir.sizes import at_hint
from ...ir.tensor import Const, Elementwise, Index, Input, Reduce, Remap, dtype, operands
from ..language.policy import policy
from .work import COSTS


def blocks_across(extents: Iterable[int], tile: int) -> int:
    """How many tiles stand side by side along these axes: so many blocks compute anew what does not depend on them."""
    return math.prod(-(-extent // tile) for extent in extents)


def slots(term: Any, target: Target) -> float:
    """Issue slots of one element of one operation; a special function holds its unit for longer than one."""
    if term.__class__ is Reduce:
        return 1.0
    if term.__class__ is not Elementwise:
        return 0.0
    issued, special = COSTS.get(term.fn, (1, 0))
    return max(float(issued), special * target.fp32_per_clock / target.special_per_clock)


def issue_seconds(count: float, target: Target) -> float:
    """Seconds that a full device needs to issue so many instructions of a thread."""
    return count / (target.issue_share * target.multiprocessors * target.fp32_per_clock * target.clock)


def traffic_rate(target: Target) -> float:
    """Bytes of global memory a second, as copies reach it."""
    return target.dram_share * target.dram_bytes_per_second


def traffic_seconds(size: float, target: Target) -> float:
    """Seconds that so many bytes of global memory take."""
    return size / traffic_rate(target)


def fixed_seconds(target: Target, ends: float = 1.0) -> float:
    """Return the fixed seconds of a kernel: its launch, and `ends` times its first loads and last stores."""
    return float(target.launch_seconds + ends * policy(target).memory_trips * target.memory_latency_seconds)


def item_bytes(term: Any) -> int:
    """Bytes of an element of a value."""
    return DTYPES[dtype(term)].item_bytes


def parts(root: Any, stored: Container[Any]) -> tuple[list[Any], list[Any]]:
    """(the operations that make a value from what is in memory, what they read there), each once."""
    made: list[Any] = []
    read: list[Any] = []
    seen: set[Any] = set()
    pending = [root]
    while pending:
        term = pending.pop()
        if term in seen or term.__class__ is Const or term.__class__ is Index:
            continue
        seen.add(term)
        if term.__class__ is Input or (term in stored and term is not root):
            read.append(term)
            continue
        made.append(term)
        pending.extend(operands(term))
    return made, read


def slots_of(flow: Dataflow, made: list[Any], target: Target) -> float:
    """Issue slots of some operations over all their elements; a product that is only summed up is part of the sum."""
    summed = {term.x for term in made if term.__class__ is Reduce and term.fn == "add"}
    total = 0.0
    for term in made:
        if term in summed and term.__class__ is Elementwise and term.fn == "multiply":
            continue
        mask = flow.mask[term.x] if term.__class__ is Reduce else flow.mask[term]
        total += slots(term, target) * flow.elements(mask)
    return total


def bytes_of(flow: Dataflow, values: list[Any]) -> int:
    """Bytes of some values in memory, each once."""
    return sum(flow.elements(flow.mask[v.x if v.__class__ is Remap else v]) * item_bytes(v) for v in values)


def blocks(flow: Dataflow, result: int, own: int, tile: int, target: Target) -> int:
    """How many blocks of a product compute an operand: one for every tile of the columns that the operand lacks.

    result, own: masks of the axes of the product and of the operand; tile: columns of a tile. Tiles are half as wide
    where there are too few outputs for all multiprocessors; a single row has blocks of a few columns each.
    """
    if not result & own:
        tile = min(tile, policy(target).row_columns)
    elif 2 * flow.elements(result) < policy(target).block_outputs * target.multiprocessors:
        tile = max(tile // 2, 1)
    count = 1
    for axis in flow.axes_in(result & ~own):
        count *= -(-at_hint(axis.extent) // tile)
    return count
