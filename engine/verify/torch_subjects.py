"""Torch IR programs near an example, or from a pattern's op and its schema; types are those that torch itself gives."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ...codegen.arrays import Array
from ...ir.expr import Var, free_names
from ...ir.interp.torch import applied
from ...ir.node import Value, replace, values
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES, Argument, Overload, accepts, overloads, resolve
from ...ir.torch import TorchGraph, TorchOp
from .outcome import Arrays, Dice, constant, numeral

SIZES = (3, 2, 5, 1, 4, 7, 6, 8, 12, 9)
LONGEST = 16  # of the extents that a rule names
MOST_ELEMENTS = 1 << 17  # of a tensor: rules for long rows are met by their examples
SHORT = 3  # of a dimension that is added: tensors stay small
DEEPER = 2  # dimensions that the members of a family may have more than the example
DTYPE_OF = {f"torch.{name}": short for short, name in DTYPES.items()}
T = TypeVar("T")
WEAK = ("f32", "i64", "b8", "i32", "f16")


class NoSubject(Exception):
    """Torch itself refuses the program."""


def sample(param: Param, seed: int, limit: int, unit: bool) -> Array:
    """Return a tensor for an input: normal numbers (unit: between 0 and 1), small indices, truth values."""
    import torch

    dice = torch.Generator().manual_seed(seed * 7919 + sum(map(ord, param.name)))
    shape = param.shape
    if param.dtype == "b8":
        return torch.rand(shape, generator=dice) < 0.5
    if param.dtype.startswith(("i", "u")):
        made = torch.randint(0, max(1, limit), shape, generator=dice)
    else:
        made = torch.rand(shape, generator=dice) * 0.98 + 0.01 if unit else torch.randn(shape, generator=dice)
    return made.to(getattr(torch, DTYPES[param.dtype]))


def fillings(graph: TorchGraph, seed: int = 0) -> Iterator[Arrays]:
    """Yield tensors for the inputs, by name, in the order to try them: torch may refuse some indices and floats."""
    valid = next((n for n in extents(graph) if n > 1), 2)  # integers below are indices of every longer dimension
    for limit, unit in ((valid, False), (valid, True), (1, False)):
        yield {param.name: sample(param, seed, limit, unit) for param in graph.ins}


def accepted(tries: Iterable[Arrays], compute: Callable[[Arrays], T]) -> T:
    """Return the result for the first tensors that torch accepts. Raises NoSubject if it refuses all of them."""
    refusal = ""
    for tensors in tries:
        try:
            return compute(tensors)
        except Exception as error:  # torch raises whatever it likes
            refusal = str(error)
    raise NoSubject(refusal)


def retyped(graph: TorchGraph) -> TorchGraph:
    """Return the graph with the types that torch gives. Raises NoSubject if torch rejects it."""
    if any(math.prod(param.shape) > MOST_ELEMENTS for param in graph.ins):
        raise NoSubject("not small tensors")

    def typed(tensors: Arrays) -> TorchGraph:
        body = tuple(_typed(op, tensors) for op in graph.body)
        outs = tuple(Param(param.name, *values(_type(tensors[param.name]))) for param in graph.outs)
        used = {out.name for out in outs}.union(*(free_names(op.args) for op in body))
        return TorchGraph(graph.name, tuple(p for p in graph.ins if p.name in used), outs, body)

    return accepted(fillings(graph), typed)


def _typed(op: TorchOp, tensors: Arrays) -> TorchOp:
    """Return an op with the types of its results, which are added to the tensors."""
    given = dict(op.args)
    pair = [tensors[x.name] for x in map(given.get, ("grad_output", "self")) if isinstance(x, Var)]
    if len(pair) > 1 and pair[0].shape[:1] != pair[1].shape[:1]:  # PyTorch's pools overrun then
        raise NoSubject("a gradient of another batch than its input's")
    made = tensors[op.dst] = applied(op, tensors)
    return replace(op, types=tuple(map(_type, made if isinstance(made, tuple | list) else (made,))))


def _type(tensor: Array) -> TensorType:
    import torch

    if not isinstance(tensor, torch.Tensor) or str(tensor.dtype) not in DTYPE_OF or tensor.numel() > MOST_ELEMENTS:
        raise NoSubject("not a small tensor")
    if 0 in tensor.shape:
        raise NoSubject("nothing in it")
    return TensorType(DTYPE_OF[str(tensor.dtype)], tuple(tensor.shape))


# ---- near an example


def perturbed_torch(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Apply one to three changes: to extents, fields, dtypes, ranks. Raises NoSubject."""
    return retyped(dice.changed(graph, CHANGES))


