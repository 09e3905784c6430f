"""A part of a size's range: where a program is one program, and a rule applies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .diagnostic import DplcError, Span
from .expr import COMPARISONS, Binary, Size
from .node import replace
from .sizes import bound_to, decide_sizes, has_sizes, sizes_in
from .substitute import with_sizes

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


def ranges_around_hints(op: str, a: Any, b: Any) -> tuple[Size, ...] | None:
    """Of a comparison of several sizes: ranges around their hints for all of which it holds, each as wide as those of
    the sizes before it leave it. None where it does not hold at the hints.
    """
    whole = sizes_in((a, b))
    found = {name: replace(size, low=size.hint, high=size.hint) for name, size in whole.items()}

    def holds(size: Size) -> bool:
        there = {**found, size.name: size}
        return decide_sizes(op, with_sizes(a, there), with_sizes(b, there)) is True

    if not all(map(holds, found.values())):
        return None
    for name, size in whole.items():
        found[name] = _widest(size, found[name], "low", holds)
        found[name] = _widest(size, found[name], "high", holds)
    return tuple(found.values())


def _widest(whole: Size, part: Size, end: str, holds: Callable[[Size], bool]) -> Size:
    """A part of a size's range with an end as far from the hint as something holds."""
    way = whole.multiple if end == "high" else -whole.multiple

    def farther(n: int) -> Size:
        return replace(part, **{end: getattr(part, end) + n * way})  # type: ignore[no-any-return]

    return farther(_most((getattr(whole, end) - getattr(part, end)) // way, lambda n: holds(farther(n))))


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """The greatest number up to a limit for which something holds that holds for 0, and for no number beyond one for
    which it does not."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def where_decided(what: str, conditions: Iterable[Any], span: Span | None, notes: Sequence[str]) -> Narrower | None:
    """The error for what is not possible for every length, but where one of some undecided conditions is decided."""
    part = next(filter(None, map(part_that_decides, conditions)), None)
    if part is None:
        return None
    hint = f'narrow it: Dim("{part.name}", {part.low}, {part.high}), where this is decided'
    return Narrower(part, f"{what} for every `{part.name}` of the range", span, hint, notes)
