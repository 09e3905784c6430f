"""Elements at a place that a tensor of no dimensions holds: `v[i]`.

PyTorch reads the number out of the tensor and takes a slice at it, and a number that depends on the values of a tensor
is known to no compiler. Indexing by the tensor itself gives the same.
"""

from __future__ import annotations

from typing import Any

import torch

_READ, _SELECT, _WRITE = (
    torch.ops.aten.item.default,
    torch.ops.aten.select.int,
    torch.ops.aten.select_scatter.default,
)


def indexed(program: Any) -> Any:
    """The exported program, functional, where what is selected at a number out of a tensor is indexed by the tensor.

    A number that anything else reads, too, stays for that.
    """
    graph = program.graph_module.graph
    for number in [node for node in graph.nodes if node.target is _READ and not _of_a_byte(node)]:
        for node in list(number.users):
            if node.target in (_SELECT, _WRITE):
                _index(graph, node, number)
    return program


def _index(graph: Any, node: Any, number: Any) -> None:
    """In place of a slice at a number: indices, one of which is the tensor that holds it."""
    source, *written, dim, place = node.args
    if place is not number:
        return
    before = dim % source.meta["val"].ndim
    at = number.args[0]
    with graph.inserting_before(node):
        if at.meta["val"].dtype not in (torch.int32, torch.int64):  # which index takes
            wide = graph.call_function(torch.ops.aten._to_copy.default, (at,), {"dtype": torch.int64})
            wide.meta = node.meta | {"val": at.meta["val"].to(torch.int64)}
            at = wide
        indices = [None] * before + [at]
        if written:
            made = graph.call_function(torch.ops.aten.index_put.default, (source, indices, *written))
        else:
            made = graph.call_function(torch.ops.aten.index.Tensor, (source, indices))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _of_a_byte(number: Any) -> bool:
    """Whether a tensor may be a mask, as bytes are for `v[i]` in eager mode: a trace shows a number there, too."""
    return number.args[0].meta["val"].dtype is torch.uint8
