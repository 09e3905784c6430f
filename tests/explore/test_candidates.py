"""Candidates: right, lowerable, never worse than the order of rules by the same price."""

from __future__ import annotations

import random

import numpy as np
import pytest
from drawing import draws
from exact import Exact
from exploring import (
    H100,
    PROGRAMS,
    assert_right,
    exploration_of,
    explored,
    long_program,
    random_data,
    shared_lowering,
    tools,
    values,
)
from hypothesis import given, settings, strategies as st
from random_programs import data_for

from dplc.engine.explore.explore import Exploration, KernelPricer
from dplc.ir.diagnostic import DplcError
from dplc.ir.interp import tensor as meaning
from dplc.ir.program import Kernel
from dplc.ir.tensor import Output, TensorGraph


def by_rules_is_never_better(made: Exploration) -> None:
    found = made.candidates()
    rules = next(c for c in found if c.label == "rules")
    assert found[0].predicted_us <= rules.predicted_us
    assert [c.predicted_us for c in found if not c.problem] == sorted(c.predicted_us for c in found if not c.problem)
    assert len({c.signature for c in found}) == len(found), "candidates differ"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_candidates_are_right_and_never_worse(name: str) -> None:
    made = explored(PROGRAMS[name])
    by_rules_is_never_better(made)
    for candidate in made.candidates():
        assert not candidate.problem
        assert_right(made.graph, candidate, random_data(made.graph))


def test_values_keep_their_names() -> None:
    made = explored(PROGRAMS["adapter"])
    known = {named.name for named in made.graph.names}
    for candidate in made.candidates():
        assert {named.name for named in candidate.graph.names} and {n.name for n in candidate.graph.names} <= known


def check_seed(seed: int) -> None:
    dice = random.Random(seed)
    graph = long_program(dice)
    known = frozenset(x.name for x in graph.ins[1:] if x.dtype == "f32" and dice.random() < 0.5)
    made = exploration_of(graph, known, top=3)
    by_rules_is_never_better(made)
    for candidate in made.candidates():
        assert_right(graph, candidate, data_for(graph, seed))


@settings(max_examples=draws(4), deadline=None)
@given(st.integers(0, 10**9))
def test_random_programs(seed: int) -> None:
    check_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_two_thousand_programs(first: int) -> None:
    for seed in range(first, first + 250):
        check_seed(seed)


@pytest.mark.parametrize("name", ["norm and linear", "adapter", "three matrices", "attention", "pooling"])
def test_branch_and_bound_proves_the_beam_right(name: str) -> None:
    for _, solved in explored(PROGRAMS[name]).problems:
        extraction = solved.search.extraction
        for known in (extraction.corrections, extraction.ratios):
            known.clear()  # of what was lowered: the search and the proof price every kernel by its estimate
        beam = solved.search.explore(solved.search.greedy())[0]
        proof = Exact(extraction, beam, 40_000)
        assert proof.states < proof.limit and proof.best.seconds <= beam.seconds
        assert beam.seconds <= proof.best.seconds * 1.001 or beam.solution.groups


def test_weights_fold_and_pack() -> None:
    (best, *_) = explored(PROGRAMS["adapter"]).candidates()
    assert best.kernels == 1
    made = explored(PROGRAMS["norm and linear"])
    named = {rule for candidate in made.candidates() for rule in candidate.rules}
    assert "fold_gain" in named


def test_siblings_merge() -> None:
    (best, *_) = explored(PROGRAMS["mean and variance"]).candidates()
    assert best.kernels == 1 and len(best.plan().kernels[0].outs) == 2
    (best, *_) = explored(PROGRAMS["residual"]).candidates()
    assert best.kernels == 1 and len(best.plan().kernels[0].outs) == 3


@pytest.mark.parametrize("name", ["norm and linear", "mean and variance", "attention"])
def test_exact_changes_no_bit(name: str) -> None:
    """Of no candidate, the order of rules among them: in numpy, where nothing is scheduled."""
    made = explored(PROGRAMS[name], exact=True)
    data = random_data(made.graph)
    wanted = meaning.run(values(PROGRAMS[name]).lowered, data)
    found = made.candidates()
    assert "rules" in [candidate.label for candidate in found]
    for candidate in found:
        assert not any("approx" in tools().rules.rule(rule).attributes for rule in candidate.rules)
        given = dict(data)
        for each in candidate.prepared:
            load = TensorGraph("load", made.graph.ins, (Output("w", each.input.axes, each.value),))
            (given[each.input.name],) = meaning.run(load, data)
        for want, have in zip(wanted, meaning.run(candidate.graph, given), strict=True):
            assert np.array_equal(want, have)


def test_the_answer_is_the_same_every_time() -> None:
    def told() -> list[tuple[object, ...]]:
        return [(c.signature, c.predicted_us, c.graph) for c in explored(PROGRAMS["gated"]).candidates()]

    assert told() == told()


def test_without_egglog_the_cuts_are_searched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.explore.explore.available", lambda: False)
    made = explored(PROGRAMS["mean and variance"])
    assert made.notes and "pip install" in made.notes[0]
    (best, *_) = made.candidates()
    assert best.kernels == 1 and best.rules == ()


def test_what_cannot_be_lowered_is_said_and_not_chosen() -> None:
    """A schedule that is refused, or not well formed: the lowering is asked, there is no list."""
    graph = explored(PROGRAMS["mean and variance"]).graph
    made = exploration_of(graph)

    def refuse(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        if len(kernels[0].outs) > 1:
            raise DplcError("no schedule for two stores")
        return shared_lowering().schedule(kernels)  # type: ignore[no-any-return]

    made.lowering = KernelPricer(refuse, H100)
    (best, *_) = made.candidates()
    assert not best.problem and all(len(kernel.outs) == 1 for kernel in best.plan().kernels)
