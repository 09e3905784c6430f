"""The laws of facts, which these tests share, stand beside those of kernels."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
