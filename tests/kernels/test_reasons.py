"""Of what is stored, the reader that could not take it in."""

from __future__ import annotations

from dplc.codegen.target import target
from dplc.engine.kernels.fusion_pass import Fusion
from dplc.engine.ruleset import toolchain
from dplc.ir.tensor import TensorGraph
from dplc.ir.text.programs import read_program

TWO_SUMS_AND_A_ROW = """
graph g(x: f32[i:1, k:512], z: f32[i:1, j:20000]) -> y: f32[1, 20000]:
    first[i:1] = Reduce(add, k:512, x[i, k])
    second[i] = Reduce(maximum, k:512, x[i, k])
    both[i] = add(first, second)
    own[i] = exp(second)
    scaled[i, j:20000] = multiply(both, z[i, j])
    y[i, j] = add(own, scaled)
"""


def test_values_are_refused_in_the_order_of_the_program() -> None:
    """`own` is computed before `scaled`, so `second` is before `first`: the operation that sees both refuses it, too."""
    (graph,) = read_program(TWO_SUMS_AND_A_ROW)[1]
    assert isinstance(graph, TensorGraph)
    names = {id(named.value): named.name for named in graph.names}
    decisions = Fusion(graph, toolchain().fusion, target("h200")).decide()
    told = {names[id(value)]: names.get(id(why.reader)) for value, why in decisions.why.items()}
    assert told == {"second": "scaled", "both": "scaled"}
