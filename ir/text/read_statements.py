"""Syntax tree to statements. Sort-directed: the schema of a node class says how each field reads."""

from __future__ import annotations

from typing import Any

from .. import expr as e
from .. import kernel as kernel_ir
from .. import loop, tile
from ..atoms import ATOMS
from ..diagnostic import DplcError, did_you_mean
from ..functions import DTYPES, FUNCTIONS
from ..kernel import Element
from ..loop import LOOP_ROLES
from ..monoid_texts import NAMES as MONOIDS
from ..names import sort_word, with_article
from ..node import Field, Node
from ..program import Param, Stmt
from ..tile import AXIS_ROLES, VIAS
from . import syntax as s
from .parse import calculated, extent

ROLES = (*AXIS_ROLES, *LOOP_ROLES)
CLOSED: dict[str, tuple[str, ...]] = {
    "Role": ROLES,
    "Via": VIAS,
    "Fn": tuple(FUNCTIONS),
    "MonoidName": MONOIDS,
    "AtomName": tuple(ATOMS),
    "Dtype": tuple(DTYPES),
}
CONSTANTS: dict[str, Any] = {"none": None, "true": True, "false": False, "inf": float("inf"), "nan": float("nan")}


# Statements that are written `Op(..)`, of Tile IR and Kernel IR; nodes inside of a field that are written `Node(..)`.
_WRITTEN: tuple[type[Stmt], ...] = (*tile.STATEMENTS, loop.Scale, loop.Carry, *kernel_ir.STATEMENTS)
STATEMENT_CLASSES = {cls.__name__: cls for cls in _WRITTEN}
VALUE_CLASSES: dict[str, type[Node]] = {cls.__name__: cls for cls in kernel_ir.VALUES}


def read_params(items: tuple[s.Syntax, ...]) -> tuple[Param, ...]:
    out = []
    for item in items:
        if not isinstance(item, s.ParamItem):
            raise DplcError("`..` stands in patterns only", item.span)
        _check_closed("Dtype", item.type.dtype, item.type)
        out.append(Param(item.name, item.type.dtype, read_extents(item.type.dims)))
    return tuple(out)


def read_extents(dims: tuple[s.Syntax, ...]) -> tuple[Any, ...]:
    """The extents of a type. Raises DplcError for anything else."""
    return tuple(extent(dim, read_expr(dim)) for dim in dims)


def read_block(block: tuple[s.Syntax, ...]) -> tuple[Stmt, ...]:
    return tuple(read_statement(stmt) for stmt in block if not isinstance(stmt, s.PassStatement))


def read_statement(stmt: s.Syntax) -> Stmt:
    """One statement of Loop, Tile or Kernel IR."""
    if isinstance(stmt, s.ForLoop):
        return _read_for(stmt)
    if isinstance(stmt, s.IfBlock):
        return loop.If(read_expr(stmt.condition), read_block(stmt.body))
    if isinstance(stmt, s.AccumulateInto):
        return _read_accumulate(stmt)
    if isinstance(stmt, s.Assign):
        return _read_assign(stmt)
    if isinstance(stmt, s.Statement) and isinstance(stmt.call, s.Apply):
        return read_op(stmt.call, None, stmt.body)
    raise DplcError("this stands in patterns and templates only, or is not a statement", stmt.span)


def _read_for(stmt: s.ForLoop) -> loop.For:
    role, unroll = "serial", 1
    for attribute in stmt.attributes:
        if isinstance(attribute, s.NameOf):
            role = attribute.text
            _check_closed("Role", role, attribute)
        elif isinstance(attribute, s.Keyword) and attribute.name == "unroll":
            unroll = read_expr(attribute.value)
        else:
            raise DplcError("a loop has a role and `unroll=n` only", attribute.span)
    step = 1 if stmt.step is None else read_expr(stmt.step)
    return loop.For(stmt.var, read_expr(stmt.start), read_expr(stmt.stop), read_block(stmt.body), role, step, unroll)


