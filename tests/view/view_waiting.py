"""Waiting for what another thread does, and a page on a server that has a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dplc.engine.view.server import LivePage, PageServer


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    """What a function gives, once it is true. Raises AssertionError where it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it was never true")


@contextmanager
def served(shown: LivePage, program: Any = None) -> Iterator[PageServer]:
    server = PageServer(shown)
    server.program = program
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
