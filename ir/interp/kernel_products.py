"""Statements of Kernel IR for tensor cores: fragments, products of a warp, queued products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernel import (
    SHARED,
    CommitProducts,
    FenceProducts,
    Fragment,
    LoadMatrix,
    Multiply,
    PackWord,
    QueueProduct,
    WaitProducts,
)
from ..program import Stmt
from .kernel_blocks import RunningBlocks
from .scalar import ScheduleError


def _fragment(blocks: RunningBlocks, stmt: Fragment, mask: Any) -> None:
    blocks.fragments.declare(stmt)


def _load_matrix(blocks: RunningBlocks, stmt: LoadMatrix, mask: Any) -> None:
    blocks.together(mask)
    root, lanes = blocks.lanes(stmt.address, None)
    if root != SHARED:
        raise ScheduleError("matrices are loaded from shared memory")
    blocks.fragments.load(stmt, lanes)


def _pack(blocks: RunningBlocks, stmt: PackWord, mask: Any) -> None:
    blocks.fragments.pack(stmt, [blocks.value(value, mask) for value in stmt.values], mask)


def _multiply(blocks: RunningBlocks, stmt: Multiply, mask: Any) -> None:
    blocks.together(mask)
    blocks.fragments.multiply(stmt)


def _product(blocks: RunningBlocks, stmt: Stmt, mask: Any) -> None:
    blocks.together(mask)
    blocks.products.statement(stmt, lambda matrix: blocks.lanes(matrix.at, None))


PRODUCTS: dict[type[Stmt], Callable[[Any, Any, Any], None]] = {
    Fragment: _fragment,
    LoadMatrix: _load_matrix,
    PackWord: _pack,
    Multiply: _multiply,
    FenceProducts: _product,
    QueueProduct: _product,
    CommitProducts: _product,
    WaitProducts: _product,
}
