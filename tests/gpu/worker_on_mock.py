"""Processes that measure, for tests: on the mock driver, whose memory is the host's; and two that cannot start."""

from __future__ import annotations

import ctypes
import os
import sys
from multiprocessing.connection import Connection


def serve_mock(pipe: Connection) -> None:
    """Measure on the mock driver."""
    from dplc.engine.tune.evaluators import serve

    sys.setdlopenflags(os.RTLD_LAZY)  # only a part of the driver is there
    ctypes.CDLL(f"{os.environ['LD_LIBRARY_PATH']}/libcuda.so.1")  # the path counts only where a program starts with it
    serve(pipe, "cpu")


def serve_nothing(pipe: Connection) -> None:
    sys.exit("no such luck")


def serve_prints(pipe: Connection) -> None:
    print("x" * 100)
