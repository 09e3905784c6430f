"""`v[i] = x` where a tensor of no dimensions holds `i`, and `v[i]` beside gradients or changes in place.

PyTorch reads the number out of the tensor, which nothing that traces it can: not torch.export for what is written, nor
AOTAutograd for what is read. To index by the tensor itself is the same, but that what is read is a copy then.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch

from .views import value

_PLACES = (torch.int64, torch.int32, torch.int16, torch.int8)  # as bytes and truth values they are masks


def write_elements(tensor: Any, index: Any, given: Any) -> None:
    """`tensor[index] = given`, where places are tensors indexed by these."""
    indices = _several(index)
    if not _of_places(indices):
        tensor[index] = given
        return
    part, places = _apart(tensor, indices)
    if not isinstance(given, torch.Tensor):
        given = torch.full((), given, dtype=part.dtype, device=part.device)
    given = given.to(part)
    most = part.dim() - sum(place is not None for place in places)
    while given.dim() > most and given.shape[0] == 1:  # as PyTorch leaves out what a value has in front
        given = given[0]
    torch.ops.aten.index_put_(part, places, given)


def read_elements(tensor: Any, index: Any) -> Any:
    """A copy of `tensor[index]`, where places are tensors indexed by these."""
    part, places = _apart(tensor, _several(index))
    return torch.ops.aten.index(part, places)


def by_elements(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """dynamo's graph with these functions in place of indexing by tensors of no dimensions.

    What is read stays a view where anything made of it is changed in place, but for `v[i] += x`, which writes it back.
    """
    for node in filter(_by_places, graph.graph.find_nodes(op="call_function", target=operator.setitem)):
        node.target = write_elements
    for node in filter(_by_places, graph.graph.find_nodes(op="call_function", target=operator.getitem)):
        if not any(map(_changes, _made_of(node))):
            node.target = read_elements
    graph.recompile()
    return graph


def _by_places(node: torch.fx.Node) -> bool:
    index = node.args[1]
    known = (value(one) if isinstance(one, torch.fx.Node) else one for one in _several(index))
    return isinstance(value(node.args[0]), torch.Tensor) and _of_places(tuple(known))


def _made_of(read: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that are computed from one, less those of `v[i] += x`."""
    seen: set[torch.fx.Node] = set()
    left = list(read.users)
    while left:
        node = left.pop()
        if node not in seen and not _written_back(node, read):
            seen.add(node)
            yield node
            left.extend(node.users)


def _written_back(node: torch.fx.Node, read: torch.fx.Node) -> bool:
    """Whether a node changes what is read and all that reads the result writes it to where it was."""
    if node.op != "call_function" or node.args[:1] != (read,) or len(read.users) > 1 or len(node.users) != 1:
        return False
    writing = next(iter(node.users))
    return writing.target is write_elements and writing.args == (*read.args, node)


def _changes(node: torch.fx.Node) -> bool:
    """Whether an op may change a tensor in place, by its name."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or (getattr(node.target, "__module__", "") == "_operator" and name[:1] == "i" and name != "index")


def _several(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _of_places(indices: tuple[Any, ...]) -> bool:
    """Whether a tensor of no dimensions is a place among numbers, slices and new axes alone."""
    plain = (int, torch.SymInt, slice, type(None), type(...))
    rest = [index for index in indices if not _is_place(index)]
    return len(rest) < len(indices) and all(isinstance(index, plain) and not isinstance(index, bool) for index in rest)


def _is_place(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype in _PLACES


def _apart(tensor: Any, indices: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """The part of a tensor that is left of all but the places, and the place of each of its dimensions, or None."""
    part = tensor[tuple(slice(None) if _is_place(index) else index for index in indices)]
    dots = next((number for number, index in enumerate(indices) if index is ...), len(indices))
    places: list[Any] = [None] * part.dim()
    for first, step, some in ((0, 1, indices[:dots]), (-1, -1, indices[:dots:-1])):
        kept = [index for index in some if _is_place(index) or not isinstance(index, (int, torch.SymInt))]
        for number, index in enumerate(kept):
            if _is_place(index):
                wide = index if index.dtype in (torch.int64, torch.int32) else index.to(torch.int64)
                places[first + step * number] = wide
    return part, places
