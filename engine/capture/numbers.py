"""Python numbers that dynamo hands over as tensors, because they changed between calls: they are fixed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Function = Callable[..., Any]
MOST_VALUES = 64  # of the numbers of one graph; older ones are forgotten
_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


def numbers(graph: torch.fx.GraphModule) -> dict[int, list[Any]]:
    """{argument that is a number in a tensor of no dimensions: the nodes that read it}."""
    found: dict[int, list[Any]] = {}
    for index, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder"):
        readers = [user for user in node.users if user.target == "item" or user.target in _READS]
        if readers and len(readers) == len(node.users):
            found[index] = readers
    return found


class ByNumbers:
    """A function that is made anew for every value of its numbers.

    make: what makes it, of a graph without them and its other arguments.
    """

    def __init__(self, graph: torch.fx.GraphModule, make: Callable[[torch.fx.GraphModule, Sequence[Any]], Function]):
        self.graph, self.make = graph, make
        self.readers = numbers(graph)
        self.made: dict[tuple[Any, ...], Function] = {}

    def __call__(self, *args: Any) -> Any:
        values = tuple(args[index].item() for index in self.readers)
        others = [arg for index, arg in enumerate(args) if index not in self.readers]
        if values not in self.made:
            if len(self.made) == MOST_VALUES:
                del self.made[next(iter(self.made))]
            self.made[values] = self.make(self._fixed(values), others)
        return self.made[values](*others)

    def _fixed(self, values: Sequence[Any]) -> torch.fx.GraphModule:
        known = {node: x for nodes, x in zip(self.readers.values(), values, strict=True) for node in nodes}
        gone = {node.args[0] for node in known}
        inner = torch.fx.Graph()
        copies: dict[Any, Any] = dict(known)
        for node in self.graph.graph.nodes:
            if node not in known and node not in gone:
                copies[node] = inner.node_copy(node, copies.__getitem__)
        return torch.fx.GraphModule(self.graph, inner)
