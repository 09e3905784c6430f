"""Graphs of dynamo without structure that a trace does not need: scans, checkpoints, autocast.

dynamo calls an associative scan with the graph of its step: such a graph is traced once more, as operations on whole
tensors. A scan becomes the loop that it stands for; rules roll it up again (rules/torch/joining.rw), whatever its step
is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.wrap import tag_activation_checkpoint, wrap_with_autocast
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


def flattened(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """Return the same graph without scans; itself where it has none, or where lengths are open.

    inputs: tensors of the shapes of a call.
    """
    if not any(map(_is_scan, graph.graph.nodes)) or any(isinstance(x, torch.SymInt) for x in inputs):
        return graph
    mode = detect_fake_mode(inputs) or FakeTensorMode()
    with mode:
        shapes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        return make_fx(_Loops(graph).run)(*shapes)


def _is_scan(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is associative_scan_op


class _Loops(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph; a scan one step after the other."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not associative_scan_op:
            return super().call_function(target, args, kwargs)
        step, tensors, more = args
        so_far = [x[0] for x in tensors]
        found = [so_far]
        for place in range(1, tensors[0].shape[0]):
            so_far = list(step(*so_far, *(x[place] for x in tensors), *more))
            found.append(so_far)
        return tuple(torch.stack(part) for part in zip(*found, strict=True))


def without_checkpoints(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Replace the call of each checkpoint by its body, which is right without a derivative."""
    for call in _calls(graph, tag_activation_checkpoint):
        results = _inline(graph, call, call.args[0], call.args[1:])
        for read in tuple(call.users):
            read.replace_all_uses_with(results[read.args[1]])
            graph.graph.erase_node(read)
    return graph


def switching_autocast(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Replace the call of each autocast region of an exported program by its body.

    Autocast is switched before and after a body, so that whoever runs the graph node by node knows the place of each.
    """
    for call in _calls(graph, wrap_with_autocast):
        *settings, body = call.args[:5]
        with graph.graph.inserting_before(call):
            region = graph.graph.call_function(_enter, tuple(settings))
        results = _inline(graph, call, body, call.args[5:])
        with graph.graph.inserting_before(call):
            graph.graph.call_function(_exit, (region,))
        for read in tuple(call.users):
            read.args = (results, read.args[1])  # the signature of the program names this node
    return graph


def entering_autocast(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return the graph, or a copy that switches autocast during a trace. torch's own ops only leave nodes then."""
    if not graph.graph.find_nodes(op="call_function", target=torch.amp._enter_autocast):
        return graph
    copied = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    for node in copied.graph.nodes:
        node.target = {torch.amp._enter_autocast: _enter, torch.amp._exit_autocast: _exit}.get(node.target, node.target)
    copied.recompile()
    return copied


@contextmanager
def leaving_autocast() -> Iterator[None]:
    """Return a context that leaves entered autocast regions if an error ends the trace."""
    try:
        yield
    finally:
        while _entered:
            _exit(_entered[-1])


_entered: list[Any] = []  # captures are alone


def _enter(*settings: Any) -> Any:
    _entered.append(torch.autocast(*settings))
    _entered[-1].__enter__()
    return _entered[-1]


def _exit(region: Any) -> None:
    _entered.remove(region)
    region.__exit__(None, None, None)


torch.fx.node.has_side_effect(_enter)  # not dead, though nobody reads what they give
torch.fx.node.has_side_effect(_exit)


def _calls(graph: torch.fx.GraphModule, kind: Any) -> Iterator[Any]:
    """The calls of a kind that hold a body, those within a body too; then they are erased."""
    while calls := graph.graph.find_nodes(op="call_function", target=kind):
        yield from calls
        for call in reversed(calls):
            graph.graph.erase_node(call)
        graph.recompile()


def _inline(graph: torch.fx.GraphModule, call: Any, body: Any, operands: Sequence[Any]) -> Any:
    """The results of the nodes of a body, put before its call. body: the node that names it."""
    nodes = graph.get_submodule(body.target).graph
    copies = dict(zip(nodes.find_nodes(op="placeholder"), operands, strict=True))
    with graph.graph.inserting_before(call):
        results: Any = graph.graph.graph_copy(nodes, copies)
    for node in nodes.find_nodes(op="get_attr"):
        copies[node].target = f"{body.target}.{node.target}"
    return results
