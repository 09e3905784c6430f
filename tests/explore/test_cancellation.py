"""What exploration finds is as accurate as what was written, where differences are small beside what they are of.

Rows of equal values, rows far from zero, and rows with one value far from the others: in float32, every candidate has
at most twice the error of the program as the rules spell it, or the gate's, where that is more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exploring import explored, values

from dplc.codegen.judge import GATE
from dplc.engine.kernels.kernels import Candidate
from dplc.ir.interp import tensor as meaning
from dplc.ir.interp.scalar import KINDS
from dplc.ir.tensor import Output, TensorGraph

N = 100
X = f"x = torch.randn(4, {N})\nw = nn.Linear({N}, 16, bias=False)\n"
NORM = f"{X}n = nn.LayerNorm({N})\nnn.init.normal_(n.weight)\nnn.init.normal_(n.bias)\n"
PROGRAMS = {
    "linear of norm": f"{NORM}nn.Linear({N}, 16)(n(x))",
    "linear of norm, no bias": f"{NORM}w(F.layer_norm(x, ({N},), n.weight))",
    "product of norm": f"{X}F.layer_norm(x, ({N},)) @ torch.randn({N}, 16)",
    "mean and variance": f"{X}x.mean(1), x.var(1, unbiased=False), x.std(1)",
    "a centred row": f"{X}w(x - x.mean(1, keepdim=True))",
    "less the first": f"{X}w(x - x[:, :1])",
    "less a bias": f"{X}b = nn.Parameter(torch.full(({N},), -1e4))\nw(x + b)",
    "less a number, times a gain": f"{X}g = nn.Parameter(torch.randn({N}))\n(x - x.amax(1, keepdim=True)) * g",
    "sums of differences": f"{X}z = x.flip(1)\n(x - z).sum(1), (x - x.mean(1, keepdim=True)).sum(1)",
    "squares about a mean": f"{X}d = x - x.mean(1, keepdim=True)\n(d**2).sum(1), d / (1 + d.norm(dim=1, keepdim=True))",
    "two heads": f"{NORM}h = n(x)\nnn.Linear({N}, 8)(h), nn.Linear({N}, 4)(h)",
}
DICE = np.random.default_rng(0).standard_normal((4, N))
ROWS = {
    "equal": np.full((4, N), 3.7),
    "equal and large": np.full((4, N), 12345.678),
    "far from zero": DICE + 1e4,
    "an outlier first": DICE + 1000.0 * (np.arange(N) == 0),
    "plain": DICE,
}


def in_float32(graph: TensorGraph, data: dict[str, Any], candidate: Candidate) -> list[Any]:
    """What a graph means where every operation rounds to float32. Weights are prepared in float64, as loading does."""
    given = dict(data)
    for each in candidate.prepared:
        load = TensorGraph("load", graph.ins, (Output("w", each.input.axes, each.value),))
        (value,) = meaning.run(load, {name: x.astype(np.float64) for name, x in data.items()})
        given[each.input.name] = value.astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "f32", np.float32)
        return meaning.run(candidate.graph, given)


def errors(have: list[Any], want: list[Any]) -> list[float]:
    """The largest error of each output, by its largest value or one, if that is more: of nothing but zeros too."""
    return [float(np.max(np.abs(h - w)) / max(1.0, np.max(np.abs(w)))) for h, w in zip(have, want, strict=True)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_no_candidate_loses_what_the_program_keeps(name: str) -> None:
    made = explored(PROGRAMS[name], top=8)
    found = made.candidates()
    (rules,) = (candidate for candidate in found if candidate.label == "rules")
    tensors = values(PROGRAMS[name]).captured.tensors
    data = {x.name: tensors[x.name].detach().numpy() for x in made.graph.ins}
    for kind, rows in ROWS.items():
        data["x"] = rows.astype(np.float32)
        want = meaning.run(made.graph, data)
        allowed = [max(2 * error, GATE) for error in errors(in_float32(made.graph, data, rules), want)]
        for candidate in found:
            have = errors(in_float32(made.graph, data, candidate), want)
            assert all(error <= most for error, most in zip(have, allowed, strict=True)), (
                f"rows {kind}: {have}, {allowed} allowed, by {candidate.rules}"
            )


def test_these_errors_are_those_of_float32() -> None:
    made = explored("torch.randn(3) + 1")
    (y,) = in_float32(made.graph, {made.graph.ins[0].name: np.ones(3, np.float32)}, made.by_rules())
    assert y.dtype == np.float32
