"""Keys and results for tests of the store: figures are made up, nothing was measured."""

from __future__ import annotations

from typing import Any

from dplc.engine.store.store import Decision, Schedule, Tuned, TuningKey

SCHEDULE: Schedule = (
    Decision("chunk_matmul_k", "chunk_matmul_k", "0/0/0", {"BK": 32}),
    Decision("xor_smem", "xor_smem", "0/0"),
)
OTHER: Schedule = (Decision("mark_unroll", "mark_unroll", "0/0", {"U": 2}),)


def key(number: int = 0, **changes: Any) -> TuningKey:
    """A key of a kernel that does not exist."""
    values = {
        "kernel": f"kernel{number}", "device": "GPU", "arch": "sm_90a", "rules": "all", "tools": "dplc 1; model 1",
        "family": "family", "extents": (64, 2048),
    }  # fmt: skip
    return TuningKey(**{**values, **changes})


def tuned(seconds: float = 1e-5, basis: Any = "predicted", schedule: Schedule = SCHEDULE, **more: Any) -> Tuned:
    return Tuned(schedule, seconds, basis, 2e-5, "hill", 0, 100, "emulator, whole", **more)
