"""A process that used dplc ends without a line on stderr, whatever is alive then."""

from __future__ import annotations

import subprocess
import sys
import weakref

import pytest

import dplc
from dplc.ir import node
from dplc.ir.expr import Var

HEAD = "import torch, dplc; x = torch.ones(3, 4);"
PROGRAMS = (
    "import dplc.ir.expr as e; keep = [e.Var(f'v{n}') for n in range(99)]",
    f"{HEAD} keep = dplc.compile(torch.tanh, (x,)); keep(x)",
    f"{HEAD} dplc.compile(torch.tanh, (x,), trace=True).trace",
    f"{HEAD} keep = [dplc.compile(f, (x,)).ir('tile') for f in (torch.sin, torch.cos)]",
    f"{HEAD} torch.compile(torch.nn.Linear(4, 2), backend='dplc')(x).sum().backward()",
    f"{HEAD} keep = torch.compile(lambda x: (x, x.t(), x * 2), backend='dplc'); keep(x)[0].add_(1)",
    f"{HEAD} keep = dplc.compile(lambda x: x.cumsum(0), (x,), dynamic={{'x': {{0: dplc.Dim('s', 2, 9)}}}}); keep(x)",
    f"{HEAD} keep = dplc.compile(torch.relu, (x,)); keep.itself = keep",
    f"{HEAD} import threading; threading.Thread(target=lambda: dplc.compile(torch.exp, (x,))(x)).start()",
    f"{HEAD} import atexit; atexit.register(lambda: dplc.compile(torch.exp, (x,)).ir('loop'))",
)


def test_a_node_that_dies_after_globals_does_so_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """At exit Python sets the globals of a module to None while nodes are still there."""
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    held = Var("a_name_of_this_test_alone")
    dead = weakref.ref(held)
    monkeypatch.setattr(node, "_remove_dead_weakref", None)
    del held
    assert dead() is None and not failures


@pytest.mark.parametrize("place", range(len(PROGRAMS)))
@pytest.mark.sampled(1)
def test_a_process_ends_without_a_line_on_stderr(place: int) -> None:
    root = dplc.__path__[0].rpartition("/")[0]
    command = [sys.executable, "-W", "ignore", "-c", PROGRAMS[place]]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
