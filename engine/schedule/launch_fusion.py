"""Scheduled kernels of a program, fewer of them where a rule makes one of two: what a small kernel computes, those that
read it compute themselves.

A rule of the pipeline `launches` sees two kernels: one as the pass left it that parted it from another, and one that
reads what it stores, under its schedule. The rule leaves one of them, so all readers have to take the first one in, and
the first of them stores what the caller is given of it. The model says whether that pays.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...codegen.materialise import materialise
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.facts.layout import tile_of
from ...ir.facts.structure import Places, respelled
from ...ir.loop import Store
from ...ir.names import unused
from ...ir.node import names_in
from ...ir.node import replace as changed
from ...ir.program import Kernel, Param
from ...ir.sizes import highest, sizes_in
from ...ir.substitute import substitute
from ...ir.tile import Tile
from ..kernels.sharing import ScheduledLaunch, Steps
from ..language.rule import policy
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import Shaped
from ..rewrite.statements.template import map_loads
from ..rewrite.trace import Event, Firing, Skip, TextReason, Trace
from .scheduling import Scheduler, seconds_of

# ---- Rename one of two kernels so that a rule may look at both.


def beside(
    kernel: Kernel, later: Kernel, both: Mapping[str, str], given: frozenset[str]
) -> tuple[Kernel | None, dict[str, str]]:
    """A kernel under names that a later one does not have, but for the buffers of both, which it sees under the same
    dimensions; and {the new name of a buffer: its own}. Of what it stores, only what the later one reads or what is
    given to the caller. both: {the later one's name of a buffer: its own}.

    None where these dimensions are made of sizes, and differ.
    """
    tile = tile_of(kernel)
    if tile is None:
        return None, {}
    kernel = _storing(kernel, tile, {*both.values(), *given})
    axes = {axis.name for axis in tile.axes}
    theirs = names_in(later)
    taken = {*theirs, *names_in(kernel)}
    new: dict[str, Any] = {mine: Var(other) for other, mine in both.items()}
    for name in sorted(names_in(kernel) - new.keys() - axes - sizes_in(kernel).keys()):
        if name in theirs:
            new[name] = Var(unused(name, taken))
            taken.add(new[name].name)
    names = {new[p.name].name if p.name in new else p.name: p.name for p in (*kernel.ins, *kernel.outs)}
    return _seen_as(substitute(kernel, new), {p.name: p.shape for p in later.ins}), names


def _storing(kernel: Kernel, tile: Tile, wanted: set[str]) -> Kernel:
    """A kernel that stores some of its results only."""
    body = tuple(stmt for stmt in tile.body if not isinstance(stmt, Store) or stmt.buf in wanted)
    outs = tuple(p for p in kernel.outs if p.name in wanted)
    rest = tuple(changed(stmt, body=body) if stmt is tile else stmt for stmt in kernel.body)
    return Kernel(kernel.name, kernel.ins, outs, rest)


def _seen_as(kernel: Kernel, shapes: Mapping[str, Places]) -> Kernel | None:
    """A kernel that sees some of its inputs under other dimensions; None where it cannot."""
    tile = tile_of(kernel)
    if tile is None:
        return None
    seen = {p.name: p.shape for p in kernel.ins}
    ranges = {axis.name: (0, highest(axis.extent) - 1) for axis in tile.axes}
    possible = True

    def again(load: Any) -> Any:
        nonlocal possible
        idx = respelled(load.idx, seen[load.buf], shapes[load.buf], ranges) if load.buf in shapes else load.idx
        possible = possible and idx is not None
        return load if idx is None else changed(load, idx=idx)

    body = map_loads(kernel.body, again)
    ins = tuple(Param(p.name, p.dtype, shapes.get(p.name, p.shape)) for p in kernel.ins)
    return Kernel(kernel.name, ins, kernel.outs, body) if possible else None


def fuse_launches(
    scheduler: Scheduler, tile: Program, apart: Steps, results: Iterable[Param], shaped: Shaped
) -> tuple[Program, Steps, Mapping[Kernel, Kernel]]:
    """Fuse launches by the rules of the pipeline `launches`, where the model predicts a faster program.

    Args:
        results: the outputs of the program.
    Returns: the kernels, the launches, and the kernels that were materialised to price them.
    """
    if not shaped.parted or not scheduler.tools.pipelines["launches"]:
        return tile, apart, {}
    pairs = _Pairs(scheduler)
    program = _Launches(tile, apart, {p.name for p in results}, shaped, pairs)
    for place in reversed(range(len(apart.steps))):  # who takes one in may be taken in by others no more
        program.without(place)
    return *program.made(), pairs.materialised


@dataclass(frozen=True)
class _Joined:
    """A kernel that took another one in. names: {a buffer's name: its name in that one}; events: of its rule."""

    kernel: Kernel
    label: str
    names: Mapping[str, str]
    events: tuple[Event, ...]


class _Launches:
    """The launches of a program, some of them gone (None)."""

    def __init__(self, tile: Program, apart: Steps, results: set[str], shaped: Shaped, pairs: _Pairs):
        self.kernels, self.apart, self.results, self.shaped, self.pairs = list(tile), apart, results, shaped, pairs
        self.steps: list[ScheduledLaunch | None] = list(apart.steps)
        self.between = {p.name for p in apart.between}

    def made(self) -> tuple[Program, Steps]:
        """The kernels that are still launched, each with a name of its own, and the launches."""
        left = [step for step in self.steps if step is not None]
        used = {index: number for number, index in enumerate(dict.fromkeys(step.index for step in left))}
        steps = tuple(replace(step, index=used[step.index]) for step in left)
        kernels: dict[str, Kernel] = {}
        for index in used:
            kernel = self.kernels[index]
            name = unused(kernel.name, kernels, between="_", first=2)
            self.shaped.setdefault(name, self.shaped.get(kernel.name, []))
            kernels[name] = kernel if name == kernel.name else changed(kernel, name=name)
        return tuple(kernels.values()), Steps(steps, self.apart.between)

    def without(self, place: int) -> None:
        """Have the readers of a launch do its work, if all can and that is faster."""
        step = self.steps[place]
        parted = None if step is None else self.parted(self.kernels[step.index])
        if step is None or parted is None or not self.between.isdisjoint(step.buffers[p.name] for p in parted.outs):
            return
        outs = {step.buffers[p.name] for p in parted.outs}
        given = frozenset(p.name for p in parted.outs if step.buffers[p.name] in self.results)
        found: dict[int, _Joined] = {}
        took = [self.kernels[step.index]]
        for other in self.readers(outs, place):
            reader = self.steps[other]
            assert reader is not None
            both = self.both(step, reader)
            joined = self.pairs.joined(parted, self.kernels[reader.index], both, frozenset() if found else given)
            if joined is None:  # before any is weighed, which takes longer
                return
            found[other] = joined
            took.append(self.kernels[reader.index])
        if found and self.pairs.pays(found.values(), took):
            for other, joined in found.items():
                self.take(step, other, joined)
            self.steps[place] = None

    def parted(self, kernel: Kernel) -> Kernel | None:
        """A kernel as it was when it was parted from another, if its schedule left it its buffers."""
        found = self.shaped.parted.get(kernel.name)
        params = {p.name for p in (*kernel.ins, *kernel.outs)}
        return found if found is not None and params == {p.name for p in (*found.ins, *found.outs)} else None

    def readers(self, buffers: set[str], place: int) -> Iterator[int]:
        """The launches that read some buffers."""
        for other, step in enumerate(self.steps[place + 1 :], place + 1):
            if step is not None and any(step.buffers[p.name] in buffers for p in self.kernels[step.index].ins):
                yield other

    def both(self, step: ScheduledLaunch, reader: ScheduledLaunch) -> tuple[tuple[str, str], ...]:
        """The buffers of two launches, by their own names: (the reader's, the earlier one's)."""
        names = {buffer: own for own, buffer in step.buffers.items()}
        return tuple((own, names[buffer]) for own, buffer in reader.buffers.items() if buffer in names)

    def take(self, step: ScheduledLaunch, place: int, joined: _Joined) -> None:
        """The launch at a place does the work of another one as well."""
        reader = self.steps[place]
        assert reader is not None
        name = self.kernels[reader.index].name
        if joined.kernel not in self.kernels:
            self.kernels.append(joined.kernel)
            self.shaped[joined.kernel.name] = [*self.shaped.get(name, ()), joined.label]
            self.shaped.parted.pop(joined.kernel.name, None)
        buffers = {own: step.buffers[other] for own, other in joined.names.items()} | dict(reader.buffers)
        params = (*joined.kernel.ins, *joined.kernel.outs)
        index = self.kernels.index(joined.kernel)
        own = {p.name: buffers[p.name] for p in params}
        self.steps[place] = replace(reader, index=index, buffers=own, also=(*reader.also, step.place, *step.also))


class _Pairs:
    """What the rules make of two kernels, and what the model says of it. wait: for the parts, before a block begins."""

    def __init__(self, scheduler: Scheduler):
        self.scheduler, self.trace = scheduler, scheduler.trace
        self.materialised: dict[Kernel, Kernel] = {}
        self.seconds = functools.cache(self._seconds)
        self.joined = functools.cache(self._joined)
        self.wait = policy(scheduler.target).trips_of_parts * scheduler.target.memory_latency_seconds

    def _joined(
        self, parted: Kernel, reader: Kernel, both: tuple[tuple[str, str], ...], given: frozenset[str]
    ) -> _Joined | None:
        """The fastest kernel that rules make of two, and that stores of the first what the caller is given."""
        renamed, names = beside(parted, reader, dict(both), given)
        found: list[_Joined] = []
        tools, target = self.scheduler.tools, self.scheduler.target
        for step in tools.pipelines["launches"] if renamed is not None else ():
            trace = Trace().at("launches") if self.trace is not None else None
            assert renamed is not None
            made = tools.engine.fire(step, (renamed, reader), target, trace=trace)
            events = tuple(trace.events) if trace is not None else ()
            kept = {names.get(p.name) for p in made[0].outs[len(reader.outs) :]}
            if len(made) > 1:
                self.tell(events)
            elif kept >= given and bool(kept) == bool(given):
                found.append(_Joined(made[0], step.label, names, events))
        return self._fastest(found)

    def _fastest(self, found: list[_Joined]) -> _Joined | None:
        if len(found) < 2:
            return found[0] if found else None
        best = min(found, key=lambda joined: self.seconds(joined.kernel))
        for joined in found:
            if joined is not best:
                self.refuse(joined, f"{best.label} is faster", self.seconds(joined.kernel), self.seconds(best.kernel))
        return best

    def pays(self, found: Collection[_Joined], kernels: Iterable[Kernel]) -> bool:
        """Whether kernels are faster than those that they are made of; the trace hears of it."""
        took: float = sum(map(self.seconds, kernels))
        new: float = sum(self.seconds(joined.kernel) + self.wait for joined in found)
        for joined in found:
            if new < took:
                self.tell(event for event in joined.events if isinstance(event, Firing))
            else:
                self.refuse(joined, "two launches are faster", new, took)
        return new < took

    def refuse(self, joined: _Joined, why: str, new: float, other: float) -> None:
        reason = TextReason(f"{why}: the model says {other * 1e6:.2f} us, and {new * 1e6:.2f} for this")
        fired = (event for event in joined.events if isinstance(event, Firing))
        self.tell(Skip(one.prefix, one.label, one.rule, one.unit, reason) for one in fired)

    def tell(self, events: Iterable[Event]) -> None:
        for event in events:
            if self.trace is not None and event not in self.trace.events:
                self.trace.add(event)

    def _seconds(self, kernel: Kernel) -> float:
        try:
            self.materialised[kernel] = materialise(kernel, self.scheduler.target)
            quiet = replace(self.scheduler, trace=None)
            return seconds_of(quiet.passes("kernel", (self.materialised[kernel],)), quiet.target)
        except DplcError:  # the target cannot launch it
            return float("inf")
