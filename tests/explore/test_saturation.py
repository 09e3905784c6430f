"""Saturation: every spelling of a class means the same, and it always ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exploring import H100, PROGRAMS, explored, original_is_there, random_data, tools

from dplc.engine.explore.explore import exported
from dplc.engine.explore.problem import EGraph, Problem, Reader
from dplc.engine.explore.saturate import RuleTexts, SaturationBudget, export, saturate
from dplc.engine.explore.solution import EgraphSearch, Extraction, Permissions, Rebuilder
from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import read_rules
from dplc.ir.diagnostic import Source
from dplc.ir.interp import tensor
from dplc.ir.tensor import Input, Output, TensorGraph, axes, postorder
from dplc.ir.text.programs import read_program

load_facts()


def problems(text: str) -> list[Problem]:
    made = explored(text)
    regions, cuts = made.cutting
    return [made.problem(region, cuts) for region in regions]


def wrong_spellings(graph: EGraph) -> list[Any]:
    """The e-nodes whose value is not that of their class, on random numbers in float64."""
    problem = graph.problem
    extraction = Extraction(graph, H100, Permissions.of(tools().fusion))
    rebuilder = Rebuilder(extraction, EgraphSearch(extraction).as_written(), problem, {}, str)
    packs = {problem.leaf_terms[problem.nodes[pack.whole][1][0]] for pack in problem.packs}
    rebuilder.now = {
        leaf: Input(f"value{n}", axes(leaf), "f32")
        for n, leaf in enumerate(problem.leaf_terms)
        if problem.leaves[n].memory and leaf.__class__ is not Input and leaf not in packs
    }
    canonical: dict[int, Any] = {}

    def term(cls: int) -> Any:
        if cls not in canonical:
            node = graph.classes[cls][extraction.default[cls]]
            canonical[cls] = rebuilder.make(node, [term(child) for child in node[2]])
        return canonical[cls]

    pairs = []
    for cls, spelled in enumerate(graph.classes):
        term(cls)
        pairs += [(cls, node, rebuilder.make(node, [term(child) for child in node[2]])) for node in spelled]
    outs: dict[Any, Output] = {}
    for place, value in enumerate(dict.fromkeys([*(p[2] for p in pairs), *canonical.values()])):
        outs[value] = Output(f"out{place}", axes(value), value)
    ins = tuple(t for t in postorder(outs) if t.__class__ is Input)
    whole = TensorGraph("audit", ins, tuple(outs.values()))  # type: ignore[arg-type]
    computed = dict(zip(outs, tensor.run(whole, random_data(whole)), strict=True))
    return [(cls, node) for cls, node, value in pairs if not same(canonical[cls], value, computed)]


def same(a: Any, b: Any, computed: dict[Any, Any]) -> bool:
    every = tuple(dict.fromkeys((*axes(a), *axes(b))))

    def spread(value: Any) -> Any:
        own = axes(value)
        order = [own.index(axis) for axis in every if axis in own]
        shape = [axis.extent if axis in own else 1 for axis in every]
        return np.transpose(computed[value], order).reshape(shape)

    left, right = np.broadcast_arrays(spread(a).astype(float), spread(b).astype(float))
    return bool(np.max(np.abs(left - right), initial=0) <= 1e-9 * max(1.0, float(np.max(np.abs(left), initial=0))))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(6)
def test_every_spelling_of_a_class_means_the_same(name: str) -> None:
    for problem in problems(PROGRAMS[name]):
        assert wrong_spellings(saturate(problem, exported(tools().equations))) == []


def rules(text: str) -> RuleTexts:
    return export(read_rules(Source("mine.rw", text)).rules)


CAPTURE = """
@approx
rule capture on tensor
match
    p = multiply(x, a)
    t = Reduce(add, ks.., p)
    q = multiply(t, b)
    y = Reduce(add, rs.., q)
rewrite
    ab = multiply(a, b)
    m = Reduce(add, rs.., ab)
    xm = multiply(x, m)
    y = Reduce(add, ks.., xm)
"""


def test_a_rule_without_its_guards_is_seen() -> None:
    text = """## level: tensor
graph g(x: f32[i:6, k:2], a: f32[r:9, k:2], b: f32[k:2, r:9]) -> y: f32[6, 2]:
    p[i:6, k:2, r:9] = multiply(x[i, k], a[r, k])
    t[i, r] = Reduce(add, k, p)
    q[i, r, k] = multiply(t, b[k, r])
    y[i, k] = Reduce(add, r, q)
"""
    graph: Any = read_program(text, "capture")[1][0]
    problem = Reader([graph.outs[0].value], set(), set()).problem
    assert wrong_spellings(saturate(problem, rules(CAPTURE)))
    assert not wrong_spellings(saturate(problem, exported(tools().equations)))


ASSOCIATIVE = """
rule associate on tensor
match
    y = multiply(multiply(a, b), c)
rewrite
    y = multiply(a, multiply(b, c))

rule associate_back on tensor
match
    y = multiply(a, multiply(b, c))
rewrite
    y = multiply(multiply(a, b), c)

rule grow on tensor
match
    y = exp(x)
rewrite
    y = exp(add(x, 0.0))

rule grow_more on tensor
match
    y = add(x, z)
rewrite
    y = add(add(x, z), 0.0)
"""


def test_rules_that_never_end_are_stopped_and_nothing_is_wrong() -> None:
    """Ten factors under associativity and commutativity have tens of thousands of spellings."""
    text = (
        "\n".join(f"x{n} = torch.randn(3)" for n in range(10))
        + "\n"
        + " * ".join(f"x{n}" for n in range(10))
        + " * torch.exp(x0)"
    )
    (problem,) = problems(text)
    graph = saturate(problem, rules(ASSOCIATIVE), SaturationBudget(nodes=300, iterations=12))
    assert graph.stop is not None and graph.stop.reason in ("nodes", "iterations") and graph.stop.rows < 10_000
    assert original_is_there(graph)
    assert EgraphSearch(Extraction(graph, H100, Permissions.of(tools().fusion))).as_written().seconds < float("inf")


@pytest.mark.parametrize("iterations", [1, 2])
def test_stopping_early_is_sound(iterations: int) -> None:
    for problem in problems(PROGRAMS["layer norm and linear"]):
        graph = saturate(problem, exported(tools().equations), SaturationBudget(iterations=iterations))
        assert wrong_spellings(graph) == [] and original_is_there(graph)


def test_the_original_spelling_comes_first() -> None:
    for text in (PROGRAMS["gated"], PROGRAMS["norm, q, k, v"]):
        for problem in problems(text):
            graph = saturate(problem, exported(tools().equations))
            for place, node in enumerate(problem.nodes):
                children = tuple(sorted(graph.of[c] for c in node[2]))
                assert any(
                    (spelled[0], spelled[1]) == (node[0], node[1]) and tuple(sorted(spelled[2])) == children
                    for spelled in graph.classes[graph.of[place]]
                )


def test_regions_of_one_structure_are_one_problem() -> None:
    layer = "h = n(h)\nh = a(torch.tanh(b(h)))\n"
    text = (
        "h = torch.randn(600, 16)\nn = nn.RMSNorm(16)\na = nn.Linear(600, 16)\nb = nn.Linear(16, 600)\n"
        + layer * 3
        + "h"
    )
    made = explored(text)
    found = [made.problem(region, made.cutting[1]) for region in made.cutting[0]]
    assert len(found) > len({problem.key for problem in found})
