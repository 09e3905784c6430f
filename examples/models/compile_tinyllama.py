"""A model compiled in three lines: TinyLlama's first layers from its configuration, without its weights.

python examples/models/compile_tinyllama.py
"""

from __future__ import annotations

from pathlib import Path

import dplc

model = dplc.compile_model(Path(__file__).parent / "tinyllama-1.1b.json", seq_len=128, layers=2, target="sm_90a")
print(model)
print(model.ir("loop")[:2000])
