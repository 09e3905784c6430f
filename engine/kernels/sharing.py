"""Kernels that differ in names only are compiled once: which kernel stands for which launches, and with which buffers.

A model's layers are alike, so 256 launches are 13 kernels. A kernel that a schedule cuts in two (split-K) stays a chain
of kernels that are launched together, with buffers between them for every launch of the chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.names import unused
from ...ir.program import Kernel, Param
from .key import key


@dataclass(frozen=True)
class Sharing:
    """kernels: one of every structure, in the order of their first launch. place: for every launch its kernel's index.

    launches: the kernels as the program launches them, each with the names of its own buffers.
    """

    kernels: tuple[Kernel, ...]
    place: tuple[int, ...]
    launches: tuple[Kernel, ...]


def share(launches: Sequence[Kernel]) -> Sharing:
    """Launches of one structure get one kernel: the first of them."""
    first: dict[Any, int] = {}
    kernels: list[Kernel] = []
    place = []
    alike = Counter(map(_parameters, launches))
    for kernel in launches:
        structure: Any = _parameters(kernel)  # most tell a kernel from all others
        index = first.setdefault(key(kernel) if alike[structure] > 1 else structure, len(kernels))
        if index == len(kernels):
            kernels.append(kernel)
        place.append(index)
    return Sharing(tuple(kernels), tuple(place), tuple(launches))


@dataclass(frozen=True)
class ScheduledLaunch:
    """One launch after scheduling. index: of the scheduled kernel; buffers: {the kernel's own name: the buffer's};
    place: the launch of Loop IR that it is part of; also: those whose last kernel's work it does as well."""

    index: int
    buffers: Mapping[str, str]
    place: int
    also: tuple[int, ...] = ()


@dataclass(frozen=True)
class Steps:
    """All launches in order, and the buffers that only scheduling knows: those between the kernels of a chain."""

    steps: tuple[ScheduledLaunch, ...]
    between: tuple[Param, ...]


def steps(sharing: Sharing, scheduled: Sequence[Kernel], taken: Iterator[str] | Sequence[str]) -> Steps:
    """The launches of a program whose kernels became `scheduled`. taken: names of buffers that are in use."""
    chain = chains(sharing.kernels, scheduled)
    used, between = set(taken), dict[str, Param]()
    made = []
    for place, (index, launch) in enumerate(zip(sharing.place, sharing.launches, strict=True)):
        shared = sharing.kernels[index]
        own = _params(shared)
        names = {a.name: b.name for a, b in zip(own, _params(launch), strict=True)}
        for position in chain[index]:
            for param in _params(scheduled[position]):
                if param.name not in names:
                    names[param.name] = name = unused(param.name, used, between="_", first=2)
                    used.add(name)
                    between[name] = Param(name, param.dtype, param.shape)
        made += [
            ScheduledLaunch(position, {p.name: names[p.name] for p in _params(scheduled[position])}, place)
            for position in chain[index]
        ]
    return Steps(tuple(made), tuple(between.values()))


def chains(kernels: Sequence[Kernel], scheduled: Sequence[Kernel]) -> list[range]:
    """For every kernel the positions of what it became: they stand together, and the last completes its outputs."""
    made, start, place = [], 0, 0
    for kernel in kernels:
        missing = {param.name for param in kernel.outs}
        while missing:
            missing -= {param.name for param in scheduled[place].outs}
            place += 1
        made.append(range(start, place))
        start = place
    assert place == len(scheduled), "a kernel that belongs to no launch"
    return made


def _parameters(kernel: Kernel) -> tuple[Any, ...]:
    """What kernels of one structure have in common, and is quickly seen."""
    return len(kernel.ins), *[(param.dtype, len(param.shape)) for param in _params(kernel)]


def _params(kernel: Kernel) -> tuple[Param, ...]:
    return (*kernel.ins, *kernel.outs)
