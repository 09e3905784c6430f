"""What no launch of a target can be, told from Tile IR: a search drops it before anything is built."""

from __future__ import annotations

import math
from typing import Any

from ...codegen.kernel import MAX_THREADS_PER_BLOCK
from ...codegen.target import Target
from ...ir.node import nodes
from ...ir.text.print_statements import print_expr
from ...ir.tile import Tile
from ..facts.accesses import registers
from ..facts.shared_memory import smem_left
from ..language.policy import policy
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.site import Site

MOST_REGISTERS = 255  # of one thread
REGISTER_GRAIN = 8


def register_budget(tile: Tile, target: Target) -> int:
    """The registers that the compiler may give to a thread: what the blocks that must fit together leave it."""
    threads = -(-_extent(tile, "THREAD") // 32) * 32
    share = target.registers // (threads * max(tile.resident, 1))
    return min(MOST_REGISTERS, share // REGISTER_GRAIN * REGISTER_GRAIN)


def predicted_registers(program: Program, number: int, target: Target) -> int:
    """Registers of a thread, predicted from Tile IR. NVRTC took 0.86 to 1.11 times as many for norms, products and
    attention, 0.45 to 1.65 for small kernels (scans, a convolution of 3 channels), in 11 kernels on sm_80."""
    site = Site(program, (number,), target)
    tile: Any = site.tile
    return min(int(registers(site, tile.axes, tile.body)), register_budget(tile, target))


def estimated_registers(program: Program, target: Target) -> int:
    """What the kernel that asks for most asks for by the estimate, budget or not."""
    sites = (Site(program, (number,), target) for number in range(len(program)))
    return max((int(registers(site, site.tile.axes, site.tile.body)) for site in sites if site.tile), default=0)


def refusal(program: Program, target: Target, granted: int = 0) -> str | None:
    """Why a program cannot be launched, or would spill its registers; None if nothing is known against it.

    granted: what the estimate says of a schedule that is known to do, the default one: where it is too high for that,
    it is for others, too.
    """
    found = (_refusal(program, number, target, granted) for number in range(len(program)))
    return next((why for why in found if why is not None), None)


def no_launch(program: Program, target: Target) -> str | None:
    """Why no device launches a program, however many registers it takes; None if nothing is known against it."""
    return next((why for number in range(len(program)) if (why := _no_launch(program, number, target))), None)


def _no_launch(program: Program, number: int, target: Target) -> str | None:
    kernel, site = program[number], Site(program, (number,), target)
    tile = next(iter(nodes(kernel, Tile)), None)
    if tile is None:
        return f"kernel `{kernel.name}` has no tile"
    unknown = next((axis for axis in tile.axes if axis.role != "BLOCK" and axis.extent.__class__ is not int), None)
    if unknown is not None:
        return f"axis `{unknown.name}` of a block is as long as `{print_expr(unknown.extent)}`, known at a call only"
    threads = _extent(tile, "THREAD")
    if threads > MAX_THREADS_PER_BLOCK:
        return f"{threads} threads per block; {MAX_THREADS_PER_BLOCK} are possible"
    left = smem_left(site)
    if left < 0:
        return f"{target.smem - left} bytes of shared memory; {target.smem} are possible"
    return None


def _refusal(program: Program, number: int, target: Target, granted: int) -> str | None:
    why = _no_launch(program, number, target)
    tile = next(iter(nodes(program[number], Tile)), None)
    if why is not None or tile is None:
        return why
    site = Site(program, (number,), target)
    wanted, budget = registers(site, tile.axes, tile.body), register_budget(tile, target)
    if wanted > max(budget + policy(target).register_slack, granted):
        return f"about {wanted} registers per thread; {budget} are possible"
    return None


def _extent(tile: Tile, role: str) -> int:
    return math.prod(int(axis.extent) for axis in tile.axes if axis.role == role)
