"""A suite of three small cases."""

from __future__ import annotations

from typing import Any

TINY: dict[str, Any] = {
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
