"""A part of a size's range: where a program is one program, and a rule applies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .diagnostic import DplcError, Span
from .expr import COMPARISONS, Binary, Size
from .node import replace
from .sizes import bound_to, has_sizes, sizes_in

FARTHEST = 1 << 16  # so many lengths on either side of the hint are looked at


class Narrower(DplcError):
    """A program is another one outside of a part of the range: size is what remains of it."""

    def __init__(self, size: Size, what: str, span: Span | None, hint: str, notes: Sequence[str] = ()):
        super().__init__(what, span, tuple(notes), hint=hint)
        self.size = size


def around_hint(size: Size, holds: Callable[[int], bool]) -> Size | None:
    """The longest run of lengths around the hint, or else at the end of the range, for which something holds.

    The size itself if it holds for all of them; None where it holds at neither place.
    """
    step = size.multiple
    least, most = -(-size.low // step) * step, size.high // step * step
    start = next((n for n in (size.hint, most) if holds(n)), None)
    if start is None:
        return None
    low = high = start
    for _ in range(FARTHEST):
        lower, higher = low > least and holds(low - step), high < most and holds(high + step)
        if not (lower or higher):
            break
        low, high = low - step * lower, high + step * higher
    return size if (low, high) == (least, most) else replace(size, low=low, high=high, hint=start)  # type: ignore[no-any-return]


def part_that_decides(condition: Any) -> Size | None:
    """Of a comparison of one size that is undecided: the part of the range around the hint for which it is not.

    None where that is less than half of it: another program would be needed for the next number.
    """
    if condition.__class__ is not Binary or condition.op not in COMPARISONS or not has_sizes(condition):
        return None
    (size, *others) = sizes_in(condition).values()
    if others:
        return None

    def at(n: int) -> bool:
        binding = {size.name: n}
        return bool(COMPARISONS[condition.op](bound_to(condition.a, binding), bound_to(condition.b, binding)))

    wanted = at(size.hint)
    part = around_hint(size, lambda n: at(n) == wanted)
    wide = part is not None and 2 * (part.high - part.low) >= size.high - size.low
    return part if wide and part is not size else None


def where_decided(what: str, conditions: Iterable[Any], span: Span | None, notes: Sequence[str]) -> Narrower | None:
    """The error for what is not possible for every length, but where one of some undecided conditions is decided."""
    part = next(filter(None, map(part_that_decides, conditions)), None)
    if part is None:
        return None
    hint = f'narrow it: Dim("{part.name}", {part.low}, {part.high}), where this is decided'
    return Narrower(part, f"{what} for every `{part.name}` of the range", span, hint, notes)
