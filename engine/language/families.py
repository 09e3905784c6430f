"""Families of rules, written out: one rule for each row of names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError
from ...ir.text import syntax as s
from .cache import Later
from .positions import rebuilt


def rename(node: Any, names: dict[str, Any]) -> Any:
    """A syntax tree with names replaced: by other names everywhere, by values where a name stands as an expression."""
    if isinstance(node, s.NameOf) and node.text in names:
        value = names[node.text]
        return (
            dataclasses.replace(node, text=value)
            if isinstance(value, str)
            else dataclasses.replace(value, span=node.span)
        )
    if isinstance(node, str):
        return names[node] if isinstance(names.get(node), str) else node
    return node if isinstance(node, s.Text) else rebuilt(node, lambda part: rename(part, names))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _cells(row: s.Syntax) -> Sequence[s.Syntax]:
    return row.items if isinstance(row, s.Group) else (row,)


def _word(cell: s.Syntax) -> str:
    return cell.text if isinstance(cell, s.NameOf) else str(getattr(cell, "value", "row"))


def _telling(declared: s.Rule) -> int:
    """How many values of a row, from the first, tell the members apart: their names hold these."""
    rows = [tuple(map(_word, _cells(row))) for row in declared.rows]
    most = max(map(len, rows))
    return next((n for n in range(1, most + 1) if len({row[:n] for row in rows}) == len(rows)), 1)


def members(declared: s.Rule) -> Iterator[tuple[s.Rule, str | None]]:
    """A rule, or the members of a family: `rule activation(T, fn) for (Exp, exp), (Tanh, tanh) on torch`."""
    if not declared.rows:
        yield declared, None
        return
    told = _telling(declared)
    for row in declared.rows:
        cells = _cells(row)
        if len(cells) != len(declared.parameters):
            raise DplcError(
                f"family `{declared.name}` has {len(declared.parameters)} parameters, this row has {len(cells)} values",
                row.span,
            )
        names: dict[str, Any] = {
            p.name: cell.text if isinstance(cell, s.NameOf) else cell
            for p, cell in zip(declared.parameters, cells, strict=True)
        }
        words = (_snake(_word(cell)) for cell in cells[:told])
        member = dataclasses.replace(
            declared, name="_".join((declared.name, *words)), parameters=(), rows=(),
            clauses=rename(declared.clauses, names), examples=_examples_of(declared.examples, names),
            written=_renamed(declared.written, names), covers=rename(declared.covers, names),
        )  # fmt: skip
        yield member, declared.name


S = TypeVar("S", bound=s.Syntax)


def _renamed(nodes: Sequence[S], names: dict[str, Any]) -> Sequence[S]:
    """Not before they are read, if they were not read yet."""
    if isinstance(nodes, Later):
        return Later(lambda: rename(tuple(nodes), names))
    return rename(tuple(nodes), names)  # type: ignore[no-any-return]


def _examples_of(examples: Sequence[s.Example], names: dict[str, Any]) -> Sequence[s.Example]:
    """The examples of a member; not before they are read, if they were not read yet."""
    if isinstance(examples, Later):
        return Later(lambda: _of_member(examples, names))
    return _of_member(examples, names)


def _of_member(examples: Sequence[s.Example], names: dict[str, Any]) -> tuple[s.Example, ...]:
    """Examples with a member's names in them. One that says `(Op=Conv2d)` is of the member whose Op that is."""
    own = []
    for example in examples:
        chosen = {item.name: item.value for item in example.arguments if item.name in names}
        if all(_constant(value) == _constant(names[name]) for name, value in chosen.items()):
            rest = tuple(item for item in example.arguments if item.name not in chosen)
            own.append(rename(dataclasses.replace(example, arguments=rest), names))
    return tuple(own)


def _constant(value: Any) -> Any:
    return getattr(value, "text", getattr(value, "value", value))
