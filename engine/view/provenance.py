"""Link each line of each IR to its origins: seven columns of text, linked to the preceding column.

    source ◄── torch ◄── tensor ◄── loop ◄── tile ◄── kernel ◄── cuda

Nodes carry no history, because equal nodes are one object. The links are computed again from four sources. Torch ops
know their span in the user's text. Tensor values know their torch op, and names of loop nests their value. The firings
of a trace hold each kernel before and after a rule. The lowering and the printer report the statements and lines that
they emit for each statement. A line that none of these links gets the origins of its neighbours (`fill`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...codegen.cuda import Printer, safe_names
from ...codegen.kernel import CudaKernel
from ...codegen.materialise import materialise
from ...codegen.materialise.lowering import Emitted
from ...codegen.target import Target
from ...ir.diagnostic import Span
from ...ir.expr import Var
from ...ir.kernel import Address, Assign, Base, Define, Element, Launch, LoadFrom, StoreTo
from ...ir.loop import Let, Load, Store
from ...ir.node import nodes, replace
from ...ir.program import Kernel, Stmt
from ...ir.tensor import Index, Remap, Term, operands
from ...ir.text.programs import print_unit
from ...ir.text.tensor import values_of_lines
from ...ir.tile import Tile
from ..capture.signature import Capture
from ..compiler import STAGES, Compilation
from ..kernels.sharing import share
from ..rewrite.trace import Firing

COLUMNS = ("source", *STAGES)
SHOWN_WHOLE = 60  # lines of a file of the user: of a longer one, the lines that the program uses
Path = tuple[int, ...]
Links = list[tuple[int, ...]]  # of each line, the lines or events that it came from


@dataclass
class Column:
    """Text in lines.

    up: origins of each line in the preceding column; made: trace events that changed the line; units: (first line,
    name) of each kernel or file.
    """

    name: str
    lines: list[str] = field(default_factory=list)
    up: Links = field(default_factory=list)
    made: Links = field(default_factory=list)
    units: list[tuple[int, str]] = field(default_factory=list)

    def append(self, text: str, unit: str, up: Links, made: Links | None = None) -> int:
        """Append a text whose last lines have these links. Returns the number of the first of these lines."""
        if self.units:
            text = "\n" + text
        lines = text.splitlines()
        lead: Links = [()] * (len(lines) - len(up))
        start = len(self.lines) + len(lead)
        self.units.append((len(self.lines) + bool(self.units), unit))
        self.lines += lines
        self.up += lead + up
        self.made += lead + (made or [()] * len(up))
        return start


def _headed(level: str) -> Column:
    return Column(level, [f"## level: {level}"], [()], [()])


def columns(compilation: Compilation, events: Sequence[Any]) -> list[Column]:
    """Return the columns of a compile, from the user's text to CUDA."""
    source, torch = source_and_torch(compilation.captured)
    tensor, values = _tensor(compilation, events)
    loop, starts = _loop(compilation, values)
    shared = share(compilation.plan.kernels)
    nests: list[LinkedKernel] = []
    for number, kernel in enumerate(shared.kernels):
        places = [starts[place] for place, index in enumerate(shared.place) if index == number]
        size = len(lines_of(kernel))
        nests.append(LinkedKernel(kernel, [tuple(start + n for start in places) for n in range(size)], [()] * size))
    tile, lower = _headed("tile"), _headed("kernel")
    lowered = []
    for state in _through(nests, events, ("l", "t"), compilation.tile):
        start = tile.append(print_unit(state.kernel), state.kernel.name, state.up, state.made)
        made, sources = materialised(state.kernel, compilation.target)
        lowered.append(LinkedKernel(made, _shifted(sources, start), [()] * len(sources)))
    cuda = Column("cuda")
    finished = _through(lowered, events, ("k",), compilation.kernels)
    for state, text in zip(finished, compilation.cuda_kernels, strict=True):
        start = lower.append(print_unit(state.kernel), state.kernel.name, state.up, state.made)
        cuda.append(text.text, text.name, _shifted(cuda_lines(state.kernel, text), start))
    return [source, torch, tensor, loop, tile, lower, cuda]


