"""One capture or compile at a time in a process: torch.export keeps what it is doing in globals.

Two exports in parallel fail, and torch then takes one for still running: every `torch.compile` after it runs in
eager. Dynamo, which reads and sets the same globals, compiles under a lock of its own; it waits for us as well.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

_TURN = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Within: no other thread captures or compiles; those that want to wait."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    with _TURN, getattr(dynamo, "compile_lock", None) or nullcontext():
        yield
