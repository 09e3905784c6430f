"""The peak of memory beside weights, inputs and outputs: what dplc's plan takes, and what eager takes at the least."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...codegen.kernel import Program
from ...ir import schemas
from ...ir.dtypes import DTYPES
from ...ir.expr import free_names
from ...ir.sizes import highest
from ...ir.torch import TorchGraph, TorchOp

EAGER = "a lower bound by liveness of Torch IR: every op's result to its last reader, what may be a view at no cost"


def planned_peak(program: Program) -> int:
    """Bytes of the temporaries, as the arena has them."""
    return program.arena.bytes if program.arena else sum(b.nbytes for b in program.temporaries)


def eager_peak(graph: TorchGraph) -> int:
    """The least bytes that eager holds at once, beside weights, inputs and outputs, running op by op.

    Every op's result is a tensor of its own that lives to its last reader, except that what the op's schema allows to
    be a view of its operand takes no memory and keeps the operand. Workspace inside an op counts as nothing. A size is
    as great as it can be.
    """
    owner: dict[str, str] = {}
    last: dict[str, int] = {}
    size: dict[str, int] = {}
    for place, op in enumerate(graph.body):
        for name in free_names(op.args):
            last[owner.get(name, name)] = place
        owner[op.dst] = _base(op, owner)
        if owner[op.dst] == op.dst:
            size[op.dst] = sum(_bytes(kind.dtype, kind.shape) for kind in op.types)
            last[op.dst] = place
    for out in graph.outs:
        size.pop(owner.get(out.name, out.name), None)
    ends: dict[int, list[str]] = {}
    for name in size:
        ends.setdefault(last[name], []).append(name)
    alive = most = 0
    for place, op in enumerate(graph.body):
        alive += size.get(op.dst, 0)
        most = max(most, alive)
        alive -= sum(size[name] for name in ends.get(place, ()))
    return most


def _base(op: TorchOp, owner: dict[str, str]) -> str:
    """The tensor whose memory a result uses: its own, or that of the operand it is a view of."""
    fields: dict[str, Any] = dict(op.args)
    for field in _viewed(op.op):
        for name in free_names((fields.get(field),)):
            return owner.get(name, name)
    return op.dst


_VIEWED: dict[str, tuple[str, ...]] = {"Getitem": ("self",)}


def _viewed(op: str) -> tuple[str, ...]:
    """The operands that a result may be a view of, as the ATen schemas mark them."""
    if op not in _VIEWED:
        packet = getattr(torch.ops.aten, schemas.aten_name(op))
        schema = getattr(packet, packet.overloads()[0])._schema
        returned = schema.returns[0].alias_info if schema.returns else None
        marks = returned.before_set if returned is not None and not returned.is_write else set()
        _VIEWED[op] = tuple(a.name for a in schema.arguments if a.alias_info and a.alias_info.before_set & marks)
    return _VIEWED[op]


def _bytes(dtype: str, shape: tuple[Any, ...]) -> int:
    width = DTYPES[dtype].item_bytes if dtype in DTYPES else 8
    return int(highest(math.prod(shape))) * width
