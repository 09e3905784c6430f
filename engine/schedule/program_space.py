"""The decisions of a program: the candidate of fusion first, then the schedule of each of its kernels.

A candidate is built when it is walked, and its siblings are not. Kernels of one structure have one space, whichever
launches them: what is found for one of them in one candidate is known in all. Times add up, so that a decision for one
kernel is weighed against the same schedules of the others.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ..kernels.sharing import key
from ..ruleset import Toolchain
from ..store.protocol import Schedule
from .decisions import Decisions
from .space import DecisionPoint, ScheduleCandidate, Space, Start, Token


@dataclass(frozen=True)
class Way:
    """A way of fusing. kernels: builds it, as kernels of Loop IR in the order of their launches; raises DplcError."""

    label: str
    kernels: Callable[[], Sequence[Kernel]]


@dataclass(frozen=True)
class Together:
    """A way with a schedule for each of its kernels (`decisions.Whole`)."""

    way: int
    label: str
    parts: tuple[tuple[ScheduleCandidate, int], ...]
    problem: str = ""

    @functools.cached_property
    def key(self) -> str:
        spelled = " ".join(f"{count} {candidate.key}" for candidate, count in self.parts) or self.label
        return hashlib.sha256(spelled.encode()).hexdigest()[:16]

    @property
    def schedule(self) -> Schedule:
        return tuple(decision for candidate, _ in self.parts for decision in candidate.schedule)

    @property
    def genome(self) -> tuple[tuple[DecisionPoint, Token], ...]:
        return tuple(decided for candidate, _ in self.parts for decided in candidate.genome)


def distinct(kernels: Sequence[Kernel]) -> list[tuple[Kernel, int]]:
    """Every kernel once, with how many of a program are the same but for their names."""
    found: dict[str, tuple[Kernel, int]] = {}
    for kernel in kernels:
        first, count = found.get(key(kernel), (kernel, 0))
        found[key(kernel)] = first, count + 1
    return list(found.values())


class ProgramSpace(Decisions):
    """All ways to compute a program. free: labels of the passes that are decided; None for all."""

    def __init__(self, tools: Toolchain, ways: Sequence[Way], target: Target, free: frozenset[str] | None = None):
        self.tools, self.target, self.free = tools, target, free
        self.candidates = tuple(ways)
        self.ways = tuple(way.label for way in ways)
        self.problems: dict[int, str] = {}
        self._kernels: dict[str, Space] = {}
        self._spaces: dict[int, tuple[tuple[Space, int], ...]] = {}

    def spaces(self, way: int) -> tuple[tuple[Space, int], ...]:
        if way not in self._spaces:
            self._spaces[way] = self._built(way)
        return self._spaces[way]

    def _built(self, way: int) -> tuple[tuple[Space, int], ...]:
        try:
            kernels = self.candidates[way].kernels()
        except DplcError as error:
            if way == 0:
                raise
            self.problems[way] = error.what
            return ()
        return tuple((self.kernel(kernel), count) for kernel, count in distinct(kernels))

    def kernel(self, kernel: Kernel) -> Space:
        """The space of a kernel, shared by all that are the same but for their names."""
        name = key(kernel)
        if name not in self._kernels:
            self._kernels[name] = Space(self.tools, Start((kernel,)), self.target, self.free)
        return self._kernels[name]

    @property
    def built(self) -> tuple[int, ...]:
        """The ways that were walked so far."""
        return tuple(self._spaces)

    def made(self, way: int, ends: Sequence[ScheduleCandidate]) -> Together:
        counts = (count for _, count in self.spaces(way))
        return Together(way, self.ways[way], tuple(zip(ends, counts, strict=True)), self.problems.get(way, ""))
