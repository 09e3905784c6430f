"""Find where each line of each IR came from: seven columns of text, each line linked to lines of the preceding column.

    source ◄── torch ◄── tensor ◄── loop ◄── tile ◄── kernel ◄── cuda

Nodes carry no history, because equal nodes are one object. The links are computed again from four sources. Torch ops
know their span in the user's text. Tensor values know their torch op, and names of loop nests their value. The firings
of a trace hold each kernel before and after a rule. The lowering and the printer report the statements and lines that
they emit for each statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...codegen.cuda import Printer, safe_names
from ...codegen.kernel import CudaKernel
from ...codegen.materialise import materialise
from ...codegen.materialise.lowering import Heard
from ...codegen.target import Target
from ...ir.diagnostic import Span
from ...ir.expr import Axis, Var
from ...ir.kernel import Address, Assign, Base, Define, Element, Launch, LoadFrom, StoreTo
from ...ir.loop import Accumulate, For, If, Let, Load, Merge, Scale, Store
from ...ir.node import Node, nodes, replace, values, walk
from ...ir.program import Block, Kernel, Stmt
from ...ir.tensor import Index, Remap, Term, operands
from ...ir.text.programs import print_program
from ...ir.text.tensor import values_of_lines
from ...ir.tile import Tile
from ..capture.capture import Capture
from ..compiler import STAGES, Compilation
from ..kernels.sharing import share
from ..rewrite.trace import Firing

Path = tuple[int, ...]


class Line(NamedTuple):
    """A statement of a program. head: the statement with an empty body; path: positions from the kernel down."""

    head: Stmt
    stmt: Stmt
    path: Path

    @property
    def opens(self) -> bool:
        return "body" in type(self.stmt).by_name


def lines_of(kernel: Kernel) -> list[Line]:
    """Return the statements of a kernel in the order of its text, which has one line for each after its header."""
    found: list[Line] = []
    _list(kernel.body, (), found)
    return found


def _list(block: Iterable[Stmt], path: Path, found: list[Line]) -> None:
    for position, stmt in enumerate(block):
        own = (*path, position)
        body = getattr(stmt, "body", None)
        found.append(Line(stmt if body is None else replace(stmt, body=()), stmt, own))
        if body:
            _list(body, own, found)


def written(head: Stmt) -> tuple[tuple[str, str], ...]:
    """Return (kind, name) of each value, buffer or axis that a statement defines, accumulates, stores or binds."""
    if isinstance(head, Tile):
        return (("tile", ""), *(("axis", axis.name) for axis in head.axes))
    if isinstance(head, Accumulate | Scale):
        return (("value", head.acc),)
    if isinstance(head, Merge):
        return tuple(("value", acc) for acc in head.accs)
    if isinstance(head, Store):
        return (("buffer", head.buf),)
    if isinstance(head, StoreTo):
        return (("buffer", head.address.base),)
    if isinstance(head, Assign | LoadFrom):
        place = head.place if isinstance(head, Assign) else head.into
        return (("value", place.name),) if isinstance(place, Var | Element) else ()
    if hasattr(head, "accs"):
        return tuple(("value", acc) for acc in head.accs)
    name = getattr(head, "dst", None) or getattr(head, "acc", None)
    if isinstance(name, str):
        return (("value", name),)
    if isinstance(head, For) or hasattr(head, "var"):
        return (("axis", head.var),)
    return ()


def buffers_read(head: Stmt) -> tuple[str, ...]:
    """Return the names of buffers and shared-memory tiles that a statement reads."""
    if isinstance(head, Load):
        return (head.buf,)
    if isinstance(head, Base):
        return (head.root,)
    source = getattr(head, "src", None)
    return (source,) if isinstance(source, str) and source else ()


def names_read(head: Stmt) -> Iterator[str]:
    """Yield the names in the expressions of a statement: values, axes and address bases."""
    for declared in type(head).fields:
        if declared.sort not in ("Name", "Block") and declared.name != "body":
            yield from _names(getattr(head, declared.name))


def _names(value: Any) -> Iterator[str]:
    for found in walk(value) if isinstance(value, Node | tuple) else ():
        if isinstance(found, Var | Element):
            yield found.name
        elif isinstance(found, Address):
            yield found.base


def is_control(head: Stmt) -> bool:
    """Return whether a statement has a body."""
    return isinstance(head, For | If | Tile) or "body" in type(head).by_name


__all__ = ["Axis", "Line", "buffers_read", "is_control", "lines_of", "names_read", "values", "written"]


Sources = list[tuple[int, ...]]


def links(before: Sequence[Line], after: Sequence[Line]) -> tuple[Sources, list[bool]]:
    """Link each line after a firing to the lines that it came from, and tell whether the firing changed it.

    An unchanged statement came from itself. Another one came from the statements that define the same value, store to
    the same buffer or bind the same axis, else from those that read the same buffers, else from the definitions of the
    values that it reads. A barrier that a rule inserts has no origin.
    """
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
    """Link a new value to the origins of its changed readers: a reciprocal comes from the division it replaces."""
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
    """Link a statement without a changed reader (a store to a new buffer) to the origins of its operands."""
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
    """Link a new loop, guard or Tile to the removed ones that contained its statements."""
    kept = {source for sources in found for source in sources}
    gone = [place for place, line in enumerate(before) if place not in kept and is_control(line.head)]
    for place, line in enumerate(after) if gone else ():
        if not found[place] and is_control(line.head):
            inside = {s for other, below in enumerate(after) if _holds(line, below) for s in found[other]}
            found[place] = tuple(
                outer for outer in gone if any(_holds(before[outer], before[source]) for source in inside)
            )


def around(lines: Sequence[Line], found: Sources) -> None:
    """Link a loop without an origin to the loops inside of it, else to all statements inside of it."""
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if not found[place] and is_control(line.head):
            inside = [other for other in range(place + 1, len(lines)) if _holds(line, lines[other])]
            loops = {s for other in inside if is_control(lines[other].head) for s in found[other]}
            found[place] = tuple(sorted(loops or {s for other in inside for s in found[other]}))


def _holds(outer: Line, inner: Line) -> bool:
    return len(inner.path) > len(outer.path) and inner.path[: len(outer.path)] == outer.path


def all_lines(kernels: Sequence[Kernel]) -> list[Line]:
    """Return the lines of several kernels, with the number of the kernel first in each path."""
    return [
        Line(line.head, line.stmt, (number, *line.path))
        for number, kernel in enumerate(kernels)
        for line in lines_of(kernel)
    ]


def materialised(tile: Kernel, target: Target) -> tuple[Kernel, Sources]:
    """Lower a kernel to Kernel IR, and link each of its lines to lines of Tile IR."""
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
        # equal statements are one node, and its origins are in the order of the text
        distinct = list(dict.fromkeys(known))
        found.append((distinct[min(turns[id(line.stmt)], len(distinct) - 1)],) if distinct else ())
        named = [lets[name] for _, name in written(line.head) if name in lets]
        if named:
            found[-1] = tuple(named)  # a value that became a register at its first use
        if isinstance(line.head, Base) and distinct and is_control(above[found[-1][0]].head):
            found[-1] = ()  # an address that a loop keeps belongs to its readers
        turns[id(line.stmt)] += 1
    _link_shared(above, below, found)
    around(below, found)
    _inlined(above, found)
    return made, found


def _numbers(tile: Kernel, above: Sequence[Line]) -> dict[tuple[int, ...], int]:
    """Return line numbers by paths of the lowering, which start below the Tile."""
    tiled = bool(tile.body) and isinstance(tile.body[0], Tile)
    return {(0, *line.path[1:]) if tiled else (0, *line.path): n for n, line in enumerate(above)}


def _link_shared(above: Sequence[Line], below: Sequence[Line], found: Sources) -> None:
    """Link lines that no single statement emitted: accumulator registers, address bases, thread indices.

    A thread index comes from its axis. Any other comes from its writers, else from its readers.
    """
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
    """Link a value without a statement of its own to the lines that compute it inline."""
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
    """A printer that counts the lines of each statement, as (statement, number of lines, nested counts)."""

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

    def load_from(self, stmt: Any) -> str | list[str]:
        text: str | list[str] = super().load_from(stmt)
        if self.depth == 0:  # declared with its value: one line for two statements
            self.runs[-1].append((stmt, 1, "declared"))
        return text


def cuda_lines(kernel: Kernel, cuda: CudaKernel) -> list[tuple[int, ...]]:
    """Link each line of a kernel's CUDA text to lines of Kernel IR. The last line is the closing brace."""
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


