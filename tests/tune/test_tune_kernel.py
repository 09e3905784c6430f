"""Right before fast: a winner is run before it is kept, and a wrong one is a defect that is told. What is known of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dplc.engine.bench.bench import Assembled, assembler
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.store.store import UNFINISHED, SqliteStore, key_of
from dplc.engine.tune import evaluators, search
from dplc.engine.tune.evaluators import PredictingEvaluator, verdict
from dplc.engine.tune.search import Budget, Observer, SearchOptions, SearchRun, Tried, unheard
from dplc.engine.tune.tuning import TuningOutcome, tune_kernel
from dplc.ir.node import replace
from dplc.ir.tile import Sync
from tests.tune.subjects import MACHINE, MATMUL, SUM, kernels, space


def tuned(
    text: str, store: SqliteStore, options: SearchOptions, tools: Toolchain | None = None, observe: Observer = unheard
) -> TuningOutcome:
    tools = tools or toolchain()
    return tune_kernel(kernels(text)[0], tools, MACHINE, PredictingEvaluator(), options, store, observe)


def test_a_winner_is_checked_and_remembered(path: Path) -> None:
    with SqliteStore(path) as store:
        outcome = tuned(MATMUL, store, SearchOptions(budget=Budget(25), free=frozenset(("blockify_launch",))))
        (entry,) = store.select()
    assert outcome.kept and outcome.gain >= 1.0 and outcome.checked == "emulator, whole"
    assert entry.tuned.schedule == outcome.winner.schedule
    assert entry.tuned.basis == "predicted" and entry.tuned.details["counters_by"].startswith("emulator")


def test_a_wrong_winner_is_told_and_never_kept(path: Path) -> None:
    options = SearchOptions("exhaustive", budget=Budget(), free=frozenset(("half_a_sum",)))
    with SqliteStore(path) as store:
        outcome = tuned(SUM, store, options, toolchain([Path(__file__).parent / "rules"]))
        (entry,) = store.select()
    wrong, why = outcome.wrong[0]
    assert "half_a_sum" in {decision.rule for decision in wrong.schedule} and "differs" in why
    assert outcome.winner.key == outcome.default.key and outcome.checked
    assert entry.tuned.schedule == outcome.default.schedule


def test_the_best_so_far_is_in_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SHARE", 1e9)  # every improvement at once: by the clock a test would be chance
    text, rules = "torch.randn(16, 32) @ torch.randn(32, 16)", toolchain().rules
    wanted = key_of(*kernels(text), MACHINE, rules)
    seen: list[tuple[float, float | None]] = []
    with SqliteStore(path, rules) as store:

        def observe(run: SearchRun, tried: Tried) -> None:
            (entry,) = store.exact(wanted)
            assert entry.tuned.checked and UNFINISHED in entry.tuned.details
            seen.append((entry.tuned.seconds, run.best))

        outcome = tuned(text, store, SearchOptions(budget=Budget(4)), observe=observe)
        assert len(seen) == 4 and all(kept == best for kept, best in seen)
        (entry,) = store.exact(wanted)
        assert UNFINISHED not in entry.tuned.details and entry.tuned.seconds == outcome.seconds
        assert outcome.kept and outcome.before is None
        again = tuned(text, store, SearchOptions(budget=Budget(2)))
        assert again.before is not None and not again.kept


# ---- the check


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_held_to_their_own_gate(dtype: str) -> None:
    text = f"torch.randn(40, 24, dtype=torch.{dtype}) @ torch.randn(24, 40, dtype=torch.{dtype})"
    assert verdict(space(text).default()) == evaluators.Verdict("emulator, whole")


@pytest.mark.parametrize("whole", [True, False])
def test_a_race_is_found_although_the_result_is_right(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluators, "WHOLE", evaluators.WHOLE if whole else 0)  # where it takes long: some blocks
    candidate = space(MATMUL).default()
    (kernel,) = candidate.tile

    def without_syncs(block: Any) -> Any:
        kept = [s for s in block if not isinstance(s, Sync)]
        return tuple(replace(s, body=without_syncs(s.body)) if hasattr(s, "body") else s for s in kept)

    found = verdict(dataclasses.replace(candidate, tile=(replace(kernel, body=without_syncs(kernel.body)),)))
    assert not found.right and found.finding and ("blocks" in found.how) is not whole
    assert verdict(candidate).right


# ---- evidence


def test_evidence_is_of_each_kernel_with_its_source() -> None:
    """Two kernels: partial sums, and their sum."""
    details = evaluators.evidence(space("torch.randn(16, 4096) @ torch.randn(4096, 16)").default())
    assert details["counters_by"].startswith("emulator") and details["wavefront_ratio"][0] >= 1
    assert len(details["sector_efficiency"]) == 2 and all(0 < share <= 1 for share in details["sector_efficiency"])
    known = {"registers", "spills", "registers_by"} & details.keys()
    assert len(known) == (3 if assembler() else 0)
    if known:
        assert details["registers_by"] == assembler() and len(details["registers"]) == len(details["spills"]) == 2


def test_figures_of_the_assembler_are_of_every_kernel_or_left_out() -> None:
    one = Assembled(registers=40, spill_bytes=0, instructions=90, has_loop=True, ffma_share=0.5, widths=("128",))
    other = Assembled(registers=41, spill_bytes=1, instructions=7, has_loop=False, ffma_share=0.0, widths=())
    figures = {"registers": [40, 41], "spills": [0, 1], "registers_by": assembler()}
    disassembled = {"ffma_share": [0.5, 0.0], "instructions": [90, 7]}
    assert evaluators.of_assembler([one, other]) == figures | disassembled
    assert evaluators.of_assembler([one, Assembled(registers=41, spill_bytes=1)]) == figures
