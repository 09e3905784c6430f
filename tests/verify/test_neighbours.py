"""Programs near a rule's own: each differs from it in the one thing that it says."""

from __future__ import annotations

from typing import Any

from dplc.engine.verify.outcome import PlainDice
from dplc.engine.verify.torch_subjects import other_dtype
from dplc.ir.text.programs import read_program

TEXT = """## level: torch
graph f(x: f32[3], y: f32[3], z: f32[3]) -> o: f32[3]:
    s: f32[3] = Add(x, y)
    o: f32[3] = Mul(s, z)
"""


def test_one_input_has_another_dtype() -> None:
    graph: Any = read_program(TEXT, "a test")[1][0]
    changed = [
        [p.name for p, q in zip(graph.ins, other_dtype(graph, PlainDice(seed)).ins, strict=True) if p.dtype != q.dtype]
        for seed in range(40)
    ]
    assert {name for names in changed for name in names} == {"x", "y", "z"}
    assert max(map(len, changed)) == 1
