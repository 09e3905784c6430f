"""A graph of torch functions cut around the ops that dplc does not compile, so that the rest is compiled."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.passes.split_module import split_module

from ...ir.diagnostic import Span
from .places import is_library
from .views import value

Function = Callable[..., Any]
_SWITCHES = (torch.amp._enter_autocast, torch.amp._exit_autocast, torch._C._set_grad_enabled)


class Piece(torch.nn.Module):  # type: ignore[misc]
    """A function in the place of a submodule."""

    def __init__(self, function: Function):
        super().__init__()
        self.forward = function


def ops(graph: torch.fx.GraphModule) -> list[Any]:
    """The nodes that compute, without those that switch autocast or gradients: torch gives them to every piece."""
    return [node for node in graph.graph.nodes if node.op.startswith("call_") and node.target not in _SWITCHES]


def alike(graph: torch.fx.GraphModule, bad: Any) -> set[Any]:
    """A node and what goes with it: the same function elsewhere, and what takes its several results apart."""
    if bad.target is operator.getitem:  # which may be anything: a slice, a mask
        return {bad}
    found = {node for node in ops(graph) if (node.op, node.target) == (bad.op, bad.target)}
    for node in ops(graph):
        if node.target in (operator.getitem, getattr) and node.args[0] in found and _several(node.args[0]):
            found.add(node)
    return found


def _several(node: Any) -> bool:
    return isinstance(value(node), (tuple, list))


def cut(graph: torch.fx.GraphModule, bad: set[Any], compiled: Callable[[torch.fx.GraphModule], Function]) -> Function:
    """The graph with `bad` nodes in eager and every run of others as `compiled` makes it, in the order of the graph."""
    bad = bad.union(*(region for region in _transformed(graph) if bad & region))
    number: dict[Any, int] = {}
    run, last = 0, False
    for node in graph.graph.nodes:
        run, last = run + ((node in bad) != last), node in bad
        number[node] = run
    whole = split_module(graph, graph, lambda node: number[node], keep_original_order=True)
    eager = {f"submod_{number[node]}" for node in bad}
    for name, child in list(whole.named_children()):
        if name not in eager and isinstance(child, torch.fx.GraphModule) and ops(child):
            setattr(whole, name, Piece(compiled(child)))
    forward: Function = whole.forward
    return forward


def _transformed(graph: torch.fx.GraphModule) -> list[set[Any]]:
    """The runs of nodes inside of a `vmap` or another of torch.func's, whose tensors nobody outside may see."""
    regions, depth = list[set[Any]](), 0
    for node in ops(graph):
        name = getattr(node.target, "__name__", "")
        if name.endswith("_increment_nesting"):
            regions += [set()] if depth == 0 else []
            depth += 1
        if depth:
            regions[-1].add(node)
        depth -= name.endswith("_decrement_nesting")
    return regions


def node_at(graph: torch.fx.GraphModule, span: Span | None) -> Any | None:
    """The node of a line of the graph's own text; None for a place elsewhere."""
    if span is None or not span.source.name.startswith("<eval_with_key>"):
        return None
    name = re.match(r"\s*(\w+)", span.source.line(span.line))
    return next((node for node in ops(graph) if name is not None and node.name == name[1]), None)


def user_place(node: Any | None, span: Span | None) -> str | None:
    """Where the user wrote the op of a node: `model.py:12: y = conv(x)`."""
    if node is None:
        return None if span is None or span.source.name.startswith("<eval_with_key>") else span.location
    frames = re.findall(r'File "(.+?)", line (\d+), in .*\n\s*(.*)', node.stack_trace or "")
    users = [frame for frame in frames if not is_library(frame[0])] or frames
    return "{}:{}: {}".format(*users[-1]) if users else None
