"""Results that share memory with arguments or with one another: the graph computes what lies below, torch views it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

Function = Callable[..., Any]


def value(node: Any) -> Any:
    """What is known of a node's value: a tensor without data, or several."""
    return node.meta.get("example_value", node.meta.get("val"))


def is_view(node: Any) -> bool:
    """Whether a node computes nothing: all its memory is that of the tensors it reads."""
    if not node.op.startswith("call_"):
        return False
    if node.target is operator.getitem and isinstance(value(node.args[0]), (tuple, list)):
        return is_view(node.args[0])
    return bool(storages(node)) and storages(node) <= {x for source in node.all_input_nodes for x in storages(source)}


def storages(node: Any) -> set[int]:
    """The identities of the memory of a node's tensors."""
    tensors = (x for x in pytree.tree_leaves(value(node)) if isinstance(x, torch.Tensor))
    return {_unwrapped(x).untyped_storage()._cdata for x in tensors}


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """What lies below the wrappers that torch.func puts around a tensor inside of `vmap`: they have no memory."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def apart(
    graph: torch.fx.GraphModule,
    compiled: Callable[[torch.fx.GraphModule], Function],
    known: Callable[[Sequence[Any], Any], int | None],
) -> Function:
    """The graph as a function: `compiled` makes that of what it computes; results that are views are taken of that.

    Results have the strides that the graph gives them, since views that are taken of them later depend on these.
    known: what a number of the graph is in a call with such arguments; None where they do not say.
    """
    results = [x for x in pytree.tree_leaves(graph.graph.output_node().args) if isinstance(x, torch.fx.Node)]
    views = _views(graph, results)
    read = [*results, *(source for view in views for source in view.all_input_nodes)]
    below = [x for x in dict.fromkeys(read) if x not in views and x.op.startswith("call_") and not _numeric(x)]
    strides = [_unusual_strides(x) for x in below]
    if results == below and not any(strides):
        return compiled(graph)
    made = compiled(_computing(graph, below)) if below else None
    numbers = _numbers(graph, below, views, read)
    after = _viewing(graph, [*below, *numbers], views)

    def run(*args: Any) -> Any:
        values = made(*args) if made is not None else ()
        wanted = (None if own is None else tuple(known(args, n) for n in own) for own in strides)
        return after(*args, *map(restrided, values, wanted), *(known(args, value(node)) for node in numbers))

    return run


def restrided(tensor: Any, strides: tuple[int | None, ...] | None) -> Any:
    """Return the tensor with such strides, copied where it has others; itself if they are unknown or repeat memory."""
    if strides is None or None in strides or 0 in strides or tensor.stride() == strides:
        return tensor
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _numeric(node: Any) -> bool:
    """Whether a node computes lengths from lengths: no tensor comes of it."""
    return node.op.startswith("call_") and bool(node.all_input_nodes) and not storages(node)


def _unusual_strides(node: Any) -> tuple[int, ...] | None:
    known = value(node)
    return None if not isinstance(known, torch.Tensor) or known.is_contiguous() else tuple(known.stride())


def _views(graph: torch.fx.GraphModule, results: Sequence[Any]) -> set[Any]:
    """The views among the results, and those that they are views of."""
    found: set[Any] = set()
    for node in reversed(graph.graph.nodes):
        if (node in results or not found.isdisjoint(node.users)) and is_view(node):
            found.add(node)
    return found


def _computing(graph: torch.fx.GraphModule, results: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph with other results, and nothing that only views needed."""
    inner = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    for node in graph.graph.nodes:
        if node.op != "output":
            copies[node] = inner.node_copy(node, copies.__getitem__)
    inner.output(tuple(copies[node] for node in results))
    inner.eliminate_dead_code()
    return torch.fx.GraphModule(graph, inner)


def _numbers(graph: torch.fx.GraphModule, below: Sequence[Any], views: set[Any], read: Sequence[Any]) -> list[Any]:
    """Lengths among what results and views read, of tensors that are not there: those of a call say them, too."""
    there = {*below, *views, *(node for node in graph.graph.nodes if node.op == "placeholder")}
    for node in graph.graph.nodes:
        if _numeric(node) and there.issuperset(node.all_input_nodes):
            there.add(node)
    return [node for node in dict.fromkeys(read) if node not in there and isinstance(value(node), torch.SymInt)]


def _viewing(graph: torch.fx.GraphModule, below: Sequence[Any], views: set[Any]) -> Function:
    """The results, of the arguments and what was computed."""
    inner = torch.fx.Graph()
    given = [node for node in graph.graph.nodes if node.op == "placeholder"]
    copies = {node: inner.placeholder(node.name) for node in (*given, *below)}
    for node in graph.graph.nodes:
        counted = _numeric(node) and copies.keys() >= set(node.all_input_nodes)
        if node in views or node.op == "get_attr" or counted:
            copies[node] = inner.node_copy(node, copies.__getitem__)
    (results,) = graph.graph.output_node().args
    inner.output(torch.fx.map_arg(results, copies.__getitem__))
    inner.eliminate_dead_code()
    forward: Function = torch.fx.GraphModule(graph, inner).forward
    return forward