def _read_accumulate(stmt: s.AccumulateInto) -> loop.Accumulate | loop.Merge:
    target, value = stmt.target, stmt.value
    merged = merge_fields(stmt)
    if merged is not None:
        _check_closed("MonoidName", merged[1], value)
        return loop.Merge(tuple(map(_name, merged[0])), merged[1], tuple(map(read_expr, merged[2])))
    form = isinstance(target, s.NameOf) and isinstance(value, s.Apply) and len(value.items) == 2
    if not form or not isinstance(value.items[0], s.NameOf) or value.items[0].text != target.text:  # type: ignore[attr-defined]
        raise DplcError("an accumulation reads `acc <- fn(acc, value)`", stmt.span)
    _check_closed("Fn", value.fn, value)  # type: ignore[attr-defined]
    return loop.Accumulate(target.text, value.fn, read_expr(value.items[1]))  # type: ignore[attr-defined]


def merge_fields(stmt: s.AccumulateInto) -> tuple[tuple[s.Syntax, ...], str, tuple[s.Syntax, ...]] | None:
    """The accumulators, the monoid and the operands of `(m, s) <- online((m, s), (x, v))`; None if it has no tuples."""
    target, value = stmt.target, stmt.value
    if not isinstance(target, s.Group):
        return None
    same, given = value.items if isinstance(value, s.Apply) and len(value.items) == 2 else (None, None)
    names = [_name(item) for item in target.items]
    if not isinstance(same, s.Group) or not isinstance(given, s.Group) or [_name(item) for item in same.items] != names:
        raise DplcError("a tuple accumulates as `(m, s) <- monoid((m, s), (x, v))`", stmt.span)
    return target.items, value.fn, given.items  # type: ignore[attr-defined]


def _read_assign(stmt: s.Assign) -> Stmt:
    target, value = stmt.target, stmt.value
    if isinstance(target, s.Subscript):
        return loop.Store(_name(target.base), tuple(map(read_expr, target.items)), read_expr(value))
    dst = _name(target)
    if isinstance(value, s.LoadOf):
        access = value.access
        if not isinstance(access, s.Subscript):
            raise DplcError("a load reads `load buffer[index]`", value.span)
        when = True if value.condition is None else read_expr(value.condition)
        other = 0.0 if value.other is None else read_expr(value.other)
        return loop.Load(dst, _name(access.base), tuple(map(read_expr, access.items)), when, other)
    if isinstance(value, s.Apply) and (value.fn in STATEMENT_CLASSES or value.fn[0].isupper()):
        return read_op(value, dst, stmt.body)
    return loop.Let(dst, read_expr(value))


def read_op(call: s.Apply, dst: str | None, body: tuple[s.Syntax, ...] | None) -> Stmt:
    """`[dst =] Op(positional.., field=value)[: block]` by the schema of Op."""
    if call.fn not in STATEMENT_CLASSES:
        raise DplcError(f"unknown op `{call.fn}`", call.span, (), did_you_mean(call.fn, STATEMENT_CLASSES))
    cls = STATEMENT_CLASSES[call.fn]
    values = read_fields(cls, call)
    if dst is not None:
        if "dst" not in cls.by_name:
            raise DplcError(f"`{call.fn}` gives no value", call.span)
        values["dst"] = dst
    if body is not None:
        if "body" not in cls.by_name:
            raise DplcError(f"`{call.fn}` has no block", call.span)
        values["body"] = read_block(body)
    statement: Stmt = construct(cls, values, call)
    return statement


def read_fields(cls: type[Node], call: s.Apply) -> dict[str, Any]:
    """The fields that a call mentions, read by their sorts."""
    positional = list(getattr(cls, "positional", ()))
    values: dict[str, Any] = {}
    loose: list[s.Syntax] = []
    for item in call.items:
        if isinstance(item, s.Keyword):
            field = cls.by_name.get(item.name)
            if field is None or item.name in ("dst", "body"):
                raise DplcError(
                    f"`{cls.__name__}` has no field `{item.name}`", item.span, (), did_you_mean(item.name, cls.by_name)
                )
            _once(cls, values, item.name, item)
            values[item.name] = read_field(field, item.value)
        elif positional and cls.by_name[positional[0]].many:
            if not loose:
                _once(cls, values, positional[0], item)
                values[positional[0]] = ()
            loose.append(item)
        elif positional:
            name = positional.pop(0)
            _once(cls, values, name, item)
            values[name] = read_field(cls.by_name[name], item)
        else:
            raise DplcError(f"too many positional arguments for `{cls.__name__}`", item.span)
    if positional and cls.by_name[positional[0]].many and (loose or positional[0] not in values):
        values[positional[0]] = tuple(read_one(cls.by_name[positional[0]], item) for item in loose)
    return values


