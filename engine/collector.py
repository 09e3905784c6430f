"""Python's garbage collector waits while we compile.

What a compile makes is mostly alive until its end, and is freed by counting references when it is not: looking through
all of it again and again, with everything that the process holds besides, finds nothing and takes a quarter of a cold
start.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collections_paused() -> Iterator[None]:
    """Within: no collection, in any thread; what is garbage by then is found afterwards."""
    if not gc.isenabled():  # by the user, or by a compile around this one
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