def _shifted(found: Links, start: int) -> Links:
    return [tuple(start + line for line in lines) for lines in found]


def _through_links(found: Links, links: Links) -> Links:
    """Follow links: what the origins of each line are linked to."""
    return [tuple(sorted({line for source in sources for line in links[source]})) for sources in found]


# ---- the lines of a kernel


class Line(NamedTuple):
    """A statement of a program. head: the statement with an empty body; path: positions from the kernel down."""

    head: Stmt
    stmt: Stmt
    path: Path

    @property
    def has_body(self) -> bool:
        return hasattr(self.head, "body")

    @property
    def names(self) -> list[str]:
        return [name for _, name in written(self.head)]

    @property
    def subjects(self) -> tuple[tuple[str, str], ...]:
        return (*written(self.head), *(("read", buffer) for buffer in buffers_read(self.head)))

    def holds(self, other: Line) -> bool:
        """Return whether another statement is inside of this one."""
        return len(other.path) > len(self.path) and other.path[: len(self.path)] == self.path


def lines_of(*kernels: Kernel) -> list[Line]:
    """Return the statements of kernels in the order of their texts. Each has one line, after the kernel's header."""
    found: list[Line] = []

    def add(block: Iterable[Stmt], path: Path) -> None:
        for position, stmt in enumerate(block):
            body = getattr(stmt, "body", None)
            found.append(Line(stmt if body is None else replace(stmt, body=()), stmt, (*path, position)))
            add(body or (), (*path, position))

    for number, kernel in enumerate(kernels):
        add(kernel.body, (number,))
    return found


def written(head: Stmt) -> tuple[tuple[str, str], ...]:
    """Return (kind, name) of each value, buffer or axis that a statement defines, accumulates, stores or binds."""
    if isinstance(head, Tile):
        return (("tile", ""), *(("axis", axis.name) for axis in head.axes))
    if isinstance(head, Store | StoreTo):
        return (("buffer", head.buf if isinstance(head, Store) else head.address.base),)
    if isinstance(head, Assign | LoadFrom):
        place = head.place if isinstance(head, Assign) else head.into
        return (("value", place.name),) if isinstance(place, Var | Element) else ()
    if hasattr(head, "accs"):
        return tuple(("value", acc) for acc in head.accs)
    name = getattr(head, "dst", None) or getattr(head, "acc", None)
    if isinstance(name, str):
        return (("value", name),)
    return (("axis", head.var),) if hasattr(head, "var") else ()


def buffers_read(head: Stmt) -> tuple[str, ...]:
    """Return the names of buffers and shared-memory tiles that a statement reads."""
    source = head.buf if isinstance(head, Load) else head.root if isinstance(head, Base) else getattr(head, "src", "")
    return (source,) if isinstance(source, str) and source else ()


def names_read(head: Stmt) -> list[str]:
    """Return the names in the expressions of a statement: values, axes and address bases."""
    found: Iterator[Var | Element | Address] = nodes(head, Var, Element, Address)
    return [one.base if isinstance(one, Address) else one.name for one in found]


def fill(lines: Sequence[Line], up: Links, before: Sequence[Line] = ()) -> None:
    """Link lines without origins to the origins of their neighbours.

    A statement gets those of its readers: a reciprocal comes from the division it replaces. Without any it gets those
    of the statements that write the same name, else of its operands. A statement with a body gets those of all that is
    inside of it.

    Args:
        before: lines that a rule changed to `lines`. A new statement with a body came from those removed ones that
            held the origins of its contents.
    """
    kept = {source for sources in up for source in sources}
    removed = [(place, line) for place, line in enumerate(before) if place not in kept and line.has_body]
    readers: dict[str, list[int]] = defaultdict(list)
    writers: dict[str, list[int]] = defaultdict(list)
    reads = [(*names_read(line.head), *buffers_read(line.head)) for line in lines]
    for place, line in enumerate(lines):
        for name in reads[place]:
            readers[name].append(place)
        for name in line.names:
            writers[name].append(place)
    left = -1
    while left != (left := sum(not found for found in up)):  # an address may be computed from an address
        for place, line in reversed(list(enumerate(lines))):
            if not up[place] and not line.has_body:
                near = ((readers, line.names), (writers, line.names), (writers, reads[place]))
                found = ({s for name in listed for other in of[name] for s in up[other]} for of, listed in near)
                up[place] = tuple(sorted(next(filter(None, found), ())))
    for place, line in reversed(list(enumerate(lines))):
        if not up[place] and line.has_body:
            every = {s for other, sources in zip(lines, up, strict=True) if line.holds(other) for s in sources}
            outer = {n for n, one in removed if any(one.holds(before[source]) for source in every)}
            up[place] = tuple(sorted(outer or every))


