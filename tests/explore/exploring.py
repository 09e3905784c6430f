"""Programs to explore, and whether what was found means the same."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
from random_programs import program

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler, Values
from dplc.engine.explore.explore import Exploration, ExplorationOptions, exploration, lowering
from dplc.engine.explore.problem import EGraph, sorted_operands
from dplc.engine.kernels.index_maps import push_renamings
from dplc.engine.kernels.kernels import Candidate
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.ir.interp import loop, tensor
from dplc.ir.tensor import Output, TensorGraph
from dplc.ir.text.programs import read_program
from dplc.ir.text.tensor import print_graph
from dplc.ir.verify.tensor import check

H100 = target("h100")

NORM_LINEAR = "nn.Sequential(nn.RMSNorm(32), nn.Linear(32, 24, bias=False))(torch.randn(20, 32))"
PROGRAMS = {
    "norm and linear": NORM_LINEAR,
    "layer norm and linear": "nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 24))(torch.randn(20, 32))",
    "norm, q, k, v": (
        "x = torch.randn(12, 32)\nn = nn.RMSNorm(32)\nq = nn.Linear(32, 24)\nk = nn.Linear(32, 8)\nv = nn.Linear(32, 8)\n"
        "h = n(x)\nq(h), k(h), v(h)"
    ),
    "gated": (
        "x = torch.randn(6, 16)\nn = nn.RMSNorm(16)\na = nn.Linear(16, 24, bias=False)\nb = nn.Linear(16, 24, bias=False)\n"
        "c = nn.Linear(24, 16, bias=False)\nh = n(x)\nx + c(F.silu(a(h)) * b(h))"
    ),
    "adapter": (
        "x = torch.randn(12, 32)\na = nn.Linear(32, 4, bias=False)\nb = nn.Linear(4, 24, bias=False)\nw = nn.Linear(32, 24)\n"
        "w(x) + b(a(x))"
    ),
    "three matrices": "(torch.randn(24, 4) @ torch.randn(4, 32)) @ torch.randn(32, 4)",
    "attention": (
        "q = torch.randn(2, 8, 4)\nk = torch.randn(2, 8, 4)\nv = torch.randn(2, 8, 4)\n"
        "F.softmax(q @ k.transpose(1, 2) * 0.3, -1) @ v"
    ),
    "pooling": "x = torch.randn(3, 12, 8)\na = F.softmax(x @ torch.randn(8), -1)\n(a[..., None] * x).sum(1)",
    "residual": (
        "x = torch.randn(8, 16)\ny = torch.randn(8, 16)\na = nn.RMSNorm(16)\nb = nn.RMSNorm(16)\nh = x + y\ng = h + a(h)\n"
        "a(h), b(g), g"
    ),
    "siblings that read each other": (
        "x = torch.randn(100).bfloat16()\nh = x + torch.randn(100, dtype=torch.bfloat16)\na = torch.where(h > 0, h, h * 2)\n"
        "F.normalize(x, dim=0), a, torch.rsqrt(a.abs() + 1)"
    ),
    "mean and variance": "x = torch.randn(8, 16)\nx.mean(1), x.var(1, unbiased=False)",
    "views": "x = torch.randn(8, 12)\nw = torch.randn(12, 6)\ntorch.relu(x[2:6] @ w) + torch.relu(x[2:6] @ w).flip(0)",
}


@functools.cache
def tools() -> Toolchain:
    return toolchain()


@functools.cache
def values(text: str, exact: bool = False) -> Values:
    return Compiler(tools().exactly if exact else tools(), H100).values(capture_text(text, 0))


@functools.cache
def shared_lowering() -> Any:
    """Kernels are lowered once for all tests."""
    return lowering(Compiler(tools(), H100))


def explored(text: str, exact: bool = False, **options: Any) -> Exploration:
    made = exploration(values(text, exact), ExplorationOptions(**options))
    made.lowering = shared_lowering()
    return made


def exploration_of(graph: TensorGraph, known: frozenset[str] = frozenset(), **options: Any) -> Exploration:
    """The exploration of a program in Tensor IR."""
    return Exploration(graph, tools(), H100, shared_lowering(), known, {}, ExplorationOptions(**options))


def long_program(dice: random.Random, most: int = 30) -> TensorGraph:
    """A random program of up to so many operations, with one to three results."""
    return push_renamings(program(dice, most=most))


def random_data(graph: TensorGraph, seed: int = 0) -> dict[str, Any]:
    dice = np.random.default_rng(seed)
    data = {}
    for x in graph.ins:
        shape = [axis.extent for axis in x.axes]
        data[x.name] = dice.standard_normal(shape) if x.dtype == "f32" else dice.integers(0, 3, shape)
    return data


def original_is_there(graph: EGraph) -> bool:
    """Whether every node of the program is one of the spellings of its class."""
    nodes = (sorted_operands((op, at, tuple(graph.of[c] for c in below))) for op, at, below in graph.problem.nodes)
    return all(node in graph.classes[cls] for node, cls in zip(nodes, graph.of, strict=True))


def assert_right(graph: TensorGraph, candidate: Candidate, data: dict[str, Any]) -> None:
    """The candidate is well formed, reads back, and its values and its kernels are those of the program, in float64."""
    assert check(candidate.graph) == []
    text = print_graph(candidate.graph)
    (again,) = read_program(f"## level: tensor\n{text}\n", "candidate")[1]
    assert print_graph(again) == text  # type: ignore[arg-type]
    wanted, given = tensor.run(graph, data), dict(data)
    for each in candidate.prepared:
        load = TensorGraph("load", graph.ins, (Output("w", each.input.axes, each.value),))
        (given[each.input.name],) = tensor.run(load, data, partial=True)
    values_ = tensor.run(candidate.graph, given)
    memory = loop.run(candidate.plan().kernels, {name: np.atleast_1d(value) for name, value in given.items()})
    for out, want, have in zip(graph.outs, wanted, values_, strict=True):
        assert_close(out.name, want, have, text)
        assert_close(out.name, want, memory[out.name].reshape(want.shape), text)


def assert_close(name: str, want: Any, have: Any, text: str) -> None:
    real = np.isfinite(want)
    scale = np.max(np.abs(want[real]), initial=1.0)
    with np.errstate(all="ignore"):
        worst = np.max(np.abs(np.where(real, want - have, 0.0)), initial=0.0)
    assert worst <= 1e-9 * scale, f"{name} is off by {worst / scale:.1e}\n{text}"
