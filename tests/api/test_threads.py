"""Threads may compile at once, and torch is itself afterwards. In a process of its own: what breaks, breaks for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
import torch, dplc
from quick_builds import build_quickly
build_quickly()

def compiled(width):
    model, x = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU()), torch.randn(3, 8)
    made = dplc.compile(model, (x,), device="emulator", db=False)
    torch.testing.assert_close(made(x), model(x).detach())
    return width

with ThreadPoolExecutor(3) as pool:
    assert list(pool.map(compiled, range(4, 7))) == list(range(4, 7))
seen = []
def backend(graph, inputs):
    seen.append(graph)
    return graph.forward
assert torch.equal(torch.compile(lambda x: x * 2, backend=backend)(torch.ones(3)), torch.full((3,), 2.0))
assert torch.equal(torch.compile(lambda x: x * 2, backend="dplc")(torch.ones(3)), torch.full((3,), 2.0))
print(len(seen))
"""


def test_compiling_in_threads() -> None:
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False, cwd=tests
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
