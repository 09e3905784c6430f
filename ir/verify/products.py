"""What must hold of fragments and products of tensor cores in Kernel IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..atoms import ATOMS, WORD_BYTES
from ..expr import is_int
from ..facts.layout import DTYPE_BYTES
from ..kernel import (
    CommitProducts,
    Element,
    FenceProducts,
    Fragment,
    LoadMatrix,
    Matrix,
    Multiply,
    PackWord,
    QueueProduct,
    WaitProducts,
)
from ..node import Expr
from ..program import Stmt
from .kernel_scope import KnownName, NamesInScope

CORE_BYTES, REACH = 16, 1 << 18  # what a descriptor counts in, and how far it sees
MATRIX_ROW_BYTES, MATRIX_START = 16, 32  # start: of what a descriptor says


def _fragment(scope: NamesInScope, stmt: Fragment) -> None:
    scope.bind(stmt, stmt.dst, KnownName("fragment", stmt.dtype, (stmt.words,), mutable=True, divergent=True))


def _words(scope: NamesInScope, stmt: Stmt, place: Expr, count: int) -> KnownName | None:
    """So many words of a fragment, from a place on."""
    known = scope.names[place.name] if isinstance(place, Element) else None
    if known is None or known.kind != "fragment" or len(place.index) != 1:
        scope.say(stmt, "this is no place of a fragment")
        return None
    scope.places(stmt, place)
    if is_int(place.index[0]) and place.index[0] + count > known.shape[0]:
        scope.say(stmt, f"`{place.name}` has {known.shape[0]} words")
    return known


def _load_matrix(scope: NamesInScope, stmt: LoadMatrix) -> None:
    scope.together(stmt)
    if scope.address(stmt, stmt.address, None, MATRIX_ROW_BYTES).dtype is not None:
        scope.say(stmt, "matrices are loaded from shared memory")
    known = _words(scope, stmt, stmt.into, stmt.count)
    if stmt.count not in (1, 2, 4) or (stmt.trans and known and DTYPE_BYTES[known.dtype or ""] != 2):
        scope.say(stmt, "1, 2 or 4 matrices; only elements of 2 bytes are transposed")


def _pack(scope: NamesInScope, stmt: PackWord) -> None:
    known = _words(scope, stmt, stmt.into, 1)
    scope.elements(stmt, stmt.values)
    if known and len(stmt.values) * DTYPE_BYTES[known.dtype or ""] != WORD_BYTES:
        scope.say(stmt, f"a word does not hold {len(stmt.values)} values of {known.dtype}")


def _multiply(scope: NamesInScope, stmt: Multiply) -> None:
    scope.together(stmt)
    atom = ATOMS[stmt.atom]
    places = ((stmt.a, atom.a_order), (stmt.b, atom.b_order))
    left, right = (_words(scope, stmt, place, atom.words(order)) for place, order in places)
    if left and right and not atom.multiplies(left.dtype or "", right.dtype or ""):
        scope.say(stmt, f"`{stmt.atom}` does not multiply {left.dtype} by {right.dtype}")
    _sums(scope, stmt)


def _queue_product(scope: NamesInScope, stmt: QueueProduct) -> None:
    scope.together(stmt)
    for problem in _product_problems(stmt):
        scope.say(stmt, problem)
    for matrix in (stmt.a, stmt.b):
        if isinstance(matrix, Matrix) and scope.address(stmt, matrix.at, None, MATRIX_START).dtype is not None:
            scope.say(stmt, "a matrix stands in shared memory")
    atom = ATOMS[stmt.atom]
    if not isinstance(stmt.a, Matrix):
        held = _words(scope, stmt, stmt.a, atom.words(atom.a_order))
        if held and held.dtype != stmt.dtype:
            scope.say(stmt, f"`{stmt.atom}` does not multiply {held.dtype} by {stmt.dtype}")
    _sums(scope, stmt)


def _sums(scope: NamesInScope, stmt: Multiply | QueueProduct) -> None:
    if scope.target(stmt, stmt.acc) not in (None, ATOMS[stmt.atom].sums):
        scope.say(stmt, f"`{stmt.atom}` sums {ATOMS[stmt.atom].sums}")
    scope.elements(stmt, stmt.acc)


def _product_problems(stmt: QueueProduct) -> Iterator[str]:
    """What is wrong with a product, a sentence each."""
    atom = ATOMS[stmt.atom]
    if not atom.late or stmt.dtype not in atom.dtypes:
        yield f"`{stmt.atom}` does not multiply {stmt.dtype} out of shared memory"
    if not isinstance(stmt.b, Matrix):
        yield "the right operand is no matrix"
    for matrix in (part for part in (stmt.a, stmt.b) if isinstance(part, Matrix)):
        if matrix.at.xor != 0:
            yield "a matrix has its swizzle in its rows, no xor of its start"
        elif any(n % CORE_BYTES or not 0 <= n < REACH for n in (matrix.stride, matrix.leading)):
            yield f"a matrix goes on after a multiple of {CORE_BYTES} bytes, less than {REACH}"


PRODUCT_CHECKS: dict[type[Stmt], Callable[[Any, Any], None]] = {
    Fragment: _fragment,
    LoadMatrix: _load_matrix,
    PackWord: _pack,
    Multiply: _multiply,
    FenceProducts: NamesInScope.together,
    QueueProduct: _queue_product,
    CommitProducts: NamesInScope.together,
    WaitProducts: NamesInScope.together,
}
