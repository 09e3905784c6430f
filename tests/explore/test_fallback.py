"""Exploration always finds something: where the model, the search or the form of a program gives out, the rules decide."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from drawing import draws
from exploring import H100, assert_right, exploration_of, explored, random_data, shared_lowering, values
from hypothesis import given, settings, strategies as st

import dplc
from dplc.engine.compiler import Values
from dplc.engine.cost.kernel_estimate import impossible
from dplc.engine.explore.explore import Exploration, ExplorationWarning, Fusing, KernelPricer, best
from dplc.engine.explore.solution import EgraphSearch
from dplc.engine.rewrite.trace import STRICT
from dplc.ir.diagnostic import DplcError
from dplc.ir.program import Kernel

FOUR = "torch.randn(2, 3, 4, 5)"
MANY_AXES = (
    f"{FOUR}.sum()",
    f"{FOUR}.argmax()",
    f"{FOUR}.norm()",
    f"{FOUR}.var()",
    f"x = {FOUR}\nx / x.sum()",
    f"{FOUR}.logsumexp((0, 1, 2, 3))",
    f"F.mse_loss({FOUR}, {FOUR})",
    "nn.BatchNorm3d(3, track_running_stats=False)(torch.randn(2, 3, 2, 4, 5))",
    "torch.randn(2, 2, 2, 2, 2, 2, 2).sum()",
    "torch.einsum('abcde, abcdf -> ef', torch.randn(2, 2, 2, 2, 3), torch.randn(2, 2, 2, 2, 4))",
)


def assert_explored(made: Exploration) -> None:
    found = made.candidates()
    assert found and not found[0].problem and not made.notes
    for candidate in found:
        assert_right(made.graph, candidate, random_data(made.graph))


@pytest.mark.parametrize("text", MANY_AXES)
@pytest.mark.sampled(5)
def test_reductions_over_many_axes(text: str) -> None:
    assert_explored(explored(text))


@settings(max_examples=draws(2), deadline=None)
@given(st.data())
def test_folds_of_any_axes_of_any_rank(data: Any) -> None:
    shape = data.draw(st.lists(st.sampled_from((2, 3)), min_size=1, max_size=6))
    places = range(len(shape))
    over = data.draw(st.lists(st.sampled_from(places), min_size=1, unique=True))
    fold = data.draw(st.sampled_from(("sum", "amax", "mean")))
    after = data.draw(st.sampled_from(("y", "x - y", "(x * y).sum()", "(x - y).square().mean()")))
    text = f"x = torch.randn({', '.join(map(str, shape))})\ny = x.{fold}({tuple(over)}, keepdim=True)\n{after}"
    assert_explored(explored(text))


@pytest.mark.parametrize("text", [f"{FOUR}.softmax(-1)", "torch.randn(4, 6) @ torch.randn(6, 5) + 1"])
def test_where_the_model_has_no_price_at_all(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.explore.solution.price", lambda *_: impossible("it has no price"))
    made = explored(text)
    made.lowering = KernelPricer(shared_lowering().schedule, H100)
    assert_explored(made)


def test_where_nothing_can_be_lowered_the_rules_say_why() -> None:
    def refuse(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        raise DplcError("no schedule for anything")

    made = exploration_of(explored(f"{FOUR}.softmax(-1)").graph)
    made.lowering = KernelPricer(refuse, H100)
    found = made.candidates()
    assert found and {candidate.problem for candidate in found} == {"no schedule for anything"}


def fail(*_: Any) -> Any:
    raise IndexError("somebody searched too far")


def row(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def test_a_failure_leaves_the_rules_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EgraphSearch, "explore", fail)
    monkeypatch.setenv(STRICT, "0")
    made = explored(f"{FOUR}.softmax(-1)")
    (found,) = made.candidates()
    (note,) = made.notes
    assert found.label == "rules" and "IndexError: somebody searched too far" in note and STRICT in note
    x = torch.randn(4, 6)
    with pytest.warns(ExplorationWarning, match="somebody searched too far"):
        compiled = dplc.compile(row, (x,), explore=True, device="emulator", db=False)
    assert np.allclose(compiled(x), row(x), atol=1e-6)
    fusing = Fusing(values(f"{FOUR}.softmax(-1)"))
    with pytest.warns(ExplorationWarning):
        assert [way.label for way in fusing.ways()] == ["rules"]


def test_a_plan_that_fails_leaves_the_rules_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Exploration.candidates
    monkeypatch.setattr(Exploration, "candidates", lambda made: [replace(one, plan=fail) for one in found(made)])
    monkeypatch.setenv(STRICT, "0")
    told: list[str] = []
    given: Values = values(f"{FOUR}.softmax(-1)")
    assert best(given, tell=told.append) is None
    assert len(told) == 1 and "IndexError" in told[0]


def test_our_tests_see_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EgraphSearch, "explore", fail)
    with pytest.raises(IndexError):
        explored(f"{FOUR}.softmax(-1)").candidates()


def test_a_program_with_more_axes_than_an_e_graph_tells_apart_is_left_to_the_rules() -> None:
    """No failure: nothing to mend, so no error even for our tests."""
    text = "\n".join(f"x{n} = torch.randn(2, 3).sum(0)" for n in range(3)) + "\nx0 * x1.flip(0) + x2.flip(0) * 2"
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True):
        patch.setattr("dplc.engine.explore.problem.MOST_AXES", 2)
        made = explored(text)
        (found,) = made.candidates()
    assert found.label == "rules" and made.notes == ["the program is not explored: a part of it has more than 2 axes"]
