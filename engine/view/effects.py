"""Predicted time, traffic, shared memory, registers and occupancy of kernels before and after a firing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.interp.scalar import ScheduleError
from ...ir.kernel import Launch
from ...ir.program import Kernel
from ...ir.tile import Tile
from ..cost.instruction_counts import instruction_counts
from ..cost.predict import occupancy, predict
from ..language.rule import pass_name
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.passes import run_pipeline
from ..rewrite.trace import Firing
from ..ruleset import Toolchain
from ..schedule.limits import predicted_registers
from ..schedule.tail import kernel_ir

NEST, TILE, LEVELS = "l", "t", "ltk"
REST = "rest"  # third item of an effect: both sides went through the remaining passes first
UNPRICED = (DplcError, ScheduleError, ArithmeticError, LookupError, TypeError, AssertionError)


def credits(firings: Iterable[Firing], pricing: Effects | None) -> dict[str, tuple[int, float]]:
    """Return {rule: (firings, predicted speed-up of all its firings)}. Firings without a prediction count as 1.0."""
    found: dict[str, tuple[int, float]] = {}
    fired = tuple(firings)
    effects = dict(pricing.of_all(fired)) if pricing is not None else {}
    for number, event in enumerate(fired):
        count, times = found.get(event.rule, (0, 1.0))
        before, after, *_ = effects.get(number, (None, None))
        if before is not None and after is not None:
            times *= before["us"] / after["us"]
        found[event.rule] = count + 1, times
    return found


class Effects:
    """Predict kernels at any point of their schedule, each kernel once.

    seconds: limit of processor time. tiles: Tile IR of the kernels, from which registers are predicted, by name.
    """

    def __init__(self, tools: Toolchain, target: Target, seconds: float | None = None, tiles: Program = ()):
        self.tools, self.target = tools, target
        self.ends = None if seconds is None else time.process_time() + seconds
        self._tiles = {kernel.name: kernel for kernel in tiles}
        self._known: dict[Kernel, dict[str, Any] | None] = {}
        self._made: dict[Program, Program] = {}

    def of_all(self, events: Sequence[Any]) -> Iterator[tuple[int, list[Any]]]:
        """Yield (number, [before, after]) for each firing on kernels, loop nests last.

        A kernel half way through its schedule often cannot be launched (one thread for each element). For such a
        firing (number, [before, after, REST]) follows: both sides after the remaining passes, without and with it.
        """
        nest = [isinstance(event, Firing) and event.prefix == NEST for event in events]
        half_way = []
        for number in sorted(range(len(events)), key=lambda place: nest[place]):
            effect = self.of(events[number])
            if effect is not None:
                yield number, effect
                if events[number].prefix == TILE and None in effect:
                    half_way.append(number)
        for number in half_way:
            told = self._through_the_rest(events[number])
            if told is not None and not self._over():
                yield number, [*told, REST]

    def _through_the_rest(self, event: Firing) -> list[dict[str, Any]] | None:
        """Run the remaining passes on both sides of a firing. Returns [before, after], or None if either side fails.

        The side after the firing skips the other passes of the same `one of`.
        """
        steps = self.tools.pipelines["tile"]
        place = max((n for n, step in enumerate(steps) if step.label == pass_name(event.label)), default=None)
        if place is None or self._over():
            return None
        rest, group = steps[place + 1 :], steps[place].group
        ways = (event.before, rest), (event.after, [step for step in rest if group is None or step.group != group])
        told = []
        for kernels, following in ways:
            try:
                made = run_pipeline(self.tools.engine, following, kernels, self.target)
            except UNPRICED:
                return None
            told.append(self.together(made))
        return [one for one in told if one is not None] if all(told) else None

    def of(self, event: Any) -> list[dict[str, Any] | None] | None:
        """Return [before, after] of a firing on kernels, with None for a side that the lowering rejects.

        Loop nests are first scheduled by the default order. Returns None for any other event.
        """
        if not isinstance(event, Firing) or event.prefix not in LEVELS:
            return None
        sides = (event.before, event.after)
        return [self.together(self._scheduled(side) if event.prefix == NEST else side) for side in sides]

    def _scheduled(self, nests: Program) -> Program:
        """Schedule loop nests by the default order. Returns no kernels if that fails or time is over."""
        if nests not in self._made:
            if self._over():
                return ()
            try:
                self._made[nests] = run_pipeline(self.tools.engine, self.tools.pipelines["tile"], nests, self.target)
            except UNPRICED:
                self._made[nests] = ()
        return self._made[nests]

    def together(self, kernels: Sequence[Kernel]) -> dict[str, Any] | None:
        """Combine launches: sums of times, bytes and blocks, the least occupancy, the largest of the rest."""
        found = [self.kernel(kernel) for kernel in kernels]
        told = [one for one in found if one is not None]
        if len(told) < len(found) or not told:
            return None
        return {
            "us": sum(one["us"] for one in told), "dram": sum(one["dram"] for one in told),
            "shared": max(one["shared"] for one in told), "threads": max(one["threads"] for one in told),
            "blocks": sum(one["blocks"] for one in told), "occupancy": min(one["occupancy"] for one in told),
            "binding": max(told, key=lambda one: one["us"])["binding"],
            "registers": max((one["registers"] for one in told if one["registers"] is not None), default=None),
        }  # fmt: skip

    def kernel(self, kernel: Kernel) -> dict[str, Any] | None:
        """Predict one kernel of Loop, Tile or Kernel IR. `registers` is None without its Tile IR."""
        if kernel not in self._known:
            if self._over():
                return None
            self._known[kernel] = self._priced(kernel)
        return self._known[kernel]

    def _over(self) -> bool:
        return self.ends is not None and time.process_time() > self.ends

    def _priced(self, kernel: Kernel) -> dict[str, Any] | None:
        try:
            lowered = isinstance(kernel.body[0], Launch)
            (made,) = (kernel,) if lowered else kernel_ir((kernel,), self.tools, self.target)
            tile = self._tiles.get(kernel.name, kernel) if lowered else kernel
            tiled = isinstance(tile.body[0], Tile)
            registers = predicted_registers((tile,), 0, self.target) if tiled else None
            counts = instruction_counts(made)
        except UNPRICED:
            return None  # a partly scheduled kernel may have no launch
        prediction = predict(counts, self.target)
        filled, held = occupancy(counts, self.target)
        return {
            "us": prediction.seconds * 1e6, "dram": counts.dram, "shared": counts.shared, "threads": counts.threads,
            "blocks": counts.blocks, "occupancy": filled, "held_by": held, "binding": prediction.binding,
            "registers": registers, "waves": prediction.waves, "resident": prediction.resident,
            "bounds": {name: seconds * 1e6 for name, seconds in prediction.bounds.items()},
        }  # fmt: skip
