"""Fixtures of the tests of suites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TINY = {
    "about": "three small cases",
    "operations": {
        "linear": {"expression": "F.relu(x @ w)", "inputs": {"x": "1 rows in", "w": "in out"}},
        "norm": {"expression": "F.rms_norm(x, (x.shape[-1],), w, 1e-6)", "inputs": {"x": "rows in", "w": "in"}},
    },
    "cases": [
        {"name": "linear.small", "operation": "linear", "sizes": {"rows": 32, "in": 64, "out": 48}},
        {"name": "linear.ragged", "operation": "linear", "sizes": {"rows": 9, "in": 33, "out": 17}},
        {"name": "norm.small", "operation": "norm", "sizes": {"rows": 16, "in": 256}, "published": {"eager_us": 3.0}},
    ],
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return path
