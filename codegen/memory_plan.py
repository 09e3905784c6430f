"""One allocation for all temporaries of a program: buffers that are never needed at once share its bytes.

A temporary lives from the first launch that takes it to the last. Placing them in the least space is dynamic storage
allocation (NP-hard); largest first, each at the lowest offset that is free for its whole life, is within a few percent
of the lower bound on programs of layers, which is the most that lives at one launch.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import replace

from .kernel import Arena, Buffer, Program

ALIGNMENT = 256  # of every buffer: what cudaMalloc gives, so that no kernel sees a difference


def with_arena(program: Program) -> Program:
    """The program with its temporaries placed."""
    return replace(program, arena=plan(program))


def plan(program: Program) -> Arena:
    """Where every temporary of a program goes."""
    lives = lifetimes(program)
    order = sorted(program.temporaries, key=lambda buffer: (-aligned(buffer), lives[buffer.name]))
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first launch, last; sorted
    offsets: dict[str, int] = {}
    for buffer in order:
        first, last = lives[buffer.name]
        offset = 0
        for start, end, begin, until in placed:
            if begin <= last and first <= until:  # both live at some launch
                if offset + aligned(buffer) <= start:
                    break
                offset = max(offset, end)
        offsets[buffer.name] = offset
        insort(placed, (offset, offset + aligned(buffer), first, last))
    return Arena(max((end for _, end, _, _ in placed), default=0), offsets)


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """{temporary: (the first launch that takes it, the last)}"""
    names = {buffer.name for buffer in program.temporaries}
    lives: dict[str, tuple[int, int]] = {}
    for place, launch in enumerate(program.launches()):
        for name in launch.buffers:
            if name in names:
                lives[name] = (lives.get(name, (place, place))[0], place)
    return lives


def most_alive(program: Program) -> int:
    """The bytes of the temporaries of the launch where most are alive: no plan takes less."""
    lives = lifetimes(program)
    change = [0] * (len(program.kernels) + 1)
    for buffer in program.temporaries:
        first, last = lives[buffer.name]
        change[first] += aligned(buffer)
        change[last + 1] -= aligned(buffer)
    alive = most = 0
    for step in change:
        alive += step
        most = max(most, alive)
    return most


def aligned(buffer: Buffer) -> int:
    """Bytes of a buffer with the padding to the next one."""
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
