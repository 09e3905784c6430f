"""Rewriting dumps of the graph levels."""

from __future__ import annotations

from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.tensor import TensorGraph
from ...ir.torch import TorchGraph
from ..front.lower import lower_graph
from ..match.terms import Evidence, rewrite_graph
from ..match.trace import Trace
from ..toolchain import Toolchain
from ..tracing import trace_algebra, trace_lowering


def rewrite_tensor_graph(level: str | None, units: tuple[Any, ...], tools: Toolchain, target: Target, trace: Trace | None) -> tuple[Any, ...]:
    """A torch graph becomes a tensor graph; a tensor graph is rewritten by the algebra."""
    out = []
    for unit in units:
        if isinstance(unit, TorchGraph):
            lowered = lower_graph(unit, tools.torch, trace=trace is not None)
            trace_lowering(trace, lowered)
            unit = lowered.graph
        elif not isinstance(unit, TensorGraph):
            raise DplcError("a file holds either kernels or one graph")
        evidence = Evidence() if trace is not None else None
        graph = rewrite_graph(unit, tools.algebra, target, evidence)
        trace_algebra(trace, evidence, unit, graph)
        out.append(graph)
    return tuple(out)
