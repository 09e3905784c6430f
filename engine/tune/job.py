"""One kernel to tune, and what came of it: data, and a function by its name, so that any process can carry it out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from ...ir.diagnostic import DplcError
from ..store.protocol import Attempt, Tuned, TuningKey


class Job(msgspec.Struct, frozen=True):
    """One kernel to tune. kernel: its Loop IR as text; names: of the cases that need it, `case:kernel`.

    target, rules, settings, exact: as on the command line. db: the store that the job itself writes to, None where it
    is on another machine and the outcome brings everything along. wishes: the `SearchOptions`, as plain JSON.
    """

    kernel: str
    names: tuple[str, ...]
    target: str
    rules: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    db: str | None = None
    wishes: dict[str, Any] = {}
    exact: bool = False


class JobOutcome(msgspec.Struct, frozen=True):
    """What came of a job. tuned: None where it failed (`failed` says why) or nothing was found that can be kept.

    interrupted: its search was, by the user, who waits for the end.
    """

    key: TuningKey | None = None
    tuned: Tuned | None = None
    attempts: tuple[Attempt, ...] = ()
    line: str = ""
    failed: str = ""
    interrupted: bool = False


TuneOne = Callable[..., JobOutcome]  # of a job, and of who hears of its tries


def guarded(tune_one: TuneOne, job: Job) -> JobOutcome:
    """The outcome of a job; what it raises is one line of it."""
    try:
        return tune_one(job)
    except DplcError as error:
        return JobOutcome(failed=error.what)
    except Exception as error:  # a defect of ours must not end the jobs beside it
        return JobOutcome(failed=f"internal error: {type(error).__name__}: {error}")


def name_of(function: TuneOne) -> str:
    """`module:function`"""
    name = f"{function.__module__}:{function.__qualname__}"
    if "<" in name:
        raise ValueError(f"{name} cannot be found again in another process")
    return name


def run_named(name: str, message: bytes) -> bytes:
    """Carry out a job in another process: messages are msgpack."""
    module, _, function = name.partition(":")
    found: Any = getattr(importlib.import_module(module), function)
    return msgspec.msgpack.encode(guarded(found, msgspec.msgpack.decode(message, type=Job)))
