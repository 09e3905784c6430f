"""Runs mutants one by one: whatever stands in a file, the answer is a result or a `DplcError` with exit code 1 or 2.

A mutant has a number, and the same number is the same mutant: `python tests/fuzz/harness.py VICTIM FIRST COUNT` runs some of them.
"""

from __future__ import annotations

import contextlib
import io
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parent))
from mutators import payloads

from dplc.ir.diagnostic import INTERNAL, DplcError

SECONDS = 10.0  # of CPU, which no mutant may take
WAITING = 120.0  # by the clock: one that waits for a pipe takes no CPU


class Victim(Protocol):
    """Something that reads files. attack: one mutant, by the dice; what it says of itself, for people."""

    name: str

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None: ...

    def attack(self, dice: random.Random) -> Any: ...


class Hang(BaseException):
    """The time is up. No Exception: nobody may catch it by mistake."""


@dataclass(frozen=True)
class Failure:
    """A mutant that was not answered as it should be."""

    number: int
    what: str
    details: str

    def __str__(self) -> str:
        return f"mutant {self.number}: {self.what}\n{self.details}"


@dataclass
class Tally:
    """What came of some mutants. slowest: seconds of CPU, and which."""

    passed: int = 0
    refused: int = 0
    failures: list[Failure] = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return (
            f"{self.passed + self.refused + len(self.failures)} mutants: {self.refused} refused, {self.passed} passed, "
            f"{len(self.failures)} failed"
        )


def run(kind: type[Victim], first: int, count: int) -> Tally:
    """Some mutants of a victim."""
    tally = Tally(failures=[])
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        canary = folder / "canary"
        victim = kind(folder / "work", payloads(canary))
        for number in range(first, first + count):
            failure = _one(victim, number, tally)
            if failure is None and canary.exists():
                failure = Failure(number, "code ran", "")
                canary.unlink()
            if failure is not None:
                tally.failures.append(failure)
    return tally


def _one(victim: Victim, number: int, tally: Tally) -> Failure | None:
    try:
        with limited(), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            victim.attack(random.Random(f"{victim.name} {number}"))
        tally.passed += 1
    except DplcError as error:
        if error.exit_code == INTERNAL:
            return Failure(number, f"{type(error).__name__}: {error.what}", _tail())
        error.render()
        tally.refused += 1
    except Hang:
        return Failure(number, f"no answer after {SECONDS} seconds of CPU", _tail())
    except Exception as error:
        return Failure(number, f"{type(error).__name__}: {error}"[:200], _tail())
    return None


def _tail() -> str:
    return "".join(traceback.format_exc(limit=-4))[-1500:]


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raises Hang when the time is up."""

    def over(*_: Any) -> None:
        raise Hang

    before = [signal.signal(number, over) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def main(arguments: list[str]) -> int:
    """`VICTIM FIRST COUNT`, as often as one likes; whether any mutant failed."""
    from victims import VICTIMS

    failed = False
    for name, first, count in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True):
        tally = run(VICTIMS[name], int(first), int(count))
        for failure in tally.failures:
            print(failure, flush=True)
        print(name, tally, flush=True)
        failed |= bool(tally.failures)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
