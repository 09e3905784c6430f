"""Exploration ends, whatever rules it is given and wherever it is stopped, and what it found by then is right."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
from drawing import draws
from exploring import (
    H100,
    PROGRAMS,
    assert_right,
    exploration_of,
    explored,
    long_program,
    original_is_there,
    random_data,
    tools,
)
from hypothesis import given, settings, strategies as st
from random_programs import data_for

from dplc.engine.explore.explore import exported
from dplc.engine.explore.saturate import RuleTexts, SaturationBudget, export, graph_of_rules, saturate
from dplc.engine.explore.solution import Effort
from dplc.engine.kernels.kernels import Kernels
from dplc.engine.kernels.sharing import key
from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import read_rules
from dplc.engine.language.rule_files import collections_paused
from dplc.ir.diagnostic import Source

load_facts()

RING = """
@approx
rule commute_sum on tensor
match
    y = add(a, b)
rewrite
    y = add(b, a)

@approx
rule associate_sum on tensor
match
    y = add(add(a, b), c)
rewrite
    y = add(a, add(b, c))

@approx
rule associate_sum_back on tensor
match
    y = add(a, add(b, c))
rewrite
    y = add(add(a, b), c)

@approx
rule associate_product on tensor
match
    y = multiply(multiply(a, b), c)
rewrite
    y = multiply(a, multiply(b, c))

@approx
rule distribute on tensor
match
    y = multiply(a, add(b, c))
rewrite
    y = add(multiply(a, b), multiply(a, c))

@approx
rule factor on tensor
match
    y = add(multiply(a, b), multiply(a, c))
rewrite
    y = multiply(a, add(b, c))
