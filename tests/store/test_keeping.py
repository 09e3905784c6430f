"""What a search has found is remembered while it runs: at improvements, once checked, in a tenth of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from schedules import H200, loops

from dplc.engine.ruleset import toolchain
from dplc.engine.store.store import UNFINISHED, SqliteStore, key_of
from dplc.engine.tune import search
from dplc.engine.tune.search import Budget, SearchOptions, SearchRun, Tried
from dplc.engine.tune.tuning import evaluator_for, tune_kernel


def test_the_best_so_far_is_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SHARE", 1e9)  # every improvement at once: by the clock a test would be chance
    tools = toolchain()
    (kernel,) = loops(tools, lambda x, w: x @ w, (16, 32), (32, 16))
    key = key_of(kernel, H200, tools.rules)
    seen: list[tuple[float, float]] = []
    with (
        SqliteStore(tmp_path / "t.sqlite", tools.rules) as store,
        evaluator_for(H200, SearchOptions(predict=True)) as evaluator,
    ):

        def observe(run: SearchRun, tried: Tried) -> None:
            (entry,) = store.exact(key)
            assert entry.tuned.checked and UNFINISHED in entry.tuned.details
            seen.append((entry.tuned.seconds, run.best or 0.0))

        outcome = tune_kernel(kernel, tools, H200, evaluator, SearchOptions(budget=Budget(tries=4)), store, observe)
        assert len(seen) == 4 and all(kept >= best for kept, best in seen) and seen[-1][0] == seen[-1][1]
        (entry,) = store.exact(key)
        assert UNFINISHED not in entry.tuned.details and entry.tuned.seconds == outcome.seconds
        assert outcome.kept and outcome.before is None
        again: Any = tune_kernel(kernel, tools, H200, evaluator, SearchOptions(budget=Budget(tries=2)), store)
        assert again.before is not None and not again.kept
