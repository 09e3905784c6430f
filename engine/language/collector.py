"""Python's garbage collector waits while we compile or explore.

What a compile makes is mostly alive until its end, and is freed by counting references when it is not: looking through
all of it again and again, with everything that the process holds besides (torch first of all), finds nothing and takes
a quarter of a cold start. An exploration lowers thousands of kernels, and lowering does leave circles: it collects what
is young kernel by kernel (`explore/lowered.py`), so that memory does not grow with what was lowered.
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
