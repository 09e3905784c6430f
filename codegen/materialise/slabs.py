"""Shared slabs: where they start, and the byte address of a cell under padding, xor and swizzle.

An xor layout flips bits of a row's 16-byte chunk number C by bits of the row number R: F(R) = sum of bit(R, b_n) << n.
With R and C written as thread part + immediate part, and no bit possible in both, F(Rt + Ri) = F(Rt) ^ F(Ri) and
C = Ct ^ Ci, so

    address = (base ^ (Ci ^ F(Ri))*16) + Ri*pitch        with base = Rt*pitch + (Ct ^ F(Rt))*16

(bits of Ci that rows are not aligned for are added), and all that remains for the access is constant. Where the parts
share bits the address is computed at the access: right, but slow.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.diagnostic import InternalError
from ...ir.expr import add, floordiv, from_linear, linear, modulo, multiply, total, xor
from ...ir.facts.layout import DTYPE_BYTES, cell_of, pitch, reused, row_of, slab_cells
from ...ir.kernel import SHARED, Address, Base
from ...ir.node import Expr
from ...ir.ranges import interval
from ...ir.tile import Slab, Stage
from .addresses import level_of, resolve
from .lowering import Cell, Lowering, allocate, fresh
from .ranges import greatest, least, tidied
from .registers import read

CHUNK = 16  # bytes: the unit of every xor
SLAB_ALIGNMENT = 128  # so that an xor of chunk numbers stays within its row
SHARED_ALIGNMENT = 1024  # of shared memory as a whole: the prelude declares it so
UNUSED = 31  # in Stage.xor: this bit of the chunk number is not flipped
MOST_VALUES = 1 << 14  # beyond this many values of an atom its bits are taken to be all


def element_bytes(low: Lowering, stage: Stage) -> int:
    return DTYPE_BYTES[slab_dtype(low, stage)]


def slab_dtype(low: Lowering, stage: Stage) -> str:
    """The dtype of a slab's elements: its own for computed values, or that of what is copied there."""
    return stage.dtype if isinstance(stage, Slab) else low.params[stage.src].dtype


def slab_base(low: Lowering, stage: Stage) -> str:
    """The register with the address of a slab, which gets its memory when first asked for."""
    if stage.dst not in low.slab_bases:
        start = allocate(low, slot_bytes(low, stage) * stage.depth, alignment_of(stage))
        name = low.slab_bases[stage.dst] = fresh(low, stage.dst)
        low.slab_starts[stage.dst] = start
        low.top.head.append(Base(name, SHARED, start))
    return low.slab_bases[stage.dst]


def share_memory(low: Lowering, slabs: Iterable[Stage]) -> None:
    """Slabs that reuse the memory of copied ones start where those do, both before anything else has memory."""
    late = [slab for slab in slabs if reused(slab)]
    if not late:
        return
    for slab in slabs:
        if not isinstance(slab, Slab):
            slab_base(low, slab)
    copied, low.shared_bytes = low.shared_bytes, 0
    for slab in late:
        slab_base(low, slab)
    low.shared_bytes = max(copied, low.shared_bytes)


