"""From Kernel IR back to Tile IR, and from CUDA text back to Kernel IR: which line became which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ...codegen.cuda_statements import Printer
from ...codegen.kernel import CudaKernel
from ...codegen.materialise import materialise
from ...codegen.materialise.lowering import Heard
from ...codegen.names import safe_names
from ...codegen.target import Target
from ...ir.kernel import Base, Define, Launch
from ...ir.loop import Let
from ...ir.node import nodes
from ...ir.program import Block, Kernel, Stmt
from ...ir.tile import Tile
from .firing_links import Sources, around
from .listing import Line, buffers_read, is_control, lines_of, names_read, written


def materialised(tile: Kernel, target: Target) -> tuple[Kernel, Sources]:
    """Kernel IR of a kernel of Tile IR, and for every line of it the lines of Tile IR that it came from."""
    heard: Heard = []
    made = materialise(tile, target, heard)
    above, below = lines_of(tile), lines_of(made)
    numbers = _numbers(tile, above)
    owners: dict[int, list[int]] = defaultdict(list)
    for path, block in heard:
        place = numbers.get(path)
        if place is not None:
            for stmt in nodes(block, Stmt):
                owners[id(stmt)].append(place)
    lets = {name: n for n, line in enumerate(above) if isinstance(line.head, Let) for _, name in written(line.head)}
    found: Sources = []
    turns: dict[int, int] = defaultdict(int)
    for line in below:
        known = owners.get(id(line.stmt), [])
        # equal statements are one node: its turns are in the order of the text
        distinct = list(dict.fromkeys(known))
        found.append((distinct[min(turns[id(line.stmt)], len(distinct) - 1)],) if distinct else ())
        named = [lets[name] for _, name in written(line.head) if name in lets]
        if named:
            found[-1] = tuple(named)  # a value that became a register where it was first read
        if isinstance(line.head, Base) and distinct and is_control(above[found[-1][0]].head):
            found[-1] = ()  # an address that a loop keeps is there for what reads it
        turns[id(line.stmt)] += 1
    _unheard(above, below, found)
    around(below, found)
    _inlined(above, found)
    return made, found


def _numbers(tile: Kernel, above: Sequence[Line]) -> dict[tuple[int, ...], int]:
    """The lines by the paths of the lowering, which begins below the Tile."""
    tiled = bool(tile.body) and isinstance(tile.body[0], Tile)
    return {(0, *line.path[1:]) if tiled else (0, *line.path): n for n, line in enumerate(above)}


def _unheard(above: Sequence[Line], below: Sequence[Line], found: Sources) -> None:
    """What no single statement asked for (registers of an accumulator, bases of addresses, the indices of a thread)
    came from the axes that it is, or from what writes and reads it."""
    axes = {name: n for n, line in enumerate(above) for kind, name in written(line.head) if kind == "axis"}
    uses: dict[str, list[int]] = defaultdict(list)
    writes: dict[str, list[int]] = defaultdict(list)
    for place, line in enumerate(below):
        for name in (*names_read(line.head), *buffers_read(line.head)):
            uses[name].append(place)
        for _, name in written(line.head):
            writes[name].append(place)
    left = -1
    while left != (left := sum(not sources for sources in found)):  # a base of a base of a base
        for place, line in enumerate(below):
            if found[place]:
                continue
            names = [name for _, name in written(line.head)]
            if isinstance(line.head, Launch):
                found[place] = (0,) if above else ()
            elif isinstance(line.head, Define) and names and names[0] in axes:
                found[place] = (axes[names[0]],)
            else:
                near = [other for name in names for other in (writes[name] or ()) if other != place and found[other]]
                near = near or [other for name in names for other in uses[name] if found[other]]
                found[place] = tuple(sorted({source for other in near for source in found[other]}))


def _inlined(above: Sequence[Line], found: Sources) -> None:
    """A value that got no statement of its own stands where it is read."""
    told = {source for sources in found for source in sources}
    made = {name: n for n, line in enumerate(above) if isinstance(line.head, Let) for _, name in written(line.head)}
    inside: dict[int, set[int]] = {}

    def below(place: int) -> set[int]:
        if place not in inside:
            inside[place] = set()
            for name in names_read(above[place].head):
                value = made.get(name)
                if value is not None and value not in told:
                    inside[place] |= {value} | below(value)
        return inside[place]

    for place, sources in enumerate(found):
        more = {value for source in sources for value in below(source)}
        if more and not isinstance(above[sources[0]].head, Tile):
            found[place] = tuple(sorted({*sources, *more}))


class LineCounter(Printer):
    """A printer that remembers how many lines each statement took. A run: (statement, its lines, the run inside)."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel, safe_names(kernel))
        self.runs: list[list[tuple[Stmt, int, Any]]] = []
        self.inner: Any = None
        self.depth = 0

    def block(self, block: Block, depth: int) -> list[str]:
        self.runs.append([])
        outer, self.depth = self.depth, 0
        lines = super().block(block, depth)
        self.depth = outer
        self.inner = self.runs.pop()
        return lines

    def statement(self, stmt: Stmt) -> list[str]:
        self.inner = None
        self.depth += 1
        lines = super().statement(stmt)
        self.depth -= 1
        self.runs[-1].append((stmt, len(lines), self.inner))
        self.inner = None
        return lines

    def load(self, stmt: Any) -> str | list[str]:
        text = super().load(stmt)
        if self.depth == 0:  # declared with its value: one line for two statements
            self.runs[-1].append((stmt, 1, "declared"))
        return text


def cuda_lines(kernel: Kernel, cuda: CudaKernel) -> list[tuple[int, ...]]:
    """For every line of a kernel's CUDA text the lines of Kernel IR that it is; the last is the closing brace."""
    (launch,) = kernel.body
    assert isinstance(launch, Launch)
    counter = LineCounter(kernel)
    counter.block(launch.body, 1)
    total = len(cuda.text.splitlines())
    numbers: list[tuple[int, ...]] = []
    _number(counter.inner, numbers, [1])  # line 0 is the Launch
    lead = total - 1 - len(numbers)
    return [*([(0,)] * lead), *numbers, (0,)]


def _number(run: Any, out: list[tuple[int, ...]], following: list[int]) -> None:
    for _, count, inner in run or ():
        own: tuple[int, ...] = (following[0],)
        following[0] += 1
        if inner == "declared":
            own = (own[0], following[0])
            following[0] += 1
            out.append(own)
            continue
        if inner is None:
            out += [own] * count
            continue
        start = len(out)
        nested: list[tuple[int, ...]] = []
        _number(inner, nested, following)
        out += [own] * (count - 1 - len(nested))
        out += nested
        out += [own] * (count - (len(out) - start))
