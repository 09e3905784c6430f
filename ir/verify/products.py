"""What must hold of a queued product by itself: a late atom, and operands that descriptors say."""

from __future__ import annotations

from collections.abc import Iterator

from ..atoms import ATOMS
from ..kernel import Matrix, QueueProduct

CORE_BYTES, REACH = 16, 1 << 18  # what a descriptor counts in, and how far it sees


def product_problems(stmt: QueueProduct) -> Iterator[str]:
    """What is wrong with a product, a sentence each."""
    atom = ATOMS[stmt.atom]
    if not atom.late or stmt.dtype not in atom.dtypes:
        yield f"`{stmt.atom}` does not multiply {stmt.dtype} out of shared memory"
    for matrix in (stmt.a, stmt.b):
        if not isinstance(matrix, Matrix):
            yield "an operand is no matrix"
        elif matrix.at.xor != 0:
            yield "a matrix has its swizzle in its rows, no xor of its start"
        elif any(n % CORE_BYTES or not 0 <= n < REACH for n in (matrix.stride, matrix.leading)):
            yield f"a matrix goes on after a multiple of {CORE_BYTES} bytes, less than {REACH}"
