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
from functools import cached_property
from typing import Any

from ...codegen.cuda import Printer, safe_names
from ...codegen.kernel import CudaKernel
from ...codegen.materialise import materialise
from ...codegen.materialise.lowering import Emitted
from ...codegen.target import Target
from ...ir.diagnostic import Source, Span
from ...ir.expr import Var
from ...ir.facts.structure import accumulators_of
from ...ir.kernel import Address, Assign, Base, Define, Element, Launch, LoadFrom, StoreTo, TensorMap
from ...ir.loop import Let, Load, Store
from ...ir.node import nodes, replace
from ...ir.program import Kernel, Stmt
from ...ir.tensor import Index, Remap, operands, postorder, terms
from ...ir.text.programs import print_unit
from ...ir.text.tensor import values_of_lines
from ...ir.tile import Stage, Tile
from ..capture.signature import Capture
from ..compiler import STAGES, Compilation
from ..kernels.sharing import key, share
from ..rewrite.trace import Firing
from .server import Record

COLUMNS = ("source", *STAGES)
SHOWN_WHOLE = 60  # lines of a file of the user: of a longer one, the lines that the program uses


@dataclass(eq=False)
class Line:
    """A line with its origins.

    node: the op, value or statement on it; path: positions of the statement and of those around it, from the kernel
    down; inside: the lines of its body, at any depth. up: the lines that it came from, in the preceding column or
    before a firing; made: the trace events that changed it.
    """

    node: Any = None
    path: tuple[int, ...] = ()
    inside: list[Line] = field(default_factory=list)
    up: set[Line] = field(default_factory=set)
    made: set[int] = field(default_factory=set)

    @cached_property
    def head(self) -> Any:
        """The statement with an empty body."""
        return replace(self.node, body=()) if self.inside else self.node

    @cached_property
    def names(self) -> list[str]:
        """The values, buffers and axes that the statement defines, accumulates, stores or binds."""
        match self.node:
            case Tile():
                return ["Tile", *(axis.name for axis in self.node.axes)]
            case Store(buf=name) | StoreTo(address=Address(base=name)):
                return [name]
            case Assign(place=Var(name=name) | Element(name=name)) | LoadFrom(into=Var(name=name) | Element(name=name)):
                return [name]
            case stmt:
                bound = [getattr(stmt, field) for field in ("dst", "var") if hasattr(stmt, field)]
                return [*accumulators_of(stmt), *bound]

    @cached_property
    def sources(self) -> list[str]:
        """The buffers and shared-memory tiles that the statement reads."""
        match self.node:
            case Load(buf=name) | Stage(src=name) | TensorMap(src=name) | Base(root=name):
                return [name]
            case _:
                return []

    @cached_property
    def reads(self) -> set[str]:
        """The sources, and the names in the expressions of the statement: values, axes and address bases."""
        found = nodes(self.head, Var, Element, Address)
        return {*self.sources, *(one.base if isinstance(one, Address) else one.name for one in found)}

    @cached_property
    def subjects(self) -> list[Any]:
        """The names by which a rule relates a new statement to others, the closest relation first."""
        stored = isinstance(self.node, Store | StoreTo)
        return [*((stored, name) for name in self.names), *(("read", name) for name in self.sources)]


@dataclass
class Column:
    """Text in lines. units: (first line, name) of each kernel or file."""

    name: str
    texts: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    units: list[tuple[int, str]] = field(default_factory=list)

    def append(self, unit: Any, linked: Sequence[Line]) -> None:
        """Append the text of a unit, below an empty line if there are others. `linked` are its last lines."""
        text = unit.text if isinstance(unit, CudaKernel) else print_unit(unit)
        texts = [""] * bool(self.units) + text.splitlines()
        self.units.append((len(self.texts) + bool(self.units), unit.name))
        self.lines += [Line()] * (len(texts) - len(linked)) + [*linked]
        self.texts += texts


