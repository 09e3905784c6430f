"""What a driver says of a function that it has loaded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dplc.engine.tune.measure import _told


@pytest.mark.parametrize(("name", "value", "told"), [
    ("num_regs", 32, 32), ("num_regs", 0, None),  # no kernel has no registers: a driver that does not know
    ("local_size_bytes", 0, 0), ("local_size_bytes", 64, 64),
])  # fmt: skip
def test_no_registers_is_no_answer_and_no_spill_is_one(name: str, value: int, told: int | None) -> None:
    assert _told(SimpleNamespace(**{name: value}), name) == told
