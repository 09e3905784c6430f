"""Cases of a suite at extents that the emulator can look at whole: smaller, with the residues, and rings still turn.

A case is looked at at short extents: those that it names itself (`emulated`), or reduced ones. Where a ring of a
schedule would turn less than twice at reduced ones, what is summed over is longer, no more than it takes, and there are
as few batches as possible.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dplc.codegen.target import Target
from dplc.engine.bench.schedules import CaseSpace, Drawn
from dplc.engine.bench.suites import BenchCase, BenchOperation, Suite, subject_of
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import CompileOptions, cut_into_kernels
from dplc.engine.ruleset import Toolchain
from dplc.ir.loop import For
from dplc.ir.node import nodes

LONGEST, KEPT = 256, 64  # sizes beyond the first are reduced, and keep their residue modulo the second
SHORT = 3  # times KEPT: tiles of every side, and one more
LONGER = (4, 6, 8)  # the same: two, three, four slots of the longest chunks, twice
TURNS = 2
BATCH, BATCH_KEPT, FEW = 16, 8, 2  # the same of sizes that only count independent problems, and the least of them


def shortened(operation: BenchOperation, sizes: dict[str, int], alone: bool = False) -> dict[str, int]:
    """The short extents of a case, residues kept; of batches their quotients, if they have any. alone: one batch."""
    batches = {name: n for name, n in sizes.items() if name in _batches(operation)}
    least = min(batches.values(), default=1)
    fewer = BATCH_KEPT + least % BATCH_KEPT if least > BATCH else FEW + least % FEW if least > FEW + 1 else least
    if any(n % least for n in batches.values()):
        least = fewer = 1
    if alone:
        fewer = 1
    out = {name: n if n <= LONGEST else SHORT * KEPT + n % KEPT for name, n in sizes.items()}
    return out | {name: n // least * fewer for name, n in batches.items()}


def _batches(operation: BenchOperation) -> set[str]:
    """Sizes that are never among the last two dimensions of an input."""
    dims = [text.split() for text in operation.inputs.values()]
    return {name for text in dims for name in text[:-2]} - {name for text in dims for name in text[-2:]}


def reduced(suite: Suite) -> Iterator[tuple[BenchCase, tuple[BenchCase, ...]]]:
    """Each case at short extents once, with the cases that it stands for."""
    found: dict[tuple[str, str, tuple[tuple[str, int], ...]], list[BenchCase]] = {}
    for case in suite.cases:
        sizes = case.emulated or shortened(suite.operations[case.operation], case.sizes)
        found.setdefault((case.operation, case.dtype, tuple(sizes.items())), []).append(case)
    for (operation, dtype, items), cases in found.items():
        yield BenchCase(cases[0].name, operation, dict(items), dtype), tuple(cases)


def summed_over(suite: Suite, case: BenchCase, tools: Toolchain, target: Target) -> set[str]:
    """The sizes that some loop of the program reduces over, found by making them all different."""
    operation = suite.operations[case.operation]
    names = [name for name in case.sizes if name not in _batches(operation)]
    probe = {name: (SHORT + place) * KEPT + case.sizes[name] % KEPT for place, name in enumerate(names)}
    sizes = shortened(operation, case.sizes) | probe
    captured = subject_of(suite, BenchCase(case.name, case.operation, sizes, case.dtype)).capture()
    kernels = cut_into_kernels(captured, CompileOptions(tools, target))[2].kernels
    loops = {loop.stop for kernel in kernels for loop in nodes(kernel, For) if loop.role == "reduce"}
    return {name for name, n in probe.items() if n in loops}


@dataclass(frozen=True)
class DrawnSchedule:
    """A schedule that was drawn, and the extents it was drawn at. thin: one of its rings turns less than it should."""

    space: CaseSpace
    drawn: Drawn
    sizes: dict[str, int]
    thin: bool = False


class Points:
    """The points of a case by number."""

    def __init__(self, suite: Suite, case: BenchCase, tools: Toolchain, target: Target) -> None:
        self._suite, self._case, self._tools, self._target = suite, case, tools, target
        self._spaces: dict[int, CaseSpace] = {}

    def draw(self, seed: int) -> DrawnSchedule:
        """The schedule of a seed, at extents where its rings turn."""
        point = self._at(SHORT, seed)
        if self._case.emulated:
            return point
        for times in LONGER if self._wide else ():
            before, turns = point, point.drawn.turns
            if turns < TURNS:
                point = self._at(times, seed)
            if point.drawn.turns == turns and self._wide != self._summed:
                return before  # a ring over what was not shortened
        return replace(point, thin=point.drawn.turns < TURNS and self._wide == self._summed)

    def _at(self, times: int, seed: int) -> DrawnSchedule:
        sizes = self._case.emulated or self._lengthened(times)
        if times not in self._spaces:
            subject = subject_of(self._suite, BenchCase(self._case.name, self._case.operation, sizes, self._case.dtype))
            captured = capture(subject.function, list(subject.inputs().values()))
            self._spaces[times] = CaseSpace(captured, self._tools, self._target)
        return DrawnSchedule(self._spaces[times], self._spaces[times].draw(seed), sizes)

    def _lengthened(self, times: int) -> dict[str, int]:
        sizes = shortened(self._suite.operations[self._case.operation], self._case.sizes, times > SHORT)
        return sizes | {name: times * KEPT + self._case.sizes[name] % KEPT for name in self._wide}

    @functools.cached_property
    def _summed(self) -> set[str]:
        return summed_over(self._suite, self._case, self._tools, self._target)

    @functools.cached_property
    def _wide(self) -> set[str]:
        """What is summed over and was shortened. The other rings turn as often as they do in the case itself."""
        return {name for name in self._summed if self._case.sizes[name] > LONGEST}
