"""From the statements after a firing to those before it: which of them each came from.

A statement that a rule left as it was came from itself. Any other came from the statements that are about the same
thing: that define the same value, store to the same buffer, bind the same axis; else from those that read the buffers
that it reads; else from those that define what it reads. What a rule puts between (a barrier) came from none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...ir.program import Kernel
from .listing import Line, buffers_read, is_control, lines_of, names_read, written

Sources = list[tuple[int, ...]]


def links(before: Sequence[Line], after: Sequence[Line]) -> tuple[Sources, list[bool]]:
    """For every line after: the lines before that it came from; and whether it is another one than there."""
    same: dict[int, list[int]] = defaultdict(list)
    about: dict[tuple[str, str], list[int]] = defaultdict(list)
    readers: dict[str, list[int]] = defaultdict(list)
    for place, line in enumerate(before):
        same[id(line.head)].append(place)
        for subject in written(line.head):
            about[subject].append(place)
        for buffer in buffers_read(line.head):
            readers[buffer].append(place)
    waiting = {head: list(places) for head, places in same.items()}
    found: Sources = []
    changed: list[bool] = []
    for line in after:
        left = waiting.get(id(line.head))
        changed.append(left is None)
        if left is None:
            found.append(_about_the_same(line, about, readers))
        else:
            found.append((left.pop(0) if left else same[id(line.head)][-1],))
    _for_readers(after, found, changed)
    _of_what_it_reads(after, found, about)
    _replaced(before, after, found)
    around(after, found)
    return found, changed


def _about_the_same(
    line: Line, about: dict[tuple[str, str], list[int]], readers: dict[str, list[int]]
) -> tuple[int, ...]:
    for subject in written(line.head):
        if subject in about:
            return tuple(about[subject])
    for buffer in buffers_read(line.head):
        if buffer in readers:
            return tuple(readers[buffer])
    return ()


def _for_readers(after: Sequence[Line], found: Sources, changed: Sequence[bool]) -> None:
    """A new value is a part of what reads it and changed with it: a reciprocal, of the division that it was."""
    readers: dict[str, list[int]] = defaultdict(list)
    for place, line in enumerate(after):
        if changed[place]:
            for name in (*names_read(line.head), *buffers_read(line.head)):
                readers[name].append(place)
    for place in range(len(after) - 1, -1, -1):
        line = after[place]
        if not found[place] and not is_control(line.head):
            near = {s for _, name in written(line.head) for other in readers[name] for s in found[other]}
            found[place] = tuple(sorted(near))


def _of_what_it_reads(after: Sequence[Line], found: Sources, about: dict[tuple[str, str], list[int]]) -> None:
    """What nothing that changed reads (a store to a new buffer) came from what it reads."""
    owners: dict[str, set[int]] = defaultdict(set)
    for place, line in enumerate(after):
        for kind, name in written(line.head):
            if kind == "value":
                owners[name].update(found[place])
    for place, line in enumerate(after):
        if not found[place] and not is_control(line.head):
            read = list(names_read(line.head))
            near = {s for name in read for s in owners[name] or set(about.get(("value", name), ()))}
            found[place] = tuple(sorted(near))


def _replaced(before: Sequence[Line], after: Sequence[Line], found: Sources) -> None:
    """A loop, guard or Tile that is new stands for those that are gone: that held what it holds now."""
    kept = {source for sources in found for source in sources}
    gone = [place for place, line in enumerate(before) if place not in kept and is_control(line.head)]
    for place, line in enumerate(after) if gone else ():
        if not found[place] and is_control(line.head):
            inside = {s for other, below in enumerate(after) if _holds(line, below) for s in found[other]}
            found[place] = tuple(
                outer for outer in gone if any(_holds(before[outer], before[source]) for source in inside)
            )


def around(lines: Sequence[Line], found: Sources) -> None:
    """A loop that nothing explains is one of those that it holds; else it is there for what it holds."""
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if not found[place] and is_control(line.head):
            inside = [other for other in range(place + 1, len(lines)) if _holds(line, lines[other])]
            loops = {s for other in inside if is_control(lines[other].head) for s in found[other]}
            found[place] = tuple(sorted(loops or {s for other in inside for s in found[other]}))


def _holds(outer: Line, inner: Line) -> bool:
    return len(inner.path) > len(outer.path) and inner.path[: len(outer.path)] == outer.path


def all_lines(kernels: Sequence[Kernel]) -> list[Line]:
    """The lines of several kernels, each under its number."""
    return [
        Line(line.head, line.stmt, (number, *line.path))
        for number, kernel in enumerate(kernels)
        for line in lines_of(kernel)
    ]
