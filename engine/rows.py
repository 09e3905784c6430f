"""One program, several ranges: compiles for parts of the range of a size, and the table that says which serves a call.

A row is a refinement of sizes (low, high, multiple, hint); the same captured program is compiled for it when a call
first needs it. The first row that admits a call wins; the program of the whole range is behind the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..ir.diagnostic import UsageError, did_you_mean
from ..ir.expr import Size
from ..ir.substitute import with_sizes
from .capture.capture import Capture
from .capture.sizes import Dim
from .compiler import Compilation
from .dispatch import Dispatch

MOST_ROWS = 12  # that are chosen without being asked for
OCTAVES = (1, 8, 32, 64, 128, 256, 512, 1024, 2048)  # where rows end: a launch is another kind of launch on either side

Row = tuple[Dim, ...]  # conditions on sizes, all of which hold; the Dims' hints are what the row is compiled for


def settled(rows: Any, sizes: Mapping[str, Size]) -> tuple[Row, ...]:
    """What `rows=` says: Dims, or tuples of Dims of several sizes; True for those of `chosen`.

    Raises UsageError for what is no row of these sizes.
    """
    if rows is True:
        return chosen(sizes)
    if not isinstance(rows, Sequence) or not all(isinstance(d, Dim) for row in rows for d in _listed(row)):
        raise UsageError("rows= is a list of Dims, each a part of a size's range", hint='rows=[dplc.Dim("s", 1, 64)]')
    found = tuple(_listed(row) for row in rows)
    for dim in (dim for row in found for dim in row):
        whole = sizes.get(dim.name)
        if whole is None:
            notes = (f"its sizes are {', '.join(sizes) or 'none'}",)
            raise UsageError(f"rows= names `{dim.name}`, no size", notes=notes, hint=did_you_mean(dim.name, sizes))
        if dim.low < whole.low or dim.high > whole.high:
            raise UsageError(f"a row of `{dim.name}` is {dim.range}, outside of {whole.low}..{whole.high}")
    return found


def _listed(row: Any) -> Row:
    return tuple(row) if isinstance(row, (tuple, list)) else (row,)


def chosen(sizes: Mapping[str, Size]) -> tuple[Row, ...]:
    """Rows that nobody named: of one size, its octaves; of several none, for these multiply."""
    if len(sizes) != 1:
        return ()
    (size,) = sizes.values()
    ends = [end for end in OCTAVES if size.low <= end < size.high] + [size.high]
    rows, low = list[Row](), size.low
    for high in ends[:MOST_ROWS]:
        step = size.multiple
        if high // step * step >= low:
            rows.append((Dim(size.name, low, high, step, hint=high // step * step),))
        low = high + 1
    return tuple(rows)


class Rows:
    """The compiles of a program by row, made when they are first asked for.

    whole: that of the full range; make: compiles a capture whose sizes are narrower.
    """

    def __init__(self, whole: Compilation, rows: Sequence[Row], make: Callable[[Capture], Compilation]):
        self.whole, self.rows, self._make = whole, tuple(rows), make
        self.place = Dispatch(self.rows)
        self._made: dict[Row, Compilation] = {}

    def at(self, sizes: Mapping[str, int]) -> Compilation:
        """What serves a call with such sizes."""
        place = self.place(sizes)
        return self.whole if place is None else self.compiled(self.rows[place])

    def compiled(self, row: Row) -> Compilation:
        if row not in self._made:
            self._made[row] = self._make(narrowed(self.whole.captured, row, self.whole.sizes))
        return self._made[row]

    @property
    def made(self) -> dict[Row, Compilation]:
        """The compiles that calls needed so far."""
        return dict(self._made)

    @property
    def compiled_rows(self) -> list[Row]:
        """Those that calls needed so far."""
        return list(self._made)

    def compile_all(self) -> None:
        """Compile ahead what calls would compile."""
        for row in self.rows:
            self.compiled(row)

    @property
    def table(self) -> list[dict[str, Any]]:
        """The dispatch as data: conditions in order, which the first that holds decides, and the plan behind each."""
        listed = [{"when": [_condition(dim) for dim in row], "plan": n} for n, row in enumerate(self.rows)]
        return [*listed, {"when": [], "plan": len(listed)}]


def _condition(dim: Dim) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(dim).items() if name != "hint"}


def narrowed(captured: Capture, row: Iterable[Dim], sizes: Mapping[str, Size]) -> Capture:
    """The program where sizes are known better; a size of one number is that number."""
    known: dict[str, Any] = dict(sizes)
    for dim in row:
        known[dim.name] = dim.low if dim.low == dim.high else dim.size(None)
    return dataclasses.replace(captured, graph=with_sizes(captured.graph, known))
