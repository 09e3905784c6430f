"""Torch IR's text: `y: f32[4, 8] = Softmax(x, dim=-1)`.

Leading tensors are positional, everything else has a name. The fields alone determine the overload (ir/schemas.py), so
the text needs no overload names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from ..diagnostic import DplcError, did_you_mean
from ..expr import Var
from ..node import nodes
from ..program import TensorType
from ..schemas import DTYPES, Overload, accepts, names, overloads, resolve
from ..torch import TorchGraph, TorchOp
from . import syntax as s
from .print_statements import print_value
from .read_statements import CONSTANTS, read_expr, read_extents, read_params
from .sizes import print_sizes


def print_torch_graph(graph: TorchGraph) -> str:
    """Print a graph, without a newline at the end."""
    ins = ", ".join((*print_sizes(graph), *map(print_value, graph.ins)))
    head = f"graph {graph.name}({ins}) -> {', '.join(map(print_value, graph.outs))}:"
    lines = [line for op in graph.body for line in (*print_bodies(op), print_torch_op(op))] or ["pass"]
    return "\n    ".join([head, *lines])


def print_bodies(op: TorchOp) -> list[str]:
    """Print the body of a loop, which precedes its statement: a list of lines, empty for another op."""
    return [line for body in nodes(op.args, TorchGraph) for line in print_torch_graph(body).splitlines()]


def print_torch_op(op: TorchOp) -> str:
    """Print one statement on one line."""
    types = ", ".join(map(print_value, op.types))
    return f"{op.dst}: {types if len(op.types) == 1 else f'({types})'} = {op.op}({', '.join(_arguments(op))})"


def _arguments(op: TorchOp) -> list[str]:
    given = dict(op.args)
    overload = resolve(op.op, op.args)
    leading: list[str] = []
    for argument in overload.arguments if overload else ():
        if argument.name not in given or not _is_tensor(given[argument.name]):
            break
        leading.append(argument.name)
    positional = [given[name] for name in leading]
    named = {name: value for name, value in given.items() if name not in leading}
    read_back = bind(op.op, positional, named)
    if read_back is None or read_back != given:  # another overload would claim these positions: name every field
        positional, named = [], given
    return [print_field(v) for v in positional] + [f"{name}={print_field(v)}" for name, v in named.items()]


def _is_tensor(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(v, Var) for v in value)
    return isinstance(value, Var)


def print_field(value: Any) -> str:
    """Print the value of a field: text in quotes."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"({', '.join(map(print_field, value))})"
    return value.name if isinstance(value, TorchGraph) else print_value(value)


def bind(op: str, positional: list[Any], named: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of an op by name, as the first overload that takes them has them; None if there is none."""
    for overload in overloads(op):
        given = _by_name(overload, positional, named)
        if given is not None and accepts(overload, given):
            return given
    return None


def _by_name(overload: Overload, positional: list[Any], named: dict[str, Any]) -> dict[str, Any] | None:
    if len(positional) > len(overload.arguments):
        return None
    places = [argument.name for argument in overload.arguments[: len(positional)]]
    if set(places) & named.keys():
        return None
    given = {**dict(zip(places, positional)), **named}
    return {argument.name: given[argument.name] for argument in overload.arguments if argument.name in given} | {
        name: value for name, value in named.items() if name not in {a.name for a in overload.arguments}
    }


def read_torch_graph(unit: s.Unit) -> TorchGraph:
    """Read a graph of typed statements. Raises DplcError with a caret."""
    types: dict[str, tuple[TensorType, ...]] = {}
    ins = read_params(unit.ins)
    for param in ins:
        types[param.name] = (TensorType(param.dtype, param.shape),)
    body, bodies = list[TorchOp](), dict[str, TorchGraph]()
    for stmt in unit.body:
        if isinstance(stmt, s.PassStatement):
            continue
        if isinstance(stmt, s.Unit):
            bodies[stmt.name] = read_torch_graph(stmt)
            continue
        op = read_torch_op(stmt, bodies)
        check_references(op, types, stmt)
        types[op.dst] = op.types
        body.append(op)
    outs = read_params(unit.outs)
    for out, item in zip(outs, unit.outs, strict=True):
        if out.name not in types:
            raise DplcError(
                f"the graph returns `{out.name}`, which nothing defines", item, did_you_mean(out.name, types)
            )
    return TorchGraph(unit.name, ins, outs, tuple(body))


def check_references(op: TorchOp, known: Collection[str], stmt: s.Syntax) -> None:
    """Raise DplcError for a name that is neither known nor a dtype."""
    for _, value in op.args:
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Var) and item.name not in known and item.name not in DTYPES:
                raise DplcError(f"`{item.name}` is not defined above", stmt, did_you_mean(item.name, known))


def read_torch_op(stmt: s.Syntax, bodies: Mapping[str, TorchGraph] = MappingProxyType({})) -> TorchOp:
    """Read a typed statement. bodies: of loops, by name. Raises DplcError with a caret."""
    match stmt:
        case s.Assign(target=s.NameOf(text=target), value=s.Apply() as call, types=types) if types:
            pass
        case _:
            raise DplcError("a Torch statement reads `name: f32[4, 8] = Op(x, field=value)`", stmt)
    if call.fn not in names():
        raise DplcError(f"torch has no op `{call.fn}`", call, did_you_mean(call.fn, names()))
    positional = [read_value(item) for item in call.items if not isinstance(item, s.Keyword)]
    named = {item.name: read_value(item.value) for item in call.items if isinstance(item, s.Keyword)}
    if isinstance(body := named.get("body"), Var):
        named["body"] = bodies.get(body.name)
    given = bind(call.fn, positional, named)
    if given is None:
        options = tuple(a.name for overload in overloads(call.fn) for a in overload.arguments)
        wrong = next((name for name in named if name not in options), None)
        hint = did_you_mean(wrong, options) if wrong else None
        signatures = tuple(f"{o.name}({', '.join(a.name for a in o.arguments)})" for o in overloads(call.fn))
        raise DplcError(f"no overload of `{call.fn}` takes these fields", call, hint, signatures)
    return TorchOp(target, call.fn, tuple(given.items()), tuple(map(read_type, types)))


def read_type(type_: s.TypeOf) -> TensorType:
    if type_.dtype not in DTYPES:
        raise DplcError(f"`{type_.dtype}` is not a dtype", type_, did_you_mean(type_.dtype, DTYPES))
    return TensorType(type_.dtype, read_extents(type_.dims))


def read_value(value: s.Syntax) -> Any:
    """Read the value of a field."""
    if isinstance(value, s.Text):
        return value.value
    if isinstance(value, s.Group):
        return tuple(map(read_value, value.items))
    if isinstance(value, s.NameOf) and value.text in CONSTANTS:
        return CONSTANTS[value.text]
    return read_expr(value)
