"""What the process that measures is asked and what it answers: msgpack, a length before each message. Data only."""

from __future__ import annotations

import struct
from typing import IO, Any, Literal, TypeVar

import msgspec

from ...codegen.kernel import Program

T = TypeVar("T")
LONGEST = 1 << 30  # bytes of a message
_LENGTH = struct.Struct("<Q")


class Measure(msgspec.Struct, frozen=True):
    """Load, check and time a program. images: what the driver loads, by kernel; folder: of the subject's arrays.

    It runs warm_up times, then up to `runs` times or for `seconds`, the L2 cache filled with other data before each;
    then a few times with what the run before left there.
    """

    program: Program
    images: dict[str, bytes]
    folder: str
    warm_up: int
    runs: int
    seconds: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """status failed: the driver refused or an access faulted; wrong: not what the subject expects, so not timed.

    seconds: of every run; warm: of runs that found L2 as the one before left it. launched: as one CUDA graph, or one by
    one. error: the largest, over the largest value of the reference. registers, spills: of each kernel, where the
    driver tells. over: this process cannot go on.
    """

    status: Literal["ok", "wrong", "failed"]
    detail: str = ""
    seconds: list[float] = []
    warm: list[float] = []
    launched: str = ""
    error: float | None = None
    registers: list[int | None] = []
    spills: list[int | None] = []
    gpu: str = ""
    l2: str = ""
    clocks: dict[str, float] = {}
    over: bool = False


class Ready(msgspec.Struct, frozen=True):
    """The first answer: the GPU was found. wrong: why not."""

    gpu: str = ""
    wrong: str = ""


def send(stream: IO[bytes], message: Any) -> None:
    """Write a message. Raises OSError if the other end is closed."""
    data = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes], kind: type[T]) -> T | None:
    """The next message; None at the end of the stream, or where it breaks off. Raises msgspec.MsgspecError."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > LONGEST:
        return None
    data = stream.read(length)
    return msgspec.msgpack.decode(data, type=kind) if len(data) == length else None
