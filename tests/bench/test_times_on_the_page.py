"""What the page of a bench draws of a case: the time that was predicted, and the least it can take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dplc.engine.bench.page import _times


@pytest.mark.parametrize("predicted, drawn", [(7.0, 7.0), (None, 2.0)])
def test_times_of_a_case(predicted: Any, drawn: float) -> None:
    """Of a case without a prediction it is the time of its bytes."""
    case: Any = SimpleNamespace(compulsory_bytes=2e6, predicted_us=predicted, measured=None)
    record: Any = SimpleNamespace(dram_bytes_per_second=1e12)
    assert _times(case, record) == (2.0, drawn, None)
