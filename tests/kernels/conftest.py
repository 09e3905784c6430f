"""Fixtures of the fusion tests; what they build on stands beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from built_in import compiled

from dplc.engine.kernels.fusion_pass import FusionRules


@pytest.fixture(scope="session")
def fusion() -> FusionRules:
    return compiled(None)
