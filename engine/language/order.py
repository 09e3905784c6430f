"""The order of a pipeline: file order unless a line says otherwise. What cannot be obeyed is an error at load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...ir.diagnostic import DplcError, Span, did_you_mean


@dataclass(frozen=True)
class LinePlace:
    """A line: its label, its pass, and where it wants to stand: (`after` | `before` | `first` | `last`, label)."""

    label: str
    name: str
    span: Span | None
    wishes: tuple[tuple[str, str | None], ...]
    laid_over: bool = False


@dataclass(frozen=True)
class _Edge:
    """`early` runs before `late`, because the line of `says` says so."""

    early: str
    late: str
    says: LinePlace


def arrange(pipeline: str, places: Iterable[LinePlace], known: set[str]) -> list[str]:
    """The labels in order. A line stays where it is written if its wishes hold there; else it moves, and no other does.
    A line that is laid over (not written among the others) goes right after, or right before, the pass that it names.

    known: further names that a wish may mention without effect (passes that were dropped). Raises DplcError.
    """
    listed = list(places)
    edges = _edges(pipeline, listed, known)
    later = _closure(listed, edges)  # of all lines: finds the circles
    written = [place for place in listed if not place.laid_over]
    labels = {place.label for place in written}
    own = _closure(
        written, [edge for edge in edges if edge.early in labels and edge.late in labels and not edge.says.laid_over]
    )
    order = [place for place in written if not place.wishes]
    for n, place in enumerate(written):
        if place.wishes:
            before = [order.index(other) for other in written[:n] if other in order]
            low, high = _bounds(place, order, own)
            order.insert(min(max(before[-1] + 1 if before else 0, low), high), place)
    for place in listed:
        if place.laid_over:
            order.insert(_beside(place, order, later), place)
    return [place.label for place in order]


def _bounds(place: LinePlace, order: list[LinePlace], later: dict[str, set[str]]) -> tuple[int, int]:
    """The first and the last position that a line may take among those that stand already."""
    low = max((n + 1 for n, other in enumerate(order) if place.label in later[other.label]), default=0)
    high = min((n for n, other in enumerate(order) if other.label in later[place.label]), default=len(order))
    if low > high:
        early, late = order[high], order[low - 1]
        wish = f"pass `{place.label}` cannot run after `{late.label}` and before `{early.label}`"
        what = f"{wish}: `{early.label}` runs first"
        raise DplcError(what, place.span, [f"`{other.label}` is at {_location(other)}" for other in (early, late)])
    return low, high


def _beside(place: LinePlace, order: list[LinePlace], later: dict[str, set[str]]) -> int:
    """Right after what it names, behind the lines that were put there before it; else as late as it may stand."""
    low, high = _bounds(place, order, later)
    targets = {name for kind, name in place.wishes if kind == "after"}
    if not targets:
        return high
    while (
        low < high and order[low].laid_over and targets & {name for kind, name in order[low].wishes if kind == "after"}
    ):
        low += 1
    return low


def _edges(pipeline: str, places: list[LinePlace], known: set[str]) -> list[_Edge]:
    edges = []
    labels = {place.label for place in places} | {place.name for place in places}
    for place in places:
        kinds = {kind for kind, _ in place.wishes}
        if kinds >= {"first", "last"}:
            raise DplcError(f"pass `{place.label}` cannot be first and last", place.span)
        for kind, name in place.wishes:
            if name is not None and name not in labels | known:
                what = f"pass `{place.label}` is to run {kind} `{name}`, which is not in pipeline `{pipeline}`"
                raise DplcError(what, place.span, (), did_you_mean(name, labels))
            for other in places:
                edge = _edge(place, kind, name, other)
                if edge is not None:
                    edges.append(edge)
    return edges


def _edge(place: LinePlace, kind: str, name: str | None, other: LinePlace) -> _Edge | None:
    if kind in ("first", "last"):
        if other is place or any(wish == kind for wish, _ in other.wishes):
            return None  # several may be first: among themselves they keep their order
        return _Edge(place.label, other.label, place) if kind == "first" else _Edge(other.label, place.label, place)
    if name not in (other.label, other.name):
        return None
    return _Edge(other.label, place.label, place) if kind == "after" else _Edge(place.label, other.label, place)


def _closure(places: list[LinePlace], edges: list[_Edge]) -> dict[str, set[str]]:
    """Per label, everything that must run later. Raises DplcError for a circle, pointing at its lines."""
    follows: dict[str, list[_Edge]] = {place.label: [] for place in places}
    for edge in edges:
        follows[edge.early].append(edge)
    later: dict[str, set[str]] = {}

    def visit(label: str, path: tuple[_Edge, ...]) -> set[str]:
        if label in later:
            return later[label]
        found: set[str] = set()
        for edge in follows[label]:
            step = (*path, edge)
            start = next((n for n, old in enumerate(step) if old.early == edge.late), None)
            if start is not None:
                raise _circle(step[start:])
            found |= {edge.late} | visit(edge.late, step)
        later[label] = found
        return found

    for place in places:
        visit(place.label, ())
    return later


def _circle(edges: tuple[_Edge, ...]) -> DplcError:
    said = list(dict.fromkeys(edge.says for edge in edges))
    circle = " before ".join([*(edge.early for edge in edges), edges[0].early])
    notes = [f"`{place.label}` wants to be {_wishes(place)}: {_location(place)}" for place in said]
    return DplcError(f"these lines contradict each other: {circle}", said[-1].span, notes, "take one of them back")


def _wishes(place: LinePlace) -> str:
    return ", ".join(f"{kind} {name}" if name else kind for kind, name in place.wishes)


def _location(place: LinePlace) -> str:
    return place.span.location if place.span else "built in"
