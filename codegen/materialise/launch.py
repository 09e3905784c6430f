"""The launch: which block and which thread this is, and the limits of the machine."""

from __future__ import annotations

import functools

from ...ir.diagnostic import DplcError
from ...ir.expr import Var, floordiv, is_int, modulo, multiply
from ...ir.kernel import BLOCK_INDEX, THREAD, Define
from ...ir.node import Expr
from ...ir.program import Kernel, Stmt
from ...ir.ranges import interval
from ...ir.text.print_statements import print_expr
from ...ir.tile import Tile
from ..kernel import MAX_GRID, MAX_THREADS_PER_BLOCK
from ..target import Target
from .lowering import Lowering
from .prepare import TID

FIRST_CLUSTERS = 90  # the architecture that brought them
LANES_OF_GROUP = 128  # that multiply together
MAX_REPLICATED = 2**14  # elements of 4 bytes along one axis of registers: an eighth of the local memory of a thread


def block_axes(low: Lowering) -> tuple[tuple[Expr, Expr, Expr], list[Stmt]]:
    """The grid and the definitions of the BLOCK axes: the last is x, then y, z; or all in x if they do not fit."""
    axes = [axis for axis in low.tile.axes if axis.role == "BLOCK"]
    grid: list[Expr] = [1, 1, 1]
    out: list[Stmt] = []
    if len(axes) <= 3 and all(interval(axis.extent, {})[1] <= MAX_GRID[1] for axis in axes[:-1]):
        for number, axis in enumerate(reversed(axes)):
            grid[number] = axis.extent
            out.append(Define(axis.name, "i32", Var(BLOCK_INDEX[number])))
    else:
        grid[0] = functools.reduce(multiply, [axis.extent for axis in axes])
        out = decompose(BLOCK_INDEX[0], [(axis.name, axis.extent) for axis in axes])
    if interval(grid[0], {})[1] > MAX_GRID[0]:
        wanted = f"kernel `{low.kernel.name}` needs {print_expr(grid[0])} blocks"
        raise DplcError(f"{wanted}; a launch has at most {MAX_GRID[0]}")
    return (grid[0], grid[1], grid[2]), out


def thread_axes(low: Lowering) -> list[Stmt]:
    """The definitions of the THREAD axes from the thread's index, row-major."""
    axes = [(axis.name, axis.extent) for axis in low.threads]
    if len(axes) < 2:
        return decompose(THREAD, axes)
    whole = LANES_OF_GROUP if low.views else 0  # where a descriptor is must be seen to be the same for a warp
    return [Define(TID, "i32", Var(THREAD)), *decompose(TID, axes, whole)]


def decompose(index: str, axes: list[tuple[str, Expr]], whole: int = 0) -> list[Stmt]:
    """Row-major coordinates of an index. Shifts and masks where extents are powers of two.

    whole: so many threads have the same along an axis whose stride is a multiple of it, and are told so.
    """
    out: list[Stmt] = []
    stride: Expr = 1
    for number, (name, extent) in enumerate(reversed(axes)):
        e: Expr = floordiv(Var(index), stride)
        same = bool(whole) and is_int(stride) and stride % whole == 0  # type: ignore[operator]
        out.append(Define(name, "i32", modulo(e, extent) if number < len(axes) - 1 else e, uniform=int(same)))
        stride = multiply(stride, extent)
    return out[::-1]


def check_registers(tile: Tile) -> None:
    """Raises DplcError for an axis that no thread has room for: its elements are written out one by one."""
    for axis in tile.axes:
        most = interval(axis.extent, {})[1] if axis.role in ("REG", "VEC") else 0
        if most > MAX_REPLICATED:
            raise DplcError(
                f"a thread has {most} elements along {axis.name}={axis.role}; {MAX_REPLICATED} are possible"
            )


def check_cluster(tile: Tile, target: Target) -> None:
    """Raises DplcError for a cluster that the target refuses."""
    if tile.cluster > 1 and target.sm < FIRST_CLUSTERS:
        raise DplcError(f"{target.name} has no clusters of blocks", hint="cluster=1")


def check_limits(kernel: Kernel, target: Target, threads: int, shared_bytes: int) -> None:
    """Raises DplcError for a launch that the target refuses."""
    if threads > MAX_THREADS_PER_BLOCK:
        raise DplcError(f"kernel `{kernel.name}` has {threads} threads per block; {MAX_THREADS_PER_BLOCK} are possible")
    if shared_bytes > target.smem:
        what = f"kernel `{kernel.name}` uses {shared_bytes} bytes of shared memory"
        raise DplcError(f"{what}; {target.name} has {target.smem} per block")
