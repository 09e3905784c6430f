"""Python numbers that dynamo hands over as tensors, because they changed between calls.

One that dynamo's guards hold to a value is fixed at once. A float stays a tensor where all ops that read it take one in
the place of a number and give the same kind of result; any other number is fixed when a call says what it is.
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


def carried(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph where floats are read as tensors, as far as its ops take them so; the graph itself if none are."""
    given = [node for node in graph.graph.nodes if node.op == "placeholder"]
    found = dict[Any, Any]()  # a number: the tensor in its place
    for index, readers in numbers(graph).items():
        if isinstance(value(given[index]), torch.Tensor) and value(given[index]).dtype is torch.float64:
            found |= _as_tensors(given[index], readers) or {}
    if not found:
        return graph
    inner = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    for node in graph.graph.nodes:
        if node in found and found[node] is not None:
            copies[node] = copies[found[node]]
            continue
        kind = _kind_beside(node) if node not in found and found.keys() & set(node.all_input_nodes) else None
        copies[node] = inner.node_copy(node, lambda x, kind=kind: _cast(inner, copies[x], kind if x in found else None))
        if node in found:
            copies[node].meta = {"example_value": _PLACE.clone()}
    return torch.fx.GraphModule(graph, inner)


_PLACE = torch.empty((), dtype=torch.float64, device="meta")


def _as_tensors(given: Any, readers: Sequence[Any]) -> dict[Any, Any] | None:
    """{number: the argument that holds it, None of one that is computed of such numbers alone}; None where an op that
    reads one of them takes no tensor there."""
    found: dict[Any, Any] = dict.fromkeys(readers, given)
    pending = list(readers)
    while pending:
        for user in pending.pop().users:
            if user in found:
                continue
            tried = _tried(user, found)
            if isinstance(value(user), torch.SymFloat) and _like(tried, _PLACE):
                found[user] = None
                pending.append(user)
            elif not isinstance(value(user), torch.Tensor) or not _like(tried, value(user)):
                return None
    return found


def _tried(node: Any, numbers: Container[Any]) -> Any:
    """What an op gives for tensors without data where a number is a tensor; None where it takes none."""
    kind = _kind_beside(node)

    def stand_in(x: Any) -> Any:
        known = value(x)
        if x in numbers:
            return _PLACE.to(kind or _PLACE.dtype)
        if not isinstance(known, torch.Tensor):
            raise TypeError(f"`{x}` is no tensor")
        shape = [n if isinstance(n, int) else n.node.hint for n in known.shape]
        return torch.empty(shape, dtype=known.dtype, device="meta")

    if node.op not in ("call_function", "call_method"):
        return None
    try:
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), stand_in)
        with torch.no_grad():
            if node.op == "call_method":
                return getattr(args[0], node.target)(*args[1:], **kwargs)
            return node.target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError):  # torch has one for each way to refuse
        return None


def _like(a: Any, b: Any) -> bool:
    """Whether two are tensors of one kind."""
    both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    return both and a.dtype is b.dtype and len(a.shape) == len(b.shape)


def _kind_beside(node: Any) -> torch.dtype | None:
    """The dtype in which torch takes a float beside an op's tensors; None beside numbers alone."""
    tensors = [x for x in map(value, node.all_input_nodes) if isinstance(x, torch.Tensor)]
    kinds = {torch.result_type(torch.empty(1, dtype=x.dtype, device="meta"), 1.0) for x in tensors}
    if not kinds:
        return None
    return torch.float64 if kinds & {torch.float64, torch.complex128} else torch.float32


def _cast(graph: torch.fx.Graph, node: Any, kind: torch.dtype | None) -> Any:
    if kind is None or kind is torch.float64:
        return node
    cast = graph.call_method("to", (node, kind))
    cast.meta["example_value"] = _PLACE.to(kind)
    return cast


def without(arguments: Sequence[Any], gone: Container[int]) -> list[Any]:
    return [argument for index, argument in enumerate(arguments) if index not in gone]


class ByNumbers:
    """A function that is made anew for every value of its numbers.

    make: what makes it, of a graph without them and its other arguments. told: what else of these it is made for.
    changed: hears of a number that is another one than it was: the op that reads it, and both values.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        make: Callable[[torch.fx.GraphModule, Sequence[Any]], Function],
        told: Callable[[Sequence[Any]], Hashable],
        changed: Callable[[Any, Any, Any], None],
    ):
        self.graph, self.make, self.told, self.changed = graph, make, told, changed
        self.readers = numbers(graph)
        self.latest: dict[int, Any] = {}
        self.made: dict[Hashable, Function] = {}

    def __call__(self, *args: Any) -> Any:
        values = {index: args[index].item() for index in self.readers}
        others = without(args, values)
        key = (*values.values(), self.told(others))
        if key not in self.made:
            self._compare(values)
            if len(self.made) == MOST_VALUES:
                del self.made[next(iter(self.made))]
            self.made[key] = self.make(fixed(self.graph, values), others)
        return self.made[key](*others)

    def _compare(self, values: dict[int, Any]) -> None:
        index = next((i for i, n in values.items() if self.latest.get(i, n) != n), None)
        if index is not None:
            reader = next((user for node in self.readers[index] for user in node.users), None)
            self.changed(reader, self.latest[index], values[index])
        self.latest = values
