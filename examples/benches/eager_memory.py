"""The least memory that eager holds for a program in Torch IR, to compare with the arena that dplc plans."""

from __future__ import annotations

import functools
import itertools
import math
import operator

import torch

from dplc.ir import schemas
from dplc.ir.dtypes import DTYPES
from dplc.ir.expr import free_names
from dplc.ir.sizes import highest
from dplc.ir.torch import TorchGraph


def eager_peak(graph: TorchGraph) -> int:
    """Return the least bytes that eager holds at once, in addition to weights, inputs and outputs, running op by op.

    Every op's result is a tensor of its own that lives to its last reader. A result that the op's schema allows to be a
    view of its operand needs no memory and keeps the operand. Workspace inside an op counts as nothing. A size has its
    greatest value.
    """
    owner, last = dict[str, str](), dict[str, int]()
    held: dict[str, tuple[int, int]] = {}  # {result that is not a view: (the place of its op, bytes)}
    for place, op in enumerate(graph.body):
        last |= {owner.get(name, name): place for name in (op.dst, *free_names(op.args))}
        fields = dict(op.args)
        viewed = next((name for field in _viewed(op.op) for name in free_names((fields.get(field),))), None)
        if viewed is not None:
            owner[op.dst] = owner.get(viewed, viewed)
        else:
            widths = (DTYPES[kind.dtype].item_bytes if kind.dtype in DTYPES else 8 for kind in op.types)
            counts = (int(highest(math.prod(kind.shape))) for kind in op.types)
            held[op.dst] = place, sum(map(operator.mul, counts, widths))
    for out in graph.outs:
        held.pop(owner.get(out.name, out.name), None)
    changes = [0] * (len(graph.body) + 1)
    for name, (place, nbytes) in held.items():
        changes[place] += nbytes
        changes[last[name] + 1] -= nbytes
    return max(itertools.accumulate(changes))


@functools.cache
def _viewed(op: str) -> tuple[str, ...]:
    """Return the operands that a result may be a view of, as the ATen schemas mark them."""
    if op == "Getitem":
        return ("self",)
    packet = getattr(torch.ops.aten, schemas.aten_name(op))
    overload = getattr(packet, packet.overloads()[0])
    schema = overload._schema
    alone = overload.is_view and schema.returns[0].alias_info.before_set  # not one of a list of views
    return tuple(a.name for a in schema.arguments if alone and a.alias_info)