"""


def ring() -> RuleTexts:
    """What a user may well write: commutativity, associativity and distributivity, all ways."""
    return export(read_rules(Source("mine.rw", RING)).rules)


def chain(operations: int) -> str:
    """Sums and products in turn."""
    lines = [f"x{n} = torch.randn(6)" for n in range(operations + 1)]
    text = "x0"
    for n in range(operations):
        text = f"({text} {'*' if n % 3 else '+'} x{n + 1})"
    return "\n".join((*lines, text))


@pytest.mark.parametrize("operations", [12, 30])
def test_a_ring_of_rules_ends_within_its_budgets(operations: int) -> None:
    made = explored(chain(operations), effort=Effort(kernels=50, lowerings=2), budget=SaturationBudget(nodes=600))
    made.exported = ring()
    made.spellings.exported = made.exported
    regions, cuts = made.cutting
    for region in regions:
        problem = made.problem(region, cuts)
        graph = saturate(problem, made.exported, SaturationBudget(nodes=600))
        assert graph.stop is not None and graph.stop.reason == "nodes" and graph.stop.rows < 20_000
        assert original_is_there(graph)
    found = made.candidates()
    for candidate in found:
        assert_right(made.graph, candidate, random_data(made.graph))


BUDGETS = st.builds(
    SaturationBudget, nodes=st.integers(0, 120), seconds=st.sampled_from((0.0, 2.0)), iterations=st.integers(0, 6)
)
EFFORTS = st.builds(
    Effort, kernels=st.integers(0, 60), seconds=st.sampled_from((0.0, 5.0)), lowerings=st.integers(0, 3)
)


@settings(max_examples=draws(4), deadline=None)
@given(st.integers(0, 10**9), BUDGETS, EFFORTS)
def test_stopped_anywhere_what_was_found_is_right(seed: int, budget: SaturationBudget, effort: Effort) -> None:
    dice = random.Random(seed)
    graph = long_program(dice, 14)
    known = frozenset(x.name for x in graph.ins[1:] if x.dtype == "f32" and dice.random() < 0.5)
    made = exploration_of(graph, known, top=2, budget=budget, effort=effort)
    regions, cuts = made.cutting
    assert all(original_is_there(made.spellings.of(made.problem(region, cuts))) for region in regions)
    found = made.candidates()
    assert "rules" in [candidate.label for candidate in found]
    for candidate in found:
        assert_right(graph, candidate, data_for(graph, seed))


@pytest.mark.parametrize("name", ["norm, q, k, v", "attention"])
def test_without_time_there_are_candidates(name: str) -> None:
    made = explored(
        PROGRAMS[name], budget=SaturationBudget(seconds=0.0), effort=Effort(seconds=0.0, kernels=0, lowerings=0)
    )
    for candidate in made.candidates():
        assert_right(made.graph, candidate, random_data(made.graph))
    regions, cuts = made.cutting
    for region in regions:
        graph = saturate(made.problem(region, cuts), exported(tools().equations), SaturationBudget(seconds=0.0))
        assert graph.stop is not None and (graph.stop.reason, graph.stop.iterations) == ("seconds", 0)
        assert original_is_there(graph)


# ---- each structure once


def stack(blocks: int, wider: int = 0) -> str:
    """Gated blocks on a residual stream; wider: how much each is wider than the one before."""
    lines = ["h = torch.randn(600, 16)", "n = nn.RMSNorm(16)"]
    for block in range(blocks):
        width = 640 + wider * block
        for name, shape in (("a", (16, width)), ("b", (16, width)), ("c", (width, 16))):
            lines.append(f"{name}{block} = nn.Linear({shape[0]}, {shape[1]}, bias=False)")
        lines.append(f"z = n(h)\nh = h + c{block}(F.silu(a{block}(z)) * b{block}(z))")
    return "\n".join((*lines, "h"))


FEW = Effort(kernels=40, lowerings=2)


def solved(made: Any) -> tuple[int, int, int]:
    """Regions, those that were solved, e-graphs. Numbers: a report of what is in them would be endless."""
    return len(made.problems), len(made.solved), len(made.spellings.made)


def test_repeated_blocks_are_solved_once() -> None:
    """The first block reads the input and the last one writes the result: they may be structures of their own."""
    assert solved(explored(stack(4), top=1, effort=FEW)) == (4, 3, 3)
    assert solved(explored(stack(7), top=1, effort=FEW)) == (7, 3, 3)


def test_blocks_that_differ_in_size_share_an_e_graph() -> None:
    regions, structures, graphs = solved(explored(stack(5, wider=8), top=1, effort=FEW))
    assert (regions, structures) == (5, 5) and graphs <= 3


@settings(max_examples=draws(4), deadline=None)
@given(st.integers(0, 10**9))
def test_equal_summaries_are_equal_kernels(seed: int) -> None:
    known: dict[Any, str] = {}
    for turn in (seed, seed + 1):
        made = exploration_of(long_program(random.Random(turn), 10))
        arranged = Kernels(made.graph, made.rule_order, made.fusion, H100, {})
        for draw, lift in arranged.summarised():
            assert known.setdefault(draw(), key(lift())) == key(lift())


# ---- what an exploration leaves behind


def test_a_problem_has_one_egraph_whatever_came_before() -> None:
    def tables(name: str) -> Any:
        made = explored(PROGRAMS[name])
        graphs = [made.spellings.of(problem) for problem, _ in made.problems]
        return [(graph.classes, graph.mask, graph.fired) for graph in graphs]

    names = [*PROGRAMS][:4]
    first = {name: tables(name) for name in names}
    assert {name: tables(name) for name in reversed(names)} == first
    rules = explored(PROGRAMS[names[0]]).exported
    assert graph_of_rules(rules) is not graph_of_rules(rules)  # one that is used again answers by what it saw


def test_the_collector_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    made = explored(PROGRAMS["mean and variance"])

    def broken(*_: Any) -> Any:
        assert not gc.isenabled()
        raise RuntimeError

    monkeypatch.setattr(made, "by_rules", broken)
    with pytest.raises(RuntimeError):
        made.candidates()
    assert gc.isenabled()
    gc.disable()
    try:
        with collections_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()  # as it is between tests
