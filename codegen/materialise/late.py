"""Products of late atoms: descriptors of the matrices that their operands are, and the queue of a group of warps.

A product is a group of its own in that queue, however many instructions it takes: so a Settle keeps as many of both.
"""

from __future__ import annotations

from ...ir.atoms import ATOMS
from ...ir.diagnostic import DplcError
from ...ir.expr import Var, add, multiply
from ...ir.facts.layout import cell_of, item_bytes, matrix_view, pitch, row_of
from ...ir.facts.structure import result_registers, summary
from ...ir.kernel import (  # fmt: skip
    Address,
    CommitProducts,
    Element,
    FenceProducts,
    Matrix,
    QueueProduct,
    WaitProducts,
)
from ...ir.program import Block
from ...ir.substitute import substitute
from ...ir.tile import Mma, Settle
from .addresses import resolve
from .lowering import Held, LateOperand, Lowering, Place
from .ranges import tidied
from .registers import nest, read
from .slabs import slab_base, slot_bytes


def lower_late(low: Lowering, stmt: Mma, words: Element | None) -> Block:
    """The instructions of a product, one for each fragment of the result and each step of the sum.

    words: the first of the left operand's, where it is in registers.
    """
    held = low.env[stmt.acc]
    assert isinstance(held, Held)
    own = result_registers(stmt)
    outer = [axis for axis in held.axes if axis not in own]
    over = [axis for axis in low.replicated if axis in {axis.name for axis in stmt.over}]
    left = words or _matrix(low, stmt, stmt.a.name, left=True)
    right = _matrix(low, stmt, stmt.b.name, left=False)
    acc = Element(held.name, (*map(Var, outer), *(0 for _ in own)))
    product = QueueProduct(acc, left, right, stmt.atom, low.env[stmt.b.name].dtype)
    if words is not None:
        low.in_products.append(words.name)
    return (FenceProducts(), *nest(low, (*over, *outer), (product,)), CommitProducts())


def lower_settle(low: Lowering, stmt: Settle, at: Place) -> Block:
    """The wait; behind one for all of them sums may be read, and fragments changed, which the compiler is told.

    Else it could give the registers of a fragment, which nothing else reads, to others while products read them.
    """
    late = dict.fromkeys(product.acc for product in summary(low.kernel.body).mmas if ATOMS[product.atom].late)
    held = [low.env[acc] for acc in late if acc in low.env] if stmt.keep == 0 else []
    words = [low.in_products.pop() for _ in tuple(low.in_products)] if stmt.keep == 0 else []
    sums = [value.name for value in held if isinstance(value, Held)]
    return (WaitProducts(stmt.keep, tuple(map(Var, (*sums, *words)))),)


def _matrix(low: Lowering, stmt: Mma, name: str, left: bool) -> Matrix:
    """Where an operand starts, and how it goes on. Raises DplcError where no descriptor says so."""
    view = low.env[name]
    if not isinstance(view, LateOperand):
        hint = "load it from a slab, under no guard, for nothing but products of such atoms"
        raise DplcError(f"`{stmt.atom}` reads matrices in shared memory, and `{name}` is a value of threads", hint=hint)
    stage = low.stages[view.load.buf]
    form = matrix_view(low.kernel, stage, view.load, stmt, left)
    if form is None:
        raise DplcError(
            f"`{stmt.atom}` cannot read `{name}` in slab `{view.load.buf}`",
            hint="rows of 128 bytes, copied by TMA with swizzle=128: rows of its matrices, or their columns",
        )
    idx = substitute(view.load.idx, {axis.name: 0 for axis in stmt.axes})
    cell, item = cell_of(stage, idx), item_bytes(low.kernel, stage)
    start = multiply(idx[0], slot_bytes(low, stage)) if stage.depth > 1 else 0
    row = multiply(row_of(stage, cell), pitch(stage) * item)
    place = tidied(low, add(start, add(row, multiply(cell[-1], item))))
    base, rest = resolve(low, slab_base(low, stage), place, f"{name}_at", shared=True)
    return Matrix(Address(base, read(low, rest)), form.stride, form.leading, int(form.across))
