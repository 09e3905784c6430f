"""Syntax tree to shapes, and to statements. The schema of a node class says how each field reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .. import expr as e, kernel as kernel_ir, loop, tile
from ..atoms import ATOMS
from ..diagnostic import DplcError, did_you_mean
from ..functions import DTYPES, FUNCTIONS
from ..kernel import Element
from ..loop import LOOP_ROLES
from ..monoid_texts import NAMES as MONOIDS
from ..names import sort_word, with_article
from ..node import Field, Node, immutable
from ..program import Param, Stmt
from ..tile import AXIS_ROLES, VIAS
from .parse import arithmetic, extent
from .syntax import (
    AccumulateInto,
    Apply,
    Assign,
    AxisItem,
    Comprehension,
    ForLoop,
    Group,
    IfBlock,
    Keyword,
    LoadOf,
    Member,
    NameOf,
    Nodes,
    ParamItem,
    PassStatement,
    Statement,
    Subscript,
    Syntax,
    Text,
)

ROLES = (*AXIS_ROLES, *LOOP_ROLES)
CLOSED: dict[str, tuple[str, ...]] = {
    "Role": ROLES,
    "Via": VIAS,
    "Fn": tuple(FUNCTIONS),
    "MonoidName": MONOIDS,
    "AtomName": tuple(ATOMS),
    "Dtype": tuple(DTYPES),
}
NUMBERS: dict[str, Any] = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
CONSTANTS = {"none": None, **NUMBERS}


NEW_STATEMENT = "`dplc rules nodes` lists them; a new one is a class in ir/tile.py, listed in its STATEMENTS"
# Statements that are written `Op(..)`, of Tile IR and Kernel IR; nodes inside of a field that are written `Node(..)`.
_WRITTEN: tuple[type[Stmt], ...] = (*tile.STATEMENTS, loop.Scale, loop.Carry, *kernel_ir.STATEMENTS)
STATEMENT_CLASSES = {cls.__name__: cls for cls in _WRITTEN}
VALUE_CLASSES: dict[str, type[Node]] = {cls.__name__: cls for cls in kernel_ir.VALUES}


def read_params(items: Nodes) -> tuple[Param, ...]:
    out = []
    for item in items:
        if not isinstance(item, ParamItem):
            raise DplcError("`..` stands in patterns only", item)
        _check_closed("Dtype", item.type.dtype, item.type)
        out.append(Param(item.name, item.type.dtype, read_extents(item.type.dims)))
    return tuple(out)


def read_extents(dims: Nodes) -> tuple[Any, ...]:
    """Read the extents of a type. Raises DplcError for anything else."""
    return tuple(extent(dim, read_expr(dim)) for dim in dims)


@functools.cache
def owners() -> dict[str, type[Node]]:
    """Return the statements that a rule can capture, by name: the ops, and those of Loop IR."""
    plain = (loop.For, loop.If, loop.Load, loop.Let, loop.Accumulate, loop.Merge, loop.Store)
    return {**{cls.__name__: cls for cls in plain}, **STATEMENT_CLASSES}


# Shapes: the fields that the text of a statement or an axis mentions, in programs and in patterns.


@immutable
class Shape:
    """Fields of a statement as the text mentions them, by field name.

    A list-sorted field holds a tuple of items or one expression.
    """

    cls: type[Node]
    fields: dict[str, Any]
    place: Syntax

    @property
    def body(self) -> Nodes | None:
        return self.fields.get("body")


def named(text: str, place: Syntax) -> NameOf:
    """Return a name that the grammar keeps as bare text as an expression."""
    return NameOf(place.span, text)


def _for(node: Any) -> Shape:
    fields = {"var": named(node.var, node), "start": node.start, "stop": node.stop, "body": node.body}
    for attribute in node.attributes:
        if isinstance(attribute, NameOf):
            fields["role"] = attribute
        elif isinstance(attribute, Keyword) and attribute.name == "unroll":
            fields["unroll"] = attribute.value
        else:
            given = getattr(attribute, "name", "this")
            raise DplcError(f"a loop has no attribute `{given}`", attribute, did_you_mean(given, ("unroll",)))
    if node.step is not None:
        fields["step"] = node.step
    return Shape(loop.For, fields, node)


def _if(node: Any) -> Shape:
    return Shape(loop.If, {"cond": node.condition, "body": node.body}, node)


def _accumulate(node: Any) -> Shape:
    value = node.value
    merged = _merge_fields(node)
    if merged is not None:
        return Shape(loop.Merge, {"accs": merged[0], "fn": named(merged[1], value), "vals": merged[2]}, node)
    if not isinstance(value, Apply) or len(value.items) != 2 or not _alike(value.items[0], node.target):
        raise DplcError("an accumulation reads `acc <- fn(acc, value)`", node)
    return Shape(loop.Accumulate, {"acc": node.target, "fn": named(value.fn, value), "val": value.items[1]}, node)


def _alike(a: Syntax, b: Syntax) -> bool:
    if isinstance(a, NameOf) and isinstance(b, NameOf):
        return a.text == b.text
    if isinstance(a, Member) and isinstance(b, Member):
        return a.field == b.field and _alike(a.base, b.base)
    return False


def _merge_fields(stmt: AccumulateInto) -> tuple[Nodes, str, Nodes] | None:
    """Return accumulators, monoid and operands of `(m, s) <- online((m, s), (x, v))`, or None without tuples."""
    target, value = stmt.target, stmt.value
    if not isinstance(target, Group):
        return None
    names = [*map(_name, target.items)]
    match value:
        case Apply(fn=monoid, items=(Group(items=same), Group(items=given))) if [*map(_name, same)] == names:
            return target.items, monoid, given
    raise DplcError("a tuple accumulates as `(m, s) <- monoid((m, s), (x, v))`", stmt)


def _assign(node: Any) -> Shape:
    target, value = node.target, node.value
    if isinstance(target, Subscript):
        return Shape(loop.Store, {"buf": target.base, "idx": target.items, "val": value}, node)
    if isinstance(value, LoadOf):
        return Shape(loop.Load, {"dst": target, **load_fields(value)}, node)
    if isinstance(value, Apply) and (value.fn in STATEMENT_CLASSES or value.fn[:1].isupper()):
        return _with_body(node, value, {"dst": target})
    return Shape(loop.Let, {"dst": target, "val": value}, node)


def load_fields(node: LoadOf) -> dict[str, Any]:
    """Return buf and idx, and the guard if there is one. Raises DplcError if the node is not `load buffer[index]`."""
    if not isinstance(node.access, Subscript):
        raise DplcError("a load reads `load buffer[index]`", node)
    fields: dict[str, Any] = {"buf": node.access.base, "idx": node.access.items}
    if node.condition is not None:
        fields |= {"when": node.condition, "other": node.other}
    return fields


def _statement(node: Any) -> Shape:
    if not isinstance(node.call, Apply):
        raise DplcError("this is not a statement", node)
    return _with_body(node, node.call, {})


def _with_body(node: Any, call: Apply, given: dict[str, Any]) -> Shape:
    """Return the shape of an op, with the value that it defines and its block."""
    shape = op_shape(call, owners())
    fields = {**given, **shape.fields} | ({} if node.body is None else {"body": node.body})
    for field, what in (("dst", "defines no value"), ("body", "has no block")):
        if field in fields and field not in shape.cls.by_name:
            raise DplcError(f"`{call.fn}` {what}", node)
    return Shape(shape.cls, fields, node)


def op_shape(call: Apply, among: Mapping[str, type[Node]]) -> Shape:
    """Return the shape of `Op(positional.., field=value)` by the schema of Op."""
    if call.fn not in among:
        raise DplcError(f"unknown op `{call.fn}`", call, did_you_mean(call.fn, among) or NEW_STATEMENT)
    cls = among[call.fn]
    positional = list(getattr(cls, "positional", ()))
    first = positional[:1]
    fields: dict[str, Any] = {}
    loose: list[Syntax] = []
    for item in call.items:
        if isinstance(item, Keyword):
            name, value = item.name, item.value
            if name not in cls.by_name or name in ("dst", "body"):
                raise DplcError(
                    f"`{call.fn}` has no field `{name}`",
                    item,
                    did_you_mean(name, [f.name for f in cls.fields if f.name not in ("dst", "body")]),
                )
        elif positional and cls.by_name[positional[0]].many:
            loose.append(item)
            continue
        elif positional:
            name, value = positional.pop(0), item
        else:
            raise DplcError(f"too many positional arguments for `{call.fn}`", item)
        if name in fields:
            raise DplcError(f"`{call.fn}` has `{name}` twice", item)
        fields[name] = listed(cls.by_name[name], value)
    if loose or (positional[:1] == first and first and cls.by_name[first[0]].many):
        if loose and positional[0] in fields:
            raise DplcError(f"`{call.fn}` has `{positional[0]}` twice", loose[0])
        fields.setdefault(positional[0], tuple(loose))
    return Shape(cls, fields, call)


def listed(field: Field, value: Syntax) -> Any:
    """Return the items of a list-sorted field. A single name is returned as it is, because it may be the whole list."""
    if not field.many or isinstance(value, NameOf | Comprehension | Member | Subscript):
        return value
    if isinstance(value, Group) and value.bracket in "([":
        return value.items
    return (value,) if not isinstance(value, Apply) or value.fn in VALUE_CLASSES else value


def axis_shape(node: Any) -> Shape:
    fields = {"name": named(node.name, node), "extent": node.extent}
    if node.role is not None:
        fields["role"] = named(node.role, node)
    if node.dim is not None:
        fields["dim"] = node.dim
    if node.stride is not None:
        fields["stride"] = node.stride
    return Shape(e.Axis, fields, node)


READERS: dict[type, Callable[[Any], Shape]] = {
    ForLoop: _for, IfBlock: _if, AccumulateInto: _accumulate, Assign: _assign, Statement: _statement,
}  # fmt: skip


# Nodes of programs, by the sorts of their fields.


def read_block(block: Nodes) -> tuple[Stmt, ...]:
    return tuple(read_statement(stmt) for stmt in block if not isinstance(stmt, PassStatement))


def read_statement(stmt: Syntax) -> Stmt:
    """Read one statement of Loop, Tile or Kernel IR."""
    if type(stmt) not in READERS:
        raise DplcError("this stands in patterns and templates only, or is not a statement", stmt)
    read: Stmt = _read(READERS[type(stmt)](stmt))
    return read


def _read(shape: Shape) -> Any:
    cls: Any = shape.cls
    fields = {name: _read_field(cls.by_name[name], value) for name, value in shape.fields.items()}
    for field in cls.fields:
        if field.required and field.name not in fields:
            raise DplcError(f"`{cls.__name__}` needs the field `{field.name}`", shape.place)
    return cls(**fields)


def _read_field(field: Field, value: Any) -> Any:
    """Read one field. In a list-sorted field, a single value is a one-element list."""
    if field.sort == "Block":
        return read_block(value)
    if not field.many:
        return _read_one(field, value)
    items = value if isinstance(value, tuple) else value.items if isinstance(value, Group) else (value,)
    return tuple(_read_one(field, item) for item in items)


def _read_one(field: Field, value: Syntax) -> Any:
    sort = field.sort
    if sort == "Axis":
        if not isinstance(value, AxisItem):
            raise DplcError("an axis reads `name:extent[=ROLE][@dim [by stride]]`", value)
        extent(value.extent, read_expr(value.extent))
        return _read(axis_shape(value))
    if sort in CLOSED or sort == "Name":
        name = _name(value)
        if sort in CLOSED:
            _check_closed(sort, name, value)
        return name
    if sort in ("Int", "Num"):
        number = read_expr(value)
        if not (e.is_int(number) if sort == "Int" else number.__class__ in e.NUMBERS):
            raise DplcError(f"`{field.name}` is a {'whole ' if sort == 'Int' else ''}number", value)
        return number
    return value.value if isinstance(value, Text) and sort != "Expr" else read_expr(value)


def read_expr(value: Syntax) -> Any:
    """Read an index or scalar expression, in canonical form."""
    return arithmetic(value, _operand)


def _operand(value: Syntax) -> Any:
    if isinstance(value, NameOf):
        return CONSTANTS[value.text] if value.text in CONSTANTS else e.Var(value.text)
    if isinstance(value, Apply):
        if value.fn in VALUE_CLASSES:
            return _read(op_shape(value, VALUE_CLASSES))
        if value.fn not in FUNCTIONS:
            raise DplcError(f"unknown function `{value.fn}`", value, did_you_mean(value.fn, FUNCTIONS))
        if len(value.items) != FUNCTIONS[value.fn].arity:
            raise DplcError(f"`{value.fn}` takes {FUNCTIONS[value.fn].arity} arguments, not {len(value.items)}", value)
        return e.Call(value.fn, tuple(map(read_expr, value.items)))
    if isinstance(value, Subscript):
        return Element(_name(value.base), tuple(map(read_expr, value.items)))
    raise DplcError("this is not an index or scalar expression of a program", value)


def _name(value: Syntax) -> str:
    if isinstance(value, NameOf):
        return value.text
    raise DplcError("a name is expected here", value)


def _check_closed(sort: str, name: str, place: Syntax) -> None:
    if name not in CLOSED[sort]:
        raise DplcError(f"`{name}` is not {with_article(sort_word(sort))}", place, did_you_mean(name, CLOSED[sort]))
