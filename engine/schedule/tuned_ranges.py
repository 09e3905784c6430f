"""Parts of the ranges of a kernel's sizes for which a store has a schedule: what `dplc tune --row` and searches at one
length left there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...codegen.target import Target
from ...ir.expr import Size
from ...ir.program import Kernel
from ...ir.substitute import with_hints, with_sizes
from ..kernels.sharing import key_of_range, sizes_of
from ..language.rule import RuleSet
from ..store.entry import Entry
from ..store.family import written_extents
from ..store.protocol import key_of
from .recorded import StoredSchedules


@dataclass(frozen=True)
class TunedRange:
    """Where a schedule holds: {name of a size: its part, or a number}. gain: default seconds over those of it."""

    sizes: Mapping[str, Size | int]
    gain: float


def tuned_ranges(schedules: StoredSchedules, kernel: Kernel, rules: RuleSet, target: Target) -> Iterator[TunedRange]:
    """The parts of a kernel's ranges, and lengths in them, whose schedules are faster than the default order.

    Such an entry is of this very kernel with narrower sizes, and holds under the rules in force.
    """
    if not sizes_of(kernel):
        return
    for form in (kernel, with_hints(kernel)):  # a family has numbers for numbers, not for sizes
        key = key_of(form, target, rules)
        family = schedules.store.select("family = ? AND device = ? AND arch = ?", (key.family, key.device, key.arch))
        best = dict[str, Entry]()
        for entry in schedules.store.valid(family, key):
            best.setdefault(entry.kernel, entry)
        for entry in best.values():
            sizes = _part(kernel, entry)
            if sizes is None or entry.seconds >= entry.default_seconds:
                continue
            if key_of_range(with_sizes(kernel, sizes)) == entry.kernel:
                yield TunedRange(sizes, entry.default_seconds / entry.seconds)


def _part(kernel: Kernel, entry: Entry) -> dict[str, Size | int] | None:
    """The sizes as an entry has them; None where they are not a part of a kernel's."""
    sizes = sizes_of(kernel)
    usual = _lengths(kernel, sizes, entry.extents)
    if usual is None or len(entry.ranges) not in (0, len(sizes)):
        return None
    if not entry.ranges:
        return {**usual} if all(_admits(size, usual[size.name]) for size in sizes) else None
    found = dict[str, Size | int]()
    for size, (low, high, multiple) in zip(sizes, entry.ranges, strict=True):
        hint = usual[size.name]
        if not size.low <= low <= hint <= high <= size.high or multiple % size.multiple or hint % multiple:
            return None
        found[size.name] = Size(size.name, low, high, multiple, hint)
    whole = all(entry.ranges[n] == (size.low, size.high, size.multiple) for n, size in enumerate(sizes))
    return None if whole else found


def _lengths(kernel: Kernel, sizes: Sequence[Size], extents: Sequence[int]) -> dict[str, int] | None:
    """The numbers of sizes at which a kernel has such extents, as dimensions or loops that are sizes tell them."""
    written = written_extents(kernel)
    if len(written) != len(extents):
        return None
    found = {size.name: extent for size, extent in zip(written, extents, strict=True) if isinstance(size, Size)}
    return found if len(found) == len(sizes) else None


def _admits(size: Size, n: int) -> bool:
    return size.low <= n <= size.high and not n % size.multiple