def _once(cls: type[Node], values: dict[str, Any], name: str, item: s.Syntax) -> None:
    """Raises DplcError for a field that has been given: by its name, or by its place."""
    if name in values:
        raise DplcError(f"`{cls.__name__}` has `{name}` twice", item.span)


def construct(cls: Any, values: dict[str, Any], place: s.Syntax) -> Any:
    for field in cls.fields:
        if field.required and field.name not in values:
            raise DplcError(f"`{cls.__name__}` needs the field `{field.name}`", place.span)
    return cls(**values)


def read_field(field: Field, value: s.Syntax) -> Any:
    """One field. In a list-sorted field a lone value is a one-element list."""
    if not field.many:
        return read_one(field, value)
    items = value.items if isinstance(value, s.Group) else (value,)
    return tuple(read_one(field, item) for item in items)


def read_one(field: Field, value: s.Syntax) -> Any:
    sort = field.sort
    if sort == "Axis":
        return _read_axis(value)
    if sort in CLOSED or sort == "Name":
        name = _name(value)
        if sort in CLOSED:
            _check_closed(sort, name, value)
        return name
    if sort in ("Int", "Num"):
        number = read_expr(value)
        if not (e.is_int(number) if sort == "Int" else number.__class__ in e.NUMBERS):
            raise DplcError(f"`{field.name}` is a {'whole ' if sort == 'Int' else ''}number", value.span)
        return number
    nested = VALUE_CLASSES.get(sort)
    if nested is not None and isinstance(value, s.Apply) and value.fn == sort:
        return construct(nested, read_fields(nested, value), value)
    if isinstance(value, s.Text):
        return value.value
    return read_expr(value)


def _read_axis(value: s.Syntax) -> e.Axis:
    if not isinstance(value, s.AxisItem):
        raise DplcError("an axis reads `name:extent[=ROLE][@dim [by stride]]`", value.span)
    if value.role is not None:
        _check_closed("Role", value.role, value)
    dim = None if value.dim is None else read_expr(value.dim)
    stride = 1 if value.stride is None else read_expr(value.stride)
    return e.Axis(value.name, extent(value.extent, read_expr(value.extent)), value.role, dim, stride)


def read_expr(value: s.Syntax) -> Any:
    """An index or scalar expression, canonical."""
    if isinstance(value, s.NameOf):
        return CONSTANTS[value.text] if value.text in CONSTANTS else e.Var(value.text)
    if isinstance(value, s.Number):
        return value.value
    if isinstance(value, s.SizeOf):
        return value.size
    if isinstance(value, s.Operation) and value.op in e.OPERATORS:
        return calculated(value, e.OPERATORS[value.op], read_expr(value.a), read_expr(value.b))
    if isinstance(value, s.Prefix):
        return calculated(value, e.negate if value.op == "-" else e.invert, read_expr(value.a))
    if isinstance(value, s.Apply):
        if value.fn in VALUE_CLASSES:
            cls = VALUE_CLASSES[value.fn]
            return construct(cls, read_fields(cls, value), value)
        if value.fn not in FUNCTIONS:
            raise DplcError(f"unknown function `{value.fn}`", value.span, (), did_you_mean(value.fn, FUNCTIONS))
        if len(value.items) != FUNCTIONS[value.fn].arity:
            raise DplcError(
                f"`{value.fn}` takes {FUNCTIONS[value.fn].arity} arguments, not {len(value.items)}", value.span
            )
        return e.Call(value.fn, tuple(map(read_expr, value.items)))
    if isinstance(value, s.Group) and value.bracket == "(" and len(value.items) == 1:
        return read_expr(value.items[0])
    if isinstance(value, s.Subscript):
        return Element(_name(value.base), tuple(map(read_expr, value.items)))
    raise DplcError("this is not an index or scalar expression of a program", value.span)


def _name(value: s.Syntax) -> str:
    if isinstance(value, s.NameOf):
        return value.text
    raise DplcError("a name is expected here", value.span)


def _check_closed(sort: str, name: str, place: s.Syntax) -> None:
    if name not in CLOSED[sort]:
        raise DplcError(
            f"`{name}` is not {with_article(sort_word(sort))}", place.span, (), did_you_mean(name, CLOSED[sort])
        )
