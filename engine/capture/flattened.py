"""Graphs that call an associative scan with the graph of its step, traced as operations on whole tensors.

A scan becomes the loop that it stands for. Rules roll the loop up again (rules/torch/joining.rw), whatever its step is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._higher_order_ops.associative_scan import associative_scan_op
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
