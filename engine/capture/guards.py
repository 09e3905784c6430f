"""What torch.export says of lengths for which a program is another one, as the part of a range where it is this one.

Its texts hold guards, `((2 + L['tensors'][0].size()[1]) // 3) != 1`: comparisons of a length, which are calculated here
for the numbers around the hint.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...ir.expr import Size
from ...ir.ranges import around_hint

_LINE = re.compile(
    r"Not all values of (?P<name>\w+) = (?P<place>\S+) in the specified range .*? "
    r"satisfy the generated guard (?P<guard>.*)\.$",
    re.MULTILINE,
)
_SOLVED = re.compile(
    r"Expected op to be '==', got \S+ for (?:(?P<least>\d+)/(?P<of>\d+) (?P<from><=?) (?P<above>\w+)"
    r"|(?P<below>\w+) (?P<to><=?) (?P<most>\d+)/(?P<per>\d+))$"
)
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip

Guard = Callable[[int], bool]


def narrowed_by(text: str, sizes: dict[str, Size]) -> Size | None:
    """The longest run of lengths around a hint for which the guards of a message hold; None if it tells none.

    text: the message; sizes: what was declared, by name.
    """
    found = [(line["name"], _guard(line["guard"], line["place"])) for line in _LINE.finditer(text)]
    for name in dict.fromkeys(name for name, _ in found):
        size = sizes.get(name)
        guards = [guard for own, guard in found if own == name]
        if size is None or None in guards:
            continue
        part = around_hint(size, lambda n, guards=guards: all(guard(n) for guard in guards))  # type: ignore[misc]
        if part is not None and part is not size:
            return part
    return None


def restated(text: str, lengths: Mapping[str, tuple[str, int]]) -> str:
    """What torch's solver says of an end that is no whole number (`got <= for 82/9 <= s`), as a guard is told.

    lengths: {torch's name of a size: (how torch writes it, what it is a multiple of)}. Any other text is itself.
    """
    found = _SOLVED.search(text)
    name: str = "" if found is None else found["above"] or found["below"]
    if found is None or name not in lengths:
        return text
    place, multiple = lengths[name]
    if found["above"]:
        guard = f"{int(found['least']) * multiple} {found['from']} {found['of']}*{place}"
    else:
        guard = f"{found['per']}*{place} {found['to']} {int(found['most']) * multiple}"
    size = name.lstrip("_")
    where = f"{size} = {place} in the specified range of {size}"
    return f"Constraints violated ({size})!\n  - Not all values of {where} satisfy the generated guard {guard}.\n"


def guards_of(text: str) -> Iterator[tuple[str, str]]:
    """(name of a size, the guard on it) of a message, for people."""
    for line in _LINE.finditer(text):
        yield line["name"], line["guard"].replace(line["place"], line["name"])


def _guard(text: str, place: str) -> Guard | None:
    """A comparison of one length; None where it holds more than arithmetic of whole numbers."""
    try:
        tree = ast.parse(text.replace(place, "n"), mode="eval").body
    except SyntaxError:
        return None
    known = (
        ast.BinOp, ast.UnaryOp, ast.USub, ast.Compare, ast.BoolOp, ast.Name, ast.Constant, ast.operator, ast.cmpop,
        ast.boolop, ast.Load,
    )  # fmt: skip
    parts = list(ast.walk(tree))
    plain = all(isinstance(part, known) for part in parts)
    names = all(part.id == "n" for part in parts if isinstance(part, ast.Name))
    operations = [part for part in parts if isinstance(part, (ast.operator, ast.cmpop))]
    if not (plain and names and all(type(each) in _OPERATIONS for each in operations)):
        return None
    return lambda n: bool(_value(tree, n))


def _value(tree: Any, n: int) -> Any:
    if isinstance(tree, ast.Name):
        return n
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.UnaryOp):
        return -_value(tree.operand, n)
    if isinstance(tree, ast.BinOp):
        return _OPERATIONS[type(tree.op)](_value(tree.left, n), _value(tree.right, n))
    if isinstance(tree, ast.BoolOp):
        parts = (_value(part, n) for part in tree.values)
        return all(parts) if isinstance(tree.op, ast.And) else any(parts)
    values = [_value(part, n) for part in (tree.left, *tree.comparators)]
    pairs = zip(tree.ops, values, values[1:], strict=False)
    return all(_OPERATIONS[type(op)](a, b) for op, a, b in pairs)