# ---- the user's text, torch, tensor


def source_and_torch(captured: Capture) -> tuple[Column, Column]:
    """Return the user's text and Torch IR. A long file shows the lines that the program uses."""
    files: dict[str, tuple[list[str], set[int]]] = {}
    for origin in captured.spans.values():
        if isinstance(origin, Span):
            _, wanted = files.setdefault(origin.source.name, (origin.source.text.splitlines(), set()))
            wanted.update(range(origin.line, origin.end_line + 1))
        elif origin not in (modules := files.setdefault("modules", ([], set()))[0]):
            modules.append(origin)
    source = Column("source")
    place: dict[tuple[str, Any], int] = {}
    for name, (lines, wanted) in files.items():
        source.units.append((len(source.lines), name))
        for number, line in enumerate(lines, 1):
            if len(lines) <= SHOWN_WHOLE or name == "modules" or number in wanted:
                place[name, line if name == "modules" else number] = len(source.lines)
                source.lines.append(line)
    source.up = source.made = [()] * len(source.lines)
    up: Links = []
    for stmt in captured.graph.body:
        span = captured.spans.get(stmt.dst)
        keys: list[tuple[str, Any]] = [("modules", span)]
        if isinstance(span, Span):
            keys = [(span.source.name, number) for number in range(span.line, span.end_line + 1)]
        up.append(tuple(place[key] for key in keys if key in place))
    torch = _headed("torch")
    torch.append(print_unit(captured.graph), captured.graph.name, up)
    return source, torch


def _tensor(compilation: Compilation, events: Sequence[Any]) -> tuple[Column, dict[Term, int]]:
    """Return Tensor IR, and the line of each value."""
    graph, column = compilation.tensor, _headed("tensor")
    if graph is None:
        return Column("tensor"), {}
    values, ops = values_of_lines(graph), compilation.captured.graph.body
    lead = len(compilation.ir("torch").splitlines()) - len(ops)
    torch = {op.dst: lead + n for n, op in enumerate(ops)}
    origins = {term: op.dst for term, op in compilation.made_from.items()}
    for value in reversed(list(values)):  # an operand that algebra inserted gets the op of its consumer
        waiting = [value] if value in origins else []
        while waiting:
            term = waiting.pop()
            new = [operand for operand in operands(term) if operand not in origins]
            origins |= dict.fromkeys(new, origins[term])
            waiting += new
    fired: dict[Any, list[int]] = defaultdict(list)  # by the value that a rule built, or the op that it lowered
    for number, event in enumerate(events):
        if isinstance(event, Firing) and event.prefix in "daf":
            for unit in event.after:
                for key in (*filter(None, (unit.origin,)), *unit.values):
                    fired[key].append(number)
    up: Links = []
    made: Links = []
    for value in values:
        through = (compilation.made_from[term].dst for term in _read_through(value) if term in compilation.made_from)
        names = (origins.get(value, ""), *through)
        up.append(tuple(sorted({torch[name] for name in names if name in torch})))
        made.append(tuple(dict.fromkeys((*fired.get(names[0], ()), *fired.get(value, ())))))
    start = column.append(print_unit(graph), graph.name, up, made)
    return column, {value: start + n for n, value in enumerate(values)}


