"""Scheduled kernels of a program, fewer of them where a rule makes one of two launches: what a small kernel computes, its
readers compute themselves.

A rule of the pipeline `launches` sees two kernels, the earlier as the pass left it that parted it from another, the later
under its schedule. The later one is all that is left of them, so every reader has to take the earlier one in. The model
says whether that pays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.facts.dimensions import Places, respelled
from ...ir.facts.layout import tile_of
from ...ir.names import unused
from ...ir.node import names_in
from ...ir.node import replace as changed
from ...ir.program import Kernel, Param
from ...ir.sizes import highest
from ...ir.substitute import substitute
from ..kernels.sharing import ScheduledLaunch, Steps
from ..rewrite.statements.changes import map_loads
from ..rewrite.statements.passes import Shaped
from ..rewrite.trace import Trace
from ..ruleset import Toolchain
from .tail import kernel_ir, seconds_of

Program = tuple[Kernel, ...]


def fewer_launches(
    tile: Program, apart: Steps, results: Iterable[Param], shaped: Shaped, tools: Toolchain, target: Target,
    trace: Trace | None = None,
) -> tuple[Program, Steps]:  # fmt: skip
    """The kernels and the launches of a program after the pipeline `launches`. results: what its caller is given."""
    if not shaped.parted or not tools.pipelines["launches"]:
        return tile, apart
    program = _Launches(list(tile), list(apart.steps), {p.name for p in results}, shaped, tools, target, trace)
    for place in reversed(range(len(apart.steps))):  # what a kernel takes in, it may pass on with itself
        program.without(place)
    return program.made(apart)


@dataclass(frozen=True)
class _Joined:
    """A kernel that took another one in. buffers: its own names for those of the earlier and of the later kernel."""

    kernel: Kernel
    label: str
    earlier: Mapping[str, str]
    later: Mapping[str, str]


class _Launches:
    """The launches of a program, some of them gone."""

    def __init__(
        self, kernels: list[Kernel], steps: list[ScheduledLaunch], results: set[str], shaped: Shaped,
        tools: Toolchain, target: Target, trace: Trace | None,
    ):  # fmt: skip
        self.kernels, self.results, self.shaped = kernels, results, shaped
        self.steps: list[ScheduledLaunch | None] = list(steps)
        self.tools, self.target, self.trace = tools, target, trace
        self.seconds = functools.cache(self._seconds)
        self.joined = functools.cache(self._joined)

    def made(self, apart: Steps) -> tuple[Program, Steps]:
        """The kernels that are still launched, and the launches."""
        left = [step for step in self.steps if step is not None]
        used = {index: number for number, index in enumerate(sorted({step.index for step in left}))}
        steps = tuple(replace(step, index=used[step.index]) for step in left)
        return tuple(self.kernels[index] for index in used), Steps(steps, apart.between)

    # ---- one launch
    def without(self, place: int) -> None:
        """Have the readers of a launch do its work, if all can and that is faster."""
        step = self.steps[place]
        assert step is not None
        parted = self.parted(self.kernels[step.index])
        if parted is None:
            return
        outs = {step.buffers[p.name] for p in parted.outs}
        readers = list(self.readers(outs, place))
        wanted = frozenset(p.name for p in parted.outs if step.buffers[p.name] in self.results)
        took, new = self.seconds(self.kernels[step.index]), 0.0
        found: list[tuple[int, _Joined]] = []
        for number, other in enumerate(readers):
            reader = self.steps[other]
            assert reader is not None
            joined = self.joined(parted, *self.side_by_side(step, reader), frozenset() if number else wanted)
            if joined is None:
                return
            took += self.seconds(self.kernels[reader.index])
            new += self.seconds(joined.kernel)
            found.append((other, joined))
        if found and new < took:
            self.take(place, found)

    def parted(self, kernel: Kernel) -> Kernel | None:
        """A kernel as it was when it was parted from another, if its schedule left it its buffers."""
        found = self.shaped.parted.get(kernel.name)
        params = {p.name for p in (*kernel.ins, *kernel.outs)}
        if found is None or found is kernel or params != {p.name for p in (*found.ins, *found.outs)}:
            return None
        return found

    def readers(self, buffers: set[str], place: int) -> Iterator[int]:
        """The launches that read some buffers."""
        for other, step in enumerate(self.steps[place + 1 :], place + 1):
            if step is not None and any(step.buffers[p.name] in buffers for p in self.kernels[step.index].ins):
                yield other

    def take(self, place: int, found: Sequence[tuple[int, _Joined]]) -> None:
        step = self.steps[place]
        assert step is not None
        for other, joined in found:
            reader = self.steps[other]
            assert reader is not None
            if joined.kernel not in self.kernels:
                self.note(joined, self.kernels[reader.index].name)
                self.kernels.append(joined.kernel)
            buffers = {own: step.buffers[name] for own, name in joined.earlier.items()}
            buffers |= {own: reader.buffers[name] for own, name in joined.later.items()}
            params = (*joined.kernel.ins, *joined.kernel.outs)
            index = self.kernels.index(joined.kernel)
            self.steps[other] = replace(reader, index=index, buffers={p.name: buffers[p.name] for p in params})
        self.steps[place] = None

    def note(self, joined: _Joined, name: str) -> None:
        self.shaped[joined.kernel.name] = [*self.shaped.get(name, ()), joined.label]
        self.shaped.parted.pop(joined.kernel.name, None)

    # ---- two kernels
    def side_by_side(self, step: ScheduledLaunch, reader: ScheduledLaunch) -> tuple[Kernel, tuple[tuple[str, str], ...]]:
        """The reader of a launch, and which of its buffers are buffers of that launch: pairs of own names."""
        kernel = self.kernels[reader.index]
        names = {buffer: own for own, buffer in step.buffers.items()}
        params = (*kernel.ins, *kernel.outs)
        return kernel, tuple((p.name, names[reader.buffers[p.name]]) for p in params if reader.buffers[p.name] in names)

    def _joined(
        self, parted: Kernel, reader: Kernel, both: tuple[tuple[str, str], ...], wanted: frozenset[str]
    ) -> _Joined | None:
        """The fastest kernel that rules make of two, and that stores what is wanted of the first."""
        renamed, names = beside(parted, reader, dict(both))
        if renamed is None:
            return None
        found: list[_Joined] = []
        for rule in self.tools.pipelines["launches"]:
            made = self.tools.engine.fire(rule, (renamed, reader), self.target)
            if len(made) == 1 and wanted <= {names.get(p.name) for p in made[0].outs}:
                own = {p.name for p in (*reader.ins, *reader.outs)}
                kept = {p.name for p in (*made[0].ins, *made[0].outs)}
                earlier = {name: names[name] for name in kept - own}
                found.append(_Joined(made[0], rule.label, earlier, {name: name for name in kept & own}))
        return min(found, key=lambda joined: self.seconds(joined.kernel), default=None)

    def _seconds(self, kernel: Kernel) -> float:
        try:
            return seconds_of(kernel_ir((kernel,), self.tools, self.target), self.target)
        except DplcError:  # the target cannot launch it
            return float("inf")


def beside(parted: Kernel, reader: Kernel, both: Mapping[str, str]) -> tuple[Kernel | None, dict[str, str]]:
    """A kernel in names that no later one has but for buffers of both, which it sees as that one does; and its own names
    of its buffers. both: {the reader's name: its own}. None where dimensions made of sizes differ.
    """
    shapes = {p.name: p for p in reader.ins}
    own = {mine: other for other, mine in both.items()}
    params = [p.name for p in (*parted.ins, *parted.outs)]
    tile = tile_of(parted)
    axes = {axis.name for axis in tile.axes} if tile is not None else set()
    taken = {*names_in(reader), *names_in(parted)}
    new: dict[str, Any] = {name: Var(own[name]) for name in params if name in own}
    for name in sorted(names_in(parted) - own.keys() - axes):
        if name in names_in(reader):
            new[name] = Var(unused(name, taken))
            taken.add(new[name].name)
    renamed = substitute(parted, new)
    seen = seen_as(renamed, {p.name: shapes[p.name].shape for p in renamed.ins if p.name in shapes})
    return seen, {new[name].name if name in new else name: name for name in params}


def seen_as(kernel: Kernel, shapes: Mapping[str, Places]) -> Kernel | None:
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
