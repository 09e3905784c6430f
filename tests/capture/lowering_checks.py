"""What lowering must keep: torch's own results, dtypes and shapes; well-formed IR; text that reads back."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplc.engine.capture.capture import fold
from dplc.engine.capture.signature import Capture
from dplc.engine.language.rule import RuleSet, load
from dplc.engine.rewrite.torch_rules.lower import lower
from dplc.ir.diagnostic import Source
from dplc.ir.interp.tensor import run
from dplc.ir.interp.torch import run as run_torch
from dplc.ir.tensor import TensorGraph
from dplc.ir.text.parse import parse
from dplc.ir.text.tensor import print_graph, read_graph
from dplc.ir.verify.tensor import verify

RULES: RuleSet = load()
TOLERANCE = 1e-12


def arrays(captured: Capture) -> dict[str, Any]:
    """The tensors of a capture as numpy has them, floating point in float64."""
    tensors = {name: tensor.detach().cpu() for name, tensor in captured.tensors.items()}
    return {name: (t.double() if t.is_floating_point() else t).numpy() for name, t in tensors.items()}


def far(got: Any, want: Any) -> float:
    """The largest difference, by the largest value; nan and inf must stand in the same places."""
    if not got.size:
        return 0.0
    same = (got == want) | ((got != got) & (want != want))
    a, b = np.where(same, 0, got).astype(float), np.where(same, 0, want).astype(float)
    return float(np.max(np.abs(a - b))) / max(1.0, float(np.max(np.abs(b))))


def check_lowering(captured: Capture) -> TensorGraph:
    """Lower a program and compare it with torch."""
    folded = fold(captured)
    wanted = run_torch(folded.graph, folded.tensors)
    graph = lower(folded, RULES).graph
    verify(graph)
    text = print_graph(graph)
    for got, want, out in zip(run(graph, arrays(folded)), wanted, folded.graph.outs, strict=True):
        assert got.shape == tuple(n for n in out.shape if n != 1), text
        assert {"f": "f32", "i": f"i{got.dtype.itemsize * 8}", "b": "b8"}[got.dtype.kind] == out.dtype, text
        assert far(got, want.numpy().reshape(got.shape)) <= TOLERANCE, text
    check_text(graph)
    return graph


def check_text(graph: TensorGraph) -> None:
    """The text reads back as the same node."""
    text = print_graph(graph)
    again = read_graph(parse(Source("text", text))[0])
    assert print_graph(again) == text
    assert again is graph, text
