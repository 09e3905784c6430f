"""What a program asks of several lengths at once: `s*t > 50` of a branch, of a slice that may end before it does.

torch.export takes the way that its example takes, and says of lengths alone whether that holds for their ranges. Of
several it keeps a guard, which has to hold for all lengths that a program is compiled for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from ...ir.diagnostic import DplcError, Span
from ...ir.expr import Binary
from ...ir.ranges import ranges_around_hints, where_decided
from ...ir.sizes import decide_sizes, sizes_in
from ...ir.text.print_statements import print_expr
from .sizes import Symbols, declaration, range_of

Asked = tuple[Any, Span | None]  # torch's comparison, and where the user's program made it
_WORDS = {
    "Equality": "==", "Unequality": "!=", "GreaterThan": ">=", "LessThan": "<=", "StrictGreaterThan": ">",
    "StrictLessThan": "<",
}  # fmt: skip
OTHERS = "other lengths take another way through the program"


def check_asked(symbols: Symbols, asked: Iterable[Asked]) -> None:
    """Raises DplcError for what does not hold for every length of the ranges, or compares no lengths."""
    for condition, span in asked:
        for clause in _parts(sympy.And, sympy.to_cnf(condition)):
            _check(tuple(_comparison(symbols, part, span) for part in _parts(sympy.Or, clause)), span)


def _check(either: tuple[Any, ...], span: Span | None) -> None:
    """Raises DplcError unless one of some comparisons, each True where it is of two that are equal, always holds."""
    if any(c is True or decide_sizes(c.op, c.a, c.b) for c in either):
        return
    ranges = ", ".join(f"{size.name} of {range_of(size)}" for size in sizes_in(either).values())
    said = " or ".join(f"{print_expr(c.a)} {c.op} {print_expr(c.b)}" for c in either)
    what = f"this way through the program is that of lengths with {said}, which does not hold for every {ranges}"
    alone = either if len(either) == 1 else ()
    raise where_decided(what, alone, span, ()) or DplcError(what, span, hint=_hint(alone))


def _hint(alone: tuple[Any, ...] = ()) -> str:
    """Ranges for which a comparison holds, of several the widest around the hints."""
    remaining = ranges_around_hints(alone[0].op, alone[0].a, alone[0].b) if alone else None
    if remaining is None:
        return f"narrow the ranges until it always holds; {OTHERS}"
    return f"narrow them, as {', '.join(map(declaration, remaining))}; {OTHERS}"


def _parts(kind: Any, condition: Any) -> tuple[Any, ...]:
    return condition.args if isinstance(condition, kind) else (condition,)  # type: ignore[no-any-return]


def _comparison(symbols: Symbols, part: Any, span: Span | None) -> Any:
    op = _WORDS.get(type(part).__name__)
    if op is None:
        raise DplcError(f"the program asks of several lengths `{part}`, which is no comparison", span, hint=_hint())
    return part.lhs == part.rhs or Binary(op, symbols.extent_of(part.lhs), symbols.extent_of(part.rhs))
