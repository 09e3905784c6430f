"""Facts about numbers and lists."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...ir import sizes
from ...ir.expr import Undecided, multiple_of
from ...ir.sizes import hinted, lowest
from ..language.facts import fact

MOST = 1 << 20
SUBSETS = 1 << 16  # all of a list of 16


@fact("size([any]) -> int")
def size(site: Any, items: Any) -> int:
    """The number of elements of a list."""
    return len(items)


@fact("max(any*) -> any")
def greatest(site: Any, *values: Any) -> Any:
    """The greatest of some numbers, or of a list; 0 for an empty list, which no domain contains."""
    return _extreme(max, values)


@fact("min(any*) -> any")
def least(site: Any, *values: Any) -> Any:
    """The least of some numbers, or of a list; 0 for an empty list."""
    return _extreme(min, values)


def _extreme(pick: Any, values: Any) -> Any:
    listed = values[0] if len(values) == 1 and values[0].__class__ is tuple else values
    try:
        return pick(listed, default=0)
    except Undecided:
        return pick(listed, key=hinted)


@fact("ceildiv(int, int) -> int")
def ceildiv(site: Any, a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


@fact("lcm(int, int) -> int")
def lcm(site: Any, a: int, b: int) -> int:
    """The least common multiple of two numbers."""
    return math.lcm(a, b)


@fact("highest(int) -> int")
def highest(site: Any, n: int) -> int:
    """The greatest number that a size can be; a number as it is."""
    return sizes.highest(n)  # type: ignore[no-any-return]


@fact("at_hint(int) -> int")
def at_hint(site: Any, n: int) -> int:
    """A size at its hint; a number as it is. For what is weighed, never for what is legal."""
    return hinted(n)  # type: ignore[no-any-return]


@fact("compiled(int) -> bool")
def compiled(site: Any, n: int) -> bool:
    """Whether a number is known when the kernel is compiled; a size is known at its launch."""
    return n.__class__ is int


@fact("divisors(int) -> [int]")
def divisors(site: Any, n: int) -> tuple[int, ...]:
    """The divisors of n, ascending; of a size those that divide all it can be."""
    n = n if n.__class__ is int else multiple_of(n)
    small = [d for d in range(1, math.isqrt(max(n, 0)) + 1) if n % d == 0]
    return tuple(dict.fromkeys((*small, *(n // d for d in reversed(small)))))


@fact("pow2(int, int) -> [int]")
def pow2(site: Any, low: int, high: int) -> tuple[int, ...]:
    """The powers of two from low to high, both included; of sizes those that are, whatever they are."""
    low, high = sizes.highest(low), lowest(high)
    return tuple(1 << n for n in range(MOST.bit_length()) if low <= 1 << n <= high)


@fact("pow2floor(int) -> int")
def pow2floor(site: Any, n: int) -> int:
    """The greatest power of two that is at most n."""
    known: int = hinted(n)
    return 1 << max(known, 1).bit_length() - 1


@fact("pow2ceil(int) -> int")
def pow2ceil(site: Any, n: int) -> int:
    """The least power of two that is at least n."""
    known: int = hinted(n)
    return 1 << (max(known, 1) - 1).bit_length()


@fact("product([int]) -> int")
def product(site: Any, values: Any) -> int:
    """The product of a list."""
    return math.prod(values)


@fact("subsets([any]) -> [any]")
def subsets(site: Any, items: Any) -> tuple[Any, ...]:
    """The non-empty subsets of a list, the largest first; of a long list the first SUBSETS of them."""
    found = (c for n in range(len(items), 0, -1) for c in itertools.combinations(items, n))
    return tuple(itertools.islice(found, SUBSETS))
