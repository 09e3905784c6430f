"""What a program asks of several lengths at once: `s*t > 50` of a branch, of a slice that may end before it does.

torch.export takes the way that its example takes, and says of lengths alone whether that holds for their ranges. Of
several it keeps a guard, which has to hold for all lengths that a program is compiled for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.diagnostic import DplcError, Span
from ...ir.expr import Binary
from ...ir.narrower import ranges_around_hints, where_decided
from ...ir.sizes import decide_sizes, sizes_in
from ...ir.text.print_statements import print_expr
from .sizes import Symbols, declaration, range_of

Asked = tuple[Any, Span | None]  # torch's comparison, and where the user's program made it
_WORDS = {
    "Equality": "==", "Unequality": "!=", "GreaterThan": ">=", "LessThan": "<=", "StrictGreaterThan": ">",
    "StrictLessThan": "<",
}  # fmt: skip
OTHERS = "other lengths take another way through the program"


def settle(symbols: Symbols, asked: Iterable[Asked]) -> None:
    """Raises DplcError for what does not hold for every length of the ranges."""
    for condition, span in asked:
        op = _WORDS.get(type(condition).__name__)
        if op is None or condition.lhs == condition.rhs:
            continue
        a, b = (symbols.extent_of(side) for side in (condition.lhs, condition.rhs))
        if decide_sizes(op, a, b):
            continue
        ranges = ", ".join(f"{size.name} of {range_of(size)}" for size in sizes_in((a, b)).values())
        said = f"{print_expr(a)} {op} {print_expr(b)}"
        what = f"this way through the program is that of lengths with {said}, which does not hold for every {ranges}"
        raise where_decided(what, [Binary(op, a, b)], span, ()) or DplcError(what, span, hint=_hint(op, a, b))


def _hint(op: str, a: Any, b: Any) -> str:
    """Ranges for which it holds, of several the widest around the hints."""
    remaining = ranges_around_hints(op, a, b)
    if remaining is None:
        return f"narrow the ranges until it always holds; {OTHERS}"
    return f"narrow them, as {', '.join(map(declaration, remaining))}; {OTHERS}"