def origins_of(lines: Iterable[Line]) -> set[Line]:
    """Return the lines that any of some lines came from."""
    return set().union(*(line.up for line in lines))


def _headed(level: str) -> Column:
    return Column(level, [f"## level: {level}"], [Line()])


def column_records(columns: Sequence[Column]) -> list[Record]:
    """Return columns as data.

    up: for each line, the numbers of the lines of the preceding column that it came from; made: those of trace events.
    """
    numbers = {line: number for column in columns for number, line in enumerate(column.lines)}
    return [
        {
            "name": column.name, "lines": column.texts, "units": column.units,
            "up": [sorted(numbers[origin] for origin in line.up) for line in column.lines],
            "made": [sorted(line.made) for line in column.lines],
        }
        for column in columns
    ]  # fmt: skip


def columns(compilation: Compilation) -> list[Column]:
    """Return the columns of a compile, from the user's text to CUDA."""
    plan, events = compilation.plan, compilation.events
    source, torch = source_and_torch(compilation.captured)
    tensor = _tensor(compilation, torch)
    loop, tile, lower, cuda = _headed("loop"), _headed("tile"), _headed("kernel"), Column("cuda")
    values = {line.node: line for line in tensor.lines if line.node is not None}
    shared = share(plan.kernels)
    nests = {kernel: lines_of(kernel) for kernel in shared.kernels}
    for kernel, held, place in zip(plan.kernels, plan.values, shared.place, strict=True):
        lines = lines_of(kernel)
        for line in lines:
            if not line.inside:
                line.up = {values[held[name]] for name in line.names if held.get(name) in values}
        fill(lines)
        loop.append(kernel, lines)
        for line, origin in zip(nests[shared.kernels[place]], lines, strict=True):
            line.up.add(origin)
    lowered = {}
    for kernel, lines in followed(nests, events, compilation.tile):
        tile.append(kernel, lines)
        made, below = materialised(kernel, lines, compilation.target)
        lowered[made] = below
    finished = followed(lowered, events, compilation.kernels)
    for (kernel, lines), text in zip(finished, compilation.cuda_kernels, strict=True):
        lower.append(kernel, lines)
        cuda.append(text, printed(kernel, lines, text))
    return [source, torch, tensor, loop, tile, lower, cuda]


# ---- the user's text, torch, tensor


def source_and_torch(captured: Capture) -> tuple[Column, Column]:
    """Return the user's text and Torch IR. A long file shows the lines that the program uses."""
    paths = [*dict.fromkeys(origin for origin in captured.spans.values() if isinstance(origin, str))]
    modules = Source("modules", "\n".join(paths))
    used = defaultdict[tuple[Source, int], Line](Line)  # by file and number
    origins: dict[str, set[Line]] = {}  # of each op
    for name, origin in captured.spans.items():
        if isinstance(origin, Span):
            origins[name] = {used[origin.source, number] for number in range(origin.line, origin.end_line + 1)}
        else:
            origins[name] = {used[modules, paths.index(origin) + 1]}
    source, torch = Column("source"), _headed("torch")
    for file in dict.fromkeys(file for file, _ in used):
        source.units.append((len(source.lines), file.name))
        texts = file.text.splitlines()
        for number, text in enumerate(texts, 1):
            if len(texts) <= SHOWN_WHOLE or (file, number) in used:
                source.lines.append(used[file, number])
                source.texts.append(text)
    lines = [Line(op, up=origins.get(op.dst, set())) for op in captured.graph.body]
    torch.append(captured.graph, lines)
    return source, torch