def slot_bytes(low: Lowering, stage: Stage) -> int:
    """Bytes from one slot of a slab to the next. TMA puts boxes at aligned addresses only."""
    size = element_bytes(low, stage) * slab_cells(stage)
    alignment = alignment_of(stage) if stage.via == "TMA" else 1
    return -(-size // alignment) * alignment


def alignment_of(stage: Stage) -> int:
    """Where a slab may start. A swizzle takes the row from the address itself, and repeats after eight of its spans."""
    return max(SLAB_ALIGNMENT, 8 * stage.swizzle)


def slab_element(low: Lowering, stage: Stage, idx: tuple[Expr, ...]) -> Expr:
    """The element of a slab that a load reads, without xor: it moves whole chunks, so vectors do not see it."""
    cell = cell_of(stage, idx)
    words = slot_bytes(low, stage) // element_bytes(low, stage)
    slot = idx[0] if stage.depth > 1 else 0
    return tidied(low, total((row_of(stage, cell), cell[-1], slot), (pitch(stage), 1, words)))


def slab_address(low: Lowering, stage: Stage, idx: tuple[Expr, ...], hint: str) -> Address:
    """The address of a cell that a load names."""
    cell = cell_of(stage, idx)
    slot = idx[0] if stage.depth > 1 else 0
    return cell_address(low, stage, tidied(low, row_of(stage, cell)), tidied(low, cell[-1]), slot, hint)


def cell_address(low: Lowering, stage: Stage, row: Expr, column: Expr, slot: Expr, hint: str) -> Address:
    """The address of an element of a row of a slot, in bytes."""
    size, root = element_bytes(low, stage), slab_base(low, stage)
    whole = slot_bytes(low, stage)
    start = multiply(slot, whole) if stage.depth > 1 else 0
    flips = flipped_by(stage, size)
    if not flips:
        e = tidied(low, total((start, row, column), (1, pitch(stage) * size, size)))
        base, offset = resolve(low, root, e, hint, shared=True)
        return Address(base, read(low, offset))
    cell = cell_of_row(low, stage, row, column, flips)
    base, offset = resolve(low, root, add(start, cell.fixed), hint, shared=True)
    return Address(base, read(low, add(offset, cell.rest)), read(low, cell.flipped))


def cell_of_row(low: Lowering, stage: Stage, row: Expr, column: Expr, flips: dict[int, int]) -> Cell:
    """The parts of a cell under a xor layout: copies and accesses of every slot ask for the same ones."""
    key = (stage.dst, row, column)
    known = low.cells.get(key)
    if known is None:
        known = low.cells[key] = _cell(low, stage, row, column, flips)
    return known


def _cell(low: Lowering, stage: Stage, row: Expr, column: Expr, flips: dict[int, int]) -> Cell:
    size = element_bytes(low, stage)
    row_bytes, whole = pitch(stage) * size, slot_bytes(low, stage)
    unit = CHUNK << (max(flips) + 1)
    chunk, within = tidied(low, floordiv(column, CHUNK // size)), tidied(low, modulo(column, CHUNK // size))
    (row_t, row_i), (chunk_t, chunk_i), (within_t, within_i) = (parts(low, e) for e in (row, chunk, within))
    aligned = not (row_bytes % unit or (stage.depth > 1 and whole % unit))
    if not aligned or _share_bits(low, row_t, row_i) or _share_bits(low, chunk_t, chunk_i):
        # an address that does not come apart: all but the slot at the access
        flipped = multiply(xor(chunk, flip(low, flips, row)), CHUNK)
        return Cell(0, add(add(multiply(row, row_bytes), flipped), multiply(within, size)), 0)
    base = add(multiply(row_t, row_bytes), multiply(xor(chunk_t, flip(low, flips, row_t)), CHUNK))
    chunk_i, beyond = within_unit(low, stage, chunk_i, unit // CHUNK)
    rest = add(multiply(row_i, row_bytes), add(multiply(within_i, size), multiply(beyond, CHUNK)))
    flipped = multiply(xor(chunk_i, flip(low, flips, row_i)), CHUNK)
    return Cell(add(base, multiply(within_t, size)), rest, flipped)


def _share_bits(low: Lowering, first: Expr, second: Expr) -> bool:
    return bool(possible_bits(low, first) & possible_bits(low, second))


def within_unit(low: Lowering, stage: Stage, chunk: Expr, unit: int) -> tuple[Expr, Expr]:
    """(the part of a chunk number that may be flipped into an address, the rest, to be added).

    All of it where the rows of the slab are aligned for it, and shared memory is, else its bits within the unit of the
    layout.
    """
    span = CHUNK << greatest(low, chunk).bit_length()
    pitches = (SHARED_ALIGNMENT, low.slab_starts[stage.dst], pitch(stage) * element_bytes(low, stage))
    starts = (*pitches, slot_bytes(low, stage)) if stage.depth > 1 else pitches
    if least(low, chunk) >= 0 and (span <= unit * CHUNK or not any(start % span for start in starts)):
        return chunk, 0
    return tidied(low, modulo(chunk, unit)), tidied(low, multiply(floordiv(chunk, unit), unit))


def flipped_by(stage: Stage, size: int) -> dict[int, int]:
    """{bit of the chunk number: bit of the row number that flips it}. TMA's swizzles repeat after rows of 128 bytes."""
    flips = {n: bit for n, bit in enumerate(stage.xor) if bit != UNUSED}
    if stage.swizzle:
        row_bytes = pitch(stage) * size
        if flips or row_bytes < stage.swizzle or 128 % row_bytes:
            raise InternalError(f"slab `{stage.dst}`: swizzle={stage.swizzle} on rows of {row_bytes} bytes")
        bits = (stage.swizzle // CHUNK).bit_length() - 1
        flips = {n: n + (128 // row_bytes).bit_length() - 1 for n in range(bits)}
    return flips


def flip(low: Lowering, flips: dict[int, int], row: Expr) -> Expr:
    """F(row): the bits of the row put where they flip the chunk number."""
    result: Expr = 0
    for n, bit in flips.items():
        result = add(result, multiply(tidied(low, modulo(tidied(low, floordiv(row, 1 << bit)), 2)), 1 << n))
    return result


def parts(low: Lowering, e: Expr) -> tuple[Expr, Expr]:
    """(what the kernel's top knows of a sum, the rest with the constant)."""
    terms, constant = linear(e)
    known = {atom: factor for atom, factor in terms.items() if level_of(low, atom) == 0}
    rest = {atom: factor for atom, factor in terms.items() if atom not in known}
    return from_linear(known, 0), from_linear(rest, constant)


def possible_bits(low: Lowering, e: Expr) -> int:
    """A mask of the bits that may be set in a sum; all of them where its terms may carry."""
    terms, constant = linear(e)
    mask = 0
    for atom, factor in terms.items():
        lowest, highest = interval(atom, low.ranges)
        if factor < 0 or lowest < 0 or highest > MOST_VALUES:
            return -1
        bits = multiples_mask(factor, highest)
        if mask & bits:
            return (1 << greatest(low, e).bit_length()) - 1
        mask |= bits
    return mask | constant if not mask & constant else (1 << greatest(low, e).bit_length()) - 1


def multiples_mask(factor: int, highest: int) -> int:
    """The bits that occur in factor*0, factor*1, .. factor*highest."""
    if factor & (factor - 1) == 0:
        return ((1 << highest.bit_length()) - 1) * factor
    mask = 0
    for value in range(highest + 1):
        mask |= factor * value
    return mask
