"""Pieces put together, then looked up, cut again, or looked up by themselves: every access is looked at."""

from __future__ import annotations

import pytest

from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.run.calls import run_reference

TEXTS = {
    "places that are pieces": "i = torch.randint(0, 64, (64,))\nv = torch.cat([i, i])\ntorch.cat([v[v % 64], v])",
    "rows of pieces at pieces": (
        "a, b, z = torch.randn(40, 8), torch.randn(24, 8), torch.randn(64, 8)\n"
        "i, j = torch.randint(0, 64, (50,)), torch.randint(0, 64, (14,))\n"
        "torch.cat([torch.cat([a, b])[torch.cat([i, j])], z])"
    ),
    "selected, strided": (
        "a = torch.randint(-9, 9, (192,))[::3]\nv = torch.cat([a, a, a], 0)\n"
        "torch.cat([torch.index_select(v, 0, v % 64), v, v, v], -1)"
    ),
    "looked up twice": (
        "t, i = torch.randn(9, 5), torch.randint(0, 9, (7,))\nj = torch.cat([i, torch.randint(0, 9, (4,))])\n"
        "x = torch.cat([t[j], t])\ntorch.cat([x[j], x[torch.cat([i, i])]])"
    ),
    "padded places": "i = torch.randint(0, 5, (7,))\nt = torch.randn(5, 3)\nF.pad(t[F.pad(i, (1, 2), value=4)], (0, 0, 2, 1))",
    "the first of two": "a = torch.randn(1)\ntorch.cat([a, a])[0]",
    "the second of two": "a, b = torch.randn(1, 3), torch.randn(1, 3)\ntorch.cat([a, b])[1]",
    "one of a stack": "a, b = torch.randn(3, 4), torch.randn(3, 4)\ntorch.stack([a, b])[0]",
    "one of a stack of what is stored": (
        "a = torch.randn(3, 4)\nb = a.softmax(-1)\nc = torch.stack([b, a])\nb, c[0], c[1], c[0] + c[1], c.sum()"
    ),
    "both of a stack of sums": "a = torch.randn(3, 4)\nc = torch.stack([a.sum(1), a.sum(0)[:3]])\nc[0], c[1], a.sum(1)",
    "looked up in itself, nine times": "y = torch.randint(0, 9, (5,))\n" + "y = y[y % 5 - 5]\n" * 9 + "y",
    "read at its own place": "x = torch.randn(100)\ns = x.argmax(0, keepdim=True)\nv = x + s\nv[1:], v[s]",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.sampled(3)
def test_pieces(text: str) -> None:
    captured = capture_text(text)
    compiled = Compiled(compiler_with(target()).compile(captured), "emulator")
    compiled.executor = checker = CheckingExecutor(("all",))
    results = compiled.run({})
    assert captured.reference is not None
    assert judge(results, run_reference(captured, captured.tensors), captured.reference).ok
    assert not checker.findings
