"""Which way of fusing a program takes, where the kernels of all its ways were tuned one by one: suites and grids.

Times add up. The fastest way is put together with the schedules that won, run as a whole against float64, and
remembered under the key of the program; its kernels are remembered already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..explore.candidates import key_of_program
from ..explore.stored_solutions import NotProved
from ..kernels.sharing import key, key_of_range
from ..store.protocol import Tuned, TuningStore
from .jobs import TuningProgram
from .tuning_program import checked_whole


@dataclass(frozen=True)
class ChosenWay:
    """The way that was chosen. rules: seconds of what the rules decide, tuned; wrong: faster ways, and why not; the
    chosen one, too, where none is right."""

    name: str
    way: int
    label: str
    rules: float
    seconds: float
    basis: str
    checked: str
    wrong: Mapping[int, str]
    kept: bool = False

    @property
    def right(self) -> bool:
        return self.way not in self.wrong

    @property
    def line(self) -> str:
        """For people."""
        told = f"{self.rules * 1e6:.4g} us as the rules fuse it, {self.seconds * 1e6:.4g} us as {self.label} does"
        return f"{told}, {self.basis}; checked: {self.checked or 'no'}"


def choose(program: TuningProgram, tuned: Mapping[str, Tuned], store: TuningStore | None = None) -> ChosenWay | None:
    """The fastest way that is right; None where there is nothing to choose among, or a kernel of the rules is missing.
    What the rules decide, with what is wrong, where no way is right.

    tuned: by the keys of kernels.
    """
    known = {way: [tuned.get(key_of_range(kernel)) for kernel in kernels] for way, kernels in program.ways.items()}
    ways: dict[int, list[Tuned]] = {way: [o for o in found if o] for way, found in known.items() if all(found)}
    if 0 not in ways or len({one.basis for found in ways.values() for one in found}) > 1:
        return None
    seconds = {way: sum(one.seconds for one in found) for way, found in ways.items()}
    wrong: dict[int, str] = {}
    for way in sorted(ways, key=lambda way: (seconds[way], way)):
        kernels = program.ways[way]
        schedules = {key(kernel): one.schedule for kernel, one in zip(kernels, ways[way], strict=True)}
        checked, why = checked_whole(program.fusing, way, schedules)
        if why:
            wrong[way] = why
            continue
        if len(program.ways) < 2:
            return None
        label = f"candidate {way}" if way else "the rules"
        kept = store is not None and _remembered(program, way, ways, checked, label, store)
        return ChosenWay(
            program.name, way, label, seconds[0], seconds[way], ways[way][0].basis, checked, wrong, kept
        )  # fmt: skip
    return ChosenWay(program.name, 0, "the rules", seconds[0], seconds[0], ways[0][0].basis, "", wrong)


def _remembered(
    program: TuningProgram, way: int, ways: Mapping[int, list[Tuned]], checked: str, label: str, store: TuningStore
) -> bool:
    """Keep the way of a program, whether it is better than what was known."""
    fusing, found = program.fusing, ways[way]
    try:
        schedule = fusing.written(way, {decision.rule for one in found for decision in one.schedule})
    except NotProved:  # its saturation ran out of time
        return False
    seconds, default = sum(one.seconds for one in found), sum(one.default_seconds for one in ways[0])
    first, details = found[0], {"candidate": label, "kernels": len(found)}
    return store.put(
        key_of_program(fusing.values, fusing.tools, fusing.target),
        Tuned(schedule, seconds, first.basis, default, first.search, first.seed, first.tries, checked, details),
    )
