"""That a slab with other axes holds, where its loads look, what they looked for.

A cell of a slab holds the element of its source whose index along a dimension is the sum of its own indices along the
axes of that dimension, each times its stride. A load of the cell at `y` becomes a load at functions of `y`: the proof
is that these are inside of the new axes, and that the element is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...language import core as s
from ...language.positions import every
from ...language.rule import Rule
from ...language.spelling import expression
from .integers import Integers, Unknown
from .outcome import Refuted, shown
from .solver import Solver, SolverEffort

Items = tuple[s.Syntax, ...]


@dataclass(frozen=True)
class Layout:
    """old, new: the axes of the slab; asked, given: the index of a load, before and after, its slot left out."""

    old: Items
    new: Items
    asked: Items
    given: Items


def of_slabs(rule: Rule, effort: SolverEffort) -> Iterator[tuple[str, Refuted | None]]:
    """What a rule claims about slabs that it gives other axes, and what refutes it. Raises Unknown."""
    for name, layout in _layouts(rule):
        integers = Integers(rule)
        text = f"the axes of `{name}` and its loads"
        yield text, _decide(rule, layout, integers, Solver(integers, integers.premises(), effort), text)


def _layouts(rule: Rule) -> Iterator[tuple[str, Layout]]:
    for capture in every(rule.match, s.CaptureStatement):
        old = _slab(capture.call.items)
        for run in every(rule.rewrite, s.RunStatement):
            if old is None or getattr(run.run.base, "text", "") != capture.name:
                continue
            new = _slab(tuple(change for change in run.changes if isinstance(change, s.Keyword)))
            arms = [arm for arm in every(rule.rewrite, s.Arm) if _of(arm.pattern, capture.name)]
            if new is not None and len(arms) == 1:
                asked, given = (_index(side) for side in (arms[0].pattern, arms[0].template))
                yield capture.name, Layout(old, new, asked[len(asked) - len(old) :], given[len(given) - len(new) :])


def _slab(items: Items) -> Items | None:
    found = [item.value for item in items if isinstance(item, s.Keyword) and item.name == "slab"]
    return found[0].items if found and isinstance(found[0], s.Group) else None


def _of(node: s.Syntax, slab: str) -> bool:
    """Whether a load reads a slab, `load s.dst[..]`."""
    base = node.access.base if isinstance(node, s.LoadOf) and isinstance(node.access, s.Subscript) else None
    return isinstance(base, s.Member) and base.field == "dst" and getattr(base.base, "text", "") == slab


def _index(node: s.Syntax) -> Items:
    assert isinstance(node, s.LoadOf) and isinstance(node.access, s.Subscript)
    return node.access.items


def _decide(rule: Rule, layout: Layout, integers: Integers, solver: Solver, text: str) -> Refuted | None:
    olds = dict(_paired(layout.old, layout.asked))
    cells = {name: integers.z3.Int(f"{name}!") for name in olds}
    extents = {name: integers.number(axis.extent, {}) for name, axis in olds.items()}
    inside = [c for name, cell in cells.items() for c in (cell >= 0, cell < extents[name])]
    wanted, elements = [], dict.fromkeys((_dim(axis) for axis in (*olds.values(), *_named(layout.new))), 0)
    for name, axis in olds.items():
        elements[_dim(axis)] = elements[_dim(axis)] + _stride(integers, axis) * cells[name]
    for axis, index in zip(*_matched(layout), strict=True):
        place = integers.number(index, cells)
        wanted += [place >= 0, place < integers.number(axis.extent, {})]
        elements[_dim(axis)] = elements[_dim(axis)] - _stride(integers, axis) * place
    sizes = [extent >= 1 for extent in extents.values() if not isinstance(extent, int)]
    if solver.counterexample(sizes, [False]) is None:
        raise Unknown("no extents satisfy its guards")
    found = solver.counterexample([*inside, *sizes], [*wanted, *(rest == 0 for rest in elements.values())])
    if found is None:
        return None
    numbers = shown(found)
    given = ", ".join(f"{name}={value}" for name, value in sorted(numbers.items()))
    cell = ", ".join(f"{name}={found.get(f'{name}!', 0)}" for name in cells)
    return Refuted(numbers, f"with {given}, {text} do not fit at {cell}")


def _named(axes: Items) -> list[s.AxisItem]:
    return [axis for axis in axes if isinstance(axis, s.AxisItem)]


def _dim(axis: s.AxisItem) -> str:
    return "" if axis.dim is None else expression(axis.dim)


def _stride(integers: Integers, axis: s.AxisItem) -> Any:
    return 1 if axis.stride is None else integers.number(axis.stride, {})


def _paired(axes: Items, index: Items) -> Iterator[tuple[str, s.AxisItem]]:
    """The names that stand for the old indices, and their axes; a run stands against a run."""
    for axis, item in zip(axes, index, strict=True):
        if isinstance(axis, s.Run) and isinstance(item, s.Run):
            continue
        if not isinstance(axis, s.AxisItem) or not isinstance(item, s.NameOf):
            raise Unknown("the axes of a slab and the index of its loads do not stand side by side")
        yield item.text, axis


def _matched(layout: Layout) -> tuple[list[s.AxisItem], list[s.Syntax]]:
    """The new axes and the new indices, those that come back as they are left out."""
    axes, places = [], []
    for axis, item in zip(layout.new, layout.given, strict=True):
        if isinstance(axis, s.Run) and isinstance(item, s.Run):
            continue
        if not isinstance(axis, s.AxisItem) or isinstance(item, s.Run):
            raise Unknown("the axes of a slab and the index of its loads do not stand side by side")
        axes.append(axis)
        places.append(item)
    return axes, places
