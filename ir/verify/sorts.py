"""Whether every field of a program holds what its sort promises. For programs of other authors.

The reader is sort-directed, but lax where a pattern may stand: an expression may be a text there, a name a number. What
passes here is made of names, numbers and nodes only, so that whatever is printed of it is made of these too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..expr import COMPARISONS, Axis, Binary, Call, Not, Size, Sum, Var
from ..functions import DTYPES, FUNCTIONS
from ..kernel import Address, Element
from ..names import sort_word
from ..node import CLASSES, Field
from ..program import Param, Stmt, TensorType

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LARGEST = 2**63  # what an index may reach
DEEPEST = 200  # expressions and blocks in one another
NODES: dict[str, type] = {"Address": Address, "Axis": Axis, "Param": Param, "TensorType": TensorType, "Block": Stmt}
EXPRESSIONS = (Var, Axis, Size, Sum, Binary, Not, Call, Element)
OPERATORS = frozenset((*COMPARISONS, "*", "//", "%", "^", "and", "or"))


def sort_problems(unit: Any) -> tuple[str, ...]:
    """What is not of its sort in a unit, a sentence each; the first few are enough."""
    found = []
    for problem in _of_node(unit, 0):
        found.append(problem)
        if len(found) == 5:
            break
    return tuple(found)


def _of_node(node: Any, depth: int) -> Iterator[str]:
    kind = type(node)
    if depth > DEEPEST:
        yield f"more than {DEEPEST} levels in one another"
        return
    if kind is Sum:
        yield from _of_sum(node, depth)
        return
    if kind is Call and (node.fn not in FUNCTIONS or FUNCTIONS[node.fn].arity != len(node.args)):
        yield f"there is no function `{node.fn}` of {len(node.args)} arguments"
    if kind is Binary and node.op not in OPERATORS:
        yield f"there is no operator `{node.op}`"
        return
    for field in kind.fields:
        value = getattr(node, field.name)
        where = f"`{field.name}` of {kind.__name__}"
        if not field.many:
            yield from _of_field(field, value, where, depth)
        elif value.__class__ is not tuple:
            yield f"{where} is no list"
        else:
            for item in value:
                yield from _of_field(field, item, where, depth)


def _of_sum(node: Sum, depth: int) -> Iterator[str]:
    for atom, factor in node.terms:
        if atom.__class__ not in EXPRESSIONS or not _is_int(factor):
            yield f"{atom!r} * {factor!r} is no term of a sum"
        else:
            yield from _of_node(atom, depth + 1)
    if not _is_int(node.constant):
        yield f"{node.constant!r} is no constant of a sum"


def _of_field(field: Field, value: Any, where: str, depth: int) -> Iterator[str]:
    """One value of a field, whose sort says what it may be."""
    sort = field.sort
    if value is None and (field.default is None or sort == "Role"):
        return
    if sort in ("Name", "Role", "Via", "MonoidName", "AtomName"):
        good = isinstance(value, str) and (NAME.fullmatch(value) is not None or (sort == "Name" and value in OPERATORS))
    elif sort == "Dtype":
        good = value in DTYPES
    elif sort == "Fn":
        good = value in FUNCTIONS
    elif sort == "Int":
        good = _is_int(value)
    elif sort in ("Expr", "Num", "Over"):
        good = value.__class__ in EXPRESSIONS if value.__class__ in CLASSES else _is_number(value)
        if sort == "Over" and value.__class__ is tuple:
            good = all(item.__class__ in EXPRESSIONS for item in value)
    elif sort in NODES:
        good = isinstance(value, NODES[sort])
    else:
        good = value.__class__ in CLASSES
    if not good:
        yield f"{where} is {str(value)[:40]!r}, which is no {sort_word(sort)}"
    elif value.__class__ in CLASSES:
        yield from _of_node(value, depth + 1)


def _is_int(value: Any) -> bool:
    return value.__class__ is int and abs(value) < LARGEST


def _is_number(value: Any) -> bool:
    return _is_int(value) or value.__class__ in (bool, float)
