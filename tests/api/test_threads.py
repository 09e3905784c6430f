"""Threads may compile at once, and torch is itself afterwards. In a process of its own: what breaks, breaks for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from forked import done

import dplc
from dplc.engine import ruleset


def compiling_in_threads() -> None:
    ruleset._built_in.cache_clear()  # threads load the rules, too
    torch._dynamo.reset()

    def compiled(width: int) -> int:
        model, x = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU()), torch.randn(3, 8)
        made = dplc.compile(model, (x,), device="emulator", db=False)
        torch.testing.assert_close(made(x), model(x).detach())
        return width

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(compiled, range(4, 7))) == list(range(4, 7))
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    for name in (backend, "dplc"):
        assert torch.equal(torch.compile(lambda x: x * 2, backend=name)(torch.ones(3)), torch.full((3,), 2.0))
    assert len(seen) == 1


def test_compiling_in_threads(tmp_path: Path) -> None:
    assert done(tmp_path / "log", compiling_in_threads) == (0, "")
