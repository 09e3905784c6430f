"""`dplc tune --row 129..512`: a program where its lengths are those of a part of their ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.expr import Size
from ...ir.sizes import hints, sizes_in
from ..capture.capture import Capture
from ..capture.sizes import Dim, range_of
from ..run.rows import Row, narrowed
from .compiling import captured_text
from .options import Flags
from .show import print_remark

_WRITTEN = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*=\s*)?(\d{1,9})(?:\s*\.\.\s*(\d{1,9}))?(?:\s*:\s*(\d{1,9}))?\s*")


def row_of(asked: Sequence[str] | None, sizes: Mapping[str, Size]) -> Row:
    """What `--row` says of the sizes of a program, each at most once: a row of lengths, of which the greatest is the
    usual one if none is named. Raises UsageError."""
    found: dict[str, Dim] = {}
    for written in asked or ():
        parts = _WRITTEN.fullmatch(written)
        if parts is None:
            hint = "NAME=A..B where there are several sizes, A..B:N for N as a rule"
            raise UsageError(f"--row {written}: write A..B, as 129..512", hint=hint)
        name, low = parts[1] or _only(written, sizes), int(parts[2])
        if name not in sizes:
            notes = (f"its sizes are {', '.join(sizes)}",)
            raise UsageError(f"--row {written}: `{name}` is no size", notes=notes, hint=did_you_mean(name, sizes))
        if name in found:
            raise UsageError(f"--row {written}: `{name}` has its row already")
        found[name] = _part(written, sizes[name], low, int(parts[3] or low), parts[4])
    return tuple(found.values())


def _only(written: str, sizes: Mapping[str, Size]) -> str:
    if len(sizes) == 1:
        return next(iter(sizes))
    if not sizes:
        hint = "`dim(s, 1..4096)` in -c, or --seq-len 1..4096 of a model"
        raise UsageError(f"--row {written}: nothing in it is a size", hint=hint)
    first = next(iter(sizes))
    raise UsageError(
        f"--row {written}: its sizes are {', '.join(sizes)}", hint=f"say of which: --row {first}={written}"
    )


def _part(written: str, whole: Size, low: int, high: int, hint: str | None) -> Dim:
    """Raises UsageError for what is no part of the range."""
    if not whole.low <= low <= high <= whole.high:
        raise UsageError(f"--row {written}: `{whole.name}` is {range_of(whole)}, and a row is a part of that")
    part = Dim(whole.name, low, high, whole.multiple, int(hint) if hint else None)
    part.size()  # refuses a hint that is not in it
    return part


def captured_row(flags: Flags, values: bool = True, binding: Mapping[str, int] = MappingProxyType({})) -> Capture:
    """The text of `-c` captured, where its sizes are those of `--row`; what it draws has the lengths of their hints.

    values, binding: as of `captured_text`.
    """
    captured, _ = captured_text(flags, values, binding)
    sizes = sizes_in(captured.graph)
    row = row_of(flags.row, sizes)
    if not row:
        return captured
    made = narrowed(captured, row, sizes)
    usual = hints(captured.graph) | {dim.name: dim.size().hint for dim in row}
    if usual != hints(captured.graph):
        drawn, _ = captured_text(flags, values, usual)
        made = replace(made, tensors={**captured.tensors, **drawn.tensors}, reference=drawn.reference)
    return made


def tell_lengths(captured: Capture) -> None:
    """What a search takes lengths for that are known at a call."""
    for size in sizes_in(captured.graph).values():
        print_remark(f"`{size.name}` is {range_of(size)}; times are those of {size.hint}")
