"""The typed statements of the core: a statement of a pattern or a template, seen through the schema of its node class.

Matchers, templates and checks are made from shapes, so what a field means is said once: in the node class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import loop
from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.expr import Axis
from ...ir.node import Field, Node
from ...ir.program import Kernel, Param
from ...ir.text.read_statements import merge_fields, statement_classes, value_classes
from . import core as s
from .sorts import owners

# Fields whose value is text in the node and a name (`Var`) in the rule language.
NAMES = frozenset(("Name", "Role", "Via", "Fn", "MonoidName", "AtomName", "Dtype"))


@dataclass(frozen=True)
class Shape:
    """fields: what the text mentions, by field name; a list-sorted field holds a tuple of items or one expression."""

    cls: type[Node]
    fields: dict[str, Any]
    place: s.Syntax

    @property
    def body(self) -> tuple[s.Syntax, ...] | None:
        return self.fields.get("body")


def shape_of(node: s.Syntax) -> Shape | None:
    """The shape of a statement, an axis, a parameter or a nested node; None for anything else."""
    reader = _READERS.get(type(node))
    return reader(node) if reader else None


def _name(node: s.Syntax, text: str) -> s.NameOf:
    return s.NameOf(node.span, text)


def _for(node: Any) -> Shape:
    fields: dict[str, Any] = {"var": _name(node, node.var), "start": node.start, "stop": node.stop, "body": node.body}
    for attribute in node.attributes:
        if isinstance(attribute, s.NameOf):
            fields["role"] = attribute
        elif isinstance(attribute, s.Keyword) and attribute.name == "unroll":
            fields["unroll"] = attribute.value
        else:
            given = getattr(attribute, "name", "this")
            raise DplcError(f"a loop has no attribute `{given}`", attribute.span, (), did_you_mean(given, ("unroll",)))
    if node.step is not None:
        fields["step"] = node.step
    return Shape(loop.For, fields, node)


def _if(node: Any) -> Shape:
    return Shape(loop.If, {"cond": node.condition, "body": node.body}, node)


def _accumulate(node: Any) -> Shape:
    value = node.value
    merged = merge_fields(node)
    if merged is not None:
        return Shape(loop.Merge, {"accs": merged[0], "fn": _name(value, merged[1]), "vals": merged[2]}, node)
    if not isinstance(value, s.Apply) or len(value.items) != 2 or not _alike(value.items[0], node.target):
        raise DplcError("an accumulation reads `acc <- fn(acc, value)`", node.span)
    return Shape(loop.Accumulate, {"acc": node.target, "fn": _name(value, value.fn), "val": value.items[1]}, node)


def _alike(a: s.Syntax, b: s.Syntax) -> bool:
    if isinstance(a, s.NameOf) and isinstance(b, s.NameOf):
        return a.text == b.text
    if isinstance(a, s.Member) and isinstance(b, s.Member):
        return a.field == b.field and _alike(a.base, b.base)
    return False


def _assign(node: Any) -> Shape:
    target, value = node.target, node.value
    if isinstance(target, s.Subscript):
        return Shape(loop.Store, {"buf": target.base, "idx": target.items, "val": value}, node)
    if isinstance(value, s.LoadOf):
        return Shape(loop.Load, {"dst": target, **load_fields(value)}, node)
    if isinstance(value, s.Apply) and (value.fn in statement_classes() or value.fn[:1].isupper()):
        shape = op_shape(value)
        if "dst" not in shape.cls.by_name:
            raise DplcError(f"`{value.fn}` defines no value", node.span)
        body = {} if node.body is None else {"body": node.body}
        return Shape(shape.cls, {"dst": target, **shape.fields, **body}, node)
    return Shape(loop.Let, {"dst": target, "val": value}, node)


def load_fields(node: s.LoadOf) -> dict[str, Any]:
    """buf and idx, and the guard if one is written."""
    if not isinstance(node.access, s.Subscript):
        raise DplcError("a load reads `load buffer[index]`", node.span)
    fields: dict[str, Any] = {"buf": node.access.base, "idx": node.access.items}
    if node.condition is not None:
        fields |= {"when": node.condition, "other": node.other}
    return fields


def _statement(node: Any) -> Shape:
    if not isinstance(node.call, s.Apply):
        raise DplcError("this is not a statement", node.span)
    shape = op_shape(node.call)
    if node.body is not None:
        shape.fields["body"] = node.body
    return Shape(shape.cls, shape.fields, node)


def _capture(node: Any) -> Shape:
    return Shape(op_shape(node.call).cls, op_shape(node.call).fields, node)


def op_shape(call: s.Apply, among: dict[str, type[Node]] | None = None) -> Shape:
    """`Op(positional.., field=value)` by the schema of Op."""
    known = owners() if among is None else among
    if call.fn not in known:
        raise DplcError(f"unknown op `{call.fn}`", call.span, (), did_you_mean(call.fn, known))
    cls = known[call.fn]
    positional = list(getattr(cls, "positional", ()))
    many = bool(positional) and cls.by_name[positional[0]].many
    fields: dict[str, Any] = {positional[0]: ()} if many else {}
    for item in call.items:
        if isinstance(item, s.Keyword):
            if item.name not in cls.by_name or item.name in ("dst", "body"):
                options = [f.name for f in cls.fields if f.name not in ("dst", "body")]
                raise DplcError(
                    f"`{call.fn}` has no field `{item.name}`", item.span, (), did_you_mean(item.name, options)
                )
            fields[item.name] = listed(cls.by_name[item.name], item.value)
        elif many:
            fields[positional[0]] += (item,)
        elif positional:
            name = positional.pop(0)
            fields[name] = listed(cls.by_name[name], item)
        else:
            raise DplcError(f"too many positional arguments for `{call.fn}`", item.span)
    return Shape(cls, fields, call)


def listed(field: Field, value: s.Syntax) -> Any:
    """The items of a list-sorted field; a lone name stays itself, for it may be the whole list."""
    if not field.many or isinstance(value, s.NameOf | s.Comprehension | s.Member | s.Subscript):
        return value
    if isinstance(value, s.Group) and value.bracket in "([":
        return value.items
    return (value,) if not isinstance(value, s.Apply) or value.fn in value_classes() else value


def _unit(node: Any) -> Shape:
    if node.kind != "kernel":
        raise DplcError("rules on this level speak of kernels, not graphs", node.span)
    for item in node.ins:
        if isinstance(item, s.SizeItem):
            raise DplcError("sizes stand in the heads of programs, not of rules", item.span)
    return Shape(Kernel, {"name": _name(node, node.name), "ins": node.ins, "outs": node.outs, "body": node.body}, node)


def _param(node: Any) -> Shape:
    dtype = _name(node.type, node.type.dtype)
    return Shape(Param, {"name": _name(node, node.name), "dtype": dtype, "shape": node.type.dims}, node)


def _axis(node: Any) -> Shape:
    fields: dict[str, Any] = {"name": _name(node, node.name), "extent": node.extent}
    if node.role is not None:
        fields["role"] = _name(node, node.role)
    if node.dim is not None:
        fields["dim"] = node.dim
    if node.stride is not None:
        fields["stride"] = node.stride
    return Shape(Axis, fields, node)


def _nested(node: Any) -> Shape | None:
    return op_shape(node, value_classes()) if node.fn in value_classes() else None


_READERS: dict[type, Any] = {
    s.ForLoop: _for, s.IfBlock: _if, s.AccumulateInto: _accumulate, s.Assign: _assign, s.Statement: _statement,
    s.CaptureStatement: _capture, s.Unit: _unit, s.ParamItem: _param, s.AxisItem: _axis, s.Apply: _nested,
}  # fmt: skip

# What a header says nothing about has its default, in patterns too: otherwise a template silently drops a stride.
EXACT: dict[type[Node], tuple[str, ...]] = {
    loop.For: ("role", "step", "unroll"), loop.Load: ("when", "other"), Axis: ("stride",),
}  # fmt: skip
