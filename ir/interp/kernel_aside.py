"""Threads of Kernel IR that run beside others: one side goes on until it waits for the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np


class Abandoned(BaseException):
    """The other side has failed, and this one is not wanted any more."""


class Aside:
    """One side as a program of its own, which holds still but for its turns. since: what it knows to be over."""

    def __init__(self, work: Callable[[], None], since: int) -> None:
        self.work, self.done, self.since = work, False, since
        self._error: BaseException | None = None
        self._unwanted = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Let it go on until it waits, or ends. Raises what it raises."""
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """It waits: the other side goes on."""
        self._back.release()
        self._wait()

    def abandon(self) -> None:
        """End it, wherever it is."""
        self._unwanted = True
        self._go.release()
        self._thread.join()

    def _wait(self) -> None:
        self._go.acquire()
        if self._unwanted:
            raise Abandoned

    def _run(self) -> None:
        try:
            self._wait()
            with np.errstate(all="ignore"):
                self.work()
        except Abandoned:
            return
        except Exception as error:
            self._error = error
        self.done = True
        self._back.release()
