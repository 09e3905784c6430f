"""What a search decides: which way of fusing (a candidate of exploration), then the schedule of each of its kernels.

`space.Space` is that for one kernel, where there is one way; `program_space.ProgramSpace` for a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...codegen.target import Target
from ..ruleset import Toolchain
from ..store.protocol import Schedule
from .space import DecisionPoint, Policy, ScheduleCandidate, Space, Token


class Whole(Protocol):
    """What comes of deciding everything.

    way: which way of fusing; parts: a schedule for each of its kernels, and how often that kernel is launched. key:
    equal for what makes the same kernels. problem: why it cannot be built, "" where it can.
    """

    @property
    def way(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def genome(self) -> tuple[tuple[DecisionPoint, Token], ...]: ...
    @property
    def parts(self) -> tuple[tuple[ScheduleCandidate, int], ...]: ...
    @property
    def problem(self) -> str: ...


class Decisions(Protocol):
    """Everything that may be decided. ways: labels of the ways of fusing, the default one first. Of them only those
    are built that are asked for."""

    ways: Sequence[str]
    tools: Toolchain
    target: Target

    def spaces(self, way: int) -> tuple[tuple[Space, int], ...]:
        """The spaces of the kernels of a way, and how often each is launched; none for a way that cannot be built."""

    def made(self, way: int, ends: Sequence[ScheduleCandidate]) -> Any:
        """A way with these schedules of its kernels (a Whole)."""

    def walk(self, policy: Policy, way: int = 0) -> Any:
        """A Whole; the policy is asked wherever there is something to decide."""
        return self.made(way, [space.walk(policy) for space, _ in self.spaces(way)])

    def default(self, way: int = 0) -> Any:
        """What the default order makes of a way."""
        return self.made(way, [space.default() for space, _ in self.spaces(way)])
