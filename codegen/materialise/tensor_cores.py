"""Tensor cores: fragments (the operands of an Mma in words of registers), the instruction, and asynchronous MMA.

An operand that is loaded from a shared tile comes by ldmatrix where rows of 16 bytes of the shared tile are rows of the
atom's matrices (or columns, of elements of 2 bytes): lane 8*m + r addresses row r of matrix m, so its address is the
load's own with other numbers for lanes and registers. Any other operand is packed into words, from the registers that
it has.
"""

from __future__ import annotations

import math

from ...ir.atoms import ATOMS
from ...ir.diagnostic import DplcError
from ...ir.expr import Var, add, floordiv, modulo, multiply
from ...ir.facts.layout import (
    COLUMNS,
    FragmentOperand,
    cell_of,
    item_bytes,
    matrix_form,
    matrix_rows,
    matrix_view,
    operands_of,
    pitch,
    row_of,
)
from ...ir.facts.structure import result_registers, summary, value_dtypes
from ...ir.kernel import (
    Address,
    CommitProducts,
    Element,
    FenceProducts,
    Fragment,
    LoadMatrix,
    Matrix,
    Multiply,
    PackWord,
    QueueProduct,
    Replicate,
    RoundWord,
    WaitProducts,
)
from ...ir.loop import Load
from ...ir.node import Expr
from ...ir.program import Block, Stmt
from ...ir.ranges import by_steps
from ...ir.substitute import substitute
from ...ir.tile import Mma, Stage, WaitMma
from .expressions import axes_of, extents, in_registers, nest, read, replicating, resolve, row_major, tidied
from .lowering import AsynchronousOperand, Held, Level, Lowering, Place, Words, fresh, held_in
from .shared_memory import shared_tile_address, shared_tile_base, slot_start

# ---- asynchronous MMA (WGMMA): descriptors of matrices and the queue of a warpgroup
#
# A product is a group of its own in that queue, however many instructions it has. So a WaitMma keeps as many of both.


def lower_wait_mma(low: Lowering, stmt: WaitMma, at: Place) -> Block:
    """Return the wait for products.

    After a wait for all of them, sums may be read and fragments changed, which the wait declares to the compiler.
    Otherwise the compiler could give the registers of a fragment, which nothing else reads, to others while products
    read them.
    """
    asynchronous = dict.fromkeys(
        product.acc for product in summary(low.kernel.body).mmas if ATOMS[product.atom].asynchronous
    )
    held = [low.env[acc] for acc in asynchronous if acc in low.env] if stmt.keep == 0 else []
    words = [low.in_products.pop() for _ in tuple(low.in_products)] if stmt.keep == 0 else []
    sums = [value.name for value in held if isinstance(value, Held)]
    return (WaitProducts(stmt.keep, tuple(map(Var, (*sums, *words)))),)


def _matrix(low: Lowering, stmt: Mma, name: str, left: bool) -> Matrix:
    """Return the descriptor of an operand. Raises DplcError where no descriptor describes it."""
    view = low.env[name]
    if not isinstance(view, AsynchronousOperand):
        hint = "load it from a shared tile, under no guard, for nothing but products of such atoms"
        raise DplcError(f"`{stmt.atom}` reads matrices in shared memory, and `{name}` is a value of threads", hint=hint)
    stage = low.stages[view.load.buf]
    form = matrix_view(low.kernel, stage, view.load, stmt, left)
    if form is None:
        raise DplcError(
            f"`{stmt.atom}` cannot read `{name}` in shared tile `{view.load.buf}`",
            hint="rows of 128 bytes, copied by TMA with swizzle=128: rows of its matrices, or their columns",
        )
    idx = substitute(view.load.idx, {axis.name: 0 for axis in stmt.axes})
    cell, item = cell_of(stage, idx), item_bytes(low.kernel, stage)
    start = slot_start(low, stage, idx[0])
    row = multiply(row_of(stage, cell), pitch(stage) * item)
    place = tidied(low, add(start, add(row, multiply(cell[-1], item))))
    base, rest = resolve(low, shared_tile_base(low, stage), place, f"{name}_at", shared=True)
    return Matrix(Address(base, read(low, rest)), form.stride, form.leading, int(form.across))


MOST = 4  # matrices of one instruction


