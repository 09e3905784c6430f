"""Schedules out of the store, for a compile: of this very kernel, else of the same kernel at the nearest sizes.

Looking one up takes tens of microseconds. A schedule of other sizes is taken only where the model says that it is no
slower than the default order; that is found out once for each kernel and process.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ..language.policy import policy
from ..language.rule import RuleSet
from ..rewrite.statements.passes import Shaped
from ..rewrite.trace import Trace
from ..ruleset import Toolchain
from ..store.entry import Entry
from ..store.family import distance
from ..store.protocol import TuningKey, key_of
from ..store.store import SqliteStore, default_path
from .limits import no_launch, predicted_registers, refusal
from .replay import replay, replay_nearest
from .scheduling import Origin, Program, by_default
from .tail import kernel_ir, seconds_of

SWITCH = "DPLC_NO_DB"  # in the environment: no compile looks into the user's own store
PATIENCE = 0.25  # seconds that a compile waits for the store


def stored_schedules(tools: Toolchain, path: Path | None = None, wanted: bool = True) -> StoredSchedules | None:
    """The store's schedules for a compile; None where there is no store, or it was switched off.

    Nor are they asked for where the user pins parameters (`--set`): what is pinned is what should happen.
    """
    file = path or default_path()
    switched_off = path is None and os.environ.get(SWITCH, "0") not in ("", "0")
    if not wanted or switched_off or tools.settings:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return _opened(file, (os.getpid(), status.st_dev, status.st_ino), tools.rules)


@functools.lru_cache(maxsize=4)
def _opened(file: Path, identity: tuple[int, int, int], rules: RuleSet) -> StoredSchedules:
    """Kept open, until the file is another one or the process has forked."""
    return StoredSchedules(SqliteStore(file, rules, patience=PATIENCE))


class StoredSchedules:
    """The schedules of a store (`scheduling.ScheduleStore`)."""

    def __init__(self, store: SqliteStore):
        self.store = store
        self._slower: dict[tuple[TuningKey, str], bool] = {}

    def schedule(
        self, kernel: Kernel, tools: Toolchain, target: Target, trace: Trace | None, shaped: Shaped
    ) -> tuple[Program | None, Origin]:
        """The kernel under the best schedule that there is; None for the default order; and where it comes from."""
        key = key_of(kernel, target, tools.rules)
        entries = self.store.exact(key)
        held = self.store.valid(entries, key)
        refused = ""
        for entry in held:
            try:
                own = Shaped()
                mark = len(trace.events) if trace is not None else 0
                program = replay(tools, kernel, entry.schedule, target, trace, own)
                refused = no_launch(program, target) or ""
            except DplcError as error:
                refused = error.what
            if not refused:
                shaped.take(own)
                return program, _exactly(kernel, entry, key)
            if trace is not None:
                del trace.events[mark:]
            self.store.say_once(f"note: the remembered schedule of kernel `{kernel.name}` is not taken: {refused}")
            refused = f"default order: {refused}"
        if entries and not held:
            refused = f"default order: the rules have changed since `{kernel.name}` was tuned"
        if entries:
            return None, Origin(kernel.name, "default", refused)
        return self._nearest(key, kernel, tools, target, trace, shaped)

    # ---- other sizes
    def _nearest(
        self, key: TuningKey, kernel: Kernel, tools: Toolchain, target: Target, trace: Trace | None, shaped: Shaped
    ) -> tuple[Program | None, Origin]:
        entry = self._relative(key, target)
        if entry is None:
            return None, Origin(kernel.name, "default", "default order: never tuned, nor at sizes near these")
        mark = len(trace.events) if trace is not None else 0
        own = Shaped()
        try:
            adapted = replay_nearest(tools, kernel, entry.schedule, target, trace, own)
            slower = self._is_slower(key, entry, adapted.program, kernel, tools, target)
        except DplcError:
            slower = True
        if slower:
            if trace is not None:
                del trace.events[mark:]
            said = f"default order: the schedule at the nearest sizes ({sizes(entry)}) is predicted to be slower here"
            return None, Origin(kernel.name, "default", said)
        shaped.take(own)
        brief = f"{entry.basis} at the nearest sizes ({sizes(entry)}), {adapted.kept} of {adapted.of} choices"
        text = f"from the store, {brief}: {figures(entry)}"
        return adapted.program, Origin(kernel.name, "nearest", text, entry.basis, entry.seconds, brief)

    def _relative(self, key: TuningKey, target: Target) -> Entry | None:
        """The best schedule at the nearest sizes that is worth a try here."""
        farthest = policy(target).farthest_octaves
        near = ((distance(key.extents, extents, farthest), extents) for extents in self.store.shapes(key))
        for far, extents in sorted(near):
            if far < float("inf"):
                held = self.store.valid(self.store.at(key, extents), key)
                if held:
                    return held[0]
        return None

    def _is_slower(
        self, key: TuningKey, entry: Entry, program: Program, kernel: Kernel, tools: Toolchain, target: Target
    ) -> bool:
        """Whether the model prefers the default order. Raises DplcError for a schedule that cannot be launched."""
        known = key, f"{entry.kernel} {entry.basis} {entry.seconds}"
        if known not in self._slower:
            default = by_default((kernel,), tools, target)
            self._slower[known] = _seconds(program, tools, target) > _seconds(default, tools, target)
        return self._slower[known]


def _seconds(program: Program, tools: Toolchain, target: Target) -> float:
    """What the model says of kernels of Tile IR, infinite where one cannot be launched."""
    if refusal(program, target) is not None:
        return float("inf")
    registers = [predicted_registers(program, number, target) for number in range(len(program))]
    return seconds_of(kernel_ir(program, tools, target), target, registers)


# ---- for people


def _exactly(kernel: Kernel, entry: Entry, key: TuningKey) -> Origin:
    brief = f"{entry.basis} for {entry.device}"
    if not entry.current(key):
        brief += f" with other tools ({entry.tools})"
    if entry.rules != key.rules:
        brief += ", before rules were changed that it does not use"
    return Origin(kernel.name, "store", f"from the store, {brief}: {figures(entry)}", entry.basis, entry.seconds, brief)


def figures(entry: Entry) -> str:
    """`12.3 us, default order 15.0 us`, measured or predicted, as `basis` says."""
    return f"{entry.seconds * 1e6:.4g} us, default order {entry.default_seconds * 1e6:.4g} us, {entry.basis}"


def sizes(entry: Entry) -> str:
    """The extents of an entry, without repetitions, as they come: `512x2048`."""
    shown: Sequence[int] = tuple(dict.fromkeys(entry.extents))
    return "x".join(map(str, shown))
