"""The kernels of a program as a graph: what each computes, what goes from one to the next, and why it is cut there."""

from __future__ import annotations

import math
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import is_int
from ...ir.program import Param
from ..compiler import Compilation
from ..kernels.sharing import share


def fusion_graph(compilation: Compilation) -> dict[str, Any]:
    """nodes: inputs, launches, outputs; edges: the buffers between them, with bytes and the reason for the cut."""
    plan = compilation.plan
    shared = share(plan.kernels)
    reasons = {}
    for cut, values in zip(plan.stores, plan.kernels, strict=False):
        for term, param in zip(cut, values.outs, strict=False):
            told = next((why for why in plan.why if why.value is term), None)
            if told is not None:
                reasons[param.name] = {"reason": told.reason, "location": told.location}
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    made: dict[str, int] = {}
    for number, kernel in enumerate(plan.kernels):
        inside = list(dict.fromkeys(plan.values[number])) if number < len(plan.values) else []
        stored = {param.name for param in kernel.outs}
        nodes.append(
            {"name": kernel.name, "kernel": shared.place[number], "values": [v for v in inside if v not in stored]}
        )
        for param in kernel.ins:
            edges.append(
                {"to": number, "from": made.get(param.name, -1), **_buffer(param), **reasons.get(param.name, {})}
            )
        for param in kernel.outs:
            made[param.name] = number
    outs = {param.name for param in plan.outputs}
    edges += [{"from": made[param.name], "to": -1, **_buffer(param)} for param in plan.outputs if param.name in made]
    return {"nodes": nodes, "edges": edges, "outputs": sorted(outs)}


def _buffer(param: Param) -> dict[str, Any]:
    shape = [extent if is_int(extent) else str(extent) for extent in param.shape]
    size = math.prod(n for n in shape if isinstance(n, int)) * DTYPES[param.dtype].item_bytes
    return {"buffer": param.name, "type": f"{param.dtype}{shape}", "bytes": size}
