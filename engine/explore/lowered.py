"""What the lowering really makes of kernels: scheduled by the rules, counted, and priced by the model.

Kernels of one structure are lowered once. This is how extraction asks what can be lowered: not by a list of forms, but
by doing it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ...ir.sizes import at_hint
from ...ir.verify.kernel import problems
from ..cost.instruction_counts import buffer_bytes
from ..kernels.fusion_summary import FusionSummary
from ..kernels.kernels import Kernels, Plan
from ..kernels.key import key
from ..schedule.tail import seconds_of

Schedule = Callable[[tuple[Kernel, ...]], tuple[Kernel, ...]]  # Loop IR to Kernel IR, by the rules


@dataclass(frozen=True)
class KernelPrice:
    """One kernel, or a program of them. problem: why it cannot be lowered; then seconds is infinite."""

    seconds: float
    bytes: float
    kernels: int
    problem: str = ""
    signature: Any = None


class KernelPricer:
    """Prices kernels of Loop IR by what the rules make of them."""

    def __init__(self, schedule: Schedule, target: Target):
        self.schedule, self.target = schedule, target
        self.known: dict[str, KernelPrice] = {}
        self.summarised: dict[FusionSummary, KernelPrice] = {}

    def kernel(self, kernel: Kernel) -> KernelPrice:
        name = key(kernel)
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = self._lower(kernel, name)
            if not gc.isenabled():  # a search paused it: the circles that lowering leaves are among what is young
                gc.collect(0)
        return found

    def _lower(self, kernel: Kernel, name: str) -> KernelPrice:
        try:
            launches = self.schedule((kernel,))
        except DplcError as error:
            return KernelPrice(float("inf"), _bytes(kernel), 1, error.what, name)
        broken = next((problem for launch in launches for problem in problems(launch)), "")
        if broken:  # a defect of ours: better another candidate than a kernel that cannot be built
            return KernelPrice(float("inf"), _bytes(kernel), 1, f"its schedule is not well formed: {broken}", name)
        seconds = seconds_of(launches, self.target)
        return KernelPrice(seconds, sum(map(_bytes, launches)), len(launches), "", name)

    def stores(self, plan: Plan, values: frozenset[Any]) -> KernelPrice:
        """The kernels of a program that store some values."""
        told = [self.kernel(k) for k, stored in zip(plan.kernels, plan.stores, strict=True) if values & set(stored)]
        problem = next((each.problem for each in told if each.problem), "")
        return KernelPrice(
            sum(t.seconds for t in told), sum(t.bytes for t in told), sum(t.kernels for t in told), problem
        )

    def program(self, arranged: Kernels) -> KernelPrice:
        """All kernels of a program. One that looks like an earlier one is not even lifted."""
        told = []
        for draw, lift in arranged.summarised():
            drawn = draw()
            if drawn not in self.summarised:
                self.summarised[drawn] = self.kernel(lift())
            told.append(self.summarised[drawn])
        problem = next((each.problem for each in told if each.problem), "")
        return KernelPrice(
            sum(each.seconds for each in told), sum(each.bytes for each in told), sum(each.kernels for each in told),
            problem, tuple(sorted(str(each.signature) for each in told)),
        )  # fmt: skip


def _bytes(kernel: Kernel) -> float:
    """What its buffers hold, at the lengths that a program with sizes is made for."""
    return float(at_hint(buffer_bytes(kernel)))
