"""Python numbers that dynamo hands over as tensors, because they changed between calls: they are fixed again.

One that dynamo's guards hold to a value is fixed at once, any other when a call says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any

import torch

from .views import value

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


def guarded(graph: torch.fx.GraphModule) -> dict[int, Any]:
    """{argument: its value}, of the numbers that have one value wherever this graph is called."""
    known = {}
    for index, readers in numbers(graph).items():
        spoken = [value(reader) for reader in readers]
        if all(isinstance(x, (torch.SymFloat, torch.SymInt)) and x.node.expr.is_number for x in spoken):
            kind = float if isinstance(spoken[0], torch.SymFloat) else int
            known[index] = kind(spoken[0].node.expr)
    return known


def fixed(graph: torch.fx.GraphModule, values: Mapping[int, Any]) -> torch.fx.GraphModule:
    """The graph without such arguments, which have these values."""
    given = [node for node in graph.graph.nodes if node.op == "placeholder"]
    gone = {given[index] for index in values}
    copies: dict[Any, Any] = {
        reader: values[index] for index, readers in numbers(graph).items() if index in values for reader in readers
    }
    inner = torch.fx.Graph()
    for node in graph.graph.nodes:
        if node not in copies and node not in gone:
            copies[node] = inner.node_copy(node, copies.__getitem__)
    return torch.fx.GraphModule(graph, inner)


def without(arguments: Sequence[Any], gone: Container[int]) -> list[Any]:
    return [argument for index, argument in enumerate(arguments) if index not in gone]


class ByNumbers:
    """A function that is made anew for every value of its numbers.

    make: what makes it, of a graph without them and its other arguments. told: what else of these it is made for.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        make: Callable[[torch.fx.GraphModule, Sequence[Any]], Function],
        told: Callable[[Sequence[Any]], Hashable],
    ):
        self.graph, self.make, self.told = graph, make, told
        self.readers = numbers(graph)
        self.made: dict[Hashable, Function] = {}

    def __call__(self, *args: Any) -> Any:
        values = {index: args[index].item() for index in self.readers}
        others = without(args, values)
        key = (*values.values(), self.told(others))
        if key not in self.made:
            if len(self.made) == MOST_VALUES:
                del self.made[next(iter(self.made))]
            self.made[key] = self.make(fixed(self.graph, values), others)
        return self.made[key](*others)
