"""What the model says of kernels before and after a firing: time, traffic, shared memory, registers, occupancy.
Predicted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.interp.scalar import ScheduleError
from ...ir.kernel import Launch
from ...ir.program import Kernel
from ...ir.tile import Tile
from ..cost.instruction_counts import instruction_counts
from ..cost.predict import occupancy, predict
from ..rewrite.trace import Firing
from ..ruleset import Toolchain
from ..schedule.limits import predicted_registers
from ..schedule.tail import kernel_ir

LEVELS = "tk"


def credits(firings: Iterable[Firing], pricing: Effects | None) -> dict[str, tuple[int, float]]:
    """{rule: (how often it fired, how many times faster its firings made what they changed, all together)}. 1.0 is what
    is said of firings that nothing prices."""
    found: dict[str, tuple[int, float]] = {}
    for event in firings:
        count, times = found.get(event.rule, (0, 1.0))
        before, after = (pricing.of(event) if pricing is not None else None) or (None, None)
        if before is not None and after is not None:
            times *= before["us"] / after["us"]
        found[event.rule] = count + 1, times
    return found


class Effects:
    """Prices kernels at any point of their schedule, each once. seconds: how long it may go on."""

    def __init__(self, tools: Toolchain, target: Target, seconds: float | None = None):
        self.tools, self.target = tools, target
        self.ends = None if seconds is None else time.perf_counter() + seconds
        self._known: dict[Kernel, dict[str, Any] | None] = {}

    def of(self, event: Any) -> list[dict[str, Any] | None] | None:
        """[before, after] of a firing on kernels, each None where the lowering refuses; None for any other event."""
        if not isinstance(event, Firing) or event.prefix not in LEVELS:
            return None
        return [self.together(event.before), self.together(event.after)]

    def together(self, kernels: Sequence[Kernel]) -> dict[str, Any] | None:
        """Several launches: times and bytes added up, of the rest what is most (occupancy: the least)."""
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
        """One kernel of Loop, Tile or Kernel IR. registers: of a thread, predicted from Tile IR; None of other IRs."""
        if kernel not in self._known:
            if self.ends is not None and time.perf_counter() > self.ends:
                return None
            self._known[kernel] = self._priced(kernel)
        return self._known[kernel]

    def _priced(self, kernel: Kernel) -> dict[str, Any] | None:
        try:
            lowered = isinstance(kernel.body[0], Launch)
            (made,) = (kernel,) if lowered else kernel_ir((kernel,), self.tools, self.target)
            tiled = isinstance(kernel.body[0], Tile)
            registers = predicted_registers((kernel,), 0, self.target) if tiled else None
            counts = instruction_counts(made)
        except (DplcError, ScheduleError, ArithmeticError, LookupError, TypeError, AssertionError):
            return None  # a kernel half way down need not be one that can be launched
        prediction = predict(counts, self.target)
        filled, held = occupancy(counts, self.target)
        return {
            "us": prediction.seconds * 1e6, "dram": counts.dram, "shared": counts.shared, "threads": counts.threads,
            "blocks": counts.blocks, "occupancy": filled, "held_by": held, "binding": prediction.binding,
            "registers": registers, "waves": prediction.waves, "resident": prediction.resident,
            "bounds": {name: seconds * 1e6 for name, seconds in prediction.bounds.items()},
        }  # fmt: skip
