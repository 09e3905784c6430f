"""What the model counts of one access to shared memory is what the choice of layouts counts."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dplc.engine.cost.memory_model import wavefronts
from dplc.ir.facts import layout

LANES = np.arange(32)
PATTERNS = [LANES, LANES * 0, LANES // 8, LANES % 8, LANES // 2, LANES & 1 | LANES >> 1 & 2, LANES * 8, LANES * 9]


@given(st.lists(st.integers(0, 40), min_size=32, max_size=32), st.sampled_from((1, 2, 4)))
@example([5] * 31 + [40], 4)
def test_any_lanes(places: list[int], width: int) -> None:
    words = np.array(places) * width
    assert wavefronts(words[None], width, np.ones((1, 32), bool))[0] == layout.wavefronts(words, width)


@given(st.sampled_from(PATTERNS), st.sampled_from((1, 2, 4)), st.integers(0, 31))
def test_lanes_that_share_places(pattern: np.ndarray, width: int, flipped: int) -> None:
    words = (pattern ^ flipped) * width
    assert wavefronts(words[None], width, np.ones((1, 32), bool))[0] == layout.wavefronts(words, width)


def test_idle_lanes_keep_no_pair_apart() -> None:
    busy = LANES % 2 == 0
    words = np.where(busy, LANES // 2, 100 + LANES) * 4
    assert wavefronts(words[None], 4, busy[None])[0] == 2
    assert wavefronts(words[None], 4, np.ones((1, 32), bool))[0] > 2