Change = Callable[[tuple[int, ...]], tuple[int, ...]]


def edited(graph: TorchGraph, shape: Change, items: Change = tuple) -> TorchGraph:
    """Change the shape of every input, and every field of an op that is a list of whole numbers."""

    def changed(value: Value) -> Value:
        numbers = isinstance(value, tuple) and value and all(type(item) is int for item in value)
        return items(value) if numbers else value

    ins = tuple(replace(param, shape=shape(param.shape)) for param in graph.ins)
    body = tuple(replace(op, args=tuple((name, changed(value)) for name, value in op.args)) for op in graph.body)
    return replace(graph, ins=ins, body=body)


def exchanged(old: int, new: int) -> Change:
    """Return the change of one number into another."""
    return lambda items: tuple(new if n == old else n for n in items)


def extents(graph: TorchGraph) -> list[int]:
    """Return the extents of the inputs, the least first."""
    return sorted({n for param in graph.ins for n in param.shape})


def other_extent(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Replace one extent by another, in shapes and in fields that are lists of numbers."""
    if not (known_extents := extents(graph)):
        return graph
    change = exchanged(dice.pick(known_extents), _extent(dice))
    return edited(graph, change, change if dice.often(70) else tuple)


def _extent(dice: Dice) -> int:
    return numeral(dice, SIZES, 1, LONGEST)


def scaled(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Replace one extent by a multiple, and with it a number of every list whose product it is."""
    if not (known_extents := extents(graph)):
        return graph
    old, by = dice.pick(known_extents), dice.number(2, 4)
    change = exchanged(old, old * by)

    def other(items: tuple[int, ...]) -> tuple[int, ...]:
        split = math.prod(items) == old and len(items) > 1
        return dice.change_one(items, lambda item: item * by) if split else change(items)

    return edited(graph, change, other)


def one_extent(graph: TorchGraph, dice: Dice, added: bool = False) -> TorchGraph:
    """Replace one extent of one input by another: broadcasting. added: add one instead."""

    def other(param: Param) -> Param:
        shape = param.shape
        place = dice.number(0, max(0, len(shape) - 1))
        return replace(param, shape=(*shape[:place], _extent(dice), *shape[place + (not added) :]))

    return replace(graph, ins=dice.change_one(graph.ins, other))


def other_dtype(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Change the dtype of an input."""
    return replace(graph, ins=dice.change_one(graph.ins, lambda param: replace(param, dtype=dice.pick(WEAK))))


def all_ranks(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Add a dimension to all inputs, in front, or remove one."""
    if dice.often(30):
        return edited(graph, lambda shape: shape[1:])
    n = _extent(dice)
    return edited(graph, lambda shape: (n, *shape))


def deeper(graph: TorchGraph) -> TorchGraph:
    """Add a last dimension to every input but vectors, and one element to every list of numbers."""
    return edited(
        graph,
        lambda shape: (*shape, min(shape[-1], SHORT)) if len(shape) > 1 else shape,
        lambda items: (*items, items[-1]),
    )


def other_field(graph: TorchGraph, dice: Dice) -> TorchGraph:
    """Change the value of a field of an op, or add a field of its schema, or remove one."""

    def other(op: TorchOp) -> TorchOp:
        given = dict(op.args)
        options = _overloads(op.op, given)
        if not options:
            return op
        overload = dice.pick(options)
        plain = [a for a in overload.arguments if not a.kind.startswith("Tensor")]
        if not plain:
            return op
        chosen = dice.pick(plain)
        if chosen.name in given and not chosen.required and dice.often(25):
            del given[chosen.name]
        else:
            given[chosen.name] = other_value(chosen, given.get(chosen.name), dice)
        return _with_args(op, overload, given)

    return replace(graph, body=dice.change_one(graph.body, other))


def _overloads(op: str, given: dict[str, Value]) -> list[Overload]:
    """Return the schemas of an op that have some fields; none of an op that selects a result."""
    every = overloads(op) if op != "Getitem" else ()
    return [one for one in every if given.keys() <= {argument.name for argument in one.arguments}]


def _with_args(op: TorchOp, overload: Overload, given: dict[str, Value]) -> TorchOp:
    """Return the op with some fields, without those at their defaults. Raises NoSubject."""
    own = ((a.name, given[a.name], a.default) for a in overload.arguments if a.name in given)
    args = tuple((name, value) for name, value, default in own if (type(value), value) != (type(default), default))
    if not accepts(overload, dict(args)):
        raise NoSubject("not of its schema")
    return replace(op, args=args)


def other_value(field: Argument, old: Value, dice: Dice) -> Value:
    """Return a value of the field's kind."""
    kind = field.kind.rstrip("?")
    if field.kind.endswith("?") and dice.often(15):
        return None
    if kind.endswith("[]"):
        length = dice.number(1, 3) if dice.often(40) or not isinstance(old, tuple) or not old else len(old)
        single = field._replace(kind=kind[:-2])
        return tuple(other_value(single, None, dice) for _ in range(length))
    match kind:
        case "bool":
            return not old if isinstance(old, bool) else dice.often(50)
        case "int":
            return numeral(dice, (1, 0, -1, 2, -2, 3, 5), -LONGEST, 64)
        case "str":
            return dice.pick(TEXTS.get(field.name, ("none", "mean", "sum")))
        case "dtype":
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


def from_schema(op: str, fixed: dict[str, Value], dice: Dice) -> TorchGraph:
    """Return a program of one op. fixed: fields that the pattern gives a value. Raises NoSubject."""
    options = _overloads(op, fixed)
    if not options:
        raise NoSubject("no schema")
    overload = dice.pick(options)
    shape = tuple(_extent(dice) for _ in range(dice.number(0, 3)))
    ins: list[Param] = []

    def new_input() -> Var:
        """Return an input, mostly of the common shape; sometimes broadcast, transposed or of another shape."""
        choice, own = dice.number(0, 9), shape
        if choice == 7:
            own = tuple(1 if dice.often(40) else n for n in shape)
        elif choice == 8:
            own = shape[::-1]
        elif choice == 9:
            own = shape[dice.number(0, len(shape)) :]
        ins.append(Param(f"x{len(ins)}", dice.pick(("f32", "f32", "f32", "f32", "i64", "b8")), own))
        return Var(ins[-1].name)

    given = dict(fixed)
    for field in overload.arguments:
        if field.name in fixed:
            continue
        if field.kind in ("Tensor", "Tensor?") and (field.required or dice.often(40)):
            given[field.name] = new_input()
        elif field.kind == "Tensor[]":
            given[field.name] = tuple(new_input() for _ in range(dice.number(1, 3)))
        elif field.required or dice.often(20):
            given[field.name] = other_value(field, None, dice)
    body = (_with_args(TorchOp("y", op, (), ()), overload, given),)
    return retyped(TorchGraph("f", tuple(ins), (Param("y", "f32", ()),), body))


def with_op(graph: TorchGraph, old: str, new: str, fixed: dict[str, Value]) -> Iterator[TorchGraph]:
    """Yield the programs that torch accepts with one op replaced by another: as they are, and with more dimensions.

    fixed: values of its fields that the pattern requires.
    """
    for _ in range(DEEPER + 1):
        with contextlib.suppress(NoSubject):
            body = tuple(_as_op(op, new, fixed) if op.op == old else op for op in graph.body)
            yield retyped(replace(graph, body=body))
        graph = deeper(graph)


def _as_op(op: TorchOp, new: str, fixed: dict[str, Value]) -> TorchOp:
    """Return the statement as another op: with the same fields, or with the fields at the same positions.

    Raises NoSubject if the fields do not fit.
    """
    given = tuple((name, fixed.get(name, value)) for name, value in op.args)
    if resolve(new, given):
        return replace(op, op=new, args=given)
    own = resolve(op.op, given)
    old = own.arguments if own else ()
    for overload in overloads(new):
        names = {ours.name: its.name for ours, its in zip(old, overload.arguments)}
        args = {names.get(name, ""): value for name, value in given}
        if accepts(overload, args):
            return replace(op, op=new, args=tuple(args.items()))
    raise NoSubject("the fields do not fit")
