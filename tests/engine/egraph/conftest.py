"""Fixtures of the exploration tests; what they build on stands beside them, and beside the fusion tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fuse")]

pytest.importorskip("egglog.bindings")