def _read_through(value: Term) -> Iterator[Term]:
    """Yield the index maps on the line of a value. A view has no line of its own."""
    for term in operands(value):
        if isinstance(term, Remap | Index):
            yield term
            yield from _read_through(term)


# ---- kernels through their passes


@dataclass
class LinkedKernel:
    """A kernel between passes. up: origins of each line in the first text; made: trace events that changed it."""

    kernel: Kernel
    up: Links
    made: Links


def _loop(compilation: Compilation, values: Mapping[Term, int]) -> tuple[Column, list[int]]:
    """Return Loop IR, each line linked to the value that it computes, and the first line of each kernel."""
    plan, column, starts = compilation.plan, _headed("loop"), []
    for number, kernel in enumerate(plan.kernels):
        terms = plan.values[number] if number < len(plan.values) else {}
        held = {name: values[term] for name, term in terms.items() if term in values}
        lines = lines_of(kernel)
        up: Links = [
            tuple(sorted({held[name] for name in line.names if name in held and not line.has_body})) for line in lines
        ]
        fill(lines, up)
        starts.append(column.append(print_unit(kernel), kernel.name, up))
    return column, starts


def _through(
    states: list[LinkedKernel], events: Sequence[Any], prefixes: tuple[str, ...], finished: Sequence[Kernel]
) -> list[LinkedKernel]:
    """Follow kernels through the firings of some levels.

    A renamed kernel, which no firing holds, is linked to a kernel of the same name, else to one that stores the same
    buffers.
    """
    now = list(states)
    for number, event in enumerate(events):
        if isinstance(event, Firing) and event.prefix in prefixes:
            place = _find(now, event.before)
            if place is not None:
                now[place : place + len(event.before)] = _linked(
                    now[place : place + len(event.before)], *event.after, number=number
                )
            # other kernels may fuse the first one as well
            elif len(event.before) > 1 and (place := _find(now, event.before[-1:])) is not None:
                taken = [state for state in now if state.kernel.name == event.before[0].name][:1]
                now[place : place + 1] = _linked([*taken, now[place]], *event.after, number=number)
    known, found = {id(state.kernel): state for state in now}, []
    for kernel in finished:
        near = [state for state in (*now, *states) if state.kernel.name == kernel.name]
        outs = {param.name for param in kernel.outs}
        near += [state for state in states if not outs.isdisjoint(param.name for param in state.kernel.outs)]
        found.append(known.get(id(kernel)) or _linked(near[:1], kernel)[0])
    return found


def _find(states: Sequence[LinkedKernel], wanted: Sequence[Kernel]) -> int | None:
    for place in range(len(states) - len(wanted) + 1):
        if all(states[place + n].kernel is kernel for n, kernel in enumerate(wanted)):
            return place
    return None


def _linked(states: Sequence[LinkedKernel], *after: Kernel, number: int | None = None) -> list[LinkedKernel]:
    """Link kernels to those that a rule computed them from. number: of the event, which changed lines get."""
    found, changed = links(lines_of(*(state.kernel for state in states)), lines_of(*after))
    up = _through_links(found, [source for state in states for source in state.up])
    made = _through_links(found, [source for state in states for source in state.made])
    if number is not None:
        made = [(*marks, number) if new else marks for marks, new in zip(made, changed, strict=True)]
    out, start = [], 0
    for kernel in after:
        end = start + len(lines_of(kernel))
        out.append(LinkedKernel(kernel, up[start:end], made[start:end]))
        start = end
    return out


def links(before: Sequence[Line], after: Sequence[Line]) -> tuple[Links, list[bool]]:
    """Link each line after a firing to its origins, and report whether the firing changed it.

    An unchanged statement came from itself. Another one came from the statements that define the same value, store to
    the same buffer or bind the same axis, else from those that read the same buffers, else from its neighbours. A
    barrier that a rule inserts has no origin.
    """
    same: dict[int, list[int]] = defaultdict(list)
    about: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, line in enumerate(before):
        same[id(line.head)].append(place)
        for subject in line.subjects:
            about[subject].append(place)
    waiting = {head: list(places) for head, places in same.items()}
    found: Links = []
    for line in after:
        if (left := waiting.get(id(line.head))) is not None:
            found.append((left.pop(0) if left else same[id(line.head)][-1],))
        else:
            found.append(next((tuple(about[subject]) for subject in line.subjects if subject in about), ()))
    fill(after, found, before)
    return found, [id(line.head) not in same for line in after]


