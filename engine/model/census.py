"""What one launch asks of a device, counted in its Kernel IR: instructions, sectors, wavefronts, bytes.

All threads of the middle block are followed at once, every statement once, at the first turn of every loop, and weighted
with how often it runs. So addresses are the real ones and counts are exact where neither depends on the data, the block
or the turn; a guard that does (`when`, causality) is taken as it is there. The emulator's counters of checked mode, which
follow every access of a real run, are the test of this.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.kernel import DTYPES
from ...ir.expr import Binary, Call, Not, Sum
from ...ir.interp.scalar import ScheduleError, evaluate
from ...ir.kernel import (
    BLOCK_INDEX,
    SHARED,
    THREAD,
    Address,
    Advance,
    Assign,
    Base,
    Branch,
    Butterfly,
    CopyAsync,
    Define,
    Launch,
    LoadFrom,
    Loop,
    Replicate,
    StoreTo,
)
from ...ir.node import nodes
from ...ir.program import Block, Kernel, Stmt

LANES, BANKS, SECTOR = 32, 32, 32

# Instructions of a scalar function: all, and of these on the special function unit. Divisions and the functions of the
# C library are short programs; what is not named here is one instruction.
_SPECIAL = {
    "exp2": (2, 1), "exp": (3, 1), "rsqrt": (2, 1), "reciprocal": (2, 1), "sigmoid": (5, 2), "divide": (9, 1),
    "sqrt": (8, 1), "log": (8, 1), "log2": (6, 1), "tanh": (12, 2), "sin": (20, 1), "cos": (20, 1), "erf": (20, 1),
    "pow": (30, 2), "negative": (0, 0), "copy": (0, 0), "floor_divide": (10, 1), "remainder": (12, 1),
}  # fmt: skip


@dataclass(frozen=True)
class Census:
    """One launch. Sizes in bytes.

    blocks, threads (of a block), shared: as launched. registers of a thread, None where nothing assembled the kernel.
    dram: bytes of all buffers once, or what is asked for where that is less. Of one block: fill, the bytes of the
    sectors that it asks of L2; sectors and ideal_sectors; wavefronts and ideal_wavefronts of shared memory; and in
    instructions of a warp: issued, fma (the fp32 pipe), special (the special function unit). tensor: floating-point
    operations of tensor cores.
    """

    blocks: int
    threads: int
    shared: int
    dram: float
    sectors: float = 0.0
    ideal_sectors: float = 0.0
    wavefronts: float = 0.0
    ideal_wavefronts: float = 0.0
    issued: float = 0.0
    fma: float = 0.0
    special: float = 0.0
    tensor: float = 0.0
    registers: int | None = None

    @property
    def fill(self) -> float:
        return self.sectors * SECTOR


def census(kernel: Kernel, registers: int | None = None) -> Census:
    """The census of a kernel of Kernel IR."""
    (launch,) = kernel.body
    assert isinstance(launch, Launch)
    counter = _Counter(kernel, launch)
    counter.block(launch.body, 1.0, counter.alive)
    blocks = math.prod(launch.grid)
    asked = counter.sectors * SECTOR * blocks
    return Census(
        blocks, launch.block, launch.shared, min(float(buffer_bytes(kernel)), asked),
        counter.sectors, counter.ideal_sectors, counter.wavefronts, counter.ideal_wavefronts,
        counter.issued, counter.fma, counter.special, 0.0, registers,
    )  # fmt: skip


def buffer_bytes(kernel: Kernel) -> int:
    """The bytes of all buffers of a kernel, each read or written once."""
    return sum(DTYPES[p.dtype].item_bytes * math.prod(p.shape) for p in (*kernel.ins, *kernel.outs))  # type: ignore[index]


class _Counter:
    """Counts statements. Values are arrays over (warps, lanes); `mask` says which threads are there."""

    def __init__(self, kernel: Kernel, launch: Launch):
        warps = -(-launch.block // LANES)
        threads = np.arange(warps * LANES).reshape(warps, LANES)
        middle = zip(BLOCK_INDEX, (*launch.grid, 1, 1), strict=False)
        self.alive = threads < launch.block
        self.env: dict[str, Any] = {THREAD: threads, **{name: extent // 2 for name, extent in middle}}
        self.bases: dict[str, tuple[str, Any]] = {p.name: (p.name, 0) for p in (*kernel.ins, *kernel.outs)}
        self.bases[SHARED] = (SHARED, 0)
        self.sectors = self.ideal_sectors = self.wavefronts = self.ideal_wavefronts = 0.0
        self.issued = self.fma = self.special = 0.0

    # ---- statements

    def block(self, block: Block, times: float, mask: Any) -> None:
        for statement in block:
            self.statement(statement, times, mask)

    def statement(self, statement: Stmt, times: float, mask: Any) -> None:
        if isinstance(statement, Replicate):
            self.env[statement.var] = 0
            self.block(statement.body, times * statement.extent, mask)
        elif isinstance(statement, Loop):
            self.loop(statement, times, mask)
        elif isinstance(statement, Branch):
            self.compute(statement.cond, times, mask)
            self.block(statement.body, times, self.where(statement.cond, mask))
        else:
            self.issue(1, times, mask)
            self.simple(statement, times, mask)

    def loop(self, loop: Loop, times: float, mask: Any) -> None:
        start, stop, step = (self.value(e) for e in (loop.start, loop.stop, loop.step))
        if start is None or stop is None or step is None:
            turns = 1.0
        else:
            each = np.broadcast_to(np.maximum(-((start - stop) // step), 0), mask.shape)
            turns = float(each[mask].max(initial=0))
        if start is not None:
            self.env[loop.var] = start
        self.issue(3, times * turns, mask)
        self.block(loop.body, times * turns, mask)

    def simple(self, statement: Any, times: float, mask: Any) -> None:
        if isinstance(statement, Define):
            self.issue(-1, times, mask)
            self.compute(statement.val, times, mask)
            self.bind(statement.dst, self.value(statement.val))
        elif isinstance(statement, Base):
            root, origin = self.bases[statement.root]
            offset = self.value(statement.offset)
            self.bases[statement.dst] = (root, None if origin is None or offset is None else origin + offset)
        elif isinstance(statement, LoadFrom):
            self.access(statement.address, statement.dtype, statement.width, times, self.where(statement.when, mask))
        elif isinstance(statement, StoreTo):
            for value in statement.values:
                self.compute(value, times, mask)
            self.access(statement.address, statement.dtype, len(statement.values), times, mask)
        elif isinstance(statement, CopyAsync):
            there = self.where(statement.when, mask)
            self.access(statement.source, "b8", statement.bytes, times, self.where(statement.inside, there), "f32")
            self.access(statement.to, "b8", statement.bytes, times, there)
        elif isinstance(statement, Assign):
            self.issue(-1, times, mask)
            self.compute(statement.val, times, mask)
        elif isinstance(statement, Butterfly):
            self.issue(2 * math.log2(2 * statement.high / statement.low) - 1, times, mask)
        elif not isinstance(statement, Advance):
            self.block(getattr(statement, "body", ()), times, mask)  # a statement that this page does not know yet

    # ---- memory

    def access(
        self, address: Address, dtype: str, width: int, times: float, mask: Any, item: str | None = None
    ) -> None:
        """One instruction. item: what the address counts in, where that is not what is moved."""
        root, base = self.bases[address.base]
        offset, flip = self.value(address.offset), self.value(address.xor)
        size = DTYPES[dtype].item_bytes * width  # type: ignore[index]
        unknown = base is None or offset is None or flip is None
        place = self.env[THREAD] * size if unknown else np.broadcast_to((base ^ flip) + offset, mask.shape)
        lanes = mask.sum(axis=1)
        if root == SHARED:
            self.wavefronts += times * wavefronts(place // 4, max(size // 4, 1), mask)
            self.ideal_wavefronts += times * float(np.ceil(lanes * size / 128).sum())
            return
        unit = 1 if unknown else DTYPES[item or dtype].item_bytes  # type: ignore[index]
        self.sectors += times * sectors(place * unit, mask)
        self.ideal_sectors += times * float(np.ceil(lanes * size / SECTOR).sum())

    # ---- values

    def bind(self, name: str, value: Any) -> None:
        self.env.pop(name, None)
        if value is not None:
            self.env[name] = value

    def value(self, e: Any) -> Any:
        """An index, or None where it depends on data."""
        try:
            return evaluate(e, self.env)
        except (ScheduleError, KeyError, TypeError, AttributeError):
            return None

    def where(self, condition: Any, mask: Any) -> Any:
        """The threads for which a condition holds; all of them where that depends on data."""
        holds = True if condition is True else self.value(condition)
        return mask if holds is None or holds is True else mask & np.asarray(holds, bool)

    # ---- instructions

    def issue(self, count: float, times: float, mask: Any) -> None:
        self.issued += count * times * float(mask.any(axis=1).sum())

    def compute(self, e: Any, times: float, mask: Any) -> None:
        issued, fma, special = 0, 0, 0
        for part in nodes(e, Call, Binary, Sum, Not):
            if isinstance(part, Call):
                total, on_special = _SPECIAL.get(part.fn, (1, 0))
                issued, special = issued + total, special + on_special
                arithmetic = part.fn in ("add", "subtract", "multiply", "maximum", "minimum")
                fma += arithmetic - _fused(part)
                issued -= _fused(part)
            else:
                issued += len(part.terms) if isinstance(part, Sum) else 1
        warps = float(mask.any(axis=1).sum())
        self.issued += max(issued, 0) * times * warps
        self.fma += fma * times * warps
        self.special += special * times * warps


def _fused(call: Call) -> int:
    """1 for a sum that takes a product along: two functions, one instruction."""
    return int(call.fn in ("add", "subtract") and any(isinstance(a, Call) and a.fn == "multiply" for a in call.args))


def sectors(places: Any, mask: Any) -> float:
    """Sectors that warps touch. places: the first byte of each lane (warps, lanes), aligned to what it moves."""
    return float(sum(len(np.unique(row[here] // SECTOR)) for row, here in _rows(places, mask)))


def _rows(places: Any, mask: Any) -> Iterator[tuple[Any, Any]]:
    return zip(np.broadcast_to(places, mask.shape), mask, strict=True)


def wavefronts(words: Any, width: int, mask: Any) -> float:
    """Wavefronts of shared memory that warps take. words: the first of each lane (warps, lanes); width: words a lane.

    A warp goes in groups of 32 / width lanes; a group takes as many as the most different words of one bank.
    """
    every = (np.asarray(words)[..., None] + np.arange(width)).reshape(-1, BANKS)
    here = np.repeat(mask[..., None], width, axis=2).reshape(-1, BANKS)
    total = 0
    for row, present in zip(every, here, strict=True):
        if present.any():
            total += int(np.bincount(np.unique(row[present]) % BANKS).max())
    return float(total)
