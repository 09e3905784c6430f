"""Right before fast: a winner is run before it is kept, and a wrong one is a defect that is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.space import FusionVariant, ProgramSpace
from dplc.engine.store.store import Attempt, Tuned, TuningKey
from dplc.engine.tune import evaluators as verify
from dplc.engine.tune.evaluators import PredictingEvaluator, verdict
from dplc.engine.tune.search import Budget, SearchOptions
from dplc.engine.tune.tuning import tune_kernel
from dplc.ir.node import replace
from dplc.ir.tile import Sync
from tests.tune.subjects import MACHINE, MATMUL, RULES, SUM, kernels, space


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.tuned: dict[TuningKey, Tuned] = {}
        self.attempts: list[Attempt] = []

    def get(self, key: TuningKey) -> Tuned | None:
        return self.tuned.get(key)

    def put(self, key: TuningKey, tuned: Tuned) -> bool:
        self.tuned[key] = tuned
        return True

    def record(self, key: TuningKey, attempts: Sequence[Attempt]) -> None:
        self.attempts += attempts

    def close(self) -> None: ...


def test_a_winner_is_checked_and_remembered() -> None:
    store = Kept()
    wishes = SearchOptions(budget=Budget(tries=25), free=frozenset(("blockify_launch",)))
    outcome = tune_kernel(kernels(MATMUL)[0], toolchain(), MACHINE, PredictingEvaluator(), wishes, store)
    (kept,) = store.tuned.values()
    assert outcome.kept and outcome.gain >= 1.0 and outcome.checked == "emulator, whole"
    assert kept.schedule == outcome.winner.schedule and kept.basis == "predicted"
    assert len(store.attempts) == outcome.run.programs and {a.score.basis for a in store.attempts} == {"predicted"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_held_to_their_own_gate(dtype: str) -> None:
    text = f"torch.randn(40, 24, dtype=torch.{dtype}) @ torch.randn(24, 40, dtype=torch.{dtype})"
    found = verdict(space(text).default())
    assert found.right and found.how == "emulator, whole"


def test_a_wrong_winner_is_told_and_never_kept() -> None:
    tools, store = toolchain([RULES]), Kept()
    wishes = SearchOptions("exhaustive", budget=Budget(), free=frozenset(("half_a_sum",)))
    outcome = tune_kernel(kernels(SUM)[0], tools, MACHINE, PredictingEvaluator(), wishes, store)
    assert len(outcome.wrong) >= 1 and "differs" in outcome.wrong[0][1]
    assert any(d.rule == "half_a_sum" for d in outcome.wrong[0][0].schedule)
    assert outcome.winner.key == outcome.default.key and outcome.checked
    assert [t.schedule for t in store.tuned.values()] == [outcome.default.schedule]
    assert any(attempt.score.status == "wrong" for attempt in store.attempts)


@pytest.mark.parametrize("whole", [True, False])
def test_a_race_is_found_although_the_result_is_right(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "WHOLE", verify.WHOLE if whole else 0)  # where it takes long: some of its blocks
    candidate = space(MATMUL).default()
    (kernel,) = candidate.tile

    def without_syncs(block: Any) -> Any:
        kept = [s for s in block if not isinstance(s, Sync)]
        return tuple(replace(s, body=without_syncs(s.body)) if hasattr(s, "body") else s for s in kept)

    broken = dataclasses.replace(candidate, tile=(replace(kernel, body=without_syncs(kernel.body)),))
    found = verdict(broken)
    assert not found.right and found.finding and ("blocks" in found.how) is not whole
    assert verdict(candidate).right


def test_equal_kernels_are_tuned_once() -> None:
    (one,), (other,) = kernels(MATMUL), kernels(SUM)
    same = replace(one, name="another")
    program = ProgramSpace(toolchain(()), [FusionVariant("", lambda: [one, other, same])], MACHINE)
    assert [(space.loops[0].name, count) for space, count in program.spaces(0)] == [(one.name, 2), (other.name, 1)]