COLUMNS = ("source", *STAGES)


@dataclass
class Column:
    """A text in lines. up: origins of each line in the preceding column; made: trace events that changed the line;
    units: (first line, name) of each kernel or file."""

    name: str
    lines: list[str]
    up: Sources
    made: list[tuple[int, ...]]
    units: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class LinkedKernel:
    """A kernel between passes. up: origins of each line in the first text; made: trace events that changed it."""

    kernel: Kernel
    up: Sources
    made: list[tuple[int, ...]]


def columns(compilation: Compilation, events: Sequence[Any]) -> list[Column]:
    """Return the columns of a compile, from the user's text to CUDA."""
    source, torch = source_and_torch(compilation.captured)
    tensor = _tensor(compilation, events)
    loop, starts = _loop(compilation)
    shared = share(compilation.plan.kernels)
    places = [[n for n, index in enumerate(shared.place) if index == k] for k in range(len(shared.kernels))]
    tiles = _through(
        [_start(kernel, [starts[n] for n in places[k]]) for k, kernel in enumerate(shared.kernels)],
        events, ("l", "t"), compilation.tile,
    )  # fmt: skip
    tile, tile_starts = _kernels("tile", tiles)
    lowered = []
    for state, start in zip(tiles, tile_starts, strict=True):
        made, sources = materialised(state.kernel, compilation.target)
        up = [tuple(start + source for source in found) for found in sources]
        lowered.append(LinkedKernel(made, up, [()] * len(up)))
    finished = _through(lowered, events, ("k",), compilation.kernels)
    kernel, kernel_starts = _kernels("kernel", finished)
    return [source, torch, tensor, loop, tile, kernel, _cuda(compilation, kernel_starts)]