def lower_matrices(low: Lowering, stmt: Load, stage: Stage, operand: FragmentOperand, at: Place) -> Block | None:
    """Return the load of a fragment by ldmatrix; None if rows of the shared tile are not rows of its matrices."""
    form = matrix_form(low.kernel, stage, stmt, operand)
    if form is None:
        return None
    outer = tuple(axis for axis in axes_of(low, stmt.idx, at.bound) if axis not in operand.inner)
    each = operand.atom.words(operand.order)
    iterations = {axis: low.replicated[axis] for axis in outer}
    words = Words(fresh(low, stmt.dst), axes_of(low, stmt.idx, at.bound), low.dtypes[stage.dst], outer, each)
    count, images = each, matrix_rows(operand, form)
    if 2 * each <= MOST and outer and iterations[outer[-1]] % 2 == 0:  # two neighbouring fragments at once
        pair, half = outer[-1], fresh(low, f"{outer[-1]}_pair")
        rest = floordiv(floordiv(Var(operand.own["g"]), 2), each)
        images[pair] = add(multiply(Var(half), 2), modulo(rest, 2))
        count, outer = 2 * each, (*outer[:-1], half)
        iterations[half] = iterations[pair] // 2
    with replicating(low, {axis: iterations[axis] for axis in outer if axis not in low.replicated}):
        idx = tuple(by_steps(tidied(low, e), low.ranges) for e in substitute(stmt.idx, images))
        address = shared_tile_address(low, stage, idx, f"{stmt.dst}_rd")
        into = Element(words.name, (multiply(row_major(iterations, outer), count),))
        matrices = LoadMatrix(into, address, count, int(form == COLUMNS))
        load = nest(low, outer, (matrices, *_rounded(low, words, into, count)))
    low.env[stmt.dst] = words
    return (fragments(low, words), *load)


def _rounded(low: Lowering, words: Words, into: Element, count: int) -> Block:
    """Return the rounding of words that ldmatrix loaded as they are: of f32, for tensor cores multiply in TF32."""
    word = fresh(low, "word")
    rounding = RoundWord(Element(into.name, (add(into.index[0], Var(word)),)))
    return (Replicate(word, count, (rounding,)),) if words.dtype == "f32" else ()


def lower_mma(low: Lowering, stmt: Mma, at: Place) -> Block:
    """Return an instruction for each fragment of the result, and for each step of what is summed along registers."""
    out: list[Stmt] = []
    operands: list[Expr] = []
    asynchronous, held, own = ATOMS[stmt.atom].asynchronous, held_in(low, stmt.acc), result_registers(stmt)
    for e, operand in zip((stmt.a, stmt.b), operands_of(stmt), strict=True):
        words = low.env[e.name]
        if asynchronous and (e is stmt.b or isinstance(words, AsynchronousOperand)):
            operands.append(_matrix(low, stmt, e.name, left=not operands))
            continue
        if not isinstance(words, Words):
            made, words = packed(low, e, operand, at)
            around = next((level for level in low.levels if stays(low, e, level, at)), None)
            (out if around is None else around.before).extend(made)
        operands.append(Element(words.name, (multiply(row_major(low.replicated, words.outer), words.each),)))
        if asynchronous:
            low.in_products.append(words.name)
    outer = [axis for axis in held.axes if axis not in own]
    over = [axis for axis in low.replicated if axis in {axis.name for axis in stmt.over}]
    acc = Element(held.name, (*map(Var, outer), *(0 for _ in own)))
    left, right = operands
    if not asynchronous:
        return (*out, *nest(low, (*over, *outer), (Multiply(acc, left, right, stmt.atom),)))
    product = QueueProduct(acc, left, right, stmt.atom, low.env[stmt.b.name].dtype)
    return (*out, FenceProducts(), *nest(low, (*over, *outer), (product,)), CommitProducts())


def packed(low: Lowering, e: Var, operand: FragmentOperand, at: Place) -> tuple[Block, Words]:
    """Return a value in registers as words."""
    axes, atom = axes_of(low, e, at.bound), operand.atom
    outer = tuple(axis for axis in axes if axis not in operand.inner)
    order = tuple(operand.own[name] for name in operand.order)
    words = Words(
        fresh(low, f"{e.name}_words"), axes, value_dtypes(low.kernel)[e.name], outer, atom.words(operand.order)
    )
    into = Element(words.name, (row_major(low.replicated, (*outer, *order)),))
    pack = PackWord(into, tuple(in_registers(low, e, dict.fromkeys(operand.within, n)) for n in range(atom.per_word)))
    return (fragments(low, words), *nest(low, (*outer, *order), (pack,))), words


def stays(low: Lowering, e: Var, level: Level, at: Place) -> bool:
    """Return whether a value is what it was ahead of a loop, for all registers at once: its words can be made there."""
    held = low.env[e.name]
    made_outside = e.name not in low.accumulators and level.outside.get(e.name) is held
    return made_outside and isinstance(held, Held) and at.bound.isdisjoint(held.axes)


def fragments(low: Lowering, words: Words) -> Fragment:
    """Return the registers of all fragments of an operand, one after the other."""
    return Fragment(words.name, words.dtype, words.each * math.prod(extents(low, words.outer)))
