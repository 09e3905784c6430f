"""Fixtures of the tests of suites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_suite import TINY


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return path