# ---- the user's text, torch, tensor


def source_and_torch(captured: Capture) -> tuple[Column, Column]:
    """Return the user's text and Torch IR. A file of more than 60 lines shows the lines that the program uses."""
    spans = captured.spans
    files: dict[str, list[str]] = {}
    wanted: dict[str, set[int]] = {}
    for span in spans.values():
        if isinstance(span, Span):
            files.setdefault(span.source.name, span.source.text.splitlines())
            wanted.setdefault(span.source.name, set()).update(range(span.line, span.end_line + 1))
        else:
            modules = files.setdefault("modules", [])
            if span not in modules:
                modules.append(span)
    source = Column("source", [], [], [])
    place: dict[tuple[str, Any], int] = {}
    for name, lines in files.items():
        source.units.append((len(source.lines), name))
        every = len(lines) <= 60 or name == "modules"
        for number, line in enumerate(lines, 1):
            if every or number in wanted[name]:
                place[name, line if name == "modules" else number] = len(source.lines)
                source.lines.append(line)
    _plain(source)
    text = print_program(captured.graph, "torch").splitlines()
    up: Sources = [()] * (len(text) - len(captured.graph.body))
    for stmt in captured.graph.body:
        told = spans.get(stmt.dst)
        if isinstance(told, Span):
            numbers = range(told.line, told.end_line + 1)
            up.append(tuple(place[told.source.name, n] for n in numbers if (told.source.name, n) in place))
        else:
            up.append((place["modules", told],) if ("modules", told) in place else ())
    torch = Column("torch", text, up[: len(text)], [()] * len(text), [(1, captured.graph.name)])
    return source, torch


def _plain(column: Column) -> None:
    column.up = [()] * len(column.lines)
    column.made = [()] * len(column.lines)


def _tensor(compilation: Compilation, events: Sequence[Any]) -> Column:
    graph = compilation.tensor
    if graph is None:
        return Column("tensor", [], [], [])
    text = compilation.ir("tensor").splitlines()
    values = values_of_lines(graph)
    lead = len(text) - len(values)
    torch = {op.dst: n for n, op in enumerate(compilation.captured.graph.body, _torch_lead(compilation))}
    origins = _origins(values, compilation)
    fired, lowered = _term_events(events)
    up: Sources = [()] * lead
    for value in values:
        through = (compilation.made_from[term].dst for term in _read_through(value) if term in compilation.made_from)
        up.append(tuple(sorted({line for dst in (origins.get(value), *through) for line in _at(torch, dst)})))
    shaped = ((*lowered.get(origins.get(value, ""), ()), *fired.get(value, ())) for value in values)
    made: Sources = [()] * lead + [tuple(dict.fromkeys(found)) for found in shaped]
    return Column("tensor", text, up, made, [(1, graph.name)])


