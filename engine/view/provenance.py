"""Where every line of a compile came from: six columns of text, and for each line the lines of the column before.

    source ◄── torch ◄── tensor ◄── loop ◄── tile ◄── kernel ◄── cuda

Nodes carry no history, for equal nodes are one. It is found again: torch ops know their place in the user's text,
values their torch op, names of loop nests their value; the firings of a trace say what each statement of a schedule
was before; the lowering says what each became, and the printer how many lines it took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.diagnostic import Span
from ...ir.loop import Accumulate, For, If, Load, Merge
from ...ir.program import Kernel
from ...ir.tensor import Index, Remap, Term, operands
from ...ir.text.print import print_program
from ...ir.text.tensor import values_of_lines
from ..capture.capture import Capture
from ..compiler import STAGES, Compilation
from ..kernels.sharing import share
from ..rewrite.trace import Firing
from .firing_links import Sources, all_lines, links
from .listing import Line, is_control, lines_of, names_read, written
from .lowered_links import cuda_lines, materialised

COLUMNS = ("source", *STAGES)


@dataclass
class Column:
    """A text in lines. up: the lines of the column before that each came from; made: the events that shaped it; units:
    (first line, name) of each kernel or file."""

    name: str
    lines: list[str]
    up: Sources
    made: list[tuple[int, ...]]
    units: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class LinkedKernel:
    """A kernel on its way: for each of its lines those of the first text that it came from, and what made it."""

    kernel: Kernel
    up: Sources
    made: list[tuple[int, ...]]


def columns(compilation: Compilation, events: Sequence[Any]) -> list[Column]:
    """The columns of a compile, from the user's text to CUDA."""
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
    """The user's text, of long files the lines that matter, and Torch IR."""
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
    """The index maps on the line of a value: an op that only says where to read has no line of its own."""
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
    """The torch op of each value; of what algebra put below a value, that value's."""
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
    """The firings of algebra and fusion that gave each value, by the value; those of torch by the user's op: all that
    came of an op did so by them, whatever axes or spelling it took since."""
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
    """For every line of a loop nest the values that it computes; of a load those that read it; of a loop its own."""
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
    """Add a kernel's lines to a column. Returns the line of its first statement."""
    from ...ir.text.print import print_unit

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
    """Kernels after the firings of some levels. Where the trace does not tell (a kernel that was renamed), what is
    about the same thing is linked."""
    now, first = list(states), list(states)
    for number, event in enumerate(events):
        if isinstance(event, Firing) and event.prefix in prefixes:
            place = _find(now, event.before)
            if place is not None:
                now[place : place + len(event.before)] = _fired(now[place : place + len(event.before)], event, number)
            elif len(event.before) > 1 and (place := _find(now, event.before[-1:])) is not None:
                taken = [state for state in now if state.kernel.name == event.before[0].name][:1]
                now[place : place + 1] = _fired([*taken, now[place]], event, number)  # which others may take in, too
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
    """A kernel that no firing gave: linked to the nearest of the same name, else to those that share its buffers."""
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