def materialised(tile: Kernel, target: Target) -> tuple[Kernel, Links]:
    """Lower a kernel to Kernel IR, and link each of its lines to lines of Tile IR."""
    emitted: Emitted = []
    made = materialise(tile, target, emitted)
    above, below = lines_of(tile), lines_of(made)
    tiled = isinstance(tile.body[0], Tile)  # paths of the lowering start below the Tile
    numbers = {(0, *line.path[1 + tiled :]): n for n, line in enumerate(above)}
    owners: dict[int, list[int]] = defaultdict(list)
    for path, block in emitted:
        for stmt in nodes(block, Stmt) if path in numbers else ():
            owners[id(stmt)].append(numbers[path])
    lets = {name: n for n, line in enumerate(above) if isinstance(line.head, Let) for name in line.names}
    axes = {name: n for n, line in enumerate(above) for kind, name in written(line.head) if kind == "axis"}
    found: Links = []
    seen: dict[int, int] = defaultdict(int)
    for line in below:
        # equal statements are one node, and its origins are in the order of the text
        distinct = list(dict.fromkeys(owners.get(id(line.stmt), ())))
        own = distinct[min(seen[id(line.stmt)], len(distinct) - 1)] if distinct else None
        seen[id(line.stmt)] += 1
        if named := [lets[name] for name in line.names if name in lets]:
            found.append(tuple(named))  # a value that became a register at its first use
        elif isinstance(line.head, Launch):
            found.append((0,))
        elif own is None and isinstance(line.head, Define) and line.head.dst in axes:
            found.append((axes[line.head.dst],))
        elif own is None or (isinstance(line.head, Base) and above[own].has_body):
            found.append(())  # an address that a loop keeps belongs to its readers
        else:
            found.append((own,))
    fill(below, found)
    return made, _with_inlined(above, lets, found)


def _with_inlined(above: Sequence[Line], lets: Mapping[str, int], found: Links) -> Links:
    """Add to each line the values without a statement of their own that it computes inline."""
    linked = {source for sources in found for source in sources}

    def with_inlined(sources: tuple[int, ...]) -> tuple[int, ...]:
        reached = list(sources)
        for place in reached:  # which grows
            read = {lets[name] for name in names_read(above[place].head) if name in lets}
            reached += read - linked - set(reached)
        return tuple(sorted(reached))

    return [
        sources if not sources or isinstance(above[sources[0]].head, Tile) else with_inlined(sources)
        for sources in found
    ]


class MarkingPrinter(Printer):
    """Printer that appends to each line a NUL and the numbers of its lines of Kernel IR. The Launch is line 0."""

    number = 0
    printing: Stmt | None = None

    def statement(self, stmt: Stmt) -> list[str]:
        self.number += 1
        own, self.printing = f"\0{self.number}", stmt
        lines = super().statement(stmt)
        self.printing = None
        return [line if "\0" in line else line + own for line in lines]

    def load_from(self, stmt: LoadFrom) -> str | list[str]:
        text: str | list[str] = super().load_from(stmt)
        if stmt is self.printing:
            return text
        self.number += 2  # a register that is declared with its value: one line for two statements
        return f"{text}\0{self.number - 1} {self.number}"


def cuda_lines(kernel: Kernel, cuda: CudaKernel) -> Links:
    """Link each line of a kernel's CUDA text to lines of Kernel IR. The last line is the closing brace."""
    (launch,) = kernel.body
    assert isinstance(launch, Launch)
    lines = MarkingPrinter(kernel, safe_names(kernel)).block(launch.body, 1)
    marks: Links = [tuple(map(int, line.rpartition("\0")[2].split())) for line in lines]
    return [*([(0,)] * (len(cuda.text.splitlines()) - 1 - len(marks))), *marks, (0,)]