def _read_through(value: Term) -> Iterator[Term]:
    """Yield the index maps on the line of a value. A view has no line of its own."""
    waiting = list(operands(value))
    while waiting:
        term = waiting.pop()
        if isinstance(term, Remap | Index):
            yield term
            waiting.extend(operands(term))


def _torch_lead(compilation: Compilation) -> int:
    return len(compilation.ir("torch").splitlines()) - len(compilation.captured.graph.body)


def _at(places: dict[str, int], name: str | None) -> tuple[int, ...]:
    return (places[name],) if name in places else ()


def _origins(values: Iterable[Term], compilation: Compilation) -> dict[Term, str]:
    """Return the torch op of each value. An operand that algebra inserted gets the op of its consumer."""
    known = {term: op.dst for term, op in compilation.made_from.items()}
    for value in reversed(list(values)):
        waiting = [value] if value in known else []
        while waiting:
            term = waiting.pop()
            for operand in operands(term):
                if operand not in known:
                    known[operand] = known[term]
                    waiting.append(operand)
    return known


def _term_events(events: Sequence[Any]) -> tuple[dict[Any, list[int]], dict[str, list[int]]]:
    """Return the firings of algebra and fusion by the value that they built, and the torch firings by the user's op."""
    found: dict[Any, list[int]] = {}
    lowered: dict[str, list[int]] = {}
    for number, event in enumerate(events):
        if isinstance(event, Firing) and event.prefix in "daf":
            for unit in event.after:
                fired = getattr(unit, "fired", None)
                if fired is not None:
                    lowered.setdefault(fired.origin, []).append(number)
                for term in getattr(unit, "values", ()) if fired is None else ():
                    found.setdefault(term, []).append(number)
    return found, lowered


# ---- loop nests


def _loop(compilation: Compilation) -> tuple[Column, list[int]]:
    plan, graph = compilation.plan, compilation.tensor
    tensor: dict[Term, int] = {}
    if graph is not None:
        text = compilation.ir("tensor").splitlines()
        values = values_of_lines(graph)
        tensor = {value: len(text) - len(values) + n for n, value in enumerate(values)}
    column = Column("loop", ["## level: loop"], [()], [()])
    starts: list[int] = []
    for number, kernel in enumerate(plan.kernels):
        held = plan.values[number] if number < len(plan.values) else {}
        lines = lines_of(kernel)
        found = _lifted(lines, {name: tensor[term] for name, term in held.items() if term in tensor})
        starts.append(_append(column, kernel, found, [()] * len(lines)))
    return column, starts


def _lifted(lines: Sequence[Line], held: dict[str, int]) -> Sources:
    """Link a line to the value that it computes, a load to its consumers, and a loop to its body."""
    found: Sources = []
    for line in lines:
        own = {held[name] for _, name in written(line.head) if name in held}
        found.append(() if is_control(line.head) else tuple(sorted(own)))
    readers: dict[str, set[int]] = {}
    for place, line in enumerate(lines):
        for name in names_read(line.head):
            readers.setdefault(name, set()).add(place)
    for place in range(len(lines) - 1, -1, -1):
        head = lines[place].head
        if not found[place] and not is_control(head):
            near = {source for _, name in written(head) for other in readers.get(name, ()) for source in found[other]}
            found[place] = tuple(sorted(near))
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if isinstance(line.head, For | If):
            inside = [n for n, other in enumerate(lines) if other.path[:-1] == line.path]
            kinds = Accumulate | Merge if getattr(line.head, "role", "") == "reduce" else object
            chosen = [n for n in inside if isinstance(lines[n].head, kinds) and not isinstance(lines[n].head, Load)]
            found[place] = tuple(sorted({source for n in chosen or inside for source in found[n]}))
    return found


def _append(column: Column, kernel: Kernel, up: Sources, made: list[tuple[int, ...]]) -> int:
    """Append the lines of a kernel to a column. Returns the line number of its first statement."""
    from ...ir.text.programs import print_unit

    text = print_unit(kernel).splitlines()
    if column.units:
        column.lines.append("")
        column.up.append(())
        column.made.append(())
    column.units.append((len(column.lines), kernel.name))
    start = len(column.lines) + len(text) - len(up)
    column.lines += text
    column.up += [()] * (len(text) - len(up)) + list(up)
    column.made += [()] * (len(text) - len(made)) + list(made)
    return start


