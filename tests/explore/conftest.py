"""Fixtures of the exploration tests; what they build on stands beside them, and beside the fusion tests."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "kernels")]

collect_ignore_glob = [] if find_spec("egglog") else ["test_*.py"]