def _tensor(compilation: Compilation, torch: Column) -> Column:
    """Return Tensor IR. A value comes from its torch op, and from those of the views on its line."""
    graph, made_from, column = compilation.tensor, compilation.made_from, _headed("tensor")
    assert graph is not None, "a page shows programs of torch only"
    ops = {line.node.dst: line for line in torch.lines if line.node is not None}
    origins = {term: op.dst for term, op in made_from.items()}
    for term in reversed(terms(graph)):  # an operand that algebra inserted gets the op of its consumer
        for operand in operands(term) if term in origins else ():
            origins.setdefault(operand, origins[term])
    fired = defaultdict[Any, set[int]](set)  # by the value that a rule built, or the op that it lowered
    for number, event in enumerate(compilation.events):
        if isinstance(event, Firing) and event.prefix in "daf":
            for text in event.after:
                for built in (text.origin, *text.values):
                    fired[built].add(number)
    lines = []
    for value in values_of_lines(graph):
        own = origins.get(value)
        views = postorder([value], lambda term: [x for x in operands(term) if isinstance(x, Remap | Index)])
        names = [own, *(made_from[view].dst for view in views if view in made_from)]
        lines.append(Line(value, up={ops[name] for name in names if name in ops}, made=fired[own] | fired[value]))
    column.append(graph, lines)
    return column


# ---- kernels


def lines_of(kernel: Kernel) -> list[Line]:
    """Return the statements of a kernel in the order of its text. Each has one line, after the kernel's header."""

    def below(block: Iterable[Stmt], path: tuple[int, ...]) -> list[Line]:
        found: list[Line] = []
        for position, stmt in enumerate(block):
            inside = below(getattr(stmt, "body", ()), (*path, position))
            found += [Line(stmt, (*path, position), inside), *inside]
        return found

    return below(kernel.body, ())


def fill(lines: Sequence[Line], before: Sequence[Line] = ()) -> None:
    """Link lines without origins to the origins of their neighbours.

    A statement gets those of its readers: a reciprocal comes from the division it replaces. Without any it gets those
    of the statements that write the same name, else of its operands. A statement with a body gets those of all that is
    inside of it.

    Args:
        before: lines that a rule changed to `lines`. A new statement with a body came from those removed ones that
            held the origins of its contents.
    """
    kept = origins_of(lines)
    removed = [line for line in before if line.inside and line not in kept]
    readers = defaultdict[str, list[Line]](list)
    writers = defaultdict[str, list[Line]](list)
    for line in lines:
        for name in line.reads:
            readers[name].append(line)
        for name in line.names:
            writers[name].append(line)
    left = -1
    while left != (left := sum(not line.up for line in lines)):  # an address may be computed from an address
        for line in reversed(lines):
            if not line.up and not line.inside:
                near = ((readers, line.names), (writers, line.names), (writers, line.reads))
                found = (origins_of(other for name in names for other in of[name]) for of, names in near)
                line.up = next(filter(None, found), set())
    for line in reversed(lines):
        if not line.up and line.inside:
            every = origins_of(line.inside)
            line.up = {outer for outer in removed if not every.isdisjoint(outer.inside)} or every


def next_of(lines: list[Line]) -> Line:
    """Return the next of the lines of equal statements, and the last one for all further statements."""
    return lines.pop(0) if len(lines) > 1 else lines[0]


def followed(
    first: Mapping[Kernel, list[Line]], events: Sequence[Any], finished: Sequence[Kernel]
) -> Iterator[tuple[Kernel, list[Line]]]:
    """Follow kernels through the firings on them. Yield the finished kernels with their lines.

    No firing holds a kernel that was renamed. It is linked to a kernel of the same structure.
    """
    known = dict(first)
    for number, event in enumerate(events):
        if isinstance(event, Firing) and event.before[-1] in known:
            before = [line for kernel in event.before for line in known.get(kernel, ())]
            known |= changed(before, event.after, number)
    for kernel in finished:
        if kernel not in known:
            alike = next((lines for other, lines in known.items() if key(other) == key(kernel)), [])
            known[kernel] = lines_of(kernel)
            for line, same in zip(known[kernel], alike):
                line.up, line.made = same.up, same.made
        yield kernel, known[kernel]


