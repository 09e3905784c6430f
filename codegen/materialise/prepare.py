"""Before lowering: one Tile per kernel, no axis of extent 1, no name that means two things."""

from __future__ import annotations

from ...ir.diagnostic import InternalError
from ...ir.expr import Var, is_int, only_sizes
from ...ir.kernel import BLOCK_INDEX, SHARED, THREAD
from ...ir.loop import For
from ...ir.names import unused
from ...ir.node import Expr, names_in, nodes, replace
from ...ir.program import Block, Kernel
from ...ir.sizes import lowest
from ...ir.substitute import substitute
from ...ir.tile import Slab, Stage, Tile

TID = "tid"  # the index in the block, where several THREAD axes share it
# `lanes` counts in the shuffles of the printed kernel
RESERVED = (TID, THREAD, SHARED, *BLOCK_INDEX, "lanes")


def prepare(kernel: Kernel) -> tuple[Kernel, Tile]:
    """The kernel with exactly one Tile, whose axes have at least two values and names of their own."""
    tiles = [stmt for stmt in kernel.body if isinstance(stmt, Tile)]
    if tiles and len(kernel.body) != 1:
        raise InternalError(f"kernel `{kernel.name}`: statements beside the Tile")
    tile = tiles[0] if tiles else Tile((), kernel.body)  # a nest that no rule tiled: one thread does it all
    kernel = rename_buffers(replace(kernel, body=(drop_unit_axes(tile),)))
    (tile,) = kernel.body  # type: ignore[assignment]
    tile = rename_reserved(kernel, rename_collisions(kernel, tile))
    return replace(kernel, body=(tile,)), tile


def rename_buffers(kernel: Kernel) -> Kernel:
    """A buffer may be called like something that a launch binds: Kernel IR then has it under another name."""
    params = (*kernel.ins, *kernel.outs)
    taken = {*RESERVED, *(param.name for param in params)}
    names: dict[str, str] = {}
    for param in params:
        if param.name in RESERVED:
            names[param.name] = unused(param.name, taken)
            taken.add(names[param.name])
    if not names:
        return kernel
    ins, outs = (tuple(replace(p, name=names.get(p.name, p.name)) for p in ps) for ps in (kernel.ins, kernel.outs))
    return replace(kernel, ins=ins, outs=outs, body=_with_buffers(kernel.body, names))


def _with_buffers(block: Block, names: dict[str, str]) -> Block:
    out = []
    for stmt in block:
        changes = {f: names.get(getattr(stmt, f), getattr(stmt, f)) for f in ("buf", "src") if hasattr(stmt, f)}
        if hasattr(stmt, "body"):
            changes["body"] = _with_buffers(stmt.body, names)
        out.append(replace(stmt, **changes) if changes else stmt)
    return tuple(out)


def drop_unit_axes(tile: Tile) -> Tile:
    """An axis of extent 1 is the number 0."""
    for axis in tile.axes:
        waits = axis.role == "BLOCK" and only_sizes(axis.extent)  # for the launch
        if not (is_int(axis.extent) or waits) or lowest(axis.extent) < 1:
            raise InternalError(f"axis `{axis.name}` has the extent {axis.extent!r}")
    unit: dict[str, Expr] = {axis.name: 0 for axis in tile.axes if axis.extent == 1}
    if not unit:
        return tile
    kept = tuple(axis for axis in tile.axes if axis.name not in unit)
    return replace(tile, axes=kept, body=substitute(tile.body, unit))


def slab_names(tile: Tile) -> set[str]:
    """The names of the shared slabs of a tile."""
    return {stage.dst for stage in nodes(tile, Stage)} | {slab.dst for slab in nodes(tile, Slab)}


def rename_collisions(kernel: Kernel, tile: Tile) -> Tile:
    """Axes and loop variables share one space of names with buffers and slabs in a kernel; in Tile IR they do not."""
    owned = {param.name for param in (*kernel.ins, *kernel.outs)} | slab_names(tile)
    owned |= set(RESERVED)
    binders = [axis.name for axis in tile.axes] + [loop.var for loop in nodes(tile.body, For)]
    clashing = [name for name in dict.fromkeys(binders) if name in owned]
    if not clashing:
        return tile
    taken = owned | set(binders)
    images: dict[str, Expr] = {}
    for name in clashing:
        fresh = unused(name, taken)
        taken.add(fresh)
        images[name] = Var(fresh)
    axes = tuple(replace(a, name=images[a.name].name) if a.name in images else a for a in tile.axes)
    return replace(tile, axes=axes, body=substitute_variables(tile.body, images))


def rename_reserved(kernel: Kernel, tile: Tile) -> Tile:
    """A value may be called like something that a launch binds, too: the lowering means its own by that."""
    taken = {*names_in(tile), *RESERVED, *(param.name for param in (*kernel.ins, *kernel.outs))}
    images: dict[str, Expr] = {}
    for name in RESERVED:
        if name in names_in(tile):
            images[name] = Var(unused(name, taken))
            taken.add(images[name].name)
    return replace(tile, body=substitute(tile.body, images)) if images else tile


def substitute_variables(body: tuple[object, ...], images: dict[str, Expr]) -> object:
    """Substitution that renames loops and their uses but leaves buffers alone, although they are Names too."""
    return tuple(_rename(stmt, images) for stmt in body)


def _rename(stmt: object, images: dict[str, Expr]) -> object:
    buffers = {field: getattr(stmt, field) for field in ("dst", "src", "buf", "acc", "ring") if hasattr(stmt, field)}
    inner = getattr(stmt, "body", None)
    changed = substitute(replace(stmt, body=()) if inner is not None else stmt, images)  # type: ignore[type-var]
    if inner is not None:
        changed = replace(changed, body=substitute_variables(inner, images))
    return replace(changed, **buffers) if buffers else changed
