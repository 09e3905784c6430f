"""Work beside a compile, step by step: it rests while a compile goes on, and ends when its subject is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE = 0.5  # seconds that a compile waits for a step to end


class Ended(Exception):
    """The work is not wanted any more."""


class Turns:
    """A thread of work that asks for its turn between its steps."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._resting = self._over = self._idle = False

    def start(self, work: Callable[[], None]) -> None:
        """Begin, in a thread of its own."""
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            self.turn()
            work()
        except Ended:
            pass
        finally:
            with self._changed:
                self._idle = self._over = True
                self._changed.notify_all()

    def turn(self) -> None:
        """Called between steps: waits while others compile. Raises Ended."""
        with self._changed:
            while self._resting and not self._over:
                self._idle = True
                self._changed.notify_all()
                self._changed.wait()
            self._idle = False
            if self._over:
                raise Ended

    def do(self, step: Callable[[], object]) -> None:
        """A step that must not happen once the work has ended. Raises Ended."""
        with self._changed:
            if self._over:
                raise Ended
            step()

    def rest(self) -> None:
        """Wait for the step that goes on, and let none begin."""
        with self._changed:
            self._resting = True
            self._changed.wait_for(lambda: self._idle, PATIENCE)

    def go_on(self) -> None:
        """Let steps begin again."""
        with self._changed:
            self._resting = False
            self._changed.notify_all()

    def end(self) -> None:
        """Let no further step begin."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