# ---- kernels through their passes


def _start(kernel: Kernel, starts: Sequence[int]) -> LinkedKernel:
    lines = lines_of(kernel)
    return LinkedKernel(kernel, [tuple(start + n for start in starts) for n in range(len(lines))], [()] * len(lines))


def _through(
    states: list[LinkedKernel], events: Sequence[Any], prefixes: tuple[str, ...], finished: Sequence[Kernel]
) -> list[LinkedKernel]:
    """Follow kernels through the firings of some levels. A renamed kernel, which no firing holds, is linked by its
    values and buffers."""
    now, first = list(states), list(states)
    for number, event in enumerate(events):
        if isinstance(event, Firing) and event.prefix in prefixes:
            place = _find(now, event.before)
            if place is not None:
                now[place : place + len(event.before)] = _fired(now[place : place + len(event.before)], event, number)
            # other kernels may fuse the first one as well
            elif len(event.before) > 1 and (place := _find(now, event.before[-1:])) is not None:
                taken = [state for state in now if state.kernel.name == event.before[0].name][:1]
                now[place : place + 1] = _fired([*taken, now[place]], event, number)
    known = {id(state.kernel): state for state in now}
    return [known.get(id(kernel)) or _guessed(kernel, now, first) for kernel in finished]


def _find(states: Sequence[LinkedKernel], wanted: Sequence[Kernel]) -> int | None:
    for place in range(len(states) - len(wanted) + 1):
        if all(states[place + n].kernel is kernel for n, kernel in enumerate(wanted)):
            return place
    return None


def _fired(states: Sequence[LinkedKernel], event: Firing, number: int) -> list[LinkedKernel]:
    before, after = all_lines([state.kernel for state in states]), all_lines(event.after)
    found, changed = links(before, after)
    up = [source for state in states for source in state.up]
    made = [source for state in states for source in state.made]
    out, place = [], 0
    for kernel in event.after:
        size = len(lines_of(kernel))
        mine = range(place, place + size)
        place += size
        ups = [tuple(sorted({line for source in found[n] for line in up[source]})) for n in mine]
        shaped = [dict.fromkeys(rule for source in found[n] for rule in made[source]) for n in mine]
        marks = [tuple(dict.fromkeys((*shaped[n - mine.start], *((number,) if changed[n] else ())))) for n in mine]
        out.append(LinkedKernel(kernel, ups, marks))
    return out


def _guessed(kernel: Kernel, now: Sequence[LinkedKernel], first: Sequence[LinkedKernel]) -> LinkedKernel:
    """Link a kernel that no firing holds to a kernel of the same name, else to one that stores the same buffers."""
    outs = {param.name for param in kernel.outs}
    near = [state for state in (*now, *first) if state.kernel.name == kernel.name][:1]
    near = near or [state for state in first if outs & {param.name for param in state.kernel.outs}][:1]
    if not near:
        size = len(lines_of(kernel))
        return LinkedKernel(kernel, [()] * size, [()] * size)
    found, _ = links(all_lines([near[0].kernel]), all_lines([kernel]))
    ups = [tuple(sorted({line for source in sources for line in near[0].up[source]})) for sources in found]
    return LinkedKernel(kernel, ups, [tuple({e for s in sources for e in near[0].made[s]}) for sources in found])


def _kernels(name: str, states: Sequence[LinkedKernel]) -> tuple[Column, list[int]]:
    column = Column(name, [f"## level: {name}"], [()], [()])
    return column, [_append(column, state.kernel, state.up, state.made) for state in states]


def _cuda(compilation: Compilation, starts: Sequence[int]) -> Column:
    column = Column("cuda", [], [], [])
    for kernel, cuda, start in zip(compilation.kernels, compilation.cuda_kernels, starts, strict=True):
        if column.lines:
            column.lines.append("")
            column.up.append(())
        column.units.append((len(column.lines), cuda.name))
        column.lines += cuda.text.splitlines()
        column.up += [tuple(start + n for n in found) for found in cuda_lines(kernel, cuda)]
    column.made = [()] * len(column.lines)
    return column
