"""Smaller subjects: kernels, statements, axes and extents less, buffers in the sizes that are left."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.diagnostic import DplcError
from ...ir.loop import For, If, Load, Store
from ...ir.node import nodes, replace
from ...ir.program import Block, Kernel
from ...ir.tile import Stage, Tile
from ..rewrite.statements.well_formed import wellformed
from .extents import TooLarge, needs
from .statement_neighbours import _extents as extents_of
from .statement_neighbours import renumbered, resized
from .whole_programs import observed, scoped, sized

Program = tuple[Kernel, ...]


def smaller_programs(program: Program) -> Iterator[Program]:
    """Programs that are a little smaller, those that lack most first."""
    if len(program) > 1:
        for n in range(len(program)):
            yield (*program[:n], *program[n + 1 :])
    for n, kernel in enumerate(program):
        for body in (*_bodies(kernel.body), *_smaller_extents(kernel)):
            try:
                made = _fitted(replace(kernel, body=body), kernel)
            except (DplcError, TooLarge, ValueError, TypeError, LookupError):
                continue
            if made.outs:
                yield (*program[:n], made, *program[n + 1 :])


def _fitted(kernel: Kernel, before: Kernel) -> Kernel:
    """The kernel with buffers as its body needs them; what is no longer mentioned is gone."""
    whole = sized(replace(kernel, body=observed(kernel)), needs(kernel.body), needs(before.body))
    scoped(whole)
    if wellformed(whole) is not None:
        raise ValueError("not well formed")
    used = {
        getattr(x, field)
        for x in nodes(whole.body, Load, Store, Stage)
        for field in ("buf", "src")
        if hasattr(x, field)
    }
    ins = tuple(p for p in whole.ins if p.name in used)
    return replace(whole, ins=ins, outs=tuple(p for p in whole.outs if p.name in used))


def _bodies(body: Block) -> Iterator[Block]:
    """The block with one statement gone, or replaced by what is inside of it."""
    for n, statement in enumerate(body):
        before, after = body[:n], body[n + 1 :]
        yield (*before, *after)
        if isinstance(statement, For | If):
            yield (*before, *statement.body, *after)
        if isinstance(statement, Tile):
            for m in range(len(statement.axes)):
                yield (*before, replace(statement, axes=(*statement.axes[:m], *statement.axes[m + 1 :])), *after)
        if hasattr(statement, "body"):
            for inner in _bodies(statement.body):
                yield (*before, replace(statement, body=inner), *after)  # type: ignore[call-arg]


def _smaller_extents(kernel: Kernel) -> Iterator[Block]:
    for old in sorted(extents_of(kernel.body), reverse=True):
        for new in dict.fromkeys((1, 2, 3, old // 2)):
            if new < old:
                for multiples in (True, False):
                    yield tuple(renumbered(s, resized(old, new, multiples)) for s in kernel.body)
