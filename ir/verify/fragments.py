"""What must hold of an Mma: its axes are those of its atom, its operands of a dtype that the atom multiplies.

Which element of a matrix a lane loads is no law: a fragment that is laid out otherwise is another program with another
result, which comparing programs finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..atoms import ATOMS
from ..expr import Var
from ..facts.layout import stages
from ..facts.structure import summary
from ..facts.types import value_dtypes
from ..facts.views import views_of
from ..program import Block, Kernel
from ..tile import Mma, Settle, Tile

REPLICATED = ("REG", "VEC")


def late_problems(stmt: Mma, kernel: Kernel) -> Iterator[str]:
    """What is wrong with the operands of a late atom: it reads slabs that TMA has filled; of a, registers, too."""
    views, slabs = {load.dst: load for load in views_of(kernel)}, stages(kernel)
    loaded = {load.dst for load in summary(kernel.body).loads if load.buf in slabs}
    for e in (stmt.a, stmt.b):
        load = views.get(e.name) if isinstance(e, Var) else None
        slab = slabs.get(load.buf) if load else None
        if e is stmt.a and isinstance(e, Var) and e.name not in loaded:
            if not _settled(stmt, kernel.body):
                yield f"`{e.name}` stays in its registers until a Settle in the same block, and there is none"
            continue
        if load is None or getattr(slab, "via", "") != "TMA" or load.when is not True:
            yield f"`{stmt.atom}` multiplies what TMA has copied to a slab, and nothing else reads that value"
            return


def _settled(stmt: Mma, block: Block) -> bool:
    """Whether all products are done behind one before its block ends: its registers are others' then."""
    for position, part in enumerate(block):
        if part is stmt:
            return any(isinstance(later, Settle) and later.keep == 0 for later in block[position:])
        if hasattr(part, "body") and stmt in summary((part,)).mmas:
            return _settled(stmt, part.body)
    return True


def fragment_problems(stmt: Mma, tile: Tile, kernel: Kernel) -> Iterator[str]:
    """What is wrong with an Mma, a sentence each."""
    atom, known = ATOMS[stmt.atom], {axis.name: axis for axis in tile.axes}
    axes = [known.get(axis.name) if isinstance(axis, Var) else None for axis in stmt.axes]
    if [axis and axis.extent for axis in axes] != [extent for _, extent in atom.axes]:
        yield f"`{atom.name}` has the axes {', '.join(f'{name}:{extent}' for name, extent in atom.axes)}"
        return
    lanes = [axis for axis in tile.axes if axis.role == "THREAD"][-len(atom.lanes) :]
    if axes[: len(lanes)] != lanes:
        yield "the lanes are not the innermost threads"
    over = [known.get(axis.name) if isinstance(axis, Var) else None for axis in stmt.over]
    if any(axis is None or axis.role not in REPLICATED for axis in (*axes[len(atom.lanes) :], *over)):
        yield "what is no lane is no register"
    if len({axis.name for axis in (*stmt.axes, *stmt.over)}) < len(stmt.axes) + len(stmt.over):
        yield "an axis stands twice"
    dtypes: dict[str, Any] = value_dtypes(kernel)
    left, right = (dtypes.get(e.name) if isinstance(e, Var) else None for e in (stmt.a, stmt.b))
    if left is None or right is None or not atom.multiplies(left, right):
        yield f"`{atom.name}` multiplies two values of {' or '.join(atom.dtypes)}"
    for other in summary(tile.body).sums:
        if other.acc == stmt.acc and other.fn != "add":
            yield f"`{stmt.acc}` is no sum"
    if atom.late:
        yield from late_problems(stmt, kernel)
