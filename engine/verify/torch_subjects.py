"""Torch IR programs near an example, or from a pattern's op and its schema; types are those that torch itself gives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from ...ir.expr import Var
from ...ir.interp.torch import applied
from ...ir.node import replace
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES, Argument, Overload, accepts, overloads, resolve
from ...ir.torch import TorchGraph, TorchOp
from .outcome import Dice, constant, numeral

SIZES = (3, 2, 5, 1, 4, 7, 6, 8, 12, 9)
LONGEST = 16  # of the extents that a rule names
MOST_ELEMENTS = 1 << 17  # of a tensor: rules for long rows are met by their examples
SHORT = 3  # of a dimension that is added: tensors stay small
DEEPER = 2  # dimensions that the members of a family may have more than the example
DTYPE_OF = {f"torch.{name}": short for short, name in DTYPES.items()}
WEAK = ("f32", "i64", "b8", "i32", "f16")


class NoSubject(Exception):
    """Torch itself refuses the program."""


def sample(param: Param, seed: int = 0, limit: int = 4, unit: bool = False) -> Any:
    """Return a tensor for an input: normal numbers (unit: between 0 and 1), small indices, truth values."""
    import torch

    dice = torch.Generator().manual_seed(seed * 7919 + sum(map(ord, param.name)))
    shape = tuple(int(n) for n in param.shape)
    if param.dtype == "b8":
        return torch.rand(shape, generator=dice) < 0.5
    if param.dtype.startswith(("i", "u")):
        return torch.randint(0, max(1, limit), shape, generator=dice).to(getattr(torch, DTYPES[param.dtype]))
    made = torch.rand(shape, generator=dice) * 0.98 + 0.01 if unit else torch.randn(shape, generator=dice)
    return made.to(getattr(torch, DTYPES[param.dtype]))


def limit_of(graph: TorchGraph) -> int:
    """Return the limit of indices: integers below it are valid in every dimension longer than one."""
    return min((n for param in graph.ins for n in param.shape if n > 1), default=2)


def retyped(graph: TorchGraph) -> TorchGraph:
    """Return the graph with the types that torch gives. Raises NoSubject if torch rejects it."""
    for limit, unit in ways_to_fill(graph)[:-1]:
        try:
            return _typed(graph, limit, unit)
        except NoSubject:
            continue
    return _typed(graph, *ways_to_fill(graph)[-1])


def ways_to_fill(graph: TorchGraph) -> tuple[tuple[int, bool], ...]:
    """Return pairs (bound of indices, whether floats lie between 0 and 1), in the order to try them."""
    return (limit_of(graph), False), (limit_of(graph), True), (1, False)


def _typed(graph: TorchGraph, limit: int, unit: bool) -> TorchGraph:
    import torch

    if any(math.prod(param.shape) > MOST_ELEMENTS for param in graph.ins):
        raise NoSubject("not small tensors")
    values = {param.name: sample(param, limit=limit, unit=unit) for param in graph.ins}
    body: list[TorchOp] = []
    try:
        for statement in graph.body:
            if _other_batch(statement, values):
                raise NoSubject("a gradient of another batch than its input's")
            with torch.no_grad():
                made = values[statement.dst] = applied(statement, values)
            types = tuple(map(_type, made if isinstance(made, tuple | list) else (made,)))
            body.append(replace(statement, types=types))
    except Exception as error:  # torch raises whatever it likes
        raise NoSubject(str(error)) from None
    outs = tuple(_out(param, values) for param in graph.outs)
    used = {name for statement in body for name in _names(statement.args)} | {out.name for out in outs}
    return replace(graph, ins=tuple(p for p in graph.ins if p.name in used), outs=outs, body=tuple(body))


def _other_batch(statement: TorchOp, values: dict[str, Any]) -> bool:
    """Return whether a gradient and its input differ in their first extent: PyTorch's pools overrun then."""
    given = dict(statement.args)
    names = [value.name for value in (given.get("grad_output"), given.get("self")) if isinstance(value, Var)]
    return len(names) == 2 and len({tuple(values[name].shape[:1]) for name in names}) == 2


def _type(tensor: Any) -> TensorType:
    import torch

    if not isinstance(tensor, torch.Tensor) or str(tensor.dtype) not in DTYPE_OF or tensor.numel() > MOST_ELEMENTS:
        raise NoSubject("not a small tensor")
    if 0 in tensor.shape:
        raise NoSubject("nothing in it")
    return TensorType(DTYPE_OF[str(tensor.dtype)], tuple(tensor.shape))


def _out(param: Param, values: dict[str, Any]) -> Param:
    if param.name not in values:
        raise NoSubject(f"`{param.name}` is not computed")
    found = _type(values[param.name])
    return Param(param.name, found.dtype, found.shape)


def _names(value: Any) -> set[str]:
    if isinstance(value, tuple):
        return {name for item in value for name in _names(item)}
    return {value.name} if isinstance(value, Var) else set()


# ---- near an example