def changed(before: Sequence[Line], after: Sequence[Kernel], number: int) -> dict[Kernel, list[Line]]:
    """Return the lines of kernels that a rule computed from `before`. number: of the event.

    An unchanged statement came from itself. Another one came from the statements that define the same value, store to
    the same buffer or bind the same axis, else from those that read the same buffers, else from its neighbours. A
    barrier that a rule inserts has no origin.
    """
    found = {kernel: lines_of(kernel) for kernel in after}
    lines = [line for own in found.values() for line in own]
    same = defaultdict[Stmt, list[Line]](list)
    about = defaultdict[Any, set[Line]](set)
    for line in before:
        same[line.head].append(line)
        for subject in line.subjects:
            about[subject].add(line)
    for line in lines:
        if line.head in same:
            line.up = {next_of(same[line.head])}
        else:
            line.up = next((about[subject] for subject in line.subjects if subject in about), set())
            line.made.add(number)
    fill(lines, before)
    for line in lines:
        line.made = line.made.union(*(origin.made for origin in line.up))
        line.up = origins_of(line.up)
    return found


def materialised(tile: Kernel, above: Sequence[Line], target: Target) -> tuple[Kernel, list[Line]]:
    """Lower a kernel to Kernel IR, and link each of its lines to lines of Tile IR."""
    emitted: Emitted = []
    made = materialise(tile, target, emitted)
    below = lines_of(made)
    root = () if isinstance(tile.body[0], Tile) else (0,)  # paths of the lowering start at the Tile
    places = {(*root, *line.path): line for line in above}
    owners = defaultdict[Stmt, list[Line]](list)  # in the order of the text; equal statements are one node
    for path, block in emitted:
        for stmt in nodes(block, Stmt):
            if places[path] not in owners[stmt]:
                owners[stmt].append(places[path])
    lets = {line.node.dst: line for line in above if isinstance(line.node, Let)}
    axes = {name: line for line in above if line.inside for name in line.names}
    for line in below:
        own = [next_of(owners[line.node])] if line.node in owners else []
        if isinstance(line.node, Base) and own and own[0].inside:
            own = []  # an address that a loop keeps belongs to its readers
        elif not own and isinstance(line.node, Define):
            own = [axes[name] for name in line.names if name in axes]
        # a value may become a register at its first use
        line.up = {lets[name] for name in line.names if name in lets} or set(own)
    below[0].up = {above[0]}
    fill(below)
    linked = origins_of(below)
    for let in reversed(above):
        if isinstance(let.node, Let) and let not in linked:  # an expression in the statements of its readers
            readers = {line for line in above if let.node.dst in line.reads}
            for line in below:
                if not readers.isdisjoint(line.up):
                    line.up.add(let)
    return made, below


class MarkingPrinter(Printer):
    """Printer that appends to each line a NUL and the numbers of its lines of Kernel IR. The Launch is line 0."""

    number = 0

    def statement(self, stmt: Stmt) -> list[str]:
        self.number += 1
        mark = f"\0{self.number}"
        return [line if "\0" in line else line + mark for line in super().statement(stmt)]

    def load_from(self, stmt: LoadFrom) -> str:
        """Print a register that is declared with its value: one line for two statements. Only `block` calls this."""
        self.number += 2
        return f"{super().load_from(stmt)}\0{self.number - 1} {self.number}"


def printed(kernel: Kernel, above: Sequence[Line], cuda: CudaKernel) -> list[Line]:
    """Return the lines of a kernel's CUDA text. The first ones and the closing brace come from the Launch."""
    (launch,) = kernel.body
    assert isinstance(launch, Launch)
    marked = MarkingPrinter(kernel, safe_names(kernel)).block(launch.body, 1)
    numbers = [line.rpartition("\0")[2] for line in marked]
    head = len(cuda.text.splitlines()) - len(marked) - 1
    return [Line(up={above[int(n)] for n in each.split()}) for each in [*["0"] * head, *numbers, "0"]]
