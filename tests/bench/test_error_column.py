"""The column of errors in the table of a bench: what was looked at in part has a star."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dplc.engine.bench.records import MISSING, _result


def run(**changed: Any) -> Any:
    return SimpleNamespace(**{"ok": True, "relative_error": 3e-7, "extent": "whole", **changed})


@pytest.mark.parametrize(
    ("error", "of", "told"),
    [
        ("", run(), "3e-07"),
        ("", run(extent="rows"), "3e-07 *"),
        ("", run(ok=False), "WRONG"),
        ("", None, MISSING),
        ("too many threads", None, "not compiled"),
    ],
)
def test_result(error: str, of: Any, told: str) -> None:
    assert _result(SimpleNamespace(error=error, run=of)) == told  # type: ignore[arg-type]