def perturbed(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Apply one to three changes: to extents, fields, dtypes, ranks. Raises NoSubject."""
    for _ in range(dice.number(1, 3)):
        graph = dice.pick(CHANGES)(graph, dice)
    return retyped(graph)


def other_extent(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Replace one extent by another, in shapes and in fields that are lists of numbers."""
    found = sorted({n for param in graph.ins for n in param.shape})
    if not found:
        return graph
    old, new = dice.pick(found), numeral(dice, SIZES, 1, LONGEST)
    graph = with_extent(graph, old, new)
    if not dice.often(70):
        return graph

    def other(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(new if type(item) is int and item == old else item for item in value)
        return value

    return with_fields(graph, other)


def with_extent(graph: TorchGraph, old: int, new: int) -> TorchGraph:
    """Replace an extent by another in all inputs."""
    ins = tuple(replace(p, shape=tuple(new if n == old else n for n in p.shape)) for p in graph.ins)
    return replace(graph, ins=ins)


def with_fields(graph: TorchGraph, other: Callable[[Any], Any]) -> TorchGraph:
    """Change every field of every op."""
    body = tuple(replace(op, args=tuple((name, other(value)) for name, value in op.args)) for op in graph.body)
    return replace(graph, body=body)


def scaled(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Replace one extent by a multiple, and with it a number of every list whose product it is."""
    found = sorted({n for param in graph.ins for n in param.shape})
    if not found:
        return graph
    old, by = dice.pick(found), dice.number(2, 4)

    def other(value: Any) -> Any:
        if not isinstance(value, tuple) or not value or any(type(item) is not int for item in value):
            return value
        if math.prod(value) != old or len(value) == 1:
            return tuple(item * by if item == old else item for item in value)
        at = dice.number(0, len(value) - 1)
        return (*value[:at], value[at] * by, *value[at + 1 :])

    return with_fields(with_extent(graph, old, old * by), other)


def one_extent(graph: TorchGraph, dice: Dice, added: bool = False) -> TorchGraph:
    """Replace one extent of one input by another: broadcasting. added: add one instead."""
    if not graph.ins:
        return graph
    at = dice.number(0, len(graph.ins) - 1)
    shape = graph.ins[at].shape
    place = dice.number(0, max(0, len(shape) - 1))
    shape = (*shape[:place], numeral(dice, SIZES, 1, LONGEST), *shape[place + (not added) :])
    return _with_input(graph, at, shape=shape)


def _with_input(graph: TorchGraph, at: int, **changes: Any) -> TorchGraph:
    return replace(graph, ins=(*graph.ins[:at], replace(graph.ins[at], **changes), *graph.ins[at + 1 :]))


def all_ranks(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Add a dimension to all inputs, in front, or remove one."""
    if dice.often(30):
        return replace(graph, ins=tuple(replace(p, shape=p.shape[1:]) for p in graph.ins))
    n = numeral(dice, SIZES, 1, LONGEST)
    return replace(graph, ins=tuple(replace(p, shape=(n, *p.shape)) for p in graph.ins))


def deeper(graph: TorchGraph) -> TorchGraph:
    """Add a last dimension to every input but vectors, and one element to every list of numbers."""

    def longer(value: Any) -> Any:
        numbers = isinstance(value, tuple) and value and all(type(item) is int for item in value)
        return (*value, value[-1]) if numbers else value

    ins = tuple(replace(p, shape=(*p.shape, min(p.shape[-1], SHORT))) if len(p.shape) > 1 else p for p in graph.ins)
    return with_fields(replace(graph, ins=ins), longer)


def other_dtype(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Change the dtype of an input."""
    if not graph.ins:
        return graph
    return _with_input(graph, dice.number(0, len(graph.ins) - 1), dtype=dice.pick(WEAK))


def other_field(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Change the value of a field of an op, or add a field of its schema, or remove one."""
    if not graph.body:
        return graph
    at = dice.number(0, len(graph.body) - 1)
    op = graph.body[at]
    options = [o for o in overloads(op.op) if {name for name, _ in op.args} <= {a.name for a in o.arguments}]
    if op.op == "Getitem" or not options:
        return graph
    overload = dice.pick(options)
    plain = [a for a in overload.arguments if not a.kind.startswith("Tensor")]
    if not plain:
        return graph
    chosen = dice.pick(plain)
    given = dict(op.args)
    if chosen.name in given and not chosen.required and dice.often(25):
        del given[chosen.name]
    else:
        given[chosen.name] = other_value(chosen, given.get(chosen.name), dice)
    return _with_args(graph, at, overload, given)


def _with_args(graph: TorchGraph, at: int, overload: Overload, given: dict[str, Any]) -> TorchGraph:
    ordered = tuple(
        (a.name, given[a.name])
        for a in overload.arguments
        if a.name in given and (a.required or given[a.name] != a.default or type(given[a.name]) is not type(a.default))
    )
    if not accepts(overload, dict(ordered)):
        raise NoSubject("not of its schema")
    op = replace(graph.body[at], args=ordered)
    return replace(graph, body=(*graph.body[:at], op, *graph.body[at + 1 :]))


def other_value(field: Argument, old: Any, dice: Dice) -> Any:
    """Return a value of the field's kind."""
    kind = field.kind.rstrip("?")
    if field.kind.endswith("?") and dice.often(15):
        return None
    if kind.endswith("[]"):
        length = dice.number(1, 3) if dice.often(40) or not isinstance(old, tuple) or not old else len(old)
        single = field._replace(kind=kind[:-2])
        return tuple(other_value(single, None, dice) for _ in range(length))
    if kind == "bool":
        return not old if isinstance(old, bool) else dice.often(50)
    if kind == "int":
        return numeral(dice, (1, 0, -1, 2, -2, 3, 5), -LONGEST, 64)
    if kind == "str":
        return dice.pick(TEXTS.get(field.name, ("none", "mean", "sum")))
    if kind == "dtype":
        return Var(dice.pick(("f32", "i64", "i32", "b8", "f16")))
    return constant(dice, (0.5, 2, 1, 0, -1.5, 3, 0.1, 1.0, -2))


TEXTS = {
    "approximate": ("none", "tanh"),
    "rounding_mode": ("floor", "trunc"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "indexing": ("ij", "xy"),
    "reduce": ("sum", "mean", "amax", "amin", "prod"),
    "padding": ("same", "valid"),
}

CHANGES: tuple[Callable[[TorchGraph, Dice], TorchGraph], ...] = (
    other_extent, other_extent, scaled, one_extent, functools.partial(one_extent, added=True), all_ranks, other_field,
    other_field, other_dtype,
)  # fmt: skip


# ---- from a schema


def from_schema(op: str, fixed: dict[str, Any], dice: Dice) -> TorchGraph:
    """Return a program of one op. fixed: fields that the pattern gives a value. Raises NoSubject."""
    options = [o for o in overloads(op) if fixed.keys() <= {a.name for a in o.arguments}]
    if not options or op == "Getitem":
        raise NoSubject("no schema")
    overload = dice.pick(options)
    shape = tuple(numeral(dice, SIZES, 1, LONGEST) for _ in range(dice.number(0, 3)))
    ins: list[Param] = []
    given: dict[str, Any] = {}
    for field in overload.arguments:
        if field.name in fixed:
            given[field.name] = fixed[field.name]
        elif field.kind in ("Tensor", "Tensor?") and (field.required or dice.often(40)):
            ins.append(_input(f"x{len(ins)}", shape, dice))
            given[field.name] = Var(ins[-1].name)
        elif field.kind == "Tensor[]":
            more = [_input(f"x{len(ins) + n}", shape, dice) for n in range(dice.number(1, 3))]
            ins += more
            given[field.name] = tuple(Var(p.name) for p in more)
        elif field.required or dice.often(20):
            given[field.name] = other_value(field, None, dice)
    graph = TorchGraph("f", tuple(ins), (Param("y", "f32", ()),), (TorchOp("y", op, (), ()),))
    return retyped(_with_args(graph, 0, overload, given))


def _input(name: str, shape: tuple[int, ...], dice: Dice) -> Param:
    """Return an input, mostly of the common shape; sometimes broadcast, transposed or of another shape."""
    choice = dice.number(0, 9)
    if choice == 7:
        shape = tuple(1 if dice.often(40) else n for n in shape)
    elif choice == 8:
        shape = shape[::-1]
    elif choice == 9:
        shape = shape[dice.number(0, len(shape)) :]
    return Param(name, dice.pick(("f32", "f32", "f32", "f32", "i64", "b8")), shape)


def with_op(graph: TorchGraph, old: str, new: str, fixed: dict[str, Any]) -> Iterator[TorchGraph]:
    """Yield the programs that torch accepts with one op replaced by another: as they are, and with more dimensions.

    fixed: values of its fields that the pattern requires.
    """
    for _ in range(DEEPER + 1):
        try:
            body = tuple(_as_op(op, new, fixed) if op.op == old else op for op in graph.body)
            yield retyped(replace(graph, body=body))
        except NoSubject:
            pass
        graph = deeper(graph)


def _as_op(statement: TorchOp, new: str, fixed: dict[str, Any]) -> TorchOp:
    """Return the statement as another op: with the same fields, or with the fields at the same positions.

    Raises NoSubject if the fields do not fit.
    """
    statement = replace(statement, args=tuple((name, fixed.get(name, value)) for name, value in statement.args))
    own = resolve(statement.op, statement.args)
    places = {a.name: n for n, a in enumerate(own.arguments)} if own else {}
    if any(accepts(overload, dict(statement.args)) for overload in overloads(new)):
        return replace(statement, op=new)
    for overload in overloads(new):
        if all(name in places and places[name] < len(overload.arguments) for name, _ in statement.args):
            args = tuple((overload.arguments[places[name]].name, value) for name, value in statement.args)
            if accepts(overload, dict(args)):
                return replace(statement, op=new, args=args)
    raise NoSubject("the fields do not fit")
