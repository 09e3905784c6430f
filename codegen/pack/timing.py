"""Timing what is enqueued on a stream of the driver, with its events."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

from ..driver import L2_BYTES, Driver, DriverError

BATCH, MOST_RUNS, LEAST_RUNS = 20, 200, 10
WARM_UP = 0.015  # seconds of runs that do not count
SECONDS = 0.3  # of one timing, at most, once LEAST_RUNS are there
WITHIN = 0.01  # half of the 95% interval of the median, over the median
WARM_SECONDS = 2e-3  # of runs one behind the other
TOGETHER, SHORT = 10, 1e-4  # so many runs shorter than this are enqueued by one call
Run = Callable[[], None]


class EventTimer:
    """Times on one stream of the driver."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self.driver, self.stream = driver, stream
        self.bytes = max(2 * driver.attribute(L2_BYTES), 1 << 20)
        self._other = driver.alloc(self.bytes)
        self._events = [(driver.event(), driver.event()) for _ in range(BATCH)]
        self._turn = 0

    @property
    def l2(self) -> str:
        """The state of the cache before every run, in words."""
        return (
            f"cold: {self.bytes} bytes of other data are written before every run; warm_us: runs one behind the other"
        )

    def timing(self, run: Run, launched: str, several: Callable[[], Run] | None = None) -> dict[str, Any]:
        """Microseconds of a run: median and quartiles; enough runs that the median is known to 2 %, or MOST_RUNS.

        several: makes what enqueues TOGETHER runs by one call, without which short runs would wait for Python.
        """
        began = time.monotonic()
        until, each = began + SECONDS, max(self._batch(run, 3))
        while time.monotonic() < began + WARM_UP:  # an idle device clocks lower
            self._batch(run, 3)
        found: list[float] = []
        while len(found) < MOST_RUNS and (len(found) < LEAST_RUNS or time.monotonic() < until):
            found += self._batch(run, min(BATCH, max(2, int(0.1 / max(each, 1e-6)))))
            low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
            within = 1.57 * (high - low) / len(found) ** 0.5 / max(middle, 1e-12)
            if len(found) >= LEAST_RUNS and within <= WITHIN:
                break
        together = run
        if several is not None and middle < SHORT:
            with contextlib.suppress(RuntimeError, DriverError):  # as where memory is short
                together = several()
        runs = 1 if together is run else TOGETHER
        count = min(50, max(2, int(WARM_SECONDS / max(middle * runs, 1e-6))))
        warm = statistics.median(self._warm(together, count) / runs for _ in range(3))
        microseconds = {"median_us": middle, "low_us": low, "high_us": high, "warm_us": warm}
        rounded = {name: round(value * 1e6, 3) for name, value in microseconds.items()}
        return {**rounded, "runs": len(found), "within": round(within, 4), "launched": launched}

    def _batch(self, run: Run, count: int) -> list[float]:
        """Seconds of some runs; enqueued together, so that the device never waits for Python."""
        events = self._events[:count]
        for start, end in events:
            self._turn += 1
            self.driver.fill(self._other, self._turn % 256, self.bytes, self.stream)
            self.driver.record(start, self.stream)
            run()
            self.driver.record(end, self.stream)
        self.driver.synchronize()
        return [self.driver.seconds(start, end) for start, end in events]

    def _warm(self, run: Run, count: int) -> float:
        start, end = self._events[0]
        self.driver.record(start, self.stream)
        for _ in range(count):
            run()
        self.driver.record(end, self.stream)
        self.driver.synchronize()
        return self.driver.seconds(start, end) / count
